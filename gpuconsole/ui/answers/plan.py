"""Text of a plan: the cheapest options that start workloads within a target wait."""

from collections.abc import Iterator

from gpuconsole.insight.tables import counted
from gpuconsole.insight.whatif.plan import CapacityPlan, PlanOption
from gpuconsole.insight.whatif.whatif import FEASIBLE
from gpuconsole.model.clock import format_span
from gpuconsole.ui.answers.parts import AnswerTable, Part, Row, Valued, lines_of
from gpuconsole.ui.names import called, named

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
    """All evaluated options, in display order."""
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
