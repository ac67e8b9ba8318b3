"""The glossary defines every term of art of the tables, and the console opens it at the term that is asked for."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.model.workloads import WorkloadPhase
from gpuconsole.ui.screens.help import (
    GlossaryScreen,
    HelpScreen,
    Term,
    complete_term,
    find_term,
    find_term_in,
    load_terms,
    parse_terms,
)
from gpuconsole.ui.screens.preemptions import SHORT
from gpuconsole.ui.widgets import gpumap
from gpuconsole.ui.workload_table import phase_cell
from tests.support.console_clusters import busy_org
from tests.support.console_stage import Stage, staged

ROOT = Path(__file__).resolve().parents[2]
MAKERS = ("Column", "column", "_dollars", "_group")
"""Functions that make a column from its head."""
SITES = (
    "https://kueue.sigs.k8s.io/docs/",
    "https://kubernetes.io/docs/",
    "https://docs.nvidia.com/",
    "https://github.com/NVIDIA/",
    "https://github.com/volcano-sh/",
)
PLAIN_HEADS = """
ACTION AGE ALERT CALCULATION CAUSE CHECK COLUMN COMMAND CONTROLLER CPU DEFINITION DESCRIPTION EVENT FIELD FITTING_NODES
GPU GPUS GPUs KEY KEYS KIND LABELS LOCAL_ADDRESS MEDIAN MEM MEMBERS MESSAGE MODEL NAMESPACE NEEDS_ATTENTION NODE NODES
OBJECT OLDEST ON_NODES PARENT PENDING_GPUS PERCENT POD PODS POD_PORT PREEMPTOR_QUEUE QUESTION QUEUES READY RESOURCE
RESTARTS RULES RUNNING SCOPE SEVERITY SHOWN_AS SINCE STATE STATUS STEP SUMMARY TERM TIME TYPE TYPICAL_POD UNIT USER
VALUE VICTIM_QUEUE W WHAT_TO_DO WHEN WIDTH °C ●RUN
"""
"""Column heads that everyone understands (`_` stands for a space)."""
PLAIN_WORDS = frozenset({"failed", "finished", "image", "invalid", "not-waiting", "other", "pod-failure", "running"})


def heads() -> Iterator[tuple[str, str]]:
    """(File, head) of every column that the code of the screens makes."""
    for path in sorted((ROOT / "gpuconsole" / "ui").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for expression in _titles(node, "answers" in path.parts):
                if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
                    yield path.name, expression.value


def _titles(node: ast.AST, of_answers: bool) -> Iterator[ast.expr]:
    """The expressions that are heads: the first argument of what makes a column, and the head of an answer's table."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in MAKERS:
            yield first
        case ast.Call(func=ast.Name(id="Table"), args=[ast.Tuple(elts=titles), *_]):
            yield from titles
        case ast.Assign(value=ast.Tuple(elts=titles)) if of_answers:
            yield from (one for one in titles if isinstance(one, ast.Constant) and str(one.value).isupper())


def words() -> Iterator[str]:
    """The words that stand in cells of state: phases, reasons, states of GPUs, rules of preemptions."""
    for phase in WorkloadPhase:
        yield str(phase)
        yield phase_cell(phase)[0][0].partition(" ")[2]
    yield from map(str, PendingReason)
    yield from gpumap.WORDS.values()
    yield from SHORT.values()


def test_every_column_head_that_is_a_term_of_art_is_defined() -> None:
    terms = load_terms()
    found = sorted({head for _, head in heads()} - {""})
    assert len(found) > 80
    plain = {head.replace("_", " ") for head in PLAIN_HEADS.split()}
    assert [head for head in found if find_term(terms, head) is None and head not in plain] == []


def test_every_word_of_a_state_is_defined() -> None:
    terms = load_terms()
    assert {word for word in words() if find_term(terms, word) is None} == PLAIN_WORDS


def test_terms_are_in_alphabetical_order_and_each_name_has_one_meaning() -> None:
    terms = load_terms()
    names = [term.name.casefold().replace("-", " ") for term in terms]
    assert [pair for pair in pairwise(names) if pair[0] >= pair[1]] == []
    shown = [name for term in terms for name in {term.name, *term.shown_as}]
    assert sorted(name for name in set(shown) if shown.count(name) > 1) == []


