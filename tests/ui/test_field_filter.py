"""Filters on fields: what passes, what is wrong and where, and what a text may be continued to."""

from dataclasses import dataclass
from itertools import compress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuconsole.ui.field_filter import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FilterError,
    Negation,
    Quantity,
    bind_expression,
    complete_expression,
    format_expression,
    is_expression,
    parse_expression,
    quantity_in,
)
from gpuconsole.ui.table_model import Column, fields_of, parse_filter


@dataclass(frozen=True)
class Job:
    name: str
    queue: str = ""
    gpus: int = 0
    wait: int | None = None
    """In seconds."""
    memory: str = ""
    team: str = ""


COLUMNS: tuple[Column[Job], ...] = (
    Column("WORKLOAD", lambda job: job.name, id="name"),
    Column("QUEUE", lambda job: (("● ", "running"), (job.queue, "")), id="queue"),
    Column("GPU×PODS", lambda job: f"{job.gpus}×1", id="usage", name="gpus", number=lambda job: job.gpus),
    Column("WAIT", lambda job: "" if job.wait is None else f"{job.wait}s", number=lambda job: job.wait, unit="seconds"),
    Column("MEM", lambda job: job.memory or "–", id="memory", align="right"),
    Column("°C", lambda job: "40", id="temperature", align="right", aliases=("heat",)),
    Column("", lambda job: "bar"),
)
JOBS = (
    Job("research/big", "research", 64, 9000, "1.5Gi", "vision"),
    Job("research/small", "Research", 1, 60, "900Mi"),
    Job("prod/serve", "prod", 8),
)
FIELDS = fields_of(COLUMNS)


def passing(text: str) -> str:
    """The names of the jobs that pass, without their namespaces."""
    passed = bind_expression(parse_expression(text), FIELDS, lambda job: {"team": job.team} if job.team else {})(JOBS)
    return " ".join(job.name.rpartition("/")[2] for job in compress(JOBS, passed))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpus>=8", "big serve"),
        ("gpus >= 8 and queue=research", "big"),
        ("gpus<8 or queue=prod", "small serve"),
        ("not gpus>=8", "small"),
        ("not (gpus>=8 or wait<2m)", ""),
        ("gpus=1 or gpus=8 and queue=prod", "small serve"),
        ("NOT queue=prod AND wait>2h", "big"),
        ("queue=research", "big small"),
        ("queue!=research", "serve"),
        ("queue~^re", "big small"),
        ("queue!~^re", "serve"),
        ("workload~(big|serve)", "big serve"),
        ("(workload~(big|serve))", "big serve"),
        ("workload=serve", "serve"),
        ("name=prod/serve", "serve"),
        ('workload="prod/serve"', "serve"),
        ("wait>2h", "big"),
        ("wait>=2h30m", "big"),
        ("wait>8999", "big"),
        ("wait<2h", "small"),
        ("wait!=60", "big serve"),
        ('mem=""', "serve"),
        ("mem>1GiB", "big"),
        ("memory<1Gi", "small"),
        ("usage==64", "big"),
        ("heat>39 and temperature<41", "big small serve"),
        ("label.team=vision", "big"),
        ('label.team=""', "small serve"),
    ],
)
def test_rows_pass_by_their_fields(text: str, found: str) -> None:
    assert is_expression(text)
    assert passing(text) == found


@pytest.mark.parametrize("text", ["research", "!research", "(a|b)", "(?i)x", "not much", "a b", "", "-l a=b", "[=]x"])
def test_other_texts_stay_what_they_were(text: str) -> None:
    assert not is_expression(text)


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        (
            "gpuz>=8",
            0,
            "gpuz: no such field (did you mean gpus?); fields: workload, queue, gpus, wait, mem, temperature",
        ),
        (
            "gpus>=8 and gpuz>1",
            12,
            "gpuz: no such field (did you mean gpus?); fields: workload, queue, gpus, wait, mem, temperature",
        ),
        ("gpus>=", 6, "expected a value"),
        ("gpus>=8 and", 11, "expected a field"),
        ("gpus>=8 queue=a", 8, "queue=a: expected and, or"),
        ("gpus>=8 and research", 12, "research: expected a field and an operator, such as gpus>=8"),
        ("(gpus>=8", 0, "this parenthesis is not closed"),
        ("gpus>=8)", 7, "): expected and, or"),
        ('queue="a', 6, "this quote is not closed"),
        ("gpus>many", 5, "expected a number, such as 8"),
        ("wait>long", 5, "expected a number, such as 30s, 10m, 2h"),
        ("wait>8GiB", 5, "wait needs a value such as 30s, 10m, 2h"),
        ("gpus>2h", 5, "gpus needs a value such as 8"),
        ("queue>5", 0, "queue is a text; use =, !=, ~ or !~"),
        ("queue~a(", 7, "invalid regular expression: missing ), unterminated subpattern"),
        ("(" * 50 + "gpus>8", 41, "nested more than 40 levels deep"),
    ],
)
def test_an_error_points_at_its_place(text: str, at: int, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, COLUMNS)
    assert (caught.value.at, str(caught.value)) == (at, problem)


