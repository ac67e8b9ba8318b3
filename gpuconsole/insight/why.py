"""Explanation of why a workload is pending: the dominant reason, the flavors that were tried, arithmetic and evidence.

The engine tries to admit the workload on the current cluster as if it were the head of its queue. The answer also has
Kueue's message, with its age. `insight.unblock` searches for changes that unblock it, as that takes longer.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.blockers import dominant_blocker
from gpuconsole.insight.budgets import keeping_drained, kept_by_budget
from gpuconsole.insight.considered import ConsideredFlavor, considered
from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.empty_cluster import EmptyCluster
from gpuconsole.insight.explanation import KUEUE, PendingExplanation
from gpuconsole.insight.pending import EngineVerdict, explain, resource_groups, workload_of
from gpuconsole.insight.pending_reasons import UNDER_WAY
from gpuconsole.insight.quota_breakdown import QuotaBreakdown, quota_breakdowns
from gpuconsole.insight.reasons import PendingReason, code_of, dominant, read_kueue
from gpuconsole.insight.unblock.pod_placement_check import placement_check
from gpuconsole.insight.unblock.search import (
    SearchProgress,
    Suggestions,
    SuggestionSearch,
    placement_suggestion_steps,
    suggestion_steps,
)
from gpuconsole.insight.unblock.trial import examined
from gpuconsole.model.clock import Time
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.sim.admission_simulator import AdmissionSimulator

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

ENGINE = "engine"
OBJECTS = "objects"
Simulating = Callable[[], "Simulation"]
"""Returns a simulation of the cluster to fork; it is made at the first call where there is none."""
PLACES = (PendingReason.GANG, PendingReason.NODES, PendingReason.DISRUPTION_BUDGET)
"""Pods wait for nodes: changes are tried in the simulation."""
_OF_PODS = (*PLACES, PendingReason.QUOTA, PendingReason.EXCEEDS_MAX, PendingReason.WAITING_FOR_VICTIMS)
"""Reasons of work without a Workload for which changes are tried in the simulation; pod schedulers have queues, too."""
_RUNS = (
    PendingReason.NOT_WAITING,
    PendingReason.CHECKS,
    PendingReason.RESOURCE_QUOTA,
    *PLACES,
    PendingReason.IMAGE,
    PendingReason.POD_FAILURE,
    *UNDER_WAY,
)
_HELPLESS = (*_RUNS, PendingReason.BACKOFF)
_FOR_GOOD = (PendingReason.TOPOLOGY, PendingReason.FLAVOR_MISMATCH, PendingReason.EXCEEDS_MAX)
"""Reasons that may be permanent; quota within the queue's maximum capacity is freed when other workloads end."""
_OUTSIDE = (
    *_HELPLESS,
    PendingReason.DEACTIVATED,
    PendingReason.QUEUE_STOPPED,
    PendingReason.QUEUE_INACTIVE,
    PendingReason.QUEUE_MISSING,
    PendingReason.UNSEEN,
)
"""Reasons that the objects themselves show, so that no admission attempt is needed."""


class Evidence(Struct, frozen=True, kw_only=True):
    """A fact that the answer is based on: its source, text and time."""

    source: str
    """`Kueue` or another scheduler (its message), `engine` (admission attempt just now), `objects` (their state)."""
    code: PendingReason
    text: str
    since: Time | None


class WhyPending(Struct, frozen=True, kw_only=True):
    """Answer to why a workload is pending, except the suggestions."""

    explanation: PendingExplanation
    """The dominant reason, as a code and as text."""
    never: bool = False
    """True if Kueue would refuse it on an empty cluster, too: waiting does not help."""
    head: str = ""
    """The head of its queue, if it is another workload."""
    considered: tuple[ConsideredFlavor, ...] = ()
    """Flavors in the order in which they were tried."""
    rooms: tuple[QuotaBreakdown, ...] = ()
    """The arithmetic of each shortage, the smallest first."""
    evidence: tuple[Evidence, ...] = ()

    @property
    def subject(self) -> str:
        """Key of the Workload if there is one, else of the requested object."""
        return self.explanation.subject

    @property
    def code(self) -> PendingReason:
        """The dominant reason code."""
        return self.explanation.code

    @property
    def short(self) -> tuple[str, ...]:
        """The resources of which it lacks quota in some flavor."""
        return tuple(dict.fromkeys(room.resource for room in self.rooms))


class Tried(Struct, frozen=True, kw_only=True):
    """The answer with the suggestions found so far."""

    time: Time
    why: WhyPending
    suggestions: Suggestions | None = None
    under_way: SearchProgress | None = None
    """Progress of the search for suggestions; None once it is over."""


