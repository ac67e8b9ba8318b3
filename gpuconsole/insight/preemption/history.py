"""Preemption history: victim, preemptor, rule and lost work of each preemption, with statistics, chains and loops.

`rows` reads the preemptions from history lines, `preemption_stats` counts them by workload and queue. Also the texts
for how Kueue chose its victims (chosen, skipped, or not a candidate), and the work lost by all evictions: GPU-hours and
USD by queue and workload.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.devices import WHOLE_GPU
from gpuconsole.model.events import CandidateVerdict, HistoryEvent, HistoryEventKind, PreemptionRule, PreemptionTrace
from gpuconsole.model.snapshot import KEPT
from gpuconsole.scheduling.kueue.messages import paths_in, priorities_in

RULES = {
    PreemptionRule.IN_CLUSTER_QUEUE: "priority in the queue",
    PreemptionRule.IN_COHORT_RECLAMATION: "reclaim in cohort",
    PreemptionRule.IN_COHORT_FAIR_SHARING: "fair sharing in cohort",
    PreemptionRule.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclaim while borrowing",
}
"""Texts for the reasons of Kueue's Preempted condition."""
ACTIONS = {
    "preempt": "priority in the queue",
    "reclaim": "reclaim between queues",
    "gangpreempt": "priority in the queue, whole gangs",
    "gangreclaim": "reclaim between queues, whole gangs",
    "consolidation": "consolidation (moved to other nodes)",
}
"""Texts for the actions of Volcano and KAI."""
_EVICTIONS = (HistoryEventKind.EVICTED, HistoryEventKind.POD_EVICTED)
_GONE = (HistoryEventKind.REQUEUED, HistoryEventKind.FINISHED, HistoryEventKind.FAILED, HistoryEventKind.DELETED)
OVER = (HistoryEventKind.FINISHED, HistoryEventKind.FAILED, HistoryEventKind.DELETED)
PLACED = (HistoryEventKind.ADMITTED, HistoryEventKind.STARTED, HistoryEventKind.POD_BOUND)
NEEDED = frozenset({HistoryEventKind.PREEMPTED, HistoryEventKind.RECONSTRUCTED, *_EVICTIONS, *_GONE, *PLACED})
"""The kinds of history lines that `rows` needs."""
THRASH_WITHIN: Span = HOUR
THRASH_COUNT = 3


class PreemptionRow(Struct, frozen=True, kw_only=True):
    """One preemption: which workload was preempted by which, by what rule, and what work was lost."""

    time: Time
    """Time at which the victim was chosen."""
    victim: str
    victim_queue: str
    gpus: int | None
    """GPUs, or what `unit` names; None if only the name of the victim is known."""
    unit: str = WHOLE_GPU.noun
    by: str
    by_queue: str
    rule: str
    """Text of the preemption rule; an unknown reason is not translated."""
    reason: str
    priority: int | None
    """Priority of the victim; None if unknown, as the workload was deleted before it was observed."""
    by_priority: int | None
    lost_gpu_hours: float | None
    """Lost work in GPU-hours; None if unknown, as the victim ran before it was observed."""
    cost: float | None
    """USD of the lost work; None if it is unknown or has no price."""
    latency: Span | None
    """Time from the choice of the victim until its quota was released; None before that."""
    nth: int
    """Number of preemptions of this victim so far, within the rows."""
    thrash: bool
    """True if the victim was preempted at least three times within the hour that ends here."""
    admitted_at: Time | None
    """Time at which the preemptor was admitted or scheduled; None if it was not, so far."""
    message: str
    path: str = ""
    """The victim's ClusterQueue with its cohorts (`/root/team/cq`), if the message names it."""
    by_path: str = ""
    """The preemptor's ClusterQueue with its cohorts, likewise."""
    by_gone_at: Time | None = None
    """Time at which the preemptor was deleted or failed without having been scheduled."""
    at_most: bool = False
    """True if the release was not observed, so that `latency` is an upper bound."""
    unseen: bool = False
    """True if it is unknown when, and whether, the quota was released."""
    choice: PreemptionTrace | None = None
    """Candidates and shares at the time of the choice: recorded by the scheduler, or reconstructed by our engine."""

    @property
    def in_vain(self) -> bool:
        """True if the preemption was wasted: the preemptor ended without having been scheduled."""
        return self.admitted_at is None and self.by_gone_at is not None

    @property
    def by_known(self) -> bool:
        """False if the preemptor was deleted before it was observed: only its UID is known."""
        return is_name(self.by)


