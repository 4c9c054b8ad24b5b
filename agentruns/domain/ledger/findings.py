"""What a finding in stored evidence means for the run that it is about."""

from __future__ import annotations

from typing import Final

from agentruns.domain.quarantine import QuarantineCause
from agentruns.errors import CorruptDataError

#: A kind, a schema digest or a body's form that this release does not know.
UNSUPPORTED: Final = QuarantineCause.UNSUPPORTED_SCHEMA.value
#: A body that an event names is not stored.
MISSING: Final = QuarantineCause.MISSING_ARTIFACT.value
#: A body names another tenant or run.
FOREIGN: Final = QuarantineCause.CROSS_TENANT_REFERENCE.value

_BY_REASON: Final = {
    UNSUPPORTED: QuarantineCause.UNSUPPORTED_SCHEMA,
    MISSING: QuarantineCause.MISSING_ARTIFACT,
    FOREIGN: QuarantineCause.CROSS_TENANT_REFERENCE,
}


def quarantine_component(error: CorruptDataError) -> str:
    """Say what isolates a run: the column or the rule, and of a barrier the step that it ends.

    A replay meets the barrier of any step, so where the run stands does not tell.
    """
    return error.component if error.superstep is None else f"{error.component}:superstep-{error.superstep}"


def quarantine_cause(error: CorruptDataError) -> QuarantineCause:
    """Say under which cause a finding isolates its run: a column's component has a point, a rule's has none."""
    if "." in error.component:
        return QuarantineCause.PROJECTION_MISMATCH
    return _BY_REASON.get(error.reason, QuarantineCause.INTEGRITY_FAILURE)
