"""Timeline of one workload, from its conditions and history lines, and history lines folded by repetition."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.preemption.history import rule_in_words
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time, format_span
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Condition, Workload

_WORDS = {
    HistoryEventKind.SUBMITTED: "submitted",
    HistoryEventKind.PENDING: "pending",
    HistoryEventKind.RESERVED: "quota reserved",
    HistoryEventKind.ADMITTED: "admitted",
    HistoryEventKind.PREEMPTED: "preempted",
    HistoryEventKind.EVICTED: "evicted",
    HistoryEventKind.REQUEUED: "requeued",
    HistoryEventKind.PLACES: "topology assignment",
    HistoryEventKind.STARTED: "all pods run",
    HistoryEventKind.FINISHED: "finished",
    HistoryEventKind.FAILED: "failed",
    HistoryEventKind.DELETED: "deleted",
    HistoryEventKind.GANG_WAITING: "gang not scheduled",
    HistoryEventKind.DEADLOCK: "deadlocked",
    HistoryEventKind.POD_FAILED: "pod failed",
    HistoryEventKind.POD_EVICTED: "pod evicted",
    HistoryEventKind.COMMAND_REFUSED: "command refused",
    HistoryEventKind.COMMAND_NEEDLESS: "no change (already so)",
}
_CONDITION_WORDS = {
    ("QuotaReserved", True): "quota reserved",
    ("QuotaReserved", False): "pending",
    ("Admitted", True): "admitted",
    ("PodsReady", True): "all pods run",
    ("Evicted", True): "evicted",
    ("Preempted", True): "preempted",
    ("Finished", True): "finished",
}


_STEPS = {title: rank for rank, title in enumerate(("submitted", "quota reserved", "admitted", "all pods run"))}
"""Steps of a workload until it runs, in their order."""


class Moment(Struct, frozen=True, kw_only=True):
    """One step in the timeline of a workload; `after` is the time since the previous one."""

    time: Time
    title: str
    detail: str = ""
    """Flavor, preemptor or reason."""
    what: HistoryEventKind | None = None
    """Kind of the history line; None for a step that only the object's conditions tell."""
    after: Span = 0
    cost: float = 0.0
    count: int = 1
    """Number of equal steps in a row that are merged here; `time` is that of the first."""
    last: Time = 0
    """Time of the last of these, if there are several."""


def timeline(snapshot: Snapshot, workload: str, history: Sequence[HistoryEvent] | None = None) -> tuple[Moment, ...]:
    """Return the steps of a workload, oldest first.

    The steps come from `history` (oldest first; default: the Snapshot's newest lines), and from the workload's creation
    and conditions where history does not reach back. Equal steps in a row are merged, and so are alternating reasons
    for being pending.

    The order is that of history, which is that of resourceVersion. Times alone are not sufficient: conditions and
    Events have whole seconds, the console's own observations have microseconds.
    """
    lines = snapshot.recent if history is None else history
    moments = [_moment(line, workload) for line in lines if line.what in _WORDS and _concerns(line, workload)]
    subject = snapshot.workloads.get(workload)
    if subject is not None:
        moments += _from_object(subject, moments)
    return tuple(_with_spans(_counted(_in_order(moments))))


