"""Problems of a claim by field, in the words of Kubernetes' field errors."""

import json
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class ProblemKind(StrEnum):
    """Kind of a field error: how its text begins."""

    INVALID = "Invalid value"
    NOT_FOUND = "Not found"
    INTERNAL = "Internal error"
    """An error that may resolve itself: an object is missing, or too few devices are published yet."""


class Problem(Struct, frozen=True):
    """A field error. `value` is the rejected value, null in the text if None; internal errors show no value."""

    kind: ProblemKind
    field: str
    value: str | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The error message, as Kubernetes writes it."""
        match self.kind:
            case ProblemKind.INTERNAL:
                intro = self.kind.value
            case ProblemKind.INVALID | ProblemKind.NOT_FOUND:
                intro = f"{self.kind.value}: {json.dumps('null' if self.value is None else self.value)}"
        return f"{self.field}: {intro}: {self.detail}" if self.detail else f"{self.field}: {intro}"


class ClaimError(Exception):
    """Error: a claim cannot be charged."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(aggregate(problems))
        self.problems = problems

    def __str__(self) -> str:
        return aggregate(self.problems)

    def within(self, field: str, context: str) -> "ClaimError":
        """Return the same problems with `field` as parent path, introduced by `context`."""
        return ClaimError(
            *(
                Problem(p.kind, f"{field}.{p.field}" if field else p.field, p.value, f"{context}: {p.detail}")
                for p in self.problems
            )
        )


def aggregate(problems: Sequence[Problem]) -> str:
    """Join the problems into one text without duplicates (ErrorList.ToAggregate)."""
    texts = list(dict.fromkeys(problem.text for problem in problems))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