@pytest.mark.parametrize(
    ("text", "quantity"),
    [
        ("8", Quantity(8)),
        ("1,234.5", Quantity(1234.5)),
        ("1.5k", Quantity(1500)),
        ("2M", Quantity(2_000_000)),
        ("-3", Quantity(-3)),
        ("3m53s", Quantity(233, "time")),
        ("2d4h", Quantity(187200, "time")),
        ("250ms", Quantity(0.25, "time")),
        ("40GiB", Quantity(40 * 2**30, "bytes")),
        ("512Mi", Quantity(2**29, "bytes")),
        ("2GB", Quantity(2e9, "bytes")),
        ("96%", Quantity(96, "percent")),
        ("$7.70", Quantity(7.7, "money")),
        ("5/8", None),
        ("research", None),
        ("", None),
    ],
)
def test_quantities_have_units(text: str, quantity: Quantity | None) -> None:
    assert quantity_in(text) == quantity


def test_a_cell_may_say_more_than_its_number() -> None:
    assert [quantity_in(text, whole=False) for text in ("5/8", "≥5/8", "12 GPUs", "none")] == [
        Quantity(5),
        Quantity(5),
        Quantity(12),
        None,
    ]


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./-]{0,8}", fullmatch=True)
expressions: st.SearchStrategy[Expression] = st.recursive(
    st.builds(Comparison, names, st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~", "!~"]), st.text(max_size=8)),
    lambda inner: (
        st.builds(Negation, inner) | st.builds(Conjunction, inner, inner) | st.builds(Disjunction, inner, inner)
    ),
    max_leaves=8,
)


@given(expressions)
def test_an_expression_is_read_as_it_was_written(expression: Expression) -> None:
    assert parse_expression(format_expression(expression)) == expression


@example("[[")
@given(st.text() | st.text(alphabet="gpus<>=!~()\"' andornt8h%", max_size=40))
def test_any_text_is_a_filter_or_has_an_error_inside_it(text: str) -> None:
    assert all(isinstance(one, str) for one in complete_expression(text, FIELDS, lambda field: ["a", 'b"c d']))
    assert place_of_error(text) in range(len(text) + 1)


def place_of_error(text: str) -> int:
    """Where the error in a filter is; 0 without one, after the filter was tried on all jobs."""
    try:
        found = parse_filter(text, COLUMNS)
    except FilterError as error:
        return error.at or 0
    if found is not None and found.expression is not None:
        assert len(bind_expression(found.expression, FIELDS, lambda job: {})(JOBS)) == len(JOBS)
    return 0


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("", []),
        ("g", ["gpus"]),
        ("queue=", ["queue=prod", 'queue="re search"']),
        ("queue=r", ['queue="re search"']),
        ("gpus>=", []),
        ("gpus>=8 ", ["gpus>=8 and ", "gpus>=8 or "]),
        ("gpus>=8 a", ["gpus>=8 and "]),
        ("gpus>=8 and wo", ["gpus>=8 and workload"]),
        ("not (queue=p", ["not (queue=prod"]),
        ("(gpus>=8 ", ["(gpus>=8 and ", "(gpus>=8 or "]),
        ("zzz", []),
    ],
)
def test_a_text_is_continued_with_fields_values_and_words(text: str, offered: list[str]) -> None:
    assert complete_expression(text, FIELDS, lambda field: ["prod", "re search", ""]) == offered
