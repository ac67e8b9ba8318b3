"""What would let workloads in soon enough, in words."""

from collections.abc import Iterator

from gpuconsole.insight.plan import Option, Plan
from gpuconsole.insight.tables import table
from gpuconsole.insight.whatif import FEASIBLE
from gpuconsole.model.clock import format_span
from gpuconsole.ui.names import called, named

MOST_OBSTACLES = 4
NOT_FOR_LONG = "nothing that was tried lets them keep their places; the cheapest that lets them in"


def plan_lines(answer: Plan) -> list[str]:
    """The answer for people, the cheapest first."""
    asked = f"{len(answer.workloads)} asked for, to run within {format_span(answer.wanted)} (p95)"
    if answer.without.holds:
        return [f"{asked}: they do without any change, after {_wait(answer.without, answer)}; {FEASIBLE}"]
    others = () if answer.without.soon else (answer.without,)
    rows = [_row(option, answer) for option in (*answer.options, *answer.failed, *others)]
    # What it is comes last: it is long, and on a narrow screen the numbers are what one compares.
    head = ("ENOUGH", "RUN", "P95 WAIT", "USD/H", "EVICTED", "LOST USD", "WHAT")
    if answer.best is None:
        last = ["nothing that was tried is enough", *_obstacles(answer)]
    else:
        said = "the cheapest that is enough" if answer.best.holds else NOT_FOR_LONG
        last = [f"{said}: {_what(answer.best)}; {FEASIBLE}"]
    return [asked, "", *table(head, rows), "", *last]


def _obstacles(answer: Plan) -> Iterator[str]:
    """What keeps them waiting, and what helps where nothing that is tried does."""
    for one in answer.obstacles[:MOST_OBSTACLES]:
        yield f"  {called(one.workload)}: {named(one.why)}" if one.workload else f"  {one.why}"
        yield from (f"    what helps: {remedy}" for remedy in one.remedies)
    more = len(answer.obstacles) - MOST_OBSTACLES
    if more > 0:
        yield f"  and {more} more"


def _row(option: Option, answer: Plan) -> tuple[object, ...]:
    return (
        "yes" if option.holds else "not for long" if option.soon else "no",
        f"{option.admitted}/{len(answer.workloads)}",
        _wait(option, answer),
        f"{option.hourly:.2f}",
        option.victims,
        f"{option.lost:.2f}",
        _what(option),
    )


def _what(option: Option) -> str:
    """What is changed; and how many get their place by it, and do not keep it."""
    return f"{option.words}; {option.evicted_again} evicted again" if option.evicted_again else option.words


def _wait(option: Option, answer: Plan) -> str:
    if option.p95_wait is None:
        return "–"
    if option.p95_wait > answer.horizon:
        return f"over {format_span(answer.horizon)}"
    return format_span(option.p95_wait)