def is_name(by: str) -> bool:
    """True for the key of a preemptor, False for an unresolved UID."""
    return "/" in by


def rows(history: Sequence[HistoryEvent]) -> list[PreemptionRow]:
    """List the preemptions in history lines (oldest first), newest first.

    PREEMPTED lines make the rows; the other kinds in `NEEDED` complete them. The loss is that of the eviction, which
    the PREEMPTED line may repeat. The quota of a victim is released when it is requeued or deleted; if that was not
    observed, at the latest when it reserves quota again, or when its preemptor is admitted.
    """
    evicted, gone, placed = (_by_subject(history, kinds) for kinds in (_EVICTIONS, _GONE, PLACED))
    times: dict[str, list[Time]] = {}
    newest: dict[str, int] = {}
    found: list[PreemptionRow] = []
    for line in history:
        if line.what is HistoryEventKind.PREEMPTED:
            victim = subject(line)
            times.setdefault(victim, []).append(line.time)
            of_preemptor = placed.get(line.by, ()), gone.get(line.by, ())
            of_victim = evicted.get(victim, ()), gone.get(victim, ()), placed.get(victim, ())
            found.append(_row(line, times[victim], *of_victim, *of_preemptor))
            newest[victim] = len(found) - 1
        elif line.what is HistoryEventKind.RECONSTRUCTED and line.workload in newest:
            _tell(found, newest[line.workload], line)
    found.reverse()
    return found


def with_stories(history: Sequence[HistoryEvent]) -> tuple[HistoryEvent, ...]:
    """Return the newest lines of a history, and the older ones that `rows` needs to complete preemptions."""
    older, newest = history[:-KEPT], history[-KEPT:]
    names = {name for line in history if line.what is HistoryEventKind.PREEMPTED for name in (subject(line), line.by)}
    return (*(line for line in older if line.what in NEEDED and subject(line) in names), *newest)


def _tell(found: list[PreemptionRow], place: int, line: HistoryEvent) -> None:
    """Add a reconstructed choice to its preemption, whose line comes earlier."""
    row = found[place]
    if row.choice is None and row.by == line.by:
        found[place] = replace(row, choice=line.choice)


def subject(line: HistoryEvent) -> str:
    """Return the subject of a line: the workload, or the pod if it has no Workload."""
    return line.workload or line.pod


def _by_subject(history: Sequence[HistoryEvent], kinds: Collection[HistoryEventKind]) -> dict[str, list[HistoryEvent]]:
    found: dict[str, list[HistoryEvent]] = {}
    for line in history:
        if line.what in kinds:
            found.setdefault(subject(line), []).append(line)
    return found


def _row(
    line: HistoryEvent,
    times: Sequence[Time],
    evicted: Sequence[HistoryEvent],
    gone: Sequence[HistoryEvent],
    back: Sequence[HistoryEvent],
    placed: Sequence[HistoryEvent],
    by_gone: Sequence[HistoryEvent],
) -> PreemptionRow:
    admitted = next((one.time for one in placed if one.time >= line.time), None)
    again = next((one.time for one in back if one.what is HistoryEventKind.ADMITTED and one.time > line.time), None)
    # An eviction after the victim was admitted again is another one; evictions without a loss may have been left out.
    ends = (one for one in evicted if line.time <= one.time and one.pod == line.pod)
    paid = next((one for one in ends if again is None or one.time <= again), line)
    left = next((one.time for one in gone if one.time >= line.time and (again is None or one.time <= again)), None)
    # The release was not observed, but it came before this.
    latest = [time for time in (admitted if line.pod or again is not None else None, again) if time is not None]
    end = left if left is not None else min(latest, default=None)
    gave_up = next((one.time for one in by_gone if one.what in OVER and one.time >= line.time), None)
    by_path, path = paths_in(line.message)
    # Only the name is known of a victim that was deleted before it was observed.
    known = bool(line.pod or line.gpus or line.queue)
    by_priority, priority = priorities_in(line.message) or (
        line.by_priority if is_name(line.by) else None,
        line.priority if known else None,
    )
    return PreemptionRow(
        time=line.time,
        victim=subject(line),
        victim_queue=line.queue or path.rpartition("/")[2],
        gpus=line.gpus if known else None,
        unit=line.unit,
        by=line.by,
        by_queue=line.by_queue,
        rule=rule_in_words(line.reason),
        reason=line.reason,
        priority=priority,
        by_priority=by_priority,
        lost_gpu_hours=None if paid.lost_unknown else paid.lost_gpu_seconds / 3600,
        cost=None if paid.lost_unknown or (paid.lost_gpu_seconds and not paid.cost) else paid.cost,
        latency=end - line.time if end is not None else None,
        at_most=left is None and end is not None,
        unseen=end is None and line.lost_unknown,
        nth=len(times),
        thrash=sum(1 for time in times if time > line.time - THRASH_WITHIN) >= THRASH_COUNT,
        admitted_at=admitted,
        message=line.message,
        path=path,
        by_path=by_path,
        by_gone_at=gave_up if admitted is None else None,
        choice=line.choice,
    )


