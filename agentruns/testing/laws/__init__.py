"""Hold a deployment of one's own against the guarantees: a line for its graphs, a line for its submissions.

Neither needs a database. Both need Hypothesis, which the extra ``testing`` installs.
"""

from __future__ import annotations

from agentruns.testing.laws.broken import LawBrokenError
from agentruns.testing.laws.graphs import check_graph_laws
from agentruns.testing.laws.submissions import check_submission_laws

__all__ = ["LawBrokenError", "check_graph_laws", "check_submission_laws"]