@pytest.mark.parametrize("term", load_terms(), ids=lambda term: term.name)
def test_a_definition_is_short_and_its_links_lead_somewhere(term: Term) -> None:
    assert 20 < len(term.text) < 320, term.text
    for _, address in term.links:
        local = re.fullmatch(r"((?:[a-z]+/)?[a-z-]+\.md)", address)
        if local is not None:
            assert (ROOT / "docs" / local[1]).is_file()
        else:
            assert address.startswith(SITES)


def test_an_entry_is_read_with_its_links_and_other_names() -> None:
    definition = "The start. It\nis `soon`. [Kueue](https://k/x) See [starts](eta.md).\nShown as: `A`, `B C`.\n"
    text = f"# Title\n\nIntro.\n\n## ETA\n{definition}"
    assert parse_terms(text) == (
        Term(
            name="ETA",
            text="The start. It is soon. See starts.",
            links=(("Kueue", "https://k/x"), ("starts", "eta.md")),
            shown_as=("A", "B C"),
        ),
    )


def test_a_term_is_found_by_name_head_or_beginning_and_in_a_sentence() -> None:
    terms = load_terms()
    found = [find_term(terms, word) for word in ("Cohort", "PRIORITY↓", "▲BORROW", "GPU", "")]
    assert [one.name if one is not None else None for one in found] == [
        "cohort",
        "priority",
        "borrowed quota",
        None,
        None,
    ]
    completed = complete_term(terms, "namespace s")
    assert completed is not None
    assert completed.name == "namespace selector"
    assert complete_term(terms, "") is None
    sentence = find_term_in(terms, "Change the nominal quota of a queue.")
    assert sentence is not None
    assert sentence.name == "nominal quota"
    assert find_term_in(terms, "Draw it.") is None


def at(stage: Stage) -> str:
    """The term under the cursor of the glossary."""
    grid = stage.screen(GlossaryScreen).grid
    assert grid is not None
    assert isinstance(grid.current, Term)
    return grid.current.name


async def test_the_glossary_opens_at_the_picked_column_and_goes_back() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", *["shift+right"] * 4, "H")
        assert at(stage) == "position"
        assert "The place of a pending workload in its ClusterQueue" in stage.text
        assert "https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads" in stage.text
        await stage.press("j")
        assert at(stage) == "preemption"
        await stage.press("H")
        assert "WORKLOAD" in stage.line("PHASE")


async def test_the_help_opens_the_glossary_at_the_picked_column_of_the_screen_below() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "shift+right", "shift+right", "question_mark")
        assert stage.screen(HelpScreen)
        assert " H glossary " in stage.lines[-1]
        await stage.press("H")
        assert at(stage) == "pending"
        await stage.press("escape")
        assert "WORKLOAD" in stage.line("PHASE")


async def test_the_help_opens_the_glossary_at_a_term_of_the_action_under_the_cursor() -> None:
    async with staged(busy_org()) as stage:
        await stage.press("3", "question_mark", "slash")
        await stage.write("-w glossary")
        await stage.press("enter")
        assert "Explain the selected column head" in stage.line(" H ")
        await stage.press("escape", "slash")
        await stage.write("-w what-if")
        await stage.press("enter", "H")
        assert at(stage) == "what-if"


async def test_the_command_line_opens_the_glossary_at_a_term() -> None:
    async with staged(busy_org()) as stage:
        await stage.press(":")
        await stage.write("glossary lending")
        await stage.press("enter")
        assert at(stage) == "lending limit"
        await stage.press("slash")
        await stage.write("XID")
        await stage.press("enter")
        assert "double-bit ECC error" in stage.text
        await stage.press("escape", "escape", ":")
        await stage.write("glossary nonsense")
        await stage.press("enter")
        assert at(stage) == "accrued cost"
        assert "No glossary entry for nonsense" in [note.message for note in stage.app._notifications]