def rule_in_words(reason: str) -> str:
    """Format a preemption reason; an unknown reason is returned unchanged."""
    try:
        return RULES[PreemptionRule(reason)]
    except ValueError:
        return ACTIONS.get(reason, reason)


LONGEST = 6
"""Maximum number of preemptions in a chain."""


class PreemptionCount(Struct, frozen=True):
    """Number of preemptions of one workload or queue, with their lost work."""

    name: str
    times: int
    lost_gpu_hours: float
    cost: float
    """USD."""
    thrash: bool = False
    """True if one of its workloads was preempted at least three times within an hour."""
    unknown: int = 0
    """Number of preemptions with unknown loss: the sums are lower bounds."""
    unpriced: int = 0
    """Number of preemptions with unknown cost."""


class PreemptionPair(Struct, frozen=True):
    """Number of preemptions of one victim by one preemptor."""

    victim: str
    by: str
    times: int


class EvictionCycle(Struct, frozen=True):
    """A preemption loop: workloads or queues that preempt each other, so that work is lost repeatedly."""

    names: tuple[str, ...]
    times: int
    lost_gpu_hours: float
    cost: float
    unknown: int = 0
    unpriced: int = 0
    pairs: tuple[PreemptionPair, ...] = ()
    """Its pairs of victim and preemptor, the most frequent first."""


class PreemptionStats(Struct, frozen=True):
    """Summary of preemptions. All counts have the most frequent first."""

    preemptions: int = 0
    lost_gpu_hours: float = 0.0
    cost: float = 0.0
    unplaced: int = 0
    """Preemptions whose preemptor is still unscheduled, as far as known."""
    in_vain: int = 0
    """Wasted preemptions: the preemptor ended before it was scheduled."""
    unknown: int = 0
    """Number of preemptions with unknown loss: the sums are lower bounds."""
    unpriced: int = 0
    """Number of preemptions with unknown cost."""
    rules: tuple[PreemptionCount, ...] = ()
    victims: tuple[PreemptionCount, ...] = ()
    victim_queues: tuple[PreemptionCount, ...] = ()
    causers: tuple[PreemptionCount, ...] = ()
    """The preemptors."""
    causing_queues: tuple[PreemptionCount, ...] = ()
    cycles: tuple[EvictionCycle, ...] = field(default=(), name="circles")
    """Preemption loops of workloads."""
    queue_cycles: tuple[EvictionCycle, ...] = field(default=(), name="queue_circles")
    """Preemption loops of ClusterQueues."""


def preemption_stats(rows: Sequence[PreemptionRow]) -> PreemptionStats:
    """Summarize preemptions (see `rows`)."""
    lost = _lost(rows)
    return PreemptionStats(
        preemptions=len(rows),
        lost_gpu_hours=lost.gpu_hours,
        cost=lost.cost,
        unplaced=sum(row.admitted_at is None and row.by_known and not row.in_vain for row in rows),
        in_vain=sum(row.in_vain for row in rows),
        unknown=lost.unknown,
        unpriced=lost.unpriced,
        rules=counts(rows, lambda row: row.rule),
        victims=counts(rows, lambda row: row.victim),
        victim_queues=counts(rows, lambda row: row.victim_queue),
        causers=counts(rows, lambda row: row.by),
        causing_queues=counts(rows, lambda row: row.by_queue),
        cycles=eviction_cycles(rows, lambda row: (row.by, row.victim)),
        queue_cycles=eviction_cycles(rows, lambda row: (row.by_queue, row.victim_queue)),
    )


