"""Answer to why a workload is pending: the dominant reason, the flavors that were tried, arithmetic and evidence.

The engine tries to admit the workload on the current cluster as if it were the head of its queue. Kueue's message is
kept beside that, with its age. `insight.unblock` finds what would unblock it, as that takes longer.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.basis import undecidable
from gpuconsole.insight.blockers import blocker
from gpuconsole.insight.budgets import keeping_drained, kept_by_budget
from gpuconsole.insight.codes import UNDER_WAY
from gpuconsole.insight.considered import Considered, considered
from gpuconsole.insight.emptied import Emptied
from gpuconsole.insight.explanation import KUEUE, Explanation
from gpuconsole.insight.pending import Verdict, explain, resource_groups, workload_of
from gpuconsole.insight.reasons import Code, code_of, dominant, read_kueue
from gpuconsole.insight.room import Room, room
from gpuconsole.insight.unblock.landing import landing
from gpuconsole.insight.unblock.search import Search, Suggestions, UnderWay, searching, searching_places
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
PLACES = (Code.GANG, Code.NODES, Code.DISRUPTION_BUDGET)
"""Pods wait for nodes: changes are tried in the simulation."""
_OF_PODS = (*PLACES, Code.QUOTA, Code.EXCEEDS_MAX, Code.WAITING_FOR_VICTIMS)
"""The same for work without a Workload, as pod schedulers have queues, too."""
_RUNS = (Code.NOT_WAITING, Code.CHECKS, Code.RESOURCE_QUOTA, *PLACES, Code.IMAGE, Code.POD_FAILURE, *UNDER_WAY)
_HELPLESS = (*_RUNS, Code.BACKOFF)
_FOR_GOOD = (Code.TOPOLOGY, Code.FLAVOR_MISMATCH, Code.EXCEEDS_MAX)
"""Reasons that may be permanent; quota within the queue's maximum capacity is freed when other workloads end."""
_OUTSIDE = (*_HELPLESS, Code.DEACTIVATED, Code.QUEUE_STOPPED, Code.QUEUE_INACTIVE, Code.QUEUE_MISSING, Code.UNSEEN)
"""Reasons that the objects themselves show, so that no admission attempt is needed."""


class Evidence(Struct, frozen=True, kw_only=True):
    """A fact that the answer is based on: source, text and start."""

    source: str
    """`Kueue` or another scheduler (its message), `engine` (admission attempt just now), `objects` (their state)."""
    code: Code
    text: str
    since: Time | None


class Why(Struct, frozen=True, kw_only=True):
    """The whole answer except the suggestions."""

    explanation: Explanation
    """The dominant reason, as a code and as text."""
    never: bool = False
    """True if Kueue would refuse it on an empty cluster, too: waiting does not help."""
    head: str = ""
    """The head of its queue, if it is another workload."""
    considered: tuple[Considered, ...] = ()
    """Flavors in the order in which they were tried."""
    rooms: tuple[Room, ...] = ()
    """The arithmetic of each shortage, the smallest first."""
    evidence: tuple[Evidence, ...] = ()

    @property
    def subject(self) -> str:
        """Key of the Workload if there is one, else of the requested object."""
        return self.explanation.subject

    @property
    def code(self) -> Code:
        return self.explanation.code

    @property
    def short(self) -> tuple[str, ...]:
        """The resources of which it lacks quota in some flavor."""
        return tuple(dict.fromkeys(room.resource for room in self.rooms))


class Tried(Struct, frozen=True, kw_only=True):
    """The answer with the suggestions found so far."""

    time: Time
    why: Why
    suggestions: Suggestions | None = None
    under_way: UnderWay | None = None
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
) -> Why:
    """Return the answer for a workload, a job or a pod (see `explain`). Mutates nothing."""
    told = explain(snapshot, key)
    workload = workload_of(snapshot, key)
    if told.code in PLACES and simulating is not None and len(snapshot.pod_disruption_budgets):
        kept = kept_by_budget(simulating(), told)
        if kept is not None:
            said = f"within 1m its pods are not scheduled as it is, and are with this change: {kept.remedies[0].text}"
            engine = Evidence(source=ENGINE, code=kept.code, text=said, since=snapshot.time)
            return Why(explanation=kept, evidence=(engine, _shown(snapshot, told)))
    if told.code is Code.NOT_WAITING and len(snapshot.pod_disruption_budgets):
        told = replace(told, lines=(*told.lines, *keeping_drained(snapshot, told.subject)))
    untried = told.code in _OUTSIDE or undecidable(snapshot)
    if workload is None or rehearsal is None or untried or workload.reserved:
        # For a job without a Workload the limits of its queue decide, not an old message.
        never = workload is None and told.code is Code.EXCEEDS_MAX
        return Why(explanation=told, never=never, evidence=(_shown(snapshot, told),))
    entry = examined(rehearsal, workload.key)
    if entry is None:
        return Why(explanation=told, evidence=(_shown(snapshot, told),))
    head = _head(rehearsal, entry)
    judged = explain(snapshot, key, _verdict(entry, head))
    never = judged.code in _FOR_GOOD and _never(snapshot, rehearsal, workload, simulating)
    return Why(
        explanation=_for_good(judged) if never else _behind(judged, head, asleep=_asleep(rehearsal, workload.key)),
        never=never,
        head=head,
        considered=tuple(considered(entry)),
        rooms=room(snapshot, rehearsal.session, entry),
        evidence=tuple(_evidence(snapshot, entry, told)),
    )