def trying(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, key: str, simulating: Simulating | None = None
) -> Iterator[Tried]:
    """Yield the answer while suggestions are searched; the last is complete. Closing the iterator ends the search."""
    answer = why(snapshot, rehearsal, key, simulating)
    searched = False
    for look in _searches(snapshot, rehearsal, answer, simulating):
        searched = True
        yield Tried(time=snapshot.time, why=answer, suggestions=look.so_far, under_way=look.under_way)
    if not searched:
        yield Tried(time=snapshot.time, why=answer)


def tried(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, key: str, simulating: Simulating | None = None
) -> Tried:
    """Return the answer with all suggestions; this may take seconds on a large cluster."""
    *_, last = trying(snapshot, rehearsal, key, simulating)
    return last


def rehearsal_of(simulation: "Simulation", snapshot: Snapshot) -> AdmissionSimulator | None:
    """Return a copy of a simulation's admission state to try changes on; None without Kueue."""
    session = simulation.session
    return AdmissionSimulator(session.fork(), simulation.now, snapshot.workloads.all()) if session is not None else None


def rehearsal_on(snapshot: Snapshot, config: KueueConfig | None) -> AdmissionSimulator | None:
    """Return the admission state of a Snapshot to try changes on; None without Kueue."""
    return AdmissionSimulator.from_snapshot(snapshot, config) if config is not None else None


def why(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, key: str, simulating: Simulating | None = None
) -> WhyPending:
    """Return the answer for a workload, a job or a pod (see `explain`). Mutates nothing."""
    explanation = explain(snapshot, key)
    workload = workload_of(snapshot, key)
    if explanation.code in PLACES and simulating is not None and len(snapshot.pod_disruption_budgets):
        kept = kept_by_budget(simulating(), explanation)
        if kept is not None:
            said = f"its pods stay unscheduled for 1m; with this change they are scheduled: {kept.remedies[0].text}"
            engine = Evidence(source=ENGINE, code=kept.code, text=said, since=snapshot.time)
            return WhyPending(explanation=kept, evidence=(engine, _shown(snapshot, explanation)))
    if explanation.code is PendingReason.NOT_WAITING and len(snapshot.pod_disruption_budgets):
        explanation = replace(explanation, lines=(*explanation.lines, *keeping_drained(snapshot, explanation.subject)))
    untried = explanation.code in _OUTSIDE or missing_for_admission(snapshot)
    if workload is None or rehearsal is None or untried or workload.reserved:
        # For a job without a Workload the limits of its queue take precedence over an older message.
        never = workload is None and explanation.code is PendingReason.EXCEEDS_MAX
        return WhyPending(explanation=explanation, never=never, evidence=(_shown(snapshot, explanation),))
    entry = examined(rehearsal, workload.key)
    if entry is None:
        return WhyPending(explanation=explanation, evidence=(_shown(snapshot, explanation),))
    head = _head(rehearsal, entry)
    judged = explain(snapshot, key, _verdict(entry, head))
    never = judged.code in _FOR_GOOD and _never(snapshot, rehearsal, workload, simulating)
    return WhyPending(
        explanation=_for_good(judged)
        if never
        else _behind(judged, head, asleep=_is_inadmissible(rehearsal, workload.key)),
        never=never,
        head=head,
        considered=tuple(considered(entry)),
        rooms=quota_breakdowns(snapshot, rehearsal.session, entry),
        evidence=tuple(_evidence(snapshot, entry, explanation)),
    )


def unblocking(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, answer: WhyPending, simulating: Simulating | None = None
) -> Suggestions | None:
    """Return changes that unblock it; None if no change of quotas, queues, nodes or the workload itself can."""
    last = None
    for look in _searches(snapshot, rehearsal, answer, simulating):
        last = look.so_far
    return last


def waits_for_places(code: PendingReason, *, queued: bool) -> bool:
    """True if pods wait for nodes, so that changes of nodes, gangs or pods may help; `queued` if Kueue manages it."""
    return code in (PLACES if queued else _OF_PODS)


