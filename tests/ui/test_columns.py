"""Columns that the operator chooses or adds, and saved views: shown at once, and remembered."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.config import ColumnSettings
from gpuconsole.model.workloads import Workload
from gpuconsole.ui.app import ConsoleApp, Preferences
from gpuconsole.ui.object_columns import text_at
from gpuconsole.ui.table_layouts import SavedView, TableLayout, TableLayouts
from gpuconsole.ui.table_model import Column, ColumnChoice, choices_of, chosen_columns
from tests.support.console_clusters import org_cohort, recorded
from tests.support.console_stage import Stage

COLUMNS = tuple(Column[str](title, str, width=8, flex=1, hidden=title == "D") for title in ("A", "B", "C", "D"))


def titles(*choices: ColumnChoice) -> str:
    return " ".join(f"{one.title}{one.width}" for one in chosen_columns(COLUMNS, choices))


def test_columns_are_shown_as_chosen_and_new_ones_come_last() -> None:
    assert titles() == "A8 B8 C8"
    assert titles(ColumnChoice("C", width=5), ColumnChoice("A", hidden=True), ColumnChoice("gone")) == "C5 B8"
    assert titles(ColumnChoice("D"), ColumnChoice("B", width=500)) == "D8 B80 A8 C8"


@given(st.lists(st.builds(ColumnChoice, st.sampled_from("ABCDX"), st.integers(0, 99), st.booleans()), max_size=6))
def test_the_choices_of_all_columns_show_the_same_columns(choices: list[ColumnChoice]) -> None:
    once = list({one.column: one for one in choices}.values())
    every = choices_of(COLUMNS, once)
    assert sorted(one.column for one in every) == ["A", "B", "C", "D"]
    assert [one.title for one in chosen_columns(COLUMNS, every)] == [one.title for one in chosen_columns(COLUMNS, once)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata.name", "a"),
        ("metadata.labels.example.com/team", "vision�"),
        ("metadata.labels", "example.com/team=vision�"),
        ("spec.queueName", "lq"),
        ("spec.priority", "7"),
        ("metadata.creationTimestamp", "1970-01-01T00:01:00Z"),
        ("spec.podSets.name", ""),
        ("spec.nothing.there", ""),
        ("spec", ""),
        ("apiVersion", "kueue.x-k8s.io/v1beta2"),
        ("", ""),
    ],
)
def test_a_path_of_the_manifest_finds_its_field(path: str, text: str) -> None:
    labels = {"example.com/team": "vision\x1b"}
    workload = Workload(name="a", namespace="ns", queue="lq", priority=7, labels=labels, created=60_000_000)
    assert text_at(workload, path) == text


def test_layouts_survive_a_restart_and_a_spoilt_file_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "state" / "tables.json"
    layout = TableLayout((ColumnChoice("queue", width=9), ColumnChoice("wait", hidden=True)), "wait", descending=True)
    view = SavedView("workloads", "gpus>=8", layout, ("research",))
    layouts = TableLayouts(file)
    assert layouts.remember("workloads", layout) == layouts.save_view("big", view) == ""
    again = TableLayouts(file)
    assert (again.table("workloads"), again.table("nodes"), again.views) == (layout, TableLayout(), {"big": view})
    again.remember("workloads", TableLayout())
    again.delete_view("big")
    assert (TableLayouts(file).table("workloads"), TableLayouts(file).views) == (TableLayout(), {})
    file.write_text("{")
    assert TableLayouts(file).views == {}
    file.unlink()
    file.mkdir()
    assert "not saved to" in layouts.remember("workloads", layout)


async def walk(stage: Stage) -> None:
    """Change the columns of the workloads, cancel another change, save a view, leave it and come back."""
    head = next(line for line in stage.lines if "WORKLOAD" in line)
    assert head.split()[:3] == ["WORKLOAD", "PHASE", "REASON"]
    await stage.press("|")
    assert "space show/hide" in stage.text
    await stage.press("J", "down", "space", "down", "right", "enter")
    head = next(line for line in stage.lines if "WORKLOAD" in line)
    assert head.split()[:3] == ["PHASE", "WORKLOAD", "POS"]
    await stage.press("|", "space", "escape")
    assert head in stage.lines, "Escape undoes it"


async def test_columns_and_views_are_chosen_with_keys_and_remembered(tmp_path: Path) -> None:
    own = {"workloads": (ColumnSettings(name="TEAM", path="metadata.namespace", width=9),)}
    preferences = Preferences(tables_file=tmp_path / "tables.json", columns=own)
    app = ConsoleApp(recorded(org_cohort()), repaint=0, preferences=preferences)
    async with app.run_test(size=(160, 30)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        await stage.press("3")
        await walk(stage)
        await stage.press("slash")
        await stage.write("team=prod")
        await stage.press("enter", "N", "colon")
        await stage.write("view save mine")
        await stage.press("enter")
        found = [line for line in stage.lines if "prod/" in line]
        assert found
        assert not any("research/" in line for line in stage.lines)
        await stage.press("escape", "|", "r", "enter", "2", "colon")
        await stage.write("view mine")
        await stage.press("enter")
        assert app.view == "workloads"
        assert [line for line in stage.lines if "prod/" in line] == found
        assert stage.line("PHASE").split()[:3] == ["PHASE", "WORKLOAD↑", "POS"]
        await stage.press("colon")
        await stage.write("view delete yours")
        await stage.press("enter")
        assert "Unknown view yours; saved views: mine" in "".join(one.message for one in app._notifications)


async def test_a_cell_a_row_and_the_object_are_copied() -> None:
    app = ConsoleApp(recorded(org_cohort()), repaint=0)
    async with app.run_test(size=(160, 30)) as pilot:
        stage = Stage(app, pilot)
        await stage.settle()
        await stage.press("3", "shift+right", "shift+right", '"', "c")
        assert app.clipboard == "pending"
        await stage.press('"', "r")
        assert app.clipboard.startswith("research/rlhf-2\tpending\tquota\t")
        await stage.press("space", "space", '"', "n")
        assert [line.partition("/")[0] for line in app.clipboard.splitlines()] == ["research", "research"]
        await stage.press("backslash", "colon")
        await stage.write("copy yaml")
        await stage.press("enter")
        assert "\nkind: Workload\n" in app.clipboard
        await stage.press("colon")
        await stage.write("copy all")
        await stage.press("enter")
        assert "Unknown copy target all; use one of cell, row, name, yaml, json" in "".join(
            n.message for n in app._notifications
        )