def unblocking(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, answer: Why, simulating: Simulating | None = None
) -> Suggestions | None:
    """Return what would unblock it; None if no change of quotas, queues, nodes or the workload itself can help."""
    last = None
    for look in _searches(snapshot, rehearsal, answer, simulating):
        last = look.so_far
    return last


def waits_for_places(code: Code, *, queued: bool) -> bool:
    """True if pods wait for nodes, so that changes of nodes, gangs or other pods may help; `queued` = by Kueue."""
    return code in (PLACES if queued else _OF_PODS)


def _searches(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, answer: Why, simulating: Simulating | None
) -> Iterator[Search]:
    """Search in the admission state for a workload that needs quota, in the simulation for one that needs nodes."""
    queued = rehearsal is not None and answer.subject in rehearsal.workloads
    known = snapshot.workloads.get(answer.subject)
    if known is not None and known.reserved and answer.code not in PLACES:
        return  # It has its quota: no change of admission helps.
    if queued and answer.code not in PLACES and undecidable(snapshot):
        return  # Objects that are not visible could change the result of a trial.
    if rehearsal is not None and queued and answer.code not in _HELPLESS:
        land = landing(simulating, answer.subject)
        yield from searching(rehearsal, answer.subject, snapshot.workload_priority_classes.all(), land)
    elif simulating is not None and waits_for_places(answer.code, queued=queued):
        yield from searching_places(simulating(), answer.subject)


def _verdict(entry: CycleEntry, head: str) -> Verdict:
    """Return code `queued` for a workload that the engine would admit, or that another head goes before."""
    code = blocker(entry)
    turn = code is Code.NOT_WAITING or (bool(head) and code in (Code.WAITING_FOR_VICTIMS, Code.CONTENTION))
    return Verdict(Code.QUEUED) if turn else Verdict(code, entry.message)


def _head(rehearsal: AdmissionSimulator, entry: CycleEntry) -> str:
    """Return the head of its queue in the next cycle; empty if that is the workload itself or there is none."""
    waiting = rehearsal.session.pending(entry.rules.name)
    first = next((place.workload.key for place in waiting if not place.inadmissible), "")
    return "" if first == entry.request.workload.key else first


def _asleep(rehearsal: AdmissionSimulator, key: str) -> bool:
    """True if it is inadmissible and no event has happened that requeues inadmissible workloads."""
    return rehearsal.session.is_inadmissible(key) and not rehearsal.session.has_requeue_due


def _behind(judged: Explanation, head: str, *, asleep: bool) -> Explanation:
    """Add the position in the queue and the head to the headline of a queued workload."""
    if judged.code is not Code.QUEUED:
        return judged
    if asleep:
        # For example, work of another cohort left nodes that both use: Kueue requeues only the tree of what ended.
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
    """True if the engine refuses it on an empty cluster; the simulation tells whether nodes may be added."""
    if simulating is None:
        return False
    config, capacity = rehearsal.session.config, simulating().policy.capacity
    emptied = Emptied(snapshot, config, capacity, (workload.namespace,))
    return emptied.refusal(workload.namespace, workload.queue, workload.pod_sets) is not None


def _for_good(judged: Explanation) -> Explanation:
    """Add to the headline that waiting does not help, except where the headline says so itself."""
    match judged.code:
        case Code.TOPOLOGY:
            headline = "No topology domain fits its pods, even if every node were empty"
        case Code.EXCEEDS_MAX:
            return judged
        case _:
            headline = judged.headline.removesuffix(".")
    return replace(judged, headline=f"{headline}: waiting does not help.")


def _evidence(snapshot: Snapshot, entry: CycleEntry, told: Explanation) -> Iterator[Evidence]:
    text = entry.message or "fits"
    yield Evidence(source=ENGINE, code=blocker(entry), text=text, since=snapshot.time)
    if told.text:
        queue = entry.rules.queue
        code = dominant(read_kueue(told.text), resource_groups(queue))
        yield Evidence(source=told.source, code=code, text=told.text, since=told.since)


def _shown(snapshot: Snapshot, told: Explanation) -> Evidence:
    """Return the evidence from messages or objects, where the engine was not asked."""
    if told.text:
        # The message may be older than the state of the objects.
        read = code_of(told.text) if told.source == KUEUE else Code.OTHER
        code = read if read is not Code.OTHER else told.code
        return Evidence(source=told.source, code=code, text=told.text, since=told.since)
    return Evidence(source=OBJECTS, code=told.code, text=told.headline, since=snapshot.time)
