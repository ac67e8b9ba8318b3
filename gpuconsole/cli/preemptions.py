"""`gpuconsole preemptions`: preemption history with victim, preemptor, rule, candidates and lost work.

The rows come from the history events of a cluster, or with --history from the last recorded session. `PreemptionEntry`
is a row in the JSON document, from which the text is formatted.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gpuconsole.cli.answering import (
    CommandAnswer,
    Origin,
    QuestionContext,
    answering,
    lines_of,
    nothing_said,
    say,
    subject_named,
)
from gpuconsole.cli.options import OpenRequest, configured, fixtures
from gpuconsole.errors import UsageError
from gpuconsole.insight.index.unqueued_work import pods_of
from gpuconsole.insight.preemption.history import (
    WORDS,
    EvictionCycle,
    PreemptionCount,
    PreemptionRow,
    PreemptionStats,
    about,
    at_least,
    chain,
    preemption_stats,
    rows,
    shares,
    whose,
)
from gpuconsole.insight.tables import Cell, counted, text_table
from gpuconsole.model.clock import SECOND, format_span, format_time
from gpuconsole.model.devices import device_cell
from gpuconsole.model.events import HistoryEvent, PreemptionTrace
from gpuconsole.model.snapshot import EMPTY, Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.services.status import ConsoleMode
from gpuconsole.store import queries
from gpuconsole.store.recorder import newest as newest_session
from gpuconsole.store.schema import earlier_sessions
from gpuconsole.ui import format as fmt
from gpuconsole.ui.names import called

MOST = 20
"""Maximum number of preemptions in the text output."""
PAIRS = 5
"""Maximum number of pairs of a preemption loop in the text output."""


class PreemptionEntry(Struct, frozen=True, kw_only=True):
    """One preemption in the JSON output."""

    time: str
    victim: str
    victim_queue: str
    victim_path: str
    victim_priority: int | None
    """Null if unknown, as are the other nullable fields."""
    gpus: int | None
    unit: str
    """Unit of `gpus`."""
    by: str
    by_queue: str
    by_path: str
    by_priority: int | None
    reason: str
    rule: str
    lost_gpu_hours: float | None
    """Null if unknown, because the victim ran before it was observed."""
    cost: float | None
    freed_after_seconds: float | None
    """Time from the preemption until the victim released its quota; null before that, or if unknown."""
    freed_at_most: bool
    """Whether `freed_after_seconds` is an upper bound, as the release itself was not observed."""
    freed_unknown: bool
    """Whether it is unknown when the victim released its quota."""
    by_known: bool
    """Whether the preemptor is known by name, not only by UID."""
    by_admitted: str | None
    """Time at which the preemptor was admitted or scheduled; null if it was not, up to now."""
    in_vain: bool
    """Whether the preemptor ended before it was scheduled."""
    nth: int
    """Number of preemptions of this victim up to and including this one."""
    thrash: bool
    """Whether the victim was preempted at least three times within the hour that ends with this preemption."""
    chain: tuple[str, ...]
    """The victim, its preemptor, the workload that later preempted that one, and so on."""
    message: str
    choice: PreemptionTrace | None
    choice_as_of: str | None
    """Time of the state from which our engine reconstructed the choice; null if the scheduler recorded it."""


class Body(Struct, frozen=True):
    """The JSON answer; `preemptions` are newest first, `workload` is the key that was asked for, or empty."""

    workload: str
    summary: PreemptionStats
    preemptions: tuple[PreemptionEntry, ...]


def as_document(body: Body) -> dict[str, Any]:
    """Convert the answer to JSON types; the sum of losses is null if no loss is known."""
    document: dict[str, Any] = to_builtins(body)
    _without_noughts(document["summary"])
    return document


def _without_noughts(sums: dict[str, Any]) -> None:
    """Replace sums without a known part by null, here and in the counts below."""
    times = sums.get("times", sums.get("preemptions", 0))
    for name, unknown in (("lost_gpu_hours", "unknown"), ("cost", "unpriced")):
        if times and sums.get(unknown) == times:
            sums[name] = None
    for below in sums.values():
        for one in below if isinstance(below, list | tuple) else ():
            if isinstance(one, dict):
                _without_noughts(one)


def as_text(body: Body) -> list[str]:
    """Format the answer: each preemption in full for a single workload, else a table and counts."""
    found, summary = body.preemptions, body.summary
    if not found:
        return [f"no preemptions{f' of or for {called(body.workload)}' if body.workload else ''}"]
    lines = _sums(summary)
    if body.workload:
        for one in found[:MOST]:
            lines += ["", *_preemption_text(one)]
    else:
        lines += ["", *text_table(HEAD, [_row(one) for one in found[:MOST]])]
    if len(found) > MOST:
        lines.append(f"and {len(found) - MOST} older; -o json lists all")
    return lines if body.workload else [*lines, *_counts(summary)]


def _sums(summary: PreemptionStats) -> list[str]:
    lines = [f"{counted(summary.preemptions, 'preemption')}: {_lost(summary, summary.preemptions)}"]
    if summary.unplaced:
        lines.append(f"{counted(summary.unplaced, 'preemptor')} still unscheduled")
    if summary.in_vain:
        lines.append(f"{counted(summary.in_vain, 'preemption')} wasted: the preemptor ended before it was scheduled")
    for what, cycles in (("queues", summary.queue_cycles), ("workloads", summary.cycles)):
        lines += [text for cycle in cycles[:MOST] for text in _loop(what, cycle)]
    return lines


def _lost(summed: PreemptionStats | EvictionCycle, times: int) -> str:
    hours = at_least(f"{summed.lost_gpu_hours:.1f}", summed.unknown, times)
    every = summed.unpriced == times > 0
    cost = "cost unknown" if every else at_least(fmt.money(summed.cost), summed.unpriced, times)
    return f"{hours} GPU-hours lost, {cost}"


def _loop(what: str, cycle: EvictionCycle) -> Iterator[str]:
    """A preemption loop: its sums, then who preempted whom, the most frequent first."""
    times = counted(cycle.times, "preemption")
    yield f"preemption loop of {len(cycle.names)} {what}, {times}: {_lost(cycle, cycle.times)}"
    shown = cycle.pairs[:PAIRS]
    yield from (f"  {pair.times:>4}×  {called(pair.victim)} ← {called(pair.by)}" for pair in shown)
    if more := len(cycle.pairs) - len(shown):
        yield f"         and {counted(more, 'more pair')}; -o json lists all"


HEAD = ("WHEN", "VICTIM", "GPUS", "PREEMPTOR", "RULE", "PRIORITY", "LOST GPU-H", "COST $", "RELEASED AFTER", "TIMES")


def _row(one: PreemptionEntry) -> tuple[Cell, ...]:
    mine, other = one.victim_priority, one.by_priority
    higher = mine is not None and other is not None and mine < other
    priorities = f"{_given(mine)}{' < ' if higher else ', '}{_given(other)}"
    lost, cost = _number(one.lost_gpu_hours, 1), _number(one.cost, 2)
    again = f"{one.nth}{' (loop)' if one.thrash else ''}"
    victim, by = called(one.victim), called(one.by)
    return one.time, victim, _held(one), by, one.rule, priorities, lost, cost, _freed(one), again


def _held(one: PreemptionEntry) -> Cell:
    return "–" if one.gpus is None else device_cell(one.gpus, one.unit)


def _given(number: int | None) -> int | str:
    return "–" if number is None else number


def _number(amount: float | None, digits: int) -> str:
    return "–" if amount is None else f"{amount:.{digits}f}"


def _freed(one: PreemptionEntry) -> str:
    if one.freed_after_seconds is None:
        return "–" if one.freed_unknown else "not yet"
    return f"{'≤ ' if one.freed_at_most else ''}{format_span(round(one.freed_after_seconds * SECOND))}"


def _preemption_text(one: PreemptionEntry) -> list[str]:
    gpus = (counted(one.gpus, one.unit),) if one.gpus is not None else ()
    victim = _about(one.victim_path or one.victim_queue, one.victim_priority, *gpus)
    by = _about(one.by_path or one.by_queue, one.by_priority)
    outcome = f"{called(one.by)} was admitted at {one.by_admitted}"
    if not one.by_known:
        outcome = "outcome of the preemptor unknown"
    elif one.by_admitted is None:
        outcome = f"{called(one.by)} {'ended before it was scheduled' if one.in_vain else 'is still unscheduled'}"
    freed = "quota release time unknown" if one.freed_unknown else "quota not released yet"
    if one.freed_after_seconds is not None:
        freed = f"quota released after {_freed(one).replace('≤', 'at most')}"
    lines = [
        f"{one.time}  {called(one.victim)} ({victim})",
        f"  preempted by {called(one.by)} ({by}): {one.rule}",
        f"  lost {_loss(one)}; {freed}; {outcome}",
    ]
    if len(one.chain) > 2:
        lines.append(f"  chain: {' <- '.join(map(called, one.chain))}")
    return [*lines, *_considered(one.choice, one.choice_as_of or "")] if one.choice is not None else lines


def _about(queue: str, priority: int | None, *more: str) -> str:
    said = f"priority {'unknown' if priority is None else priority}"
    return ", ".join((*filter(None, (queue,)), said, *more))


def _loss(one: PreemptionEntry) -> str:
    if one.lost_gpu_hours is None:
        return "unknown GPU-hours (it ran before it was observed)"
    cost = "cost unknown" if one.cost is None else fmt.money(one.cost)
    return f"{one.lost_gpu_hours:.1f} GPU-hours, {cost}"


def _considered(choice: PreemptionTrace, as_of: str) -> list[str]:
    if choice.differs:
        return [f"  {whose(choice, as_of)}"]
    title = f"  candidates, in preemption order ({'; '.join(filter(None, (shares(choice), whose(choice, as_of))))}):"
    rows = [("   ", called(one.workload), one.queue, one.priority, WORDS[one.verdict]) for one in choice.considered]
    lines = text_table(("", "WORKLOAD", "QUEUE", "PRIORITY", "OUTCOME"), rows)
    return [title, *lines, *([f"     and {choice.left_out} more"] if choice.left_out else [])]


def _counts(summary: PreemptionStats) -> list[str]:
    parts = (
        ("RULE", summary.rules),
        ("VICTIM", summary.victims),
        ("PREEMPTOR", summary.causers),
        ("VICTIM QUEUE", summary.victim_queues),
        ("PREEMPTOR QUEUE", summary.causing_queues),
    )
    return [text for name, counts in parts for text in ("", *_counted(name, counts))]


def _counted(name: str, counts: Sequence[PreemptionCount]) -> list[str]:
    return text_table(
        (name, "TIMES", "LOST GPU-H", "COST $"),
        [
            (
                called(one.name),
                one.times,
                at_least(f"{one.lost_gpu_hours:.1f}", one.unknown, one.times),
                at_least(f"{one.cost:.2f}", one.unpriced, one.times),
            )
            for one in counts[: MOST // 2]
        ],
    )


VERSION = 5
"""Version of the answer in the JSON document."""
RECORDED = 10_000
"""Maximum number of recorded preemptions that `--history` reads."""
UNRECORDED = "no session has been recorded; the console records its history while it runs"


def _naming(function: Callable[..., int]) -> Callable[..., int]:
    """Accept a workload name as first of FILES if no such file exists; with --history, open no cluster."""

    @click.option("--history", is_flag=True, help="Read the console's last recorded session.")
    @wraps(function)
    def command(files: tuple[str, ...], history: bool, output: str, **options: Any) -> int:
        alone = history or options["live"] or options["snapshot"] is not None
        named = files and _names(files[0], has_cluster=bool(files[1:]) or alone)
        workload, files = (files[0], files[1:]) if named else ("", files)
        if not history:
            return function(files=files, output=output, workload=workload, **options)
        if files or options["live"] or options["snapshot"] is not None:
            raise UsageError("--history reads the recorded session; omit FILES, --live and --snapshot")
        origin, lines, unseen = recorded()
        return say(origin, replace(answer_about(lines, workload, EMPTY), unknown=_others(unseen)), output)

    return command


def _names(text: str, *, has_cluster: bool) -> bool:
    """True if the first of FILES names a workload: `namespace/name` that is no path of a file.

    With `has_cluster`, other arguments select the cluster, so a name without a namespace counts, too.
    """
    path = Path(text)
    if not path.parts or path.is_absolute() or path.suffix or path.exists():
        return False
    return len(path.parts) > 1 or (has_cluster and text not in fixtures())


@click.command()
@_naming
@answering
def command(asked: QuestionContext, workload: str) -> CommandAnswer:
    """Show preemptions: victim, preemptor, rule, lost work.

    FILES are manifests, folders, a scenario, or the name of a bundled fixture; --until simulates it first. A workload
    before them (`namespace/name`) limits the list to its preemptions, as victim or preemptor, and shows the candidates.
    --history reads what the console recorded, which outlives the cluster's events.
    """
    seen = asked.seen
    if all(seen.is_unlisted(kind) for kind in (Workload, HistoryEvent)):
        return nothing_said("Preemptions", seen.missing_reasons(Workload, HistoryEvent), VERSION)
    answer = answer_about(lines_of(asked), workload, asked.simulation.snapshot())
    return replace(answer, unknown=_others(seen.missing_reasons(Workload, HistoryEvent)))


def _others(lacking: Iterable[str]) -> tuple[str, ...]:
    """What the answer does not have because of missing permissions, as sentences."""
    return tuple(f"other preemptions: {text}" for text in lacking)


def answer_about(lines: Sequence[HistoryEvent], workload: str, snapshot: Snapshot) -> CommandAnswer:
    """Return the preemptions among the events `lines` (oldest first), all of them or those of one workload, job or pod.

    `workload` is a typed name, or empty. Raises UsageError for a name that neither the events nor the cluster have.
    """
    everything = rows(lines)
    name = subject_named(snapshot, workload, _names_in(everything)) if workload else ""
    found = about(everything, {name, *pods_of(snapshot, name)}) if name else everything
    summary = preemption_stats(found)
    body = Body(name, summary, tuple(_preemption(row, everything) for row in found))
    return CommandAnswer(kind="Preemptions", body=as_document(body), lines=as_text(body), version=VERSION)


def _names_in(found: Iterable[PreemptionRow]) -> Collection[str]:
    return dict.fromkeys(name for row in found for name in (row.victim, row.by))


def recorded() -> tuple[Origin, Sequence[HistoryEvent], Sequence[str]]:
    """Read the preemptions of the newest recorded session: origin, events (oldest first), and why some may be missing.

    Raises UsageError, HistoryError.
    """
    _, settings = configured(OpenRequest())
    if not settings.history_files:
        raise UsageError(UNRECORDED)
    with earlier_sessions(settings.newest_history_file) as db:
        session = newest_session(db)
        if session is None:
            raise UsageError(UNRECORDED)
        lines = tuple(queries.preemptions(db, session.number, RECORDED).values())
    staged = session.mode == ConsoleMode.SIM
    origin = Origin(source=session.source, mode="recorded", now=session.last, staged=staged)
    return origin, lines, session.unseen


def _preemption(row: PreemptionRow, everything: Sequence[PreemptionRow]) -> PreemptionEntry:
    return PreemptionEntry(
        time=format_time(row.time),
        victim=row.victim,
        victim_queue=row.victim_queue,
        victim_path=row.path,
        victim_priority=row.priority,
        gpus=row.gpus,
        unit=row.unit,
        by=row.by,
        by_queue=row.by_queue,
        by_path=row.by_path,
        by_priority=row.by_priority,
        reason=row.reason,
        rule=row.rule,
        lost_gpu_hours=row.lost_gpu_hours,
        cost=row.cost,
        freed_after_seconds=row.latency / SECOND if row.latency is not None else None,
        freed_at_most=row.at_most,
        freed_unknown=row.unseen,
        by_known=row.by_known,
        by_admitted=format_time(row.admitted_at) if row.admitted_at is not None else None,
        in_vain=row.in_vain,
        nth=row.nth,
        thrash=row.thrash,
        chain=chain(row, everything),
        message=row.message,
        choice=replace(row.choice, as_of=0) if row.choice is not None else None,
        choice_as_of=format_time(row.choice.as_of) if row.choice is not None and row.choice.as_of else None,
    )
