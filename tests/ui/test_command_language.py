"""Filters on fields and the `:` prompt as they are typed: completions, errors under their place, and what they do."""

import pytest
from textual.widgets import Input

from gpuconsole.ui.paint import plain
from gpuconsole.ui.widgets.command_line import CommandLine, FilterLine, complete_command, parse_command
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
        assert below(stage).startswith(
            "  ^ gpuz: no such field (did you mean gpus?); fields: workload, phase, reason, pos,"
        )
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
        await stage.press("enter")
        assert "^ expected a value" in stage.text, "the filter is not what the line says"
        await stage.press("slash", "end")
        await stage.write("1 or prio")
        assert below(stage) == "  priority"
        await stage.press(*["backspace"] * 8)
        running = names(stage)
        assert 0 < len(running) < len(every)
        await stage.press("enter")
        assert "/ phase=running and gpus>=1" in stage.text
        await stage.press("escape")
        assert names(stage) == every


NAMES = {
    "namespaces": ["prod", "research"],
    "contexts": ["eu-1", "eu-2"],
    "view.workloads": ["research/llm", "prod/serve"],
    "app.theme": ["console-dark"],
}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("the", ["theme"]),
        ("wl", ["wl"]),
        ("wl ", ["wl prod", "wl research"]),
        ("wl prod,r", ["wl prod,research"]),
        ("wl prod /re", ["wl prod /research/llm"]),
        ("wl /p", ["wl /prod/serve"]),
        ("wl prod /x @eu-", ["wl prod /x @eu-1", "wl prod /x @eu-2"]),
        ("theme c", ["theme console-dark"]),
        ("nonsense a", []),
    ],
)
def test_a_command_line_is_continued_with_aliases_and_names(typed: str, offered: list[str]) -> None:
    assert complete_command(typed, lambda what: NAMES.get(what, [])) == offered


@pytest.mark.parametrize(
    ("line", "namespaces", "filtered", "context"),
    [
        ("wl team-a /llm @eu", {"team-a"}, "llm", "eu"),
        ("wl @eu", None, "", "eu"),
        ("wl /gpus>=8 and queue=a @eu", None, "gpus>=8 and queue=a", "eu"),
        ("wl /user@host", None, "user@host", ""),
        ("wl a", {"a"}, "", ""),
    ],
)
def test_a_line_names_namespaces_a_filter_and_a_context(
    line: str, namespaces: set[str] | None, filtered: str, context: str
) -> None:
    read = parse_command(line)
    assert read is not None
    assert (read.namespaces, read.filter, read.context) == (namespaces, filtered, context)


async def test_the_prompt_completes_names_of_the_cluster_and_says_what_a_context_needs() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("colon")
        await stage.write("wl re")
        assert below(stage) == "  research"
        await stage.press("tab")
        await stage.write(" /phase=pend")
        await stage.press("enter")
        assert stage.app.view == "workloads"
        assert "/ phase=pend" in stage.text
        assert names(stage) == []
        await stage.press("escape", "colon")
        await stage.write("wl @elsewhere")
        await stage.press("enter")
        assert not stage.app.screen.query_one(CommandLine).display
        assert "No kubeconfig" in "".join(one.message for one in stage.app._notifications)
