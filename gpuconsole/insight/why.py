"""Why a workload waits: the one dominant blocker, what was tried, the arithmetic, the evidence.

The engine tries the workload on the cluster as it is, as if it were the head of its queue; what Kueue wrote stands
beside that, with its age. What would unblock it is another question (`insight.unblock`): it takes longer.
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
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.sim.rehearsal import Rehearsal

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

ENGINE = "engine"
OBJECTS = "objects"
Simulating = Callable[[], "Simulation"]
"""Gives the cluster going on by our rules, to be forked; that may have to be made first."""
PLACES = (Code.GANG, Code.NODES, Code.DISRUPTION_BUDGET)
"""Pods wait for nodes: what would help is tried in the simulation."""
_OF_PODS = (*PLACES, Code.QUOTA, Code.EXCEEDS_MAX, Code.WAITING_FOR_VICTIMS)
"""The same of work that no Workload stands for, where a scheduler of pods has queues, too."""
_RUNS = (Code.NOT_WAITING, Code.CHECKS, Code.RESOURCE_QUOTA, *PLACES, Code.IMAGE, Code.POD_FAILURE, *UNDER_WAY)
_HELPLESS = (*_RUNS, Code.BACKOFF)
_FOR_GOOD = (Code.TOPOLOGY, Code.FLAVOR_MISMATCH, Code.EXCEEDS_MAX)
"""What may be so for ever; a quota that the queue could have is used by somebody who ends."""
_OUTSIDE = (*_HELPLESS, Code.DEACTIVATED, Code.QUEUE_STOPPED, Code.QUEUE_INACTIVE, Code.QUEUE_MISSING, Code.UNSEEN)
"""What the objects themselves show, so that no trial is needed."""


class Evidence(Struct, frozen=True, kw_only=True):
    """Something that the answer rests on: who says it, what, and since when."""

    source: str
    """`Kueue` or another scheduler (what it wrote), `engine` (tried just now), `objects` (what they show)."""
    code: Code
    text: str
    since: Time | None


class Why(Struct, frozen=True, kw_only=True):
    """The whole answer but for the suggestions."""

    explanation: Explanation
    """The dominant blocker, in a code and in words."""
    never: bool = False
    """Nothing that ends lets it in: Kueue would refuse it on the emptied cluster, too."""
    head: str = ""
    """Who is tried before it, if its queue is strict and it is not first."""
    considered: tuple[Considered, ...] = ()
    """In the order in which they were tried."""
    rooms: tuple[Room, ...] = ()
    """The arithmetic of what is short, the flavors that lack least first."""
    evidence: tuple[Evidence, ...] = ()

    @property
    def subject(self) -> str:
        """Key of the Workload, where there is one, else of what was asked for."""
        return self.explanation.subject

    @property
    def code(self) -> Code:
        return self.explanation.code

    @property
    def short(self) -> tuple[str, ...]:
        """The resources that it lacks, in whatever flavor."""
        return tuple(dict.fromkeys(room.resource for room in self.rooms))


class Tried(Struct, frozen=True, kw_only=True):
    """The answer with what would unblock it, as of one moment."""

    time: Time
    why: Why
    suggestions: Suggestions | None = None
    under_way: UnderWay | None = None
    """How far the search for suggestions is; None once it is over."""


def trying(
    snapshot: Snapshot, rehearsal: Rehearsal | None, key: str, simulating: Simulating | None = None
) -> Iterator[Tried]:
    """Answer, and try what would unblock it, piece by piece: who stops asking gives up. The last one is whole."""
    answer = why(snapshot, rehearsal, key, simulating)
    searched = False
    for look in _searches(snapshot, rehearsal, answer, simulating):
        searched = True
        yield Tried(time=snapshot.time, why=answer, suggestions=look.so_far, under_way=look.under_way)
    if not searched:
        yield Tried(time=snapshot.time, why=answer)


def tried(snapshot: Snapshot, rehearsal: Rehearsal | None, key: str, simulating: Simulating | None = None) -> Tried:
    """Answer, and try what would unblock it; this may take seconds on a large cluster."""
    *_, last = trying(snapshot, rehearsal, key, simulating)
    return last


def rehearsal_of(simulation: "Simulation", snapshot: Snapshot) -> Rehearsal | None:
    """The admission of a simulation as it stands, to try things on; None without Kueue."""
    session = simulation.session
    return Rehearsal(session.fork(), simulation.now, snapshot.workloads.all()) if session is not None else None


def rehearsal_on(snapshot: Snapshot, config: KueueConfig | None) -> Rehearsal | None:
    """The admission of a cluster that others run; None without Kueue."""
    return Rehearsal.from_snapshot(snapshot, config) if config is not None else None


def why(snapshot: Snapshot, rehearsal: Rehearsal | None, key: str, simulating: Simulating | None = None) -> Why:
    """Answer for a workload, a job or a pod (see `explain`). Nothing changes."""
    told = explain(snapshot, key)
    workload = workload_of(snapshot, key)
    if told.code in PLACES and simulating is not None and len(snapshot.pod_disruption_budgets):
        kept = kept_by_budget(simulating(), told)
        if kept is not None:
            said = (
                f"as it is its pods find no place within a minute; they do if one changes this: {kept.remedies[0].text}"
            )
            engine = Evidence(source=ENGINE, code=kept.code, text=said, since=snapshot.time)
            return Why(explanation=kept, evidence=(engine, _shown(snapshot, told)))
    if told.code is Code.NOT_WAITING and len(snapshot.pod_disruption_budgets):
        told = replace(told, lines=(*told.lines, *keeping_drained(snapshot, told.subject)))
    untried = told.code in _OUTSIDE or undecidable(snapshot)
    if workload is None or rehearsal is None or untried or workload.reserved:
        # Of a job that no Workload stands for it is said by the limits of its queue, not by an old text.
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
    snapshot: Snapshot, rehearsal: Rehearsal | None, answer: Why, simulating: Simulating | None = None
) -> Suggestions | None:
    """What would let it in; None for what no change of quotas, queues, nodes or the workload itself helps with."""
    last = None
    for look in _searches(snapshot, rehearsal, answer, simulating):
        last = look.so_far
    return last


def waits_for_places(code: Code, *, queued: bool) -> bool:
    """True for what pods wait for that a change of nodes, gangs or other pods may bring; `queued` by Kueue or not."""
    return code in (PLACES if queued else _OF_PODS)


def _searches(
    snapshot: Snapshot, rehearsal: Rehearsal | None, answer: Why, simulating: Simulating | None
) -> Iterator[Search]:
    """The search in the admission for what waits for quota, in the simulation for what waits for nodes."""
    queued = rehearsal is not None and answer.subject in rehearsal.workloads
    known = snapshot.workloads.get(answer.subject)
    if known is not None and known.reserved and answer.code not in PLACES:
        return  # It was let in: no change of admission is what it lacks.
    if queued and answer.code not in PLACES and undecidable(snapshot):
        return  # What a trial says of what is seen may be otherwise with what is not.
    if rehearsal is not None and queued and answer.code not in _HELPLESS:
        land = landing(simulating, answer.subject)
        yield from searching(rehearsal, answer.subject, snapshot.workload_priority_classes.all(), land)
    elif simulating is not None and waits_for_places(answer.code, queued=queued):
        yield from searching_places(simulating(), answer.subject)


def _verdict(entry: Entry, head: str) -> Verdict:
    """Who would get in, or preempt, as its queue's head waits for its turn."""
    code = blocker(entry)
    turn = code is Code.NOT_WAITING or (bool(head) and code in (Code.WAITING_FOR_VICTIMS, Code.CONTENTION))
    return Verdict(Code.QUEUED) if turn else Verdict(code, entry.message)


