"""Compiles the CEL selectors of device classes and requests; errors are reported by field."""

from collections.abc import Sequence

from gpuconsole.scheduling.devices.cel.tree import Tree
from gpuconsole.scheduling.devices.selectors import compile_selector
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind


def compiled(selectors: Sequence[str], path: str, context: str, *, first_only: bool = False) -> list[Tree]:
    """Compile expressions; empty ones (selectors without CEL) are skipped.

    Raises ClaimError with all problems, or only the first with `first_only`.
    """
    trees: list[Tree] = []
    problems: list[Problem] = []
    for index, expression in enumerate(selectors):
        found = compile_selector(expression) if expression else None
        if isinstance(found, str):
            field = f"{path}[{index}].cel.expression"
            problems.append(Problem(ProblemKind.INVALID, field, expression, f"{context}: {found}"))
        elif found is not None:
            trees.append(found)
    if problems:
        raise ClaimError(*problems[: 1 if first_only else None])
    return trees