def _searches(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, answer: WhyPending, simulating: Simulating | None
) -> Iterator[SuggestionSearch]:
    """Search in the admission state for a workload that needs quota, in the simulation for one that needs nodes."""
    queued = rehearsal is not None and answer.subject in rehearsal.workloads
    known = snapshot.workloads.get(answer.subject)
    if known is not None and known.reserved and answer.code not in PLACES:
        return  # It holds quota, so no change of admission helps.
    if queued and answer.code not in PLACES and missing_for_admission(snapshot):
        return  # Objects that are not visible could change the result of a trial.
    if rehearsal is not None and queued and answer.code not in _HELPLESS:
        land = placement_check(simulating, answer.subject)
        yield from suggestion_steps(rehearsal, answer.subject, snapshot.workload_priority_classes.all(), land)
    elif simulating is not None and waits_for_places(answer.code, queued=queued):
        yield from placement_suggestion_steps(simulating(), answer.subject)


def _verdict(entry: CycleEntry, head: str) -> EngineVerdict:
    """Return the engine's verdict: code `queued` if it would admit the workload, now or after the head of the queue."""
    code = dominant_blocker(entry)
    turn = code is PendingReason.NOT_WAITING or (
        bool(head) and code in (PendingReason.WAITING_FOR_VICTIMS, PendingReason.CONTENTION)
    )
    return EngineVerdict(PendingReason.QUEUED) if turn else EngineVerdict(code, entry.message)


def _head(rehearsal: AdmissionSimulator, entry: CycleEntry) -> str:
    """Return the head of its queue in the next cycle; empty if that is the workload itself or there is none."""
    waiting = rehearsal.session.pending(entry.rules.name)
    first = next((place.workload.key for place in waiting if not place.inadmissible), "")
    return "" if first == entry.request.workload.key else first


def _is_inadmissible(rehearsal: AdmissionSimulator, key: str) -> bool:
    """True if the workload is inadmissible and no event that requeues inadmissible workloads has happened."""
    return rehearsal.session.is_inadmissible(key) and not rehearsal.session.has_requeue_due


def _behind(judged: PendingExplanation, head: str, *, asleep: bool) -> PendingExplanation:
    """Add the position in the queue and the head to the headline of a queued workload."""
    if judged.code is not PendingReason.QUEUED:
        return judged
    if asleep:
        # For example, work of another cohort freed nodes that both use: Kueue requeues only that cohort tree.
        when = "until a workload of its cohort tree ends, or a queue, flavor or node changes"
        return replace(judged, headline=f"Fits now, but is inadmissible in {judged.queue} {when}.")
    if not head:
        return replace(judged, headline=f"Fits: {judged.queue} admits it in its next scheduling cycle.")
    place = judged.position
    where = (
        f"position {place.in_cluster_queue} of {place.of_cluster_queue} in" if place is not None else "behind others in"
    )
    return replace(judged, headline=f"Queued, {where} {judged.queue}; the head of the queue is {head}.")


def _never(
    snapshot: Snapshot, rehearsal: AdmissionSimulator, workload: Workload, simulating: Simulating | None
) -> bool:
    """True if the engine refuses the workload on an empty cluster, with all nodes that the simulation can have."""
    if simulating is None:
        return False
    config, capacity = rehearsal.session.config, simulating().policy.capacity
    emptied = EmptyCluster(snapshot, config, capacity, (workload.namespace,))
    return emptied.refusal(workload.namespace, workload.queue, workload.pod_sets) is not None


def _for_good(judged: PendingExplanation) -> PendingExplanation:
    """Add to the headline that waiting does not help, except where the headline says so itself."""
    match judged.code:
        case PendingReason.TOPOLOGY:
            headline = "No topology domain fits its pods, even if every node were empty"
        case PendingReason.EXCEEDS_MAX:
            return judged
        case _:
            headline = judged.headline.removesuffix(".")
    return replace(judged, headline=f"{headline}: waiting does not help.")


def _evidence(snapshot: Snapshot, entry: CycleEntry, explanation: PendingExplanation) -> Iterator[Evidence]:
    text = entry.message or "fits"
    yield Evidence(source=ENGINE, code=dominant_blocker(entry), text=text, since=snapshot.time)
    if explanation.text:
        queue = entry.rules.queue
        code = dominant(read_kueue(explanation.text), resource_groups(queue))
        yield Evidence(source=explanation.source, code=code, text=explanation.text, since=explanation.since)


def _shown(snapshot: Snapshot, explanation: PendingExplanation) -> Evidence:
    """Return the evidence from messages or objects, for answers without an admission attempt."""
    if explanation.text:
        # The message may be older than the state of the objects.
        read = code_of(explanation.text) if explanation.source == KUEUE else PendingReason.OTHER
        code = read if read is not PendingReason.OTHER else explanation.code
        return Evidence(source=explanation.source, code=code, text=explanation.text, since=explanation.since)
    return Evidence(source=OBJECTS, code=explanation.code, text=explanation.headline, since=snapshot.time)