def _head(rehearsal: Rehearsal, entry: Entry) -> str:
    """Who is tried instead of it in the next cycle; nothing if it is the head itself, or nobody is tried."""
    waiting = rehearsal.session.pending(entry.rules.name)
    first = next((place.workload.key for place in waiting if not place.parked), "")
    return "" if first == entry.request.workload.key else first


def _asleep(rehearsal: Rehearsal, key: str) -> bool:
    """True if it is parked, and nothing has happened yet for which parked work is looked at again."""
    return rehearsal.session.parked(key) and not rehearsal.session.wake_due


def _behind(judged: Explanation, head: str, *, asleep: bool) -> Explanation:
    """Position, in words: what waits for its turn is told behind whom."""
    if judged.code is not Code.QUEUED:
        return judged
    if asleep:
        # As when work of another cohort left nodes that both may use (Kueue wakes the tree of what ended).
        when = "until work of that queue or its cohorts ends, or a queue, flavor or node changes"
        return replace(judged, headline=f"It would fit now, but {judged.queue} has parked it {when}.")
    if not head:
        return replace(judged, headline=f"It fits, and is admitted when {judged.queue} is looked at next.")
    place = judged.position
    where = (
        f"number {place.in_cluster_queue} of {place.of_cluster_queue} in" if place is not None else "behind others in"
    )
    return replace(judged, headline=f"It would get in, and waits for its turn: {where} {judged.queue}, after {head}.")


def _never(snapshot: Snapshot, rehearsal: Rehearsal, workload: Workload, simulating: Simulating | None) -> bool:
    """True if the engine refuses it on the emptied cluster; the simulation knows whether nodes may come."""
    if simulating is None:
        return False
    config, capacity = rehearsal.session.config, simulating().policy.capacity
    emptied = Emptied(snapshot, config, capacity, (workload.namespace,))
    return emptied.refusal(workload.namespace, workload.queue, workload.pod_sets) is not None


def _for_good(judged: Explanation) -> Explanation:
    """In words: waiting does not help. What is more than its queue could ever have says so by itself."""
    match judged.code:
        case Code.TOPOLOGY:
            headline = "No place in the topology is close enough, even if every node were empty"
        case Code.EXCEEDS_MAX:
            return judged
        case _:
            headline = judged.headline.removesuffix(".")
    return replace(judged, headline=f"{headline}: waiting does not help.")


def _evidence(snapshot: Snapshot, entry: Entry, told: Explanation) -> Iterator[Evidence]:
    text = entry.message or "it fits"
    yield Evidence(source=ENGINE, code=blocker(entry), text=text, since=snapshot.time)
    if told.text:
        queue = entry.rules.queue
        code = dominant(read_kueue(told.text), resource_groups(queue))
        yield Evidence(source=told.source, code=code, text=told.text, since=told.since)


def _shown(snapshot: Snapshot, told: Explanation) -> Evidence:
    """What was read, where nothing was tried."""
    if told.text:
        # Its text may be of before what the objects show now.
        read = code_of(told.text) if told.source == KUEUE else Code.OTHER
        code = read if read is not Code.OTHER else told.code
        return Evidence(source=told.source, code=code, text=told.text, since=told.since)
    return Evidence(source=OBJECTS, code=told.code, text=told.headline, since=snapshot.time)
