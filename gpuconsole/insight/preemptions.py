"""Preemption history: victim, preemptor, rule, lost work, and repeated preemptions of the same workload."""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, Span, Time
from gpuconsole.model.decisions import PreemptionRule, PreemptionTrace
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
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
_OVER = (HistoryEventKind.FINISHED, HistoryEventKind.FAILED, HistoryEventKind.DELETED)
_PLACED = (HistoryEventKind.ADMITTED, HistoryEventKind.STARTED, HistoryEventKind.POD_BOUND)
NEEDED = frozenset({HistoryEventKind.PREEMPTED, HistoryEventKind.RECONSTRUCTED, *_EVICTIONS, *_GONE, *_PLACED})
"""The kinds of history lines that `rows` reads."""
THRASH_WITHIN: Span = HOUR
THRASH_COUNT = 3


class PreemptionRow(Struct, frozen=True, kw_only=True):
    """One preemption: victim ← preemptor."""

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
    """Text of the rule; an unknown reason as it is."""
    reason: str
    priority: int | None
    """None if unknown, as the preemptor's: the workload was deleted before it was observed."""
    by_priority: int | None
    lost_gpu_hours: float | None
    """None if unknown: it ran before it was observed."""
    cost: float | None
    """USD of the lost work; None if it is unknown or has no price."""
    latency: Span | None
    """Time from the choice of the victim until its quota was released; None before that."""
    nth: int
    """Number of preemptions of this victim so far, within the rows."""
    thrash: bool
    """The victim was preempted at least three times within the hour that ends here."""
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
    """The release was not observed: `latency` is an upper bound."""
    unseen: bool = False
    """The release time is unknown; the quota may have been released."""
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
    evicted, gone, placed = (_by_subject(history, kinds) for kinds in (_EVICTIONS, _GONE, _PLACED))
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
    """Return the newest lines of a history, and the older lines that complete their preemptions."""
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
    paid = next((one for one in evicted if one.time >= line.time and one.pod == line.pod), line)
    admitted = next((one.time for one in placed if one.time >= line.time), None)
    again = next((one.time for one in back if one.what is HistoryEventKind.ADMITTED and one.time > line.time), None)
    left = next((one.time for one in gone if one.time >= line.time and (again is None or one.time <= again)), None)
    # The release was not observed, but it came before this.
    latest = [time for time in (admitted if line.pod or again is not None else None, again) if time is not None]
    end = left if left is not None else min(latest, default=None)
    gave_up = next((one.time for one in by_gone if one.what in _OVER and one.time >= line.time), None)
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
