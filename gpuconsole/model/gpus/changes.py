"""Changes of a GPU's MIG layout, and the pods that must be evicted first.

Switching MIG mode resets the GPU, so all of it must be idle; otherwise only the removed instances must be.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.model.gpus.mig import Layout, MigGeometry, MigPlacement, layouts, mix, ordered


class GeometryChange(Struct, frozen=True, kw_only=True):
    """Change of a GPU from one layout to another."""

    layout: Layout | None
    """The new layout; None with MIG mode off."""
    removed: Layout = ()
    created: Layout = ()
    reset: bool = False
    """MIG mode is switched, which resets the GPU."""

    def leavers(self, owners: Mapping[MigPlacement, str], whole: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the pods to evict first: owners of removed instances, or all pods of a GPU that is reset (with
        `whole`).
        """
        gone = (*whole, *owners.values()) if self.reset else (owners.get(placement, "") for placement in self.removed)
        return tuple(sorted({owner for owner in gone if owner}))


def change(
    geometry: MigGeometry, old: Layout | None, profiles: Iterable[str] | None, busy: Iterable[MigPlacement] = ()
) -> GeometryChange | None:
    """Return the cheapest change to instances of these profiles (None: MIG mode off); None if impossible.

    Of the layouts with these profiles it has the one that removes the fewest busy instances, then the fewest instances.
    """
    if profiles is None:
        return GeometryChange(layout=None, removed=old or (), reset=old is not None)
    wanted = tuple(sorted(profiles))
    if old is None:
        packed = geometry.pack(wanted)
        return None if packed is None else GeometryChange(layout=packed, created=packed, reset=True)
    if not wanted:
        return GeometryChange(layout=(), removed=old)
    occupied, before = frozenset(busy), frozenset(old)

    def cost(layout: Layout) -> tuple[int, int, Layout]:
        gone = before.difference(layout)
        return len(gone & occupied), len(gone), layout

    candidates = [layout for layout in layouts(geometry, geometry.profiles) if mix(layout) == wanted]
    best = min(candidates, key=cost, default=None)
    if best is None:
        return None
    removed, created = ordered(before.difference(best)), ordered(frozenset(best) - before)
    return GeometryChange(layout=best, removed=removed, created=created)
