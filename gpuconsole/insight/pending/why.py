"""Explanation of why a workload is pending, from the admission engine: reason, tried flavors, arithmetic, evidence.

`why` calls `pending.explain` once: obstacle of the objects, else the engine's attempt on the current cluster as if the
workload were the head of its queue (`AdmissionAttempt`), else Kueue's message; then the sentences of `shortage`.
`trying` adds changes that unblock it (`insight.unblock`), as that takes longer. Command and console share the lines of
text. A simulation that starts from a live or saved cluster has already run a cycle, whose decisions are not facts:
answers about the present use `view_on` instead.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.data_gaps import missing_for_admission
from gpuconsole.insight.index.demand import FlavorResource, held
from gpuconsole.insight.pending.pending import EngineVerdict, explain
from gpuconsole.insight.pending.reasons import UNDER_WAY, PendingReason, code_of, flavor_groups
from gpuconsole.insight.pending.shortage import (
    KUEUE,
    MOST_HOLDERS,
    PendingExplanation,
    QuotaBreakdown,
    QuotaUser,
    first_of,
    holders,
    quota_breakdown,
)
from gpuconsole.insight.unblock.admission_trial import (
    EmptyCluster,
    OtherWorkloads,
    cause,
    dominant_blocker,
    examined,
    gaps,
)
from gpuconsole.insight.unblock.changes import in_words
from gpuconsole.insight.unblock.placement_trial import (
    PlacementResult,
    PlacementStatus,
    keeping_drained,
    kept_by_budget,
    placement_check,
)
from gpuconsole.insight.unblock.search import (
    Suggestions,
    placement_suggestion_steps,
    suggestion_steps,
)
from gpuconsole.model.clock import Time, format_span
from gpuconsole.model.cooperative import Progress, complete_answer
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.assignment import FlavorAssignmentMode
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.entry import CycleEntry
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.policy import SimPolicy

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

_MODES = {
    FlavorAssignmentMode.NO_FIT: "no fit",
    FlavorAssignmentMode.NO_CANDIDATES: "no preemption candidates",
    FlavorAssignmentMode.PREEMPT: "by preemption",
    FlavorAssignmentMode.RECLAIM: "by reclaim",
    FlavorAssignmentMode.FIT: "fits",
}


class ConsideredFlavor(Struct, frozen=True, kw_only=True):
    """A flavor that Kueue tried for a pod set, with the worst result over its resources."""

    pod_set: str
    flavor: str
    mode: str
    borrows: int = 0
    """Borrowing level: levels up to the cohort that it would borrow from; 0 = it does not borrow."""
    code: PendingReason = PendingReason.NOT_WAITING
    reasons: tuple[str, ...] = ()


def considered(entry: CycleEntry) -> Iterator[ConsideredFlavor]:
    """Yield the flavors pod set by pod set, in the order in which they were tried."""
    for result in entry.assignment.pod_sets:
        seen: dict[str, ConsideredFlavor] = {}
        for search in result.searches:
            for noted in search.results:
                known = seen.get(noted.flavor)
                one = ConsideredFlavor(
                    pod_set=result.pod_set.name,
                    flavor=noted.flavor,
                    mode=_MODES[noted.mode],
                    borrows=noted.height,
                    code=cause(noted),
                    reasons=noted.reasons,
                )
                seen[noted.flavor] = one if known is None else _worse(known, one)
        yield from seen.values()


def _worse(known: ConsideredFlavor, other: ConsideredFlavor) -> ConsideredFlavor:
    order = list(_MODES.values())
    worse = min(known, other, key=lambda one: order.index(one.mode))
    reasons = tuple(dict.fromkeys((*known.reasons, *other.reasons)))
    return replace(worse, borrows=max(known.borrows, other.borrows), reasons=reasons)


def quota_breakdowns(snapshot: Snapshot, session: KueueSession, entry: CycleEntry) -> tuple[QuotaBreakdown, ...]:
    """Return the arithmetic of every flavor and resource of which the workload lacks quota or exceeds the capacity."""
    return tuple(
        quota_breakdown(
            session.usage_tree,
            entry.rules.node,
            (gap.flavor, resource),
            gap.wanted[resource],
            tuple(_users(snapshot, entry.rules.name, (gap.flavor, resource))),
        )
        for gap in gaps(session, entry)
        for resource in gap.short
    )


def _users(snapshot: Snapshot, queue: str, short: FlavorResource) -> Iterator[QuotaUser]:
    for workload in holders(snapshot, queue, [short])[:MOST_HOLDERS]:
        amount = sum(amount for pair, amount in held(workload) if pair == short)
        yield QuotaUser(workload.key, workload.cluster_queue, amount)


ENGINE = "engine"
OBJECTS = "objects"
Simulating = Callable[[], "Simulation"]
"""Function that returns a simulation of the cluster to fork; if there is none, its first call makes it."""
PLACES = (PendingReason.GANG, PendingReason.NODES, PendingReason.DISRUPTION_BUDGET)
"""Reasons for which pods wait for nodes: remedies are tried in a simulation, not only in the admission engine."""
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
    """Answer to why a workload is pending, with the suggestions found so far."""

    time: Time
    why: WhyPending
    suggestions: Suggestions | None = None


def trying(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, key: str, simulating: Simulating | None = None
) -> Iterator[Progress[Tried]]:
    """Yield the answer to why a workload is pending, with more and more suggestions; the last is complete.

    `rehearsal` is the admission state to try changes on (`rehearsal_on`); `simulating` gives a simulation to schedule
    pods in. Closing the iterator ends the search.
    """
    answer = why(snapshot, rehearsal, key, simulating)
    searched = False
    for look in _searches(snapshot, rehearsal, answer, simulating):
        searched = True
        so_far = Tried(time=snapshot.time, why=answer, suggestions=look.answer)
        yield Progress(doing=look.doing, done=look.done, total=look.total, answer=so_far, last=look.last)
    if not searched:
        yield Progress(answer=Tried(time=snapshot.time, why=answer), last=True)


def tried(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, key: str, simulating: Simulating | None = None
) -> Tried:
    """Return the answer of `trying` with all suggestions; this may take seconds on a large cluster."""
    return complete_answer(trying(snapshot, rehearsal, key, simulating))


def rehearsal_of(simulation: "Simulation", snapshot: Snapshot) -> AdmissionSimulator | None:
    """Return a copy of a simulation's admission state to try changes on; None without Kueue."""
    session = simulation.session
    return AdmissionSimulator(session.fork(), simulation.now, snapshot.workloads) if session is not None else None


