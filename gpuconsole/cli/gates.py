"""Kueue's feature gates from the command line."""

from collections.abc import Mapping

from gpuconsole.errors import UsageError
from gpuconsole.scheduling.kueue import gates


def gates_of(text: str, named: Mapping[str, bool] | None = None) -> dict[str, bool]:
    """What `--feature-gates` says; `named` are those of a Configuration, beside which Kueue takes none.

    Raises UsageError for those that Kueue does not know.
    """
    wrong = gates.problems(text, named)
    if wrong:
        raise UsageError("\n".join(f"--feature-gates: {problem}" for problem in wrong))
    return gates.resolve(gates.parse(text))
