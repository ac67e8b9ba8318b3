"""Kueue's feature gates from the command line."""

from collections.abc import Mapping

from gpuconsole.errors import UsageError
from gpuconsole.scheduling.kueue import gates


def gates_of(text: str, named: Mapping[str, bool] | None = None) -> dict[str, bool]:
    """Parse `--feature-gates`; `named` are those of a Configuration, which exclude the option in Kueue.

    Raises UsageError for gates that are unknown to Kueue.
    """
    wrong = gates.problems(text, named)
    if wrong:
        raise UsageError("\n".join(f"--feature-gates: {problem}" for problem in wrong))
    return gates.resolve(gates.parse(text))