def _in_order(moments: Iterable[Moment]) -> list[Moment]:
    """Sort by second, then as in history, except for the steps until the workload runs, whose order is fixed."""
    found: list[Moment] = []
    for moment in sorted(moments, key=lambda moment: moment.time // SECOND):
        place, rank = len(found), _STEPS.get(moment.title)
        while place and rank is not None and _comes_later(found[place - 1], moment, rank):
            place -= 1
        found.insert(place, moment)
    return found


def _comes_later(other: Moment, moment: Moment, rank: int) -> bool:
    """True if `other` is in the same second, and a later one of the steps until the workload runs."""
    return other.time // SECOND == moment.time // SECOND and _STEPS.get(other.title, -1) > rank


def _counted(moments: Iterable[Moment]) -> list[Moment]:
    """Merge equal steps in a row."""
    found: list[Moment] = []
    row: dict[tuple[str, str], int] = {}
    for moment in moments:
        said = moment.title, moment.detail
        if found and not (moment.what is HistoryEventKind.PENDING and found[-1].what is HistoryEventKind.PENDING):
            row = {said: row[said]} if (found[-1].title, found[-1].detail) == said else {}
        if said in row:
            known = found[row[said]]
            found[row[said]] = replace(known, count=known.count + moment.count, last=moment.last or moment.time)
        else:
            row[said] = len(found)
            found.append(moment)
    return found


def _concerns(line: HistoryEvent, workload: str) -> bool:
    return line.workload == workload or (line.what is HistoryEventKind.PREEMPTED and line.by == workload)


def _moment(line: HistoryEvent, workload: str) -> Moment:
    return Moment(
        time=line.time,
        title=_title(line, workload),
        detail=_detail(line, workload),
        what=line.what,
        cost=line.cost,
        count=line.count,
        last=line.last_time,
    )


def _title(line: HistoryEvent, workload: str) -> str:
    if line.by == workload and line.workload != workload:
        return "preempts"
    # A job without a Workload (`Kind/namespace/name`) has started when enough of its pods run, perhaps not all.
    return "running" if line.what is HistoryEventKind.STARTED and workload.count("/") == 2 else _WORDS[line.what]


def _detail(line: HistoryEvent, workload: str) -> str:
    match line.what:
        case HistoryEventKind.PREEMPTED if line.workload != workload:
            return f"{line.workload} ({rule_in_words(line.reason)})"
        case HistoryEventKind.PREEMPTED:
            return f"by {line.by} ({rule_in_words(line.reason)})"
        case HistoryEventKind.ADMITTED | HistoryEventKind.RESERVED:
            wait = f" after {format_span(line.waited)}" if line.waited else ""
            return f"{line.queue}{f' on {line.flavor}' if line.flavor else ''}{wait}"
        case HistoryEventKind.EVICTED:
            lost = f", {line.lost_gpu_seconds / 3600:.1f} GPU-hours lost" if line.lost_gpu_seconds else ""
            lost = ", lost work unknown" if line.lost_unknown else lost
            return f"{line.reason}{lost}"
        case HistoryEventKind.POD_EVICTED | HistoryEventKind.POD_FAILED:
            return line.pod
        case _:
            return line.reason


def _from_object(workload: Workload, known: Sequence[Moment]) -> list[Moment]:
    """Return the steps from the object's conditions that are missing in history."""
    titles = {moment.title for moment in known}
    found = []
    if "submitted" not in titles:
        found.append(Moment(time=workload.created, title="submitted", detail=workload.queue))
    for condition in workload.conditions:
        title = _CONDITION_WORDS.get((condition.type, condition.status))
        if title is not None and title not in titles and condition.since >= workload.created:
            found.append(_from_condition(condition, title))
    return found


def _from_condition(condition: Condition, title: str) -> Moment:
    detail = condition.reason if condition.type in ("Evicted", "Preempted", "Finished") else ""
    return Moment(time=condition.since, title=title, detail=detail)


def _with_spans(moments: Sequence[Moment]) -> list[Moment]:
    before = moments[0].time if moments else 0
    spanned = []
    for moment in moments:
        spanned.append(replace(moment, after=moment.time - before))
        before = moment.time
    return spanned


class LifePhase(StrEnum):
    """What a workload is in, between two steps of its timeline."""

    PENDING = "pending"
    RESERVED = "quota reserved"
    ADMITTED = "admitted"
    RUNNING = "running"
    EVICTED = "evicted"


_PHASE_AFTER: Mapping[str, LifePhase | None] = {
    "submitted": LifePhase.PENDING,
    "pending": LifePhase.PENDING,
    "requeued": LifePhase.PENDING,
    "quota reserved": LifePhase.RESERVED,
    "admitted": LifePhase.ADMITTED,
    "all pods run": LifePhase.RUNNING,
    "running": LifePhase.RUNNING,
    "preempted": LifePhase.EVICTED,
    "evicted": LifePhase.EVICTED,
    "finished": None,
    "failed": None,
    "deleted": None,
}
"""Title of a step → the phase that begins with it; None ends the workload, and other steps change nothing."""


def phases(moments: Sequence[Moment], now: Time) -> list[tuple[LifePhase, Span]]:
    """Return the phases of a workload with their lengths, in order; the last one lasts until now, or until its end."""
    found: list[tuple[LifePhase, Span]] = []
    current: LifePhase | None = None
    begin = now
    for moment in moments:
        following = _PHASE_AFTER.get(moment.title, current)
        if following is current:
            continue
        if current is not None:
            found.append((current, moment.time - begin))
        current, begin = following, moment.time
    if current is not None:
        found.append((current, max(0, now - begin)))
    return [(phase, span) for phase, span in found if span > 0]


WITHIN: Span = 10 * MINUTE
"""Longest time between two repeated lines (client-go's EventAggregator: defaultAggregateIntervalInSeconds)."""


class Repeated(Struct, frozen=True):
    """A history line and its number of occurrences."""

    line: HistoryEvent
    """The newest occurrence."""
    count: int = 1
    first: Time = 0
    """Time of the first occurrence."""

    @property
    def span(self) -> Span:
        """Time from the first to the newest occurrence."""
        return self.line.time - self.first


_Said = tuple[HistoryEventKind, str, str, str, str, str, str, str]


def _said(line: HistoryEvent) -> _Said:
    """Return the fields of a line by which it equals another: all except its time, lost work and wait."""
    about = line.what, line.workload, line.pod, line.node, line.queue
    return *about, line.by, line.reason, line.message


def folded(lines: Iterable[HistoryEvent]) -> list[Repeated]:
    """Merge equal lines (oldest first) that are at most ten minutes apart, each at the position of its last one.

    Lines about one workload may alternate: each is folded with the lines that equal it.
    """
    found: dict[int, Repeated] = {}
    newest: dict[_Said, int] = {}
    for place, line in enumerate(lines):
        said, first = _said(line), line.time
        before = newest.get(said)
        known = found[before] if before is not None else None
        if line.count > 1:
            # The history has it once for all times.
            line = replace(line, time=line.last_time)
        if before is None or known is None or first - known.line.time > WITHIN:
            found[place] = Repeated(line, line.count, first)
        else:
            del found[before]
            found[place] = Repeated(line, known.count + line.count, min(known.first, first))
        newest[said] = place
    return list(found.values())
