"""Filters on fields and the `:` prompt as they are typed: completions, errors under their place, and what they do."""

from textual.widgets import Input

from gpuconsole.ui.paint import plain
from gpuconsole.ui.widgets.command_line import FilterLine
from tests.support.console_clusters import org_cohort, recorded
from tests.support.console_stage import Stage, staged


def below(stage: Stage) -> str:
    """The line below the open prompt."""
    place = next(index for index, line in enumerate(stage.lines) if line.startswith(("/ ", ": ")))
    return stage.lines[place + 1]


def names(stage: Stage) -> list[str]:
    """What the table in front shows, by its first column."""
    front = stage.app.front
    assert front is not None
    assert front.grid is not None
    return [plain(front.grid.columns[0].cell(row)) for row in front.grid.rows]


async def test_a_filter_on_fields_is_typed_with_completions_and_its_errors_stand_under_their_place() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("3", "slash")
        every = names(stage)
        await stage.write("gpuz>1")
        assert below(stage).startswith("  ^ gpuz: no such field; fields: workload, phase, reason, pos, priority, gpus,")
        assert names(stage) == every, "not only those with `gpuz` in their texts"
        field = stage.app.screen.query_one(FilterLine).query_one(Input)
        field.value = ""
        await stage.write("pha")
        assert below(stage) == "  phase"
        await stage.press("tab")
        await stage.write("=")
        assert below(stage) == "  pending  running"
        await stage.write("run")
        await stage.press("tab", "space")
        assert (field.value, below(stage)) == ("phase=running ", "  and  or")
        await stage.write("and gpus>=")
        assert below(stage) == f"{' ' * 26}^ expected a value"
        await stage.write("1")
        running = names(stage)
        assert 0 < len(running) < len(every)
        await stage.press("enter")
        assert "/ phase=running and gpus>=1" in stage.text
        await stage.press("escape")
        assert names(stage) == every
