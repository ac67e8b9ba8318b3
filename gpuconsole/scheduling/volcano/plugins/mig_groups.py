"""MIG instances that Volcano's vGPU device plugin creates on demand, from groups of compatible instances.

Volcano 1.15 api/devices/nvidia/vgpu/mig.go. An unused card takes the first group that has an instance large enough;
while a pod has an instance of it, others get instances of that group only, and only of a size in use.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gpuconsole.model.documents.yaml_json import FormError, named, read_yaml, sections, unwrapped

FILE = "device-config.yaml"


class MigSize(Struct, frozen=True):
    """Instances of one size in a group."""

    name: str
    memory: int
    """MiB."""
    count: int


class MigGroup(Struct, frozen=True):
    """Instances into which a card can be divided at the same time."""

    name: str
    sizes: tuple[MigSize, ...]

    def size_at(self, position: int) -> MigSize | None:
        """The size of the instance at a position, counted through the sizes in order; None if there is none."""
        for size in self.sizes:
            if position < size.count:
                return size
            position -= size.count
        return None


class MigModel(Struct, frozen=True):
    """GPU models, as parts of their names, and their groups in the order in which they are tried."""

    models: tuple[str, ...]
    groups: tuple[MigGroup, ...]


MigInstance = tuple[str, int]
"""(group, position)."""


def groups_of(kind: str, known: Sequence[MigModel]) -> tuple[MigGroup, ...]:
    """The groups for a type of card; empty if none are configured."""
    return next((model.groups for model in known if any(name in kind for name in model.models)), ())


def pick(groups: Sequence[MigGroup], used: Collection[MigInstance], memory: int) -> tuple[MigInstance, int] | None:
    """The smallest instance with at least this memory (MiB), and its memory; None if the card has none (findMatch)."""
    taken = {name for name, _ in used}
    for group in [one for one in groups if one.name in taken] or groups:
        positions = sorted(position for name, position in used if name == group.name)
        held = Counter(size.name for position in positions if (size := group.size_at(position)) is not None)
        start = {size.name: sum(one.count for one in group.sizes[:n]) for n, size in enumerate(group.sizes)}
        for size in sorted(group.sizes, key=lambda size: size.memory):
            if size.memory < memory or (taken and not 0 < held[size.name] < size.count):
                continue
            first = start[size.name]
            free = next(at for at in range(first, first + size.count) if at not in positions)
            return (group.name, free), size.memory
    return None


def read_groups(text: str) -> tuple[MigModel, ...]:
    """Parse the groups in a device-config.yaml, or in the ConfigMap that holds it.

    Raises:
        ValueError: the text is no such file; the message says what is wrong with it.
    """
    try:
        trees = [unwrapped(read_yaml(part, line), named(FILE)).value for part, line in sections(text)]
        tree = next((one for one in trees if isinstance(one, Mapping) and "nvidia" in one), trees[0] if trees else None)
        listed = (tree or {}).get("nvidia", {}).get("knownMigGeometries") or []
        return tuple(_model(one) for one in listed)
    except FormError as error:
        raise ValueError(f"line {error.problem.line}: {error.problem.problem}") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("nvidia.knownMigGeometries has models and allowedGeometries: group, geometries") from None


def _model(said: Mapping[str, Any]) -> MigModel:
    groups = (
        MigGroup(
            str(one["group"]),
            tuple(MigSize(str(size["name"]), int(size["memory"]), int(size["count"])) for size in one["geometries"]),
        )
        for one in said["allowedGeometries"]
    )
    return MigModel(tuple(map(str, said["models"])), tuple(groups))