def rehearsal_on(snapshot: Snapshot, config: KueueConfig | None) -> AdmissionSimulator | None:
    """Return the admission state of a Snapshot to try changes on; None without Kueue."""
    return AdmissionSimulator.from_snapshot(snapshot, config) if config is not None else None


def why(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, key: str, simulating: Simulating | None = None
) -> WhyPending:
    """Return the answer for a workload, a job or a pod (see `explain`). Mutates nothing."""
    attempt = AdmissionAttempt(rehearsal) if rehearsal is not None else None
    explanation = explain(snapshot, key, attempt)
    if explanation.code in PLACES and simulating is not None and len(snapshot.pod_disruption_budgets):
        kept = kept_by_budget(simulating(), explanation)
        if kept is not None:
            said = f"its pods stay unscheduled for 1m; with this change they are scheduled: {kept.remedies[0].text}"
            engine = Evidence(source=ENGINE, code=kept.code, text=said, since=snapshot.time)
            return WhyPending(explanation=kept, evidence=(engine, _shown(snapshot, explanation)))
    if explanation.code is PendingReason.NOT_WAITING and len(snapshot.pod_disruption_budgets):
        explanation = replace(explanation, lines=(*explanation.lines, *keeping_drained(snapshot, explanation.subject)))
    if rehearsal is None or attempt is None or attempt.entry is None:
        # For a job without a Workload the limits of its queue take precedence over an older message.
        never = explanation.code is PendingReason.EXCEEDS_MAX and explanation.subject not in snapshot.workloads
        return WhyPending(explanation=explanation, never=never, evidence=(_shown(snapshot, explanation),))
    entry = attempt.entry
    never = explanation.code in _FOR_GOOD and _never(snapshot, rehearsal, entry.request.workload, simulating)
    return WhyPending(
        explanation=_for_good(explanation) if never else _behind(explanation, attempt),
        never=never,
        head=attempt.head,
        considered=tuple(considered(entry)),
        rooms=quota_breakdowns(snapshot, rehearsal.session, entry),
        evidence=tuple(_evidence(snapshot, attempt.code, entry, explanation)),
    )


