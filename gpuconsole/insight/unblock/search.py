"""Search for suggestions that unblock a workload, kind by kind, each tried before it is shown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.unblock import admission_trial as admission_changes
from gpuconsole.insight.unblock import placement_trial
from gpuconsole.insight.unblock.admission_trial import ChangeTrial, OtherWorkloads, QuotaGap, examined, gaps_in_turn
from gpuconsole.insight.unblock.changes import Step, TriedEnough
from gpuconsole.insight.unblock.placement_trial import (
    UNTRIED,
    CheckPlacement,
    PlacementResult,
    PlacementTrial,
    untried,
)
from gpuconsole.model.cooperative import Progress, report_steps
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.sim.admission_simulator import AdmissionSimulator

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

ON_NODES = "scheduling of its pods after the change"
"""Progress text while it is tried whether the pods are scheduled after a change."""
UNAFFECTED = OtherWorkloads()
_Kind = tuple[str, Iterator[tuple[Step, ...]]]
"""The name of a kind of change, and a lazy search for it."""


class Suggestion(Struct, frozen=True):
    """Changes that together unblock the workload; none can be left out or made smaller."""

    steps: tuple[Step, ...]
    landing: PlacementResult = UNTRIED
    """Whether its pods are scheduled then."""
    others: OtherWorkloads = UNAFFECTED


class Suggestions(Struct, frozen=True, kw_only=True):
    """Suggestions found so far, and the number of trials."""

    found: tuple[Suggestion, ...] = ()
    admitted_anyway: bool = False
    """True if it is admitted without any change, so that nothing is suggested."""
    landing: PlacementResult = UNTRIED
    """If it is admitted anyway: whether its pods are scheduled."""
    tried: int = 0
    complete: bool = True
    """False if the limit on trials was reached before all kinds were tried."""


def suggestion_steps(
    rehearsal: AdmissionSimulator,
    key: str,
    classes: Iterable[WorkloadPriorityClass] = (),
    land: CheckPlacement = untried,
) -> Iterator[Progress[Suggestions]]:
    """Search changes that would admit a pending workload; yield the suggestions so far after every few trials.

    The progress is the number of kinds of changes that are done, and the kind that is tried.
    Closing the iterator ends the search. `classes` are the priority classes to choose from. `land` tries whether the
    pods are scheduled after each change that admits the workload. Mutates nothing.
    """
    trial = ChangeTrial(rehearsal, key, classes)
    yield from _searching(trial, _all(trial), land, trial.others)


def placement_suggestion_steps(simulation: "Simulation", key: str) -> Iterator[Progress[Suggestions]]:
    """Search changes that get pending pods scheduled; as `suggestion_steps`. Mutates nothing."""
    trial = PlacementTrial(simulation, key)
    yield from _searching(trial, _each(_pod_kinds(trial)), untried, lambda _: UNAFFECTED)


def _searching(
    trial: ChangeTrial | PlacementTrial,
    tried: Iterator[tuple[Progress[Suggestions], tuple[Step, ...]]],
    land: CheckPlacement,
    others: Callable[[Sequence[Step]], OtherWorkloads],
) -> Iterator[Progress[Suggestions]]:
    found: list[Suggestion] = []
    progress = Progress[Suggestions]()
    try:
        if not trial.fails(()):
            anyway = Suggestions(admitted_anyway=True, tried=trial.tries)
            landed = yield from report_steps(land(()), Progress(doing=ON_NODES, done=0, total=1, answer=anyway))
            yield Progress(done=1, total=1, answer=replace(anyway, landing=landed), last=True)
            return
        for progress, steps in tried:
            # The same change may match the pods to several flavors.
            if steps and all(one.steps != steps for one in found):
                so_far = Suggestions(found=tuple(found), tried=trial.tries)
                landed = yield from report_steps(land(steps), replace(progress, doing=ON_NODES, answer=so_far))
                found.append(Suggestion(steps, landed, others(steps)))
            yield replace(progress, answer=Suggestions(found=tuple(found), tried=trial.tries))
        complete = True
    except TriedEnough:
        complete = False
    whole = Suggestions(found=tuple(found), tried=trial.tries, complete=complete)
    yield replace(progress, doing="", answer=whole, last=True)


def _all(trial: ChangeTrial) -> Iterator[tuple[Progress[Suggestions], tuple[Step, ...]]]:
    """Try kind by kind; if no single kind is enough, several together. Yield no steps for a failed trial."""
    entry = examined(trial.rehearsal, trial.key)
    found = gaps_in_turn(trial.rehearsal.session, entry) if entry is not None else []
    every, nothing = _kinds(trial, entry, found), True
    for progress, steps in _each(every):
        nothing = nothing and not steps
        yield progress, steps
    if nothing:
        last = Progress[Suggestions](doing="several changes together", done=len(every), total=len(every) + 1)
        yield last, ()
        for steps in admission_changes.several(trial, entry, found):
            yield last, steps


def _each(every: list[_Kind]) -> Iterator[tuple[Progress[Suggestions], tuple[Step, ...]]]:
    for done, (kind, tried) in enumerate(every):
        progress = Progress[Suggestions](doing=kind, done=done, total=len(every))
        yield progress, ()
        for steps in tried:
            yield progress, steps


def _pod_kinds(trial: PlacementTrial) -> list[_Kind]:
    """List the kinds of changes that are tried for pods."""
    return [
        ("end of other workloads", placement_trial.ends(trial)),
        ("smaller gangs", placement_trial.gangs(trial)),
        ("smaller requests", placement_trial.smaller(trial)),
        ("more nodes", placement_trial.nodes(trial)),
        ("cordoned nodes", placement_trial.cordoned(trial)),
        ("tolerations and node selectors", placement_trial.suiting(trial)),
        ("disruption budgets", placement_trial.budgets(trial)),
    ]


def _kinds(trial: ChangeTrial, entry: CycleEntry | None, found: Sequence[QuotaGap]) -> list[_Kind]:
    """List the kinds of changes that are tried for a workload; the searches are lazy."""
    resumed, moves = (
        ("stopped objects and namespaces", admission_changes.resumptions(trial)),
        ("other LocalQueues", admission_changes.moves(trial)),
    )
    if entry is None:
        return [resumed, moves]
    return [
        resumed,
        ("end of other workloads", admission_changes.ends(trial, entry)),
        ("smaller requests", admission_changes.smaller(trial, entry, found)),
        ("quotas and limits", admission_changes.raises(trial, entry, found)),
        ("priorities", admission_changes.priorities(trial)),
        ("topology levels", admission_changes.topologies(trial, entry)),
        ("more nodes", admission_changes.nodes(trial, entry)),
        ("tolerations and node selectors", admission_changes.allowing(trial, entry)),
        moves,
    ]