def counts(rows: Iterable[PreemptionRow], name: Callable[[PreemptionRow], str]) -> tuple[PreemptionCount, ...]:
    """Count the rows by name, the most frequent first; rows without a name are left out."""
    found: dict[str, list[PreemptionRow]] = {}
    for row in rows:
        if name(row):
            found.setdefault(name(row), []).append(row)
    ranked = sorted(found, key=lambda one: (-len(found[one]), one))
    return tuple(_count(one, found[one]) for one in ranked)


def _count(name: str, rows: Sequence[PreemptionRow]) -> PreemptionCount:
    lost, thrash = _lost(rows), any(row.thrash for row in rows)
    return PreemptionCount(name, len(rows), lost.gpu_hours, lost.cost, thrash, lost.unknown, lost.unpriced)


class _Lost(Struct, frozen=True):
    """Sum of known losses of some preemptions, and number of unknown ones."""

    gpu_hours: float
    cost: float
    unknown: int
    unpriced: int


def _lost(rows: Sequence[PreemptionRow]) -> _Lost:
    hours = [row.lost_gpu_hours for row in rows if row.lost_gpu_hours is not None]
    costs = [row.cost for row in rows if row.cost is not None]
    return _Lost(sum(hours), sum(costs), len(rows) - len(hours), len(rows) - len(costs))


def about(rows: Iterable[PreemptionRow], names: Collection[str]) -> list[PreemptionRow]:
    """Return the preemptions in which one of these workloads (or lone pods) is victim or preemptor."""
    return [row for row in rows if row.victim in names or row.by in names]


def chain(row: PreemptionRow, rows: Sequence[PreemptionRow]) -> tuple[str, ...]:
    """Return the victim, its preemptor, the later preemptor of that one, and so on; only a loop repeats a name."""
    names = [row.victim, row.by]
    after = row.time
    while names[-1] and len(names) <= LONGEST and names[-1] not in names[:-1]:
        later = [other for other in rows if other.victim == names[-1] and other.time >= after]
        if not later:
            break
        next_one = min(later, key=lambda other: other.time)
        names.append(next_one.by)
        after = next_one.time
    return tuple(name for name in names if name)


def eviction_cycles(
    rows: Sequence[PreemptionRow], ends: Callable[[PreemptionRow], tuple[str, str]]
) -> tuple[EvictionCycle, ...]:
    """Find the preemption loops: groups of names that preempt each other, directly or indirectly; most evictions first.

    `ends` gives preemptor and victim of a row. A name that preempts only itself is not a loop.
    """
    edges: dict[str, dict[str, None]] = {}
    for row in rows:
        by, victim = ends(row)
        if by and victim and by != victim:
            edges.setdefault(by, {})[victim] = None
    found = []
    for group in _mutual(edges):
        inside = [row for row in rows if group.issuperset(ends(row)) and len(set(ends(row))) == 2]
        lost = _lost(inside)
        names = tuple(sorted(group))
        pairs = _pairs(map(ends, inside))
        found.append(EvictionCycle(names, len(inside), lost.gpu_hours, lost.cost, lost.unknown, lost.unpriced, pairs))
    return tuple(sorted(found, key=lambda cycle: (-cycle.times, cycle.names)))


def _pairs(ends: Iterable[tuple[str, str]]) -> tuple[PreemptionPair, ...]:
    """Count the preemptions by (preemptor, victim)."""
    counted = sorted(Counter(ends).items(), key=lambda one: (-one[1], one[0][1], one[0][0]))
    return tuple(PreemptionPair(victim, by, times) for (by, victim), times in counted)