class AdmissionAttempt:
    """The engine's attempt to admit a workload as the head of its queue, made if an explanation needs it. Mutable."""

    def __init__(self, rehearsal: AdmissionSimulator) -> None:
        self.session = rehearsal.session
        self.rehearsal = rehearsal
        self.entry: CycleEntry | None = None
        self.code = PendingReason.NOT_WAITING
        """Dominant reason code of the entry."""
        self.head = ""
        """The head of its queue in the next cycle; empty if that is the workload itself or there is none."""

    def __call__(self, key: str) -> EngineVerdict | None:
        """Return the verdict: code `queued` if it would be admitted, now or after the head of the queue."""
        entry = self.entry = examined(self.rehearsal, key)
        if entry is None:
            return None
        waiting = self.session.pending_workloads(entry.rules.name)
        first = next((place.workload.key for place in waiting if not place.inadmissible), "")
        self.head = "" if first == key else first
        self.code = dominant_blocker(entry)
        turn = self.code is PendingReason.NOT_WAITING or (
            bool(self.head) and self.code in (PendingReason.WAITING_FOR_VICTIMS, PendingReason.CONTENTION)
        )
        return EngineVerdict(PendingReason.QUEUED) if turn else EngineVerdict(self.code, entry.message)

    @property
    def is_inadmissible(self) -> bool:
        """True if the workload is inadmissible and no event that requeues inadmissible workloads has happened."""
        known = self.entry is not None and self.session.is_inadmissible(self.entry.request.workload.key)
        return known and not self.session.has_requeue_due


def unblocking(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, answer: WhyPending, simulating: Simulating | None = None
) -> Suggestions | None:
    """Return changes that unblock the workload of `answer`; None if no change that can be tried would."""
    last = None
    for look in _searches(snapshot, rehearsal, answer, simulating):
        last = look.answer
    return last


def waits_for_places(code: PendingReason, *, queued: bool) -> bool:
    """True if pods wait for nodes, so that changes of nodes, gangs or pods may help; `queued` if Kueue manages it."""
    return code in (PLACES if queued else _OF_PODS)


def _searches(
    snapshot: Snapshot, rehearsal: AdmissionSimulator | None, answer: WhyPending, simulating: Simulating | None
) -> Iterator[Progress[Suggestions]]:
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


def _behind(judged: PendingExplanation, attempt: AdmissionAttempt) -> PendingExplanation:
    """Add the position in the queue and the head to the headline of a queued workload."""
    if judged.code is not PendingReason.QUEUED:
        return judged
    if attempt.is_inadmissible:
        # For example, work of another cohort freed nodes that both use: Kueue requeues only that cohort tree.
        when = "until a workload of its cohort tree ends, or a queue, flavor or node changes"
        return replace(judged, headline=f"Fits now, but is inadmissible in {judged.queue} {when}.")
    if not attempt.head:
        return replace(judged, headline=f"Fits: {judged.queue} admits it in its next scheduling cycle.")
    place = judged.position
    where = (
        f"position {place.in_cluster_queue} of {place.of_cluster_queue} in" if place is not None else "behind others in"
    )
    return replace(judged, headline=f"Queued, {where} {judged.queue}; the head of the queue is {attempt.head}.")


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


def _evidence(
    snapshot: Snapshot, code: PendingReason, entry: CycleEntry, explanation: PendingExplanation
) -> Iterator[Evidence]:
    yield Evidence(source=ENGINE, code=code, text=entry.message or "fits", since=snapshot.time)
    if explanation.text:
        code = code_of(explanation.text, flavor_groups(entry.rules.queue))
        yield Evidence(source=explanation.source, code=code, text=explanation.text, since=explanation.since)


def _shown(snapshot: Snapshot, explanation: PendingExplanation) -> Evidence:
    """Return the evidence from messages or objects, for answers without an admission attempt."""
    if explanation.text:
        # The message may be older than the state of the objects.
        groups = flavor_groups(snapshot.cluster_queues.get(explanation.queue))
        read = code_of(explanation.text, groups) if explanation.source == KUEUE else PendingReason.OTHER
        code = read if read is not PendingReason.OTHER else explanation.code
        return Evidence(source=explanation.source, code=code, text=explanation.text, since=explanation.since)
    return Evidence(source=OBJECTS, code=explanation.code, text=explanation.headline, since=snapshot.time)


class AdmissionView(NamedTuple):
    """A cluster at one moment: its Snapshot, the admission engine in the same state, and the settings."""

    snapshot: Snapshot
    session: KueueSession | None
    """None without Kueue."""
    policy: SimPolicy


