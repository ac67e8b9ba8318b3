"""CEL value types besides strings and numbers: quantities and semantic versions."""

import re
from fractions import Fraction
from functools import total_ordering

from msgspec import Struct

from gpuconsole.model.resources import parse_quantity

_SEMVER = re.compile(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


class EvaluationError(Exception):
    """Error: the expression has no value for this device."""


class Quantity(Struct, frozen=True):
    """A Kubernetes quantity, exact."""

    value: Fraction

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read a quantity. Raises EvaluationError."""
        try:
            return cls(parse_quantity(text))
        except ValueError:
            raise EvaluationError("quantities must match the regular expression") from None


@total_ordering
class Semver(Struct, frozen=True, order=False):
    """A semantic version; a pre-release comes before its release."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Semver":
        """Read a version of at most 64 characters; build metadata is dropped. Raises EvaluationError."""
        match = _SEMVER.fullmatch(text) if len(text) <= 64 else None
        if match is None:
            raise EvaluationError(f"No Major.Minor.Patch elements found in {text!r}")
        return cls(int(match[1]), int(match[2]), int(match[3]), tuple(match[4].split(".")) if match[4] else ())

    def __lt__(self, other: "Semver") -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[object, ...]:
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return self.major, self.minor, self.patch, not pre, pre
