"""Check that a graph comes to the same end however often its workers die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from agentruns.domain.canonical import JsonTree
from agentruns.domain.scalars import TenantId
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_graphs import DeployableGraph
from agentruns.testing.laws.broken import LawBrokenError
from agentruns.testing.laws.searching import search
from agentruns.testing.laws.trials import DrawnChoices, DrawnSchedule, GraphTrial, TrialEnd
from agentruns.testing.simulation.schedule import Fault, Undisturbed
from agentruns.testing.simulation.settling import Answer

_TENANT = TenantId("laws")
_CHOICES = DrawnChoices(
    fault=st.sampled_from([Fault.NONE] * 6 + [Fault.AFTER, Fault.BEFORE]), either=st.booleans(), order=st.permutations
)


def check_graph_laws(
    deployment: Deployment,
    graph: DeployableGraph,
    *,
    input: JsonTree,  # noqa: A002  # the member's name
    state: JsonTree = None,
    answer: Answer | None = None,
    reset: Callable[[], object] | None = None,
    observe: Callable[[], object] | None = None,
    same_end: bool = True,
    node_timeout: float = 10.0,
    max_examples: int = 100,
) -> None:
    """Run a graph in memory, many times, with workers that die before or after any commit, and compare the ends.

    The nodes are the graph's own and are called as a worker calls them, so what they call outside should be a double.
    Siblings that may overlap do, and end in any order; waits are settled in any order; time passes at once. Three laws
    are held:

    * *replay*: the journal, read once more, gives the same run. A reducer that reads anything but its arguments breaks
      it.
    * *end*: status, output, failure and state are those of a run in which nothing goes wrong. A node whose result
      depends on what its siblings have done so far, or on how often it was called, breaks it.
    * *effects*: what the nodes have done outside is the same as well. A node is called again when its worker dies; one
      that gives ``context.effect_key`` to the system that it calls, or whose call may be repeated, keeps the law.

    No random seed and no stored examples are involved, and the steps that break a law are as few as could be found.

    Args:
        deployment: that has the graph.
        graph: one of its graphs.
        input: of the run.
        state: what the run begins with; by default the input.
        answer: called with each interrupt, gives the answer; one that gives ``None`` lets the interrupt expire.
        reset: called before each run; puts what the nodes call outside back to its beginning.
        observe: called after each run; says what the nodes have done outside, by something that can be compared. Effect
            keys may be part of it: they are the same in every run.
        same_end: whether equal ends are asked for; not for nodes that decide by chance, or by a model.
        node_timeout: seconds that a node has; after that it has failed.
        max_examples: how many runs are tried.

    Raises:
        LawBrokenError: a law does not hold; it says which, and shows the steps.
        DefinitionError: a graph of the deployment cannot be used as it is defined.
        InvalidValueError: the request breaks a rule.
        ValueError: the graph waits for an answer that nobody gives.
    """
    graphs = deployment.build()
    definition = graphs.compiled(graph)
    trial = GraphTrial(
        graph=graphs.executables.resolve(definition.definition_digest),
        request=graphs.request(graph, tenant_id=_TENANT, input=input, state=state),
        answer=answer,
        node_timeout=node_timeout,
        reset=reset,
        observe=observe,
    )
    name = f"the graph {definition.identity.capability.name}"
    check = _Comparison(name, trial.under(Undisturbed()), same_end=same_end)
    check.hold_undisturbed()
    search(lambda data: check.broken(trial.under(DrawnSchedule(data.draw, _CHOICES))), max_examples=max_examples)


class _Comparison:
    """Compare runs with one in which nothing went wrong."""

    def __init__(self, name: str, undisturbed: TrialEnd, *, same_end: bool) -> None:
        self._name = name
        self._undisturbed = undisturbed
        self._same_end = same_end

    def hold_undisturbed(self) -> None:
        """Insist that the run can be read once more."""
        if not self._undisturbed.is_repeatable:
            raise self._replay(self._undisturbed)

    def broken(self, found: TrialEnd) -> LawBrokenError | None:
        """Name the first law that a run has broken."""
        if not found.is_repeatable:
            return self._replay(found)
        if self._same_end and found.end != self._undisturbed.end:
            return self._made("it ends the same", self._undisturbed.end, found.end, found)
        if found.effects != self._undisturbed.effects:
            return self._made("it does the same outside", self._undisturbed.effects, found.effects, found)
        return None

    def _replay(self, found: TrialEnd) -> LawBrokenError:
        law = "its journal says the same when it is read once more"
        return self._made(law, "the same run", found.end, found)

    def _made(self, law: str, expected: Any, found: Any, trial: TrialEnd) -> LawBrokenError:
        return LawBrokenError(self._name, law, expected=expected, found=found, steps=trial.steps)