def _mutual(edges: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Return the strongly connected components with at least two names."""
    backwards: dict[str, dict[str, None]] = {}
    for start, ends in edges.items():
        for end in ends:
            backwards.setdefault(end, {})[start] = None
    core = edges.keys() & backwards.keys()
    edges = {name: core.intersection(edges[name]) for name in core}
    backwards = {name: dict.fromkeys(core.intersection(backwards[name])) for name in core}
    groups, seen = [], set[str]()
    for name in sorted(core):
        if name not in seen:
            group = _reached(name, edges) & _reached(name, backwards)
            seen |= group
            if len(group) > 1:
                groups.append(frozenset(group))
    return groups


def _reached(name: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    found, left = {name}, [name]
    while left:
        for end in edges.get(left.pop(), ()):
            if end not in found:
                found.add(end)
                left.append(end)
    return found


WORDS = {
    CandidateVerdict.CHOSEN: "evicted",
    CandidateVerdict.PUT_BACK: "restored (fill-back): the other victims free enough",
    CandidateVerdict.NOT_NEEDED: "skipped: enough capacity without it",
    CandidateVerdict.NOT_BORROWING: "skipped: its ClusterQueue is within nominal quota",
    CandidateVerdict.NOT_WHILE_BORROWING: "skipped: the preemptor would have to borrow",
    CandidateVerdict.FAIR_SHARE: "skipped: its share would not stay above the preemptor's",
    CandidateVerdict.PRIORITY: "not a candidate: the policy requires a lower priority",
    CandidateVerdict.POLICY_NEVER: "not a candidate: the policy excludes its ClusterQueue",
}
"""Texts for the engine's verdicts on preemption candidates."""


def shares(choice: PreemptionTrace) -> str:
    """Format the weighted shares of the victim's and the preemptor's ClusterQueues."""
    return f"share {_short(choice.share)} ‰ ← {_short(choice.by_share)} ‰"


def _short(share: str) -> str:
    whole, point, _ = share.partition(".")
    return f"~{whole}" if point else whole


def whose(choice: PreemptionTrace, moment: str) -> str:
    """Describe that a choice of victims was reconstructed, from the state of `moment`; empty if it was recorded."""
    if not moment:
        return ""
    if choice.differs:
        return f"candidates unknown: a replay from the state at {moment} chose no such victim"
    return f"reconstructed from the state at {moment}"


class LostWork(Struct, frozen=True):
    """Sum of lost work, as far as it is known."""

    gpu_hours: float = 0.0
    cost: float = 0.0
    """USD."""
    times: int = 0
    unknown: int = 0
    """Number of evictions with unknown loss and cost: the sums are lower bounds."""
    unpriced: int = 0
    """Number of evictions with unknown cost."""

    def __add__(self, other: "LostWork") -> "LostWork":
        return LostWork(
            self.gpu_hours + other.gpu_hours,
            self.cost + other.cost,
            self.times + other.times,
            self.unknown + other.unknown,
            self.unpriced + other.unpriced,
        )

    def hours_text(self, form: str = ",.1f") -> str:
        """The GPU-hours as text: `1.2`, `at least 1.2`, `unknown`."""
        return at_least(format(self.gpu_hours, form), self.unknown, self.times)

    def cost_text(self, money: str) -> str:
        """Return the cost as text: `money` (its formatted amount), `at least` that, or `unknown`."""
        return at_least(money, self.unpriced, self.times)


NOTHING_LOST = LostWork()
Losses = Mapping[tuple[str, str], LostWork]
"""(queue, workload or pod) → its lost work."""


def lost_by(lines: Iterable[HistoryEvent]) -> Losses:
    """Sum the losses in history lines by queue and workload; PREEMPTED lines only repeat an eviction's loss."""
    found: dict[tuple[str, str], LostWork] = {}
    for line in lines:
        if (line.lost_gpu_seconds or line.lost_unknown) and line.what is not HistoryEventKind.PREEMPTED:
            key = line.queue, line.workload or line.pod
            found[key] = found.get(key, NOTHING_LOST) + lost_by_one(line)
    return found


def lost_by_one(line: HistoryEvent) -> LostWork:
    """Return the lost work of one eviction; unknown if the work started before the console observed it."""
    if line.lost_unknown:
        return LostWork(times=1, unknown=1, unpriced=1)
    unpriced = line.lost_gpu_seconds > 0 and not line.cost
    return LostWork(line.lost_gpu_seconds / 3600, line.cost, 1, 0, int(unpriced))


def at_least(number: str, unknown: int, of: int) -> str:
    """Format a sum over `of` losses, `unknown` of which are unknown: `at least 1.2`; `unknown` if all are."""
    if unknown and unknown == of:
        return "unknown"
    return f"at least {number}" if unknown else number


def summed(losses: Sequence[float | None], form: str) -> str:
    """Format the sum of losses with the format specification `form`; None is an unknown loss."""
    known = [loss for loss in losses if loss is not None]
    return at_least(format(sum(known), form), len(losses) - len(known), len(losses))
