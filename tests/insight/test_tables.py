"""One table, rendered as text, Markdown, HTML, CSV and JSON."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.insight.tables import (
    Cell,
    Table,
    TableColumn,
    Valued,
    csv_text,
    field_name,
    html_lines,
    json_objects,
    markdown_lines,
    number_in,
    spreadsheet_text,
    table_of,
    text_lines,
    write_csv,
)

TABLE = table_of(
    ("WORKLOAD", "GPUS", TableColumn(heading="WAIT", unit="seconds"), "COST $", "GANG"),
    [
        ("llm/pretrain", 16, Valued("1h2m", 3720), Valued("1,204.50", 1204.5), True),
        ("=cmd|' /C calc'!A1", 8, None, "unknown", False),
    ],
)


def test_as_text_columns_of_numbers_are_right_aligned_also_with_missing_ones() -> None:
    assert text_lines(TABLE) == [
        "WORKLOAD            GPUS  WAIT    COST $  GANG",
        "llm/pretrain          16  1h2m  1,204.50  yes",
        "=cmd|' /C calc'!A1     8     –   unknown  no",
    ]


def test_as_markdown_what_it_would_interpret_is_escaped() -> None:
    assert markdown_lines(TABLE) == [
        "| WORKLOAD | GPUS | WAIT | COST $ | GANG |",
        "| --- | ---: | ---: | ---: | --- |",
        "| llm/pretrain | 16 | 1h2m | 1,204.50 | yes |",
        r"| =cmd\|' /C calc'!A1 | 8 | – | unknown | no |",
    ]


def test_as_html_what_it_would_interpret_is_escaped() -> None:
    assert html_lines(table_of(("A<B",), [("<script>",), (None,)])) == [
        "<table>",
        "<thead><tr><th>A&lt;B</th></tr></thead>",
        "<tbody>",
        "<tr><td>&lt;script&gt;</td></tr>",
        "<tr><td>–</td></tr>",
        "</tbody>",
        "</table>",
    ]


def test_as_csv_cells_are_numbers_in_the_unit_of_the_column_and_texts_are_no_formulas() -> None:
    assert csv_text(TABLE) == (
        "workload,gpus,wait_seconds,cost_usd,gang\n"
        "llm/pretrain,16,3720,1204.5,True\n"
        "'=cmd|' /C calc'!A1,8,,unknown,False\n"
    )


def test_as_json_each_row_is_an_object_of_typed_values() -> None:
    assert json_objects(TABLE) == [
        {"workload": "llm/pretrain", "gpus": 16, "wait_seconds": 3720, "cost_usd": 1204.5, "gang": True},
        {"workload": "=cmd|' /C calc'!A1", "gpus": 8, "wait_seconds": None, "cost_usd": "unknown", "gang": False},
    ]


def test_a_number_that_only_sorts_a_cell_is_not_taken_for_its_value() -> None:
    (row,) = json_objects(table_of(("IDLE", "SHARE"), [(Valued("≥ 3", 3), Valued("12%", 0.12))]))
    assert row == {"idle": "≥ 3", "share": "12%"}


def test_a_table_without_rows_keeps_its_head() -> None:
    empty = table_of(("NODE", "GPUS"), [])
    assert (text_lines(empty), csv_text(empty), json_objects(empty)) == (["NODE  GPUS"], "node,gpus\n", [])


@pytest.mark.parametrize(
    ("heading", "name"),
    {
        "LOST GPU-H": "lost_gpu_hours",
        "GPU-HOURS": "gpu_hours",
        "COST $": "cost_usd",
        "USD/H": "usd_per_hour",
        "DRS ‰": "drs_permille",
        "◐PEND": "pend",
        "▲": "",
    }.items(),
)
def test_a_field_is_named_after_its_heading(heading: str, name: str) -> None:
    assert field_name(heading) == name


def test_names_of_fields_differ() -> None:
    assert table_of(("", "Used", "Used", "▲"), []).names == ["column_1", "used", "used_3", "column_4"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", " =1+1"])
def test_a_formula_becomes_a_text(text: str) -> None:
    assert spreadsheet_text(text) == f"'{text}"


def test_another_text_stays_as_it_is() -> None:
    assert spreadsheet_text("llm/pretrain-1") == "llm/pretrain-1"


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_a_number_is_found_in_its_text(number: float) -> None:
    assert number_in(f"{number:,}" if isinstance(number, int) else f"{number:,.3f}") == pytest.approx(number, abs=1e-3)


@pytest.mark.parametrize("text", ["", "1/2", "3m", "12%", "1,2", "٣", "1.", "0x1", "–", "1e9"])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert number_in(text) is None


CELLS: st.SearchStrategy[Cell] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.builds(Valued, st.text(), st.floats()),
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A table with hostile texts in headings and cells."""
    columns = st.builds(TableColumn, heading=st.text(max_size=10), unit=st.sampled_from(("", "seconds")))
    head = draw(st.lists(columns, min_size=1, max_size=4))
    row = st.tuples(*(CELLS for _ in head))
    return table_of(head, draw(st.lists(row, max_size=4)))


@given(tables())
def test_every_format_has_all_rows_and_no_control_characters(table: Table) -> None:
    lines, fields = len(table.rows) + 1, len(table.columns)
    assert len(text_lines(table)) == lines
    markdown = markdown_lines(table)
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in markdown] == [fields + 1] * (lines + 1)
    assert all(line.isprintable() for line in (*text_lines(table), *markdown, *html_lines(table)))
    parsed = list(csv.reader(io.StringIO(csv_text(table))))
    assert [len(row) for row in parsed] == [fields] * lines
    assert not any(
        cell.lstrip().startswith(("=", "+", "-", "@")) for row in parsed for cell in row if not number_like(cell)
    )
    objects = json.loads(json.dumps(json_objects(table), allow_nan=False))
    assert [len(row) for row in objects] == [fields] * (lines - 1)


def number_like(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_a_valued_cell_is_written_as_its_text() -> None:
    file = io.StringIO()
    write_csv(("usd",), [(Valued("-0.50", -0.5),), (None,)], file)
    assert list(csv.reader(io.StringIO(file.getvalue()))) == [["usd"], ["-0.50"], [""]]
