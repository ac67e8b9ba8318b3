"""Export: the table in front as CSV, JSON or Markdown, or the screen as SVG, to a file."""

import csv
import json
import re
from pathlib import Path

import pytest

from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.global_actions import proposed_file
from gpuconsole.ui.table_model import Column, table_of_rows
from gpuconsole.ui.widgets.dialogs import Confirm, Prompt
from tests.support.console_clusters import org_cohort, running, simulated, waiting
from tests.support.console_stage import Stage, staged


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(stage: Stage) -> list[str]:
    """The texts of the toasts."""
    return [toast.message for toast in stage.app._notifications]


async def command(stage: Stage, text: str) -> None:
    await stage.press(":")
    await stage.write(text)
    await stage.press("enter")


async def test_two_keys_export_the_table_to_the_proposed_file(folder: Path) -> None:
    async with staged(simulated(org_cohort()), (200, 50)) as stage:
        await stage.press("3", "X", "enter")
        file = folder / "workloads.csv"
        assert said(stage) == [f"Exported 5 rows to {file}"]
        assert file.stat().st_mode & 0o777 == 0o600
        rows = list(csv.DictReader(file.read_text().splitlines()))
        shown = [re.search(r"(research|prod)/\S+", line) for line in stage.lines]
        assert [row["workload"] for row in rows] == [found[0] for found in shown if found is not None]
        assert (rows[0]["phase"], rows[0]["wait_seconds"], rows[0]["borrowed"]) == ("pending", "720", "0")


async def test_only_filtered_rows_are_exported_in_the_order_shown(folder: Path) -> None:
    async with staged(simulated(org_cohort()), (200, 50)) as stage:
        await stage.press("3", "/")
        await stage.write("research")
        await stage.press("enter", "P", "P")
        await command(stage, "export found.json")
        rows = json.loads((folder / "found.json").read_text())
        priorities = [row["priority"] for row in rows]
        assert {row["workload"].partition("/")[0] for row in rows} == {"research"}
        assert priorities == sorted(priorities)
        assert all(isinstance(priority, int) for priority in priorities)


async def test_hidden_columns_are_not_exported(folder: Path) -> None:
    async with staged(simulated(org_cohort()), (80, 24)) as stage:
        await stage.press("3")
        await command(stage, "export narrow.json")
        await stage.press("ctrl+w")
        await command(stage, "export wide.json")
        narrow, wide = (json.loads((folder / name).read_text())[0] for name in ("narrow.json", "wide.json"))
        assert narrow.keys() < wide.keys()
        assert "workload_name" in wide.keys() - narrow.keys()


async def test_a_report_is_exported_as_markdown(folder: Path) -> None:
    async with staged(simulated(org_cohort()), (160, 50)) as stage:
        await stage.press("2", "b")
        await command(stage, "export ledger.md")
        head, sides, *rows = (folder / "ledger.md").read_text().splitlines()
        assert head.startswith("| LENDER | BORROWER | FLAVOR | GPUS | SINCE")
        assert sides.startswith("| --- | --- | --- | ---: | ---:")
        assert rows[0].startswith("| cq-prod | cq-research |")


async def test_a_screen_is_drawn_without_the_prompt(folder: Path) -> None:
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("2", "X", "ctrl+u")
        await stage.write("queues.svg")
        await stage.press("enter")
        await stage.settle()
        assert said(stage) == [f"Exported the screen to {folder / 'queues.svg'}"]
        picture = (folder / "queues.svg").read_text()
        assert picture.startswith("<svg")
        assert "cq-research" in picture
        assert "suffix" not in picture


async def test_a_screen_without_a_table_proposes_a_picture_and_refuses_other_formats() -> None:
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("3", "d")
        await stage.press("X")
        assert stage.screen(Prompt).query_one("Input").value.endswith(".svg")  # type: ignore[attr-defined]
        await stage.press("escape")
        await command(stage, "export terms.csv")
        assert said(stage) == ["terms.csv: this screen has no table with rows; .svg draws the screen"]


async def test_an_existing_file_is_replaced_only_after_confirmation(folder: Path) -> None:
    file = folder / "pods.csv"
    file.write_text("mine")
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("3")
        await command(stage, "export pods.csv")
        stage.screen(Confirm)
        await stage.press("enter")
        stage.screen(ConsoleScreen)
        assert file.read_text() == "mine"
        await command(stage, "export pods.csv")
        await stage.press("tab", "enter")
        assert said(stage) == [f"Exported 5 rows to {file}"]
        assert file.read_text().startswith("workload,")
        assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize(
    ("path", "problem"),
    {
        "another suffix": ("table.xlsx", "the name must end in .csv, .json, .md or .svg"),
        "no such directory": ("none/table.csv", "no such directory: none"),
        "a directory": ("sub.csv", "is a directory"),
        "an unknown user": ("~nobody-of-this-name/table.csv", "Could not determine home directory."),
    }.values(),
)
async def test_a_file_that_cannot_be_written_is_refused_with_the_reason(folder: Path, path: str, problem: str) -> None:
    (folder / "sub.csv").mkdir()
    async with staged(simulated(org_cohort())) as stage:
        await stage.press("3")
        await command(stage, f"export {path}")
        assert said(stage) == [f"{path}: {problem}"]


def test_a_proposed_file_does_not_exist_and_has_no_directory(folder: Path) -> None:
    (folder / "research-late.csv").touch()
    assert proposed_file("research/late", ".csv") == "research-late-2.csv"
    assert proposed_file("../../etc", ".csv") == "etc.csv"
    assert proposed_file("…", ".svg") == "screen.svg"


def test_cells_of_a_screen_are_numbers_where_they_are_numbers_and_have_the_unit_of_their_column() -> None:
    columns: list[Column[int]] = [
        Column("NAME", lambda row: f"00{row}"),
        Column("", lambda row: "████"),
        Column("GPUS", lambda row: ((f"{row:,}", "own"),), align="right"),
        Column("WAIT", lambda row: f"{row}s ago", align="right", unit="seconds", number=float),
        Column("◐", lambda row: "–", align="right", name="pending", number=lambda row: 0),
        Column("SM", lambda row: "–", align="right"),
    ]
    table = table_of_rows(columns, [7, 1000])
    assert table.names == ["name", "gpus", "wait_seconds", "pending", "sm"]
    assert list(table.values()) == [["007", 7, 7.0, 0, None], ["001000", 1000, 1000.0, 0, None]]


async def test_a_hostile_name_is_no_formula_in_the_file(folder: Path) -> None:
    hostile = [*org_cohort(), waiting("=HYPERLINK(1)", 1, namespace="=cmd"), running("@x", 1)]
    async with staged(simulated(hostile), (200, 50)) as stage:
        await stage.press("3")
        await command(stage, "export names.csv")
        names = [row["workload"] for row in csv.DictReader((folder / "names.csv").read_text().splitlines())]
        assert any("HYPERLINK" in name for name in names)
        assert not [name for name in names if name.startswith(("=", "+", "-", "@"))]
