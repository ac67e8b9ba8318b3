"""Groups devices by pool: drivers publish a pool as ResourceSlices, with a higher generation after each change."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.devices import Device, ResourceSlice


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
