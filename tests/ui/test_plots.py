"""Charts of the history: each is reached by key and by name, says its window, and has its numbers in a table."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuconsole.services.console import Console
from tests.support.console_clusters import HOSTILE, history, org_cohort, recorded
from tests.support.console_stage import Stage, staged
from tests.support.recorded_histories import RecordedConsole


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A console with the history of 45 minutes."""
    console = RecordedConsole(tmp_path / "history.db", minutes=45).console
    yield console
    console.stop()


async def command(stage: Stage, text: str) -> None:
    await stage.press("colon")
    await stage.write(text)
    await stage.press("enter")


async def test_any_series_is_plotted_in_a_window_that_zooms_and_pans(console: Console) -> None:
    async with staged(console, (160, 50)) as stage:
        await stage.press("I", "p")
        assert stage.line("╭─").startswith("╭─ cluster, last hour ─")
        assert "█ GPUs in use 20  · pending" in stage.text
        assert "IN USE   NOMINAL" in stage.text
        await stage.press("plus")
        assert "─ cluster, last 6 h ─" in stage.text
        await stage.press("minus", "minus", "minus")
        assert "─ cluster, last 15 min ─" in stage.text
        await stage.press("left")
        assert "─ cluster, 15 m until 5 Jan 08:" in stage.text
        await stage.press("right")
        assert "─ cluster, last 15 min ─" in stage.text
        await command(stage, "plot cq-prod")
        assert "─ queue cq-prod, last hour ─" in stage.text
        assert "─ quota 16" in stage.text
        await command(stage, "plot cost")
        assert "█ cost per hour $" in stage.text
        assert "COST/H" in stage.text
        await command(stage, "plot nothing")
        assert "no series 'nothing' in the last 30m; press B to choose one of" in stage.text
        await stage.press("B")
        await stage.press("end", "up", "enter")
        assert "─ GPU type " in stage.text
        assert "█ allocated" in stage.text


async def test_preemptions_waits_and_gpus_are_charts_with_their_numbers_below(console: Console, tmp_path: Path) -> None:
    async with staged(console, (160, 50)) as stage:
        await stage.press("I", "m")
        assert "─ Preemptions: victim queue ← preemptor queue, last hour ─" in stage.text
        assert "No preemptions to show in this window." in stage.text
        assert "PREEMPTOR QUEUE" in stage.text
        await stage.press("I", "w")
        assert stage.app.way == ["dashboard", "waits"], "a chart replaces another"
        assert "█ all queues P50" in stage.text
        await stage.press("down")
        assert "─ cq-" in stage.line("█ all queues"), "the selected queue is a line over the area"
        await command(stage, f"export {tmp_path}/waits.csv")
        assert (tmp_path / "waits.csv").read_text().splitlines()[0].startswith("queue,admitted,p50_seconds")
        await stage.press("I", "g")
        assert "GPUs by workload, last hour" in stage.text
        assert "█" in stage.line("▌")
        await stage.press("B")
        assert "GPUs by queue, last hour" in stage.text
        assert "cq-" in stage.line("▌")
        await stage.press("enter")
        assert stage.app.view == "queues"


@pytest.mark.parametrize("chart", ["plot", "matrix", "waits", "gantt"])
async def test_charts_need_no_history_and_little_room(chart: str) -> None:
    hostile = [replace(line, queue=HOSTILE[place % len(HOSTILE)]) for place, line in enumerate(history())]
    async with staged(recorded(org_cohort(), hostile), (80, 24)) as stage:
        await command(stage, chart)
        assert stage.app.way == ["dashboard", chart]
        assert "failed" not in stage.text
        assert all(line.isprintable() for line in stage.lines)
        assert chart != "matrix" or "victim ↓ preemptor →" in stage.text
        await stage.press("plus", "left", "right", "minus")
        assert stage.app.way == ["dashboard", chart]
