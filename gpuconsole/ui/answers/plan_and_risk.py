"""Text of the plan (cheapest options that start workloads in a target wait) and of the preemption-risk report.

Also the parts of which all reports are made: lines of text, and tables whose rows name the object that they describe.
The command line prints the parts one below the other; the console shows the tables with a cursor.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from gpuconsole.insight.preemption.risk import Risk, WorkloadRisk
from gpuconsole.insight.tables import counted, table
from gpuconsole.insight.whatif.plan import CapacityPlan, PlanOption
from gpuconsole.insight.whatif.whatif import FEASIBLE
from gpuconsole.model.clock import SECOND, format_span, format_time
from gpuconsole.model.devices import WHOLE_GPU, short_amount
from gpuconsole.ui.names import called, named


class About(NamedTuple):
    """The object that a row describes: a table as in `objects.TABLES`, and a key in it."""

    table: str
    key: str


class Valued(NamedTuple):
    """Text of a cell, and the number by which it is sorted."""

    text: str
    value: float

    def __str__(self) -> str:
        return self.text


class Row(Struct, frozen=True, kw_only=True):
    """A row of a table. `about` is the object that it describes, on which actions work; None for no object."""

    key: str
    """Identifies the row for the cursor."""
    cells: tuple[object, ...]
    about: About | None = None
    note: str = ""
    """Text shown below the row, for details that do not fit in a column."""


class AnswerTable(Struct, frozen=True):
    """A table of a report."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]


Part: TypeAlias = "str | AnswerTable"


def lines_of(parts: Iterable[Part]) -> list[str]:
    """Return a report as lines of text, its parts one below the other."""
    return [line for part in parts for line in ([part] if isinstance(part, str) else _lines(part))]


def _lines(part: AnswerTable) -> Iterator[str]:
    head, *rows = table(part.head, [row.cells for row in part.rows])
    yield head
    for row, text in zip(part.rows, rows, strict=True):
        yield text
        if row.note:
            yield f"  {row.note}"


def apart(parts: Sequence[Part]) -> tuple[list[str], list[AnswerTable], list[str]]:
    """Split a report into the lines before its first table, the tables, and the lines after it."""
    tables = [part for part in parts if isinstance(part, AnswerTable)]
    first = next((place for place, part in enumerate(parts) if isinstance(part, AnswerTable)), len(parts))
    lines = [part for part in parts[first:] if isinstance(part, str)]
    return _trimmed(part for part in parts[:first] if isinstance(part, str)), tables, _trimmed(lines)


def _trimmed(lines: Iterable[str]) -> list[str]:
    """Without empty lines at both ends, and without more than one between others."""
    found: list[str] = []
    for text in lines:
        if text or (found and found[-1]):
            found.append(text)
    return found[:-1] if found and not found[-1] else found


NOTHING = "not enough data for an answer"


def no_data_lines(lacking: Iterable[str]) -> list[str]:
    """Return the report that replaces one whose required objects are not visible; `lacking` names them."""
    return [NOTHING, *missing_data_lines(lacking)]


def missing_data_lines(unknown: Iterable[str]) -> list[str]:
    """Return a line `unknown: …` for each text, to be shown below a report."""
    return [f"unknown: {text}" for text in unknown]


MOST_OBSTACLES = 4
NOT_FOR_LONG = "no option avoids later eviction; the cheapest that starts them"


def plan_lines(answer: CapacityPlan) -> list[str]:
    """The plan as text."""
    return lines_of(plan_parts(answer))


def plan_parts(answer: CapacityPlan) -> list[Part]:
    """The plan as lines and tables, the cheapest option first."""
    asked = f"{counted(len(answer.workloads), 'workload')} to start within {format_span(answer.wanted)} (p95 wait)"
    if answer.without.holds:
        return [f"{asked}: no change is needed, p95 wait {_wait(answer.without, answer)}; {FEASIBLE}"]
    rows = tuple(_row(option, answer) for option in options_of(answer))
    # The option comes last: it is long, and on a narrow screen the numbers matter more.
    head = ("MEETS TARGET", "STARTED", "P95 WAIT", "$/H", "EVICTED", "LOST $", "OPTION")
    if answer.best is None:
        last = ["no option meets the target", *_obstacles(answer)]
    else:
        said = "cheapest option that meets the target" if answer.best.holds else NOT_FOR_LONG
        last = [f"{said}: {_what(answer.best)}; {FEASIBLE}"]
    return [asked, "", AnswerTable(head, rows), "", *last]


def options_of(answer: CapacityPlan) -> tuple[PlanOption, ...]:
    """Return all evaluated options of a plan in display order: those that meet the target, then the others."""
    return (*answer.options, *answer.failed, *(() if answer.without.soon else (answer.without,)))


