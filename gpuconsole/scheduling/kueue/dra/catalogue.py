"""Catalogue of device classes, claim templates and published devices, with the mapping to quota resources.

Groups devices by pool: drivers publish a pool as ResourceSlices, with a higher generation after each change.

Compiles the CEL selectors of device classes and requests; errors are reported by field.

Problems of a claim by field, in the words of Kubernetes' field errors.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.model.devices import Device, DeviceClass, DeviceRequest, ResourceClaimTemplate, ResourceSlice
from gpuconsole.scheduling.devices.cel.parsing import Tree
from gpuconsole.scheduling.devices.selectors import compile_selector
from gpuconsole.scheduling.kueue.config import ClassMap, DeviceClassMapping


class ResourcePool(Struct, frozen=True):
    """The slices of a pool's newest generation."""

    name: str
    generation: int
    expected: int
    slices: tuple[ResourceSlice, ...]

    @property
    def complete(self) -> bool:
        """True if all slices are published; only then its devices count."""
        return len(self.slices) == self.expected

    @property
    def devices(self) -> list[Device]:
        """The devices of all slices."""
        return [device for part in self.slices for device in part.devices]


def pools_of(slices: Iterable[ResourceSlice], driver: str) -> list[ResourcePool]:
    """Return a driver's pools, in order of their first slices."""
    pools: dict[str, ResourcePool] = {}
    for part in slices:
        if part.driver != driver:
            continue
        known = pools.get(part.pool)
        if known is None or part.generation > known.generation:
            pools[part.pool] = ResourcePool(part.pool, part.generation, part.pool_slices, (part,))
        elif part.generation == known.generation:
            pools[part.pool] = ResourcePool(known.name, known.generation, known.expected, (*known.slices, part))
    return list(pools.values())


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


class DeviceCatalogue:
    """DRA objects by name. Frozen after construction; pools are computed on demand."""

    __slots__ = ("_pools", "classes", "extended", "map", "slices", "templates")

    def __init__(
        self,
        mappings: Sequence[DeviceClassMapping] = (),
        classes: Mapping[str, DeviceClass] | None = None,
        templates: Mapping[str, ResourceClaimTemplate] | None = None,
        slices: Iterable[ResourceSlice] = (),
    ) -> None:
        self.map = ClassMap(mappings)
        self.classes = classes or {}
        self.templates = templates or {}
        """By `namespace/name`."""
        self.slices = sorted(slices, key=lambda part: part.name)
        self.extended: dict[str, DeviceClass] = {}
        """Extended resource → the device class that provides it."""
        for known in self.classes.values():
            name = known.extended_resource
            if name:
                rival = self.extended.get(name)
                self.extended[name] = known if rival is None else chosen((rival, known))
        self._pools: dict[str, list[ResourcePool]] = {}

    def slices_of(self, driver: str) -> list[ResourceSlice]:
        """The ResourceSlices of a driver, by name."""
        return [part for part in self.slices if part.driver == driver]

    def pools_of(self, driver: str) -> list[ResourcePool]:
        """A driver's pools by name, complete or not."""
        if driver not in self._pools:
            self._pools[driver] = sorted(pools_of(self.slices, driver), key=lambda pool: pool.name)
        return self._pools[driver]

    def requests_of(self, namespace: str, template: str, path: str, context: str = "") -> Sequence[DeviceRequest]:
        """The device requests of a claim template. Raises ClaimError if it does not exist."""
        found = self.templates.get(f"{namespace}/{template}")
        if found is None:
            missing = f'resourceclaimtemplates.resource.k8s.io "{template}" not found'
            detail = f"failed to get claim spec for ResourceClaimTemplate {template}{context}: {missing}"
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
        return found.requests

    def class_selectors(self, name: str, path: str) -> list[Tree]:
        """The compiled selectors of a device class; none for an empty name. Raises ClaimError, naming `path`."""
        if not name:
            return []
        known = self.classes.get(name)
        if known is None:
            missing = f'deviceclasses.resource.k8s.io "{name}" not found'
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=f"failed to get DeviceClass {name}: {missing}"))
        context = f"DeviceClass {name} has invalid CEL selector"
        return compiled(known.selectors, path, context, first_only=True)


def chosen(classes: Sequence[DeviceClass]) -> DeviceClass:
    """Return the newest of the classes that offer the same extended resource; on ties the first by name."""
    newest = max(known.created for known in classes)
    return min((known for known in classes if known.created == newest), key=lambda known: known.name)
