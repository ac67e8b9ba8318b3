"""What would let workloads in soon enough, in words."""

from collections.abc import Iterator

from gpuconsole.insight.plan import Option, Plan
from gpuconsole.insight.whatif import FEASIBLE
from gpuconsole.model.clock import format_span
from gpuconsole.ui.answers.parts import Part, Row, Table, Valued, lines_of
from gpuconsole.ui.names import called, named

MOST_OBSTACLES = 4
NOT_FOR_LONG = "nothing that was tried lets them keep their places; the cheapest that lets them in"


def plan_lines(answer: Plan) -> list[str]:
    """The answer as text."""
    return lines_of(plan_parts(answer))


def plan_parts(answer: Plan) -> list[Part]:
    """The answer for people, the cheapest first."""
    asked = f"{len(answer.workloads)} asked for, to run within {format_span(answer.wanted)} (p95)"
    if answer.without.holds:
        return [f"{asked}: they do without any change, after {_wait(answer.without, answer)}; {FEASIBLE}"]
    rows = tuple(_row(option, answer) for option in options_of(answer))
    # What it is comes last: it is long, and on a narrow screen the numbers are what one compares.
    head = ("ENOUGH", "RUN", "P95 WAIT", "USD/H", "EVICTED", "LOST USD", "WHAT")
    if answer.best is None:
        last = ["nothing that was tried is enough", *_obstacles(answer)]
    else:
        said = "the cheapest that is enough" if answer.best.holds else NOT_FOR_LONG
        last = [f"{said}: {_what(answer.best)}; {FEASIBLE}"]
    return [asked, "", Table(head, rows), "", *last]


def options_of(answer: Plan) -> tuple[Option, ...]:
    """All that was tried, in the order in which it is shown."""
    return (*answer.options, *answer.failed, *(() if answer.without.soon else (answer.without,)))


def _obstacles(answer: Plan) -> Iterator[str]:
    """What keeps them waiting, and what helps where nothing that is tried does."""
    for one in answer.obstacles[:MOST_OBSTACLES]:
        yield f"  {called(one.workload)}: {named(one.why)}" if one.workload else f"  {one.why}"
        yield from (f"    what helps: {remedy}" for remedy in one.remedies)
    more = len(answer.obstacles) - MOST_OBSTACLES
    if more > 0:
        yield f"  and {more} more"


def key_of(option: Option) -> str:
    """What the cursor knows an option by."""
    return f"{option.kind}: {option.words}"


def _row(option: Option, answer: Plan) -> Row:
    wait = _wait(option, answer)
    cells = (
        "yes" if option.holds else "not for long" if option.soon else "no",
        f"{option.admitted}/{len(answer.workloads)}",
        wait if option.p95_wait is None else Valued(wait, option.p95_wait),
        Valued(f"{option.hourly:.2f}", option.hourly),
        option.victims,
        Valued(f"{option.lost:.2f}", option.lost),
        _what(option),
    )
    return Row(key=key_of(option), cells=cells)


def _what(option: Option) -> str:
    """What is changed; and how many get their place by it, and do not keep it."""
    return f"{option.words}; {option.evicted_again} evicted again" if option.evicted_again else option.words


def _wait(option: Option, answer: Plan) -> str:
    if option.p95_wait is None:
        return "–"
    if option.p95_wait > answer.horizon:
        return f"over {format_span(answer.horizon)}"
    return format_span(option.p95_wait)