def _obstacles(answer: CapacityPlan) -> Iterator[str]:
    """Why the workloads stay pending, and the remedies for it."""
    for one in answer.obstacles[:MOST_OBSTACLES]:
        yield f"  {called(one.workload)}: {named(one.why)}" if one.workload else f"  {one.why}"
        yield from (f"    fix: {remedy}" for remedy in one.remedies)
    more = len(answer.obstacles) - MOST_OBSTACLES
    if more > 0:
        yield f"  and {more} more"


def key_of(option: PlanOption) -> str:
    """Row key of an option."""
    return f"{option.kind}: {option.words}"


def _row(option: PlanOption, answer: CapacityPlan) -> Row:
    wait = _wait(option, answer)
    cells = (
        "yes" if option.holds else "evicted later" if option.soon else "no",
        f"{option.admitted}/{len(answer.workloads)}",
        wait if option.p95_wait is None else Valued(wait, option.p95_wait),
        Valued(f"{option.hourly:.2f}", option.hourly),
        option.victims,
        Valued(f"{option.lost:.2f}", option.lost),
        _what(option),
    )
    return Row(key=key_of(option), cells=cells)


def _what(option: PlanOption) -> str:
    """The changes of the option, and the number of workloads that start and are evicted again."""
    return f"{option.words}; {option.evicted_again} evicted again" if option.evicted_again else option.words


def _wait(option: PlanOption, answer: CapacityPlan) -> str:
    if option.p95_wait is None:
        return "–"
    if option.p95_wait > answer.horizon:
        return f"over {format_span(answer.horizon)}"
    return format_span(option.p95_wait)


COLUMNS = (
    "WORKLOAD",
    "QUEUE",
    "GPUS",
    "BORROWED",
    "PRIORITY",
    "RISK",
    "MEDIAN",
    "CAUSE",
    "RECLAIMED BY",
    "LOST GPU-H",
    "COST $",
)


def risk_lines(answer: Risk) -> list[str]:
    """The preemption-risk report as text."""
    return lines_of(risk_parts(answer))


def risk_parts(answer: Risk) -> list[Part]:
    """The preemption-risk report as lines and tables."""
    if not answer.workloads:
        return ["no running workloads"]
    rows = tuple(_risk_row(one, answer.runs) for one in answer.workloads)
    if not answer.runs:
        return [
            f"{counted(len(rows), 'running workload')}; preemption risk unknown",
            "",
            AnswerTable(COLUMNS, rows),
        ]
    ahead = format_span(answer.horizon - answer.time)
    return [
        f"{endangered(answer)} of {counted(len(answer.workloads), 'workload')} may be evicted within {ahead}",
        "",
        AnswerTable(COLUMNS, rows),
        "",
        f"{counted(answer.runs, 'simulation run')} from {format_time(answer.time // SECOND * SECOND)}; assumptions:",
        *(f"  {text}" for text in answer.assumptions),
        *_bounded(answer),
    ]


def endangered(answer: Risk) -> int:
    """Return the number of running workloads that were evicted in at least one simulation run."""
    return sum(bool(one.probability) for one in answer.workloads)


def _bounded(answer: Risk) -> list[str]:
    """Message that the runs stopped early, with the command that completes them."""
    if answer.runs == answer.wanted_runs and answer.horizon == answer.wanted_horizon:
        return []
    limits = []
    if answer.runs < answer.wanted_runs:
        limits.append(f"{answer.runs} of {counted(answer.wanted_runs, 'run')}")
    if answer.horizon < answer.wanted_horizon:
        far, wanted = (format_span(end - answer.time) for end in (answer.horizon, answer.wanted_horizon))
        limits.append(f"{far} of the {wanted} horizon")
    return [f"Stopped early: {', '.join(limits)}. Full result: gpuconsole risk --runs {answer.wanted_runs}."]


def _risk_row(one: WorkloadRisk, runs: int) -> Row:
    median: object = "–" if runs else "unknown"
    if one.median is not None:
        median = Valued(format_span(one.median // SECOND * SECOND), one.median)
    causes = "; ".join(f"{c.by_queue or c.reason} {c.runs / runs:.0%}" for c in one.causes[:2])
    turns = ", ".join(f"{turn.lender} (rank {turn.place})" for turn in one.turns[:2])
    cells = (
        called(one.workload),
        one.queue,
        _held(one),
        "unknown" if one.borrowed is None else one.borrowed or "–",
        one.priority,
        "unknown" if one.probability is None else Valued(f"{one.probability:.0%}", one.probability),
        median,
        causes or ("unknown" if one.probability is None else "–"),
        turns or "–",
        "unknown" if one.lost_gpu_hours is None else Valued(f"{one.lost_gpu_hours:.1f}", one.lost_gpu_hours),
        "unknown" if one.cost is None else Valued(f"{one.cost:.2f}", one.cost),
    )
    return Row(key=one.workload, cells=cells, about=About("workloads", one.workload))


def _held(one: WorkloadRisk) -> object:
    """`8`, `3 MIG`, `2 dev`"""
    return one.gpus if one.unit == WHOLE_GPU.noun else Valued(short_amount(one.gpus, one.unit), one.gpus)
