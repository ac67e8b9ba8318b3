"""Volcano's resource vectors: float arithmetic with a tolerance, and two interpretations of missing dimensions."""

import sys
from collections.abc import Iterable, Mapping
from enum import IntEnum

from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MAX, MEMORY, PODS

TOLERANCE = 0.1
"""Smaller amounts count as zero, and amounts with a smaller difference as equal (minResource)."""
IGNORED_SCALARS = frozenset((PODS,))
"""Left out of comparisons by name: every task requests one of `pods`."""


class MissingAmount(IntEnum):
    """The value of a dimension that a vector does not name."""

    ZERO = 0
    INFINITY = -1


ZERO, INFINITY = MissingAmount.ZERO, MissingAmount.INFINITY


def _is_at_most(left: float, right: float) -> bool:
    return left < right or abs(left - right) < TOLERANCE


def is_scalar(name: str) -> bool:
    """True for resources that Volcano counts besides cpu and memory: extended resources, hugepages and attachable
    volumes.
    """
    if "/" in name:
        return not name.startswith(("requests.", "count/"))
    return name.startswith(("hugepages-", "attachable-volumes-"))


class Resource:
    """Amounts of cpu (milli), memory (bytes) and scalars (milli-units, `pods` in whole ones). Mutates in place.

    Volcano 1.15 api.Resource. `scalars` is None if no scalar was ever named; subtraction and minimum treat that
    differently from an empty mapping.
    """

    __slots__ = ("cpu", "max_tasks", "memory", "scalars")

    def __init__(
        self, cpu: float = 0.0, memory: float = 0.0, scalars: dict[str, float] | None = None, max_tasks: int = 0
    ) -> None:
        self.cpu = cpu
        self.memory = memory
        self.scalars = scalars
        self.max_tasks = max_tasks
        """Amount of `pods` that the vector was read with; arithmetic does not change it."""

    @classmethod
    def from_amounts(cls, amounts: Mapping[str, int], ignored: Iterable[str] = ()) -> "Resource":
        """A vector of amounts in base units (NewResource); names that Volcano does not count are left out."""
        result = cls()
        for name, value in amounts.items():
            if name == CPU:
                result.cpu += float(value)
            elif name == MEMORY:
                result.memory += float(value)
            elif name == PODS:
                result.max_tasks += value
                result.add_scalar(name, float(value))
            elif name == EPHEMERAL_STORAGE or (is_scalar(name) and name not in ignored):
                result.add_scalar(name, float(value) * 1000)
        return result

    @classmethod
    def sum(cls, amounts: "Iterable[Resource]") -> "Resource":
        """Sum of the amounts."""
        total = cls()
        for one in amounts:
            total.add(one)
        return total

    @classmethod
    def infinite(cls) -> "Resource":
        """More cpu and memory than any cluster has; scalars are not named."""
        return cls(sys.float_info.max, sys.float_info.max, None, sys.maxsize)

    @property
    def is_unset(self) -> bool:
        """True if no amount was set: cpu and memory are exactly 0 and no scalar is named."""
        return not (self.cpu or self.memory or self.scalars)

    def copy(self) -> "Resource":
        """An independent copy."""
        return Resource(self.cpu, self.memory, None if self.scalars is None else dict(self.scalars), self.max_tasks)

    def __repr__(self) -> str:
        return f"Resource({self})"

    def __str__(self) -> str:
        """`cpu 4000.00, memory 2000.00, nvidia.com/gpu 1.00`, as Volcano's messages write it."""
        lines = [f"cpu {_format_amount(self.cpu)}", f"memory {_format_amount(self.memory)}"]
        lines += [f"{name} {_format_amount(value)}" for name, value in sorted((self.scalars or {}).items())]
        return ", ".join(lines)

    def __eq__(self, other: object) -> bool:
        """The same amounts in all dimensions, exactly; one that is missing is not the same as zero."""
        if not isinstance(other, Resource):
            return NotImplemented
        return (self.cpu, self.memory, self.scalars or {}, self.max_tasks) == (
            other.cpu,
            other.memory,
            other.scalars or {},
            other.max_tasks,
        )

    __hash__ = None  # type: ignore[assignment]

    def get(self, name: str) -> float:
        """The amount of one resource; 0 if it is not named."""
        if name == CPU:
            return self.cpu
        if name == MEMORY:
            return self.memory
        return self.scalars.get(name, 0.0) if self.scalars else 0.0

    def names(self) -> list[str]:
        """Names of the resources with an amount above zero, within the tolerance."""
        found = [name for name, value in ((CPU, self.cpu), (MEMORY, self.memory)) if value >= TOLERANCE]
        return found + [name for name, value in (self.scalars or {}).items() if value >= TOLERANCE]

    def is_empty(self) -> bool:
        """True if all amounts but `pods` are zero, within the tolerance."""
        if self.cpu >= TOLERANCE or self.memory >= TOLERANCE:
            return False
        return not self.scalars or all(
            value < TOLERANCE for name, value in self.scalars.items() if name not in IGNORED_SCALARS
        )

    def add_scalar(self, name: str, value: float) -> None:
        """Add to the amount of a scalar."""
        if self.scalars is None:
            self.scalars = {}
        self.scalars[name] = self.scalars.get(name, 0.0) + value

    def set_scalar(self, name: str, value: float) -> None:
        """Set the amount of a scalar."""
        if self.scalars is None:
            self.scalars = {}
        self.scalars[name] = value

    def add(self, other: "Resource") -> "Resource":
        """Add another vector in place, and return itself."""
        self.cpu += other.cpu
        self.memory += other.memory
        if other.scalars:
            mine = self.scalars
            if mine is None:
                mine = self.scalars = {}
            for name, value in other.scalars.items():
                mine[name] = mine.get(name, 0.0) + value
        return self

    def sub(self, other: "Resource") -> "Resource":
        """Subtract in place, also below zero, and return itself; scalars only if this vector names any."""
        self.cpu -= other.cpu
        self.memory -= other.memory
        mine = self.scalars
        if mine is not None and other.scalars:
            for name, value in other.scalars.items():
                mine[name] = mine.get(name, 0.0) - value
        return self

    def multiply(self, ratio: float) -> "Resource":
        """Multiply in place, and return itself."""
        self.cpu *= ratio
        self.memory *= ratio
        if self.scalars:
            self.scalars = {name: value * ratio for name, value in self.scalars.items()}
        return self

    def set_min(self, other: "Resource", default: MissingAmount) -> "Resource":
        """Set each dimension to the smaller of both amounts, and return itself (MinDimensionResource).

        A scalar that the other does not name becomes 0 with ZERO, and stays with INFINITY.
        """
        self.cpu = min(self.cpu, other.cpu)
        self.memory = min(self.memory, other.memory)
        if self.scalars is None:
            return self
        theirs = other.scalars or {}
        for name, value in self.scalars.items():
            if name in theirs:
                self.scalars[name] = min(value, theirs[name])
            elif default is ZERO:
                self.scalars[name] = 0.0
        return self

    def less_equal(self, other: "Resource", default: MissingAmount) -> bool:
        """True if no amount is more than in `other`, within the tolerance; `default` stands for unnamed amounts."""
        if self.cpu - other.cpu >= TOLERANCE or self.memory - other.memory >= TOLERANCE:
            return False
        mine, theirs = self.scalars or {}, other.scalars or {}
        if default is INFINITY:
            if any(name not in mine for name in theirs):
                return False
            return all(_is_at_most(value, theirs[name]) for name, value in mine.items() if name in theirs)
        for name, value in mine.items():
            right = theirs.get(name, 0.0)
            if value >= right and value - right >= TOLERANCE:
                return False
        return True

    def exceeded_names(self, other: "Resource", default: MissingAmount = ZERO) -> list[str]:
        """Names of the resources of which there is more than in `other` (LessEqualWithResourcesName)."""
        pairs = ((CPU, self.cpu, other.cpu), (MEMORY, self.memory, other.memory))
        found = [name for name, left, right in pairs if not _is_at_most(left, right)]
        theirs = other.scalars or {}
        for name, value in sorted((self.scalars or {}).items()):
            if (name in theirs or default is ZERO) and not _is_at_most(value, theirs.get(name, 0.0)):
                found.append(name)
        return found

    def exceeded_requested_names(self, other: "Resource", request: "Resource") -> list[str]:
        """Names in `request` of which this vector has more than `other`.

        LessEqualWithDimensionAndResourcesName: without tolerance and without `pods`.
        """
        found = [
            name
            for name, asked, left, right in (
                (CPU, request.cpu, self.cpu, other.cpu),
                (MEMORY, request.memory, self.memory, other.memory),
            )
            if asked > 0 and left > right
        ]
        if self.scalars is None:
            return found
        return found + [
            name
            for name, asked in sorted((request.scalars or {}).items())
            if name not in IGNORED_SCALARS and asked > 0 and self.get(name) > other.get(name)
        ]

    def is_less_in_any(self, other: "Resource", default: MissingAmount) -> bool:
        """True if any amount is less than in `other`; `default` stands for unnamed amounts."""
        if self.cpu < other.cpu or self.memory < other.memory:
            return True
        mine, theirs = self.scalars or {}, other.scalars or {}
        if default is ZERO and any(name not in mine for name in theirs):
            return True
        return any(
            (default is INFINITY and name not in theirs) or value < theirs.get(name, 0.0)
            for name, value in mine.items()
        )

    def requested_names_within(self, other: "Resource", request: "Resource") -> list[str]:
        """Names in `request` of which this vector has no more than `other`.

        LessEqualPartlyWithDimension, which is true if there is any.
        """
        return [name for name in request._requested_names() if _is_at_most(self.get(name), other.get(name))]

    def used_names_within(self, other: "Resource", request: "Resource") -> list[str]:
        """As `requested_names_within`, without names whose amount is zero in both.

        LessEqualPartlyWithDimensionZeroFiltered.
        """
        found = self.requested_names_within(other, request)
        return [name for name in found if self.get(name) >= TOLERANCE or other.get(name) >= TOLERANCE]

    def requested_names_above(self, other: "Resource | None", request: "Resource") -> list[str]:
        """Names in `request` of which this has more than `other` (None: empty); GreaterPartlyWithDimension."""
        if other is None:
            other = Resource()
        return [name for name in request._requested_names() if self.get(name) > other.get(name)]

    def relevant_names_above(self, other: "Resource | None", request: "Resource") -> list[str]:
        """As `requested_names_above`, but only cpu and memory that the other has, and scalars that it names.

        GreaterPartlyWithRelevantDimensions.
        """
        if other is None:
            return []
        named = other.scalars or {}
        return [
            name
            for name in self.requested_names_above(other, request)
            if (other.get(name) >= TOLERANCE if name in (CPU, MEMORY) else name in named)
        ]

    def _requested_names(self) -> list[str]:
        names = [name for name, value in ((CPU, self.cpu), (MEMORY, self.memory)) if value > 0]
        scalars = sorted((self.scalars or {}).items())
        return names + [name for name, value in scalars if value > 0 and name not in IGNORED_SCALARS]

    def diff(self, other: "Resource", default: MissingAmount) -> tuple["Resource", "Resource"]:
        """(amounts above the other's, amounts below them) by dimension; -1 is an infinite difference."""
        more, less = Resource(scalars={}), Resource(scalars={})
        more.cpu, less.cpu = max(self.cpu - other.cpu, 0.0), max(other.cpu - self.cpu, 0.0)
        more.memory, less.memory = max(self.memory - other.memory, 0.0), max(other.memory - self.memory, 0.0)
        mine, theirs = self.scalars or {}, other.scalars or {}
        for name in {**mine, **theirs}:
            left, right = mine.get(name, float(default)), theirs.get(name, float(default))
            if left == INFINITY:
                more.set_scalar(name, left)
            elif right == INFINITY:
                less.set_scalar(name, right)
            elif left > right:
                more.set_scalar(name, left - right)
            else:
                less.set_scalar(name, right - left)
        return more, less


def _format_amount(value: float) -> str:
    if value == sys.float_info.max:
        return "maxFloat"
    return "maxInt" if value == float(MAX) else f"{value:.2f}"


def common_names(left: Resource, right: Resource) -> list[str]:
    """Names of which both have an amount above zero (Intersection)."""
    theirs = set(right.names())
    return [name for name in left.names() if name in theirs]


def without_ignored(names: Iterable[str]) -> list[str]:
    """The names without `IGNORED_SCALARS` (FilteredIgnoredScalarResources)."""
    return [name for name in names if name not in IGNORED_SCALARS]


def excess(left: Resource, right: Resource) -> Resource:
    """The amounts by which `left` exceeds `right`, resource by resource."""
    return left.diff(right, ZERO)[0]
