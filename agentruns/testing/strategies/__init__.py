"""Hypothesis strategies of everything that a run is made of; nothing else of the package needs Hypothesis to be read.

Values, records, graphs, what nodes do, and whole histories: each strategy is a function, and what it draws is legal
unless its name says otherwise.
"""

from __future__ import annotations

from agentruns.testing.strategies.behaviours import BehavingGraph, behaving_graphs, behaviours
from agentruns.testing.strategies.graphs import compiled_graphs, node_sets
from agentruns.testing.strategies.histories import histories
from agentruns.testing.strategies.records import agents, budget_limits, failures, requests
from agentruns.testing.strategies.values import (
    documents_of,
    json_documents,
    json_objects,
    run_ids,
    schema_documents,
    scope_sets,
    submission_keys,
    tenant_ids,
    uuid_ids,
)

__all__ = [
    "BehavingGraph",
    "agents",
    "behaving_graphs",
    "behaviours",
    "budget_limits",
    "compiled_graphs",
    "documents_of",
    "failures",
    "histories",
    "json_documents",
    "json_objects",
    "node_sets",
    "requests",
    "run_ids",
    "schema_documents",
    "scope_sets",
    "submission_keys",
    "tenant_ids",
    "uuid_ids",
]