def view_of(simulation: "Simulation") -> AdmissionView:
    """Return the state of a simulated cluster, with the decisions of the engine."""
    return AdmissionView(simulation.snapshot(), simulation.session, simulation.policy)


def view_on(snapshot: Snapshot, policy: SimPolicy) -> AdmissionView:
    """Return the state of a live or saved cluster, with its settings as far as they are known."""
    rehearsal = rehearsal_on(snapshot, policy.kueue)
    return AdmissionView(snapshot, rehearsal.session if rehearsal is not None else None, policy)


Mark = Literal["✓", "⚠", ""]
"""Mark before a suggestion: it works (✓), it works but more is missing (⚠), or it is a remark."""


def flavor_lines(answer: WhyPending) -> Iterator[str]:
    """Yield a line of text for each flavor, in the order in which they were tried."""
    several = len({one.pod_set for one in answer.considered}) > 1
    width = max((len(_of(one, several)) for one in answer.considered), default=0)
    for one in answer.considered:
        borrows = f", borrowing level {one.borrows}" if one.borrows else ""
        why = f": {'; '.join(one.reasons)}" if one.reasons else ""
        yield f"{_of(one, several):<{width}}  {one.mode}{borrows}{why}"


def _of(one: ConsideredFlavor, several: bool) -> str:
    return f"{one.pod_set} · {one.flavor}" if several else one.flavor


def suggestion_texts(answer: WhyPending, found: Suggestions, snapshot: Snapshot) -> Iterator[tuple[Mark, str]]:
    """Yield each suggestion with its mark, and a warning below it if its pods were not scheduled in the trial."""
    if found.admitted_anyway:
        yield "", "no change needed: it is admitted as it is"
        yield from _landing(found.landing)
    for suggestion in found.found:
        yield "✓", in_words(suggestion.steps, snapshot, answer.short) + _others(suggestion.others)
        yield from _landing(suggestion.landing)
    if not found.found and not found.admitted_anyway:
        yield "", "no change that was tried admits it"
    if not found.complete:
        yield "", f"search limit reached after {found.tried} trials: other changes may work"


def _others(others: OtherWorkloads) -> str:
    """Format which workloads take quota before it, so that it needs more than it lacks, and which it preempts."""
    first, victims = others.admitted_first, others.preempted
    admitted = f"; {first_of(first)} {'is' if len(first) == 1 else 'are'} admitted first" if first else ""
    return admitted + (f"; preempts {first_of(victims)}" if victims else "")


def _landing(landing: PlacementResult) -> Iterator[tuple[Mark, str]]:
    match landing.nodes:
        case PlacementStatus.NONE:
            yield "⚠", f"admitted, but after 1m: {landing.text}"
        case PlacementStatus.EVICTED:
            yield "⚠", f"admitted, and {landing.text}"
        case PlacementStatus.CHECKS:
            yield "⚠", f"reserves quota, but after 1m: {landing.text}"
        case PlacementStatus.UNSEEN:
            yield "⚠", "no pods after 1m: whether they find nodes is unknown"
        case PlacementStatus.FOUND | PlacementStatus.UNTRIED:
            pass
        case _:
            assert_never(landing.nodes)


def evidence_lines(answer: WhyPending, now: Time) -> Iterator[str]:
    """Yield each piece of evidence with its sources and their age; messages that are out of date are marked."""
    codes = {one.code for one in answer.evidence if one.code is not PendingReason.NOT_WAITING}
    said: dict[tuple[PendingReason, str], list[str]] = {}
    for one in answer.evidence:
        said.setdefault((one.code, one.text), []).append(f"{one.source}{_age(one, now)}")
    for (code, text), sources in said.items():
        # If a disruption budget protects victims, the scheduler only reports a gang or pod without a node.
        differs = " (out of date)" if len(codes) > 1 and code is not answer.code and code not in PLACES else ""
        coded = "" if code is PendingReason.NOT_WAITING else f"{code}{differs}: "
        yield f"{' and '.join(sources)}: {coded}{text}"


def _age(one: Evidence, now: Time) -> str:
    """Format an age; a condition has the time of its last transition, and its message may be newer."""
    if one.since is None:
        return ""
    return f", {'' if one.source == ENGINE else 'at most '}{format_span(max(0, now - one.since))} old"
