"""MIG: profiles, placements of instances on a GPU, and which layouts are legal, maximal and reachable.

An instance covers a span of the GPU's memory slices. A layout is legal if no two spans overlap, its instances have no
more compute slices than the GPU, and at most one of them has the media engines.

`change` finds the cheapest change of a GPU's layout. Switching MIG mode resets the GPU, so all of it must be idle;
otherwise only the removed instances must be.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache

from msgspec import Struct

from gpuconsole.model.resources import MIG_PREFIX

_MEDIA = "+me"


class MigProfile(Struct, frozen=True, kw_only=True):
    """A MIG profile, the size of a GPU instance."""

    name: str
    """Name of the profile, such as `1g.10gb` or `1g.10gb+me`."""
    compute: int
    """Compute slices."""
    span: int
    """Memory slices."""
    starts: tuple[int, ...]
    """Memory slices at which it may begin."""
    memory: int = 0
    """In MiB."""
    sms: int = 0
    """Streaming multiprocessors; 0 if unknown."""
    doubled: bool = False
    """One compute slice with twice its share of memory."""

    @property
    def media(self) -> bool:
        """True if it has the media engines; a GPU has one set."""
        return self.name.endswith(_MEDIA)

    @property
    def resource(self) -> str:
        """Resource name by the device plugin under the strategy mixed: `nvidia.com/mig-1g.10gb.me`."""
        return MIG_PREFIX + self.name.replace("+", ".")


class MigPlacement(Struct, frozen=True, order=True):
    """Where an instance is on a GPU: its profile and first memory slice."""

    profile: str
    start: int

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


class MigInstance(Struct, frozen=True, order=True):
    """One MIG instance of a node: its GPU, profile and first memory slice."""

    gpu: int
    """Index of its GPU in the node's `mig_reconfiguration.Division`."""
    profile: str
    start: int
    """First memory slice."""


Layout = tuple[MigPlacement, ...]
"""Instances of one GPU, sorted by start."""
Mix = tuple[str, ...]
"""Profiles of the instances of a GPU in alphabetical order, regardless of their placement."""


class MigGeometry(Struct, frozen=True, eq=False, dict=True):
    """MIG profiles and placements that one GPU model supports. Compared by identity: one per model."""

    compute: int
    """Most compute slices of all its instances together."""
    slices: int
    """Memory slices."""
    profiles: tuple[MigProfile, ...]
    """Smallest first."""

    @cached_property
    def by_name(self) -> dict[str, MigProfile]:
        """Profiles by name."""
        return {profile.name: profile for profile in self.profiles}

    @cached_property
    def plain(self) -> tuple[MigProfile, ...]:
        """Profiles with neither double memory nor media engines: those in NVIDIA's count of possible layouts."""
        return tuple(profile for profile in self.profiles if not profile.doubled and not profile.media)

    @cached_property
    def sized(self) -> tuple[MigProfile, ...]:
        """Profiles without media engines; those with media engines have the same sizes."""
        return tuple(profile for profile in self.profiles if not profile.media)

    def profile_of(self, resource: str) -> MigProfile | None:
        """Return the profile of a resource name."""
        return next((profile for profile in self.profiles if profile.resource == resource), None)

    def objection(self, layout: Iterable[MigPlacement]) -> str:
        """Return why a layout is illegal; empty if it is legal."""
        taken = compute = media = 0
        for placement in layout:
            profile = self.by_name.get(placement.profile)
            if profile is None:
                return f"the GPU has no profile {placement.profile}"
            if placement.start not in profile.starts:
                return f"{profile.name} cannot begin at slice {placement.start}"
            span = _span(profile, placement.start)
            if taken & span:
                return f"{placement} overlaps another instance"
            taken |= span
            compute += profile.compute
            media += profile.media
        if compute > self.compute:
            return f"it has {compute} compute slices; the GPU has {self.compute}"
        return "only one instance can have the media engines" if media > 1 else ""

    def places(self, layout: Iterable[MigPlacement], profile: MigProfile) -> tuple[int, ...]:
        """Return the possible start slices of one more instance of a profile."""
        others = tuple(layout)
        return tuple(s for s in profile.starts if not self.objection((*others, MigPlacement(profile.name, s))))

    def pack(self, names: Iterable[str]) -> Layout | None:
        """Return a legal layout of these profiles, largest first at their best placement; None if there is none.

        Each instance is placed where most of the GPU's maximal mixes stay reachable.
        """
        known = [self.by_name.get(name) for name in names]
        profiles = [profile for profile in known if profile is not None]
        if len(profiles) < len(known):
            return None
        if sum(one.compute for one in profiles) > self.compute or sum(one.media for one in profiles) > 1:
            # Otherwise all placements of all instances would be tried first.
            return None
        wanted = sorted(profiles, key=lambda p: (-p.span, -p.compute, p.name))
        found = self._pack((), wanted)
        return None if found is None else ordered(found)

    def _pack(self, layout: Layout, wanted: list[MigProfile]) -> Layout | None:
        if not wanted:
            return layout
        first, *rest = wanted
        starts = sorted(self.places(layout, first), key=lambda s: (-self.open_to(layout, first, s), s))
        for start in starts:
            found = self._pack((*layout, MigPlacement(first.name, start)), rest)
            if found is not None:
                return found
        return None

    def open_to(self, layout: Layout, profile: MigProfile, start: int) -> int:
        """Count the maximal mixes that stay reachable after placing an instance of this profile at slice `start`."""
        return reachable(self, ordered((*layout, MigPlacement(profile.name, start))))


def ordered(layout: Iterable[MigPlacement]) -> Layout:
    """Sort a layout by start slice."""
    return tuple(sorted(layout, key=lambda placement: (placement.start, placement.profile)))


def mix(layout: Iterable[MigPlacement]) -> Mix:
    """Return the profiles of a layout in alphabetical order."""
    return tuple(sorted(placement.profile for placement in layout))


@lru_cache(maxsize=64)
def layouts(geometry: MigGeometry, profiles: tuple[MigProfile, ...]) -> tuple[Layout, ...]:
    """Return every legal layout of at least one instance of these profiles."""
    options = [(start, profile) for profile in profiles for start in profile.starts]
    return tuple(ordered(layout) for layout in _grown(geometry, options, (), 0) if layout)


@lru_cache(maxsize=64)
def maximal(geometry: MigGeometry, profiles: tuple[MigProfile, ...]) -> tuple[Layout, ...]:
    """Return the legal layouts that are full: no instance of these profiles can be added."""
    return tuple(
        layout
        for layout in layouts(geometry, profiles)
        if not any(geometry.places(layout, profile) for profile in profiles)
    )


@lru_cache(maxsize=65536)
def reachable(geometry: MigGeometry, layout: Layout) -> int:
    """Count the distinct mixes with which a GPU can be filled without removing an instance of this layout.

    Media engines are ignored, and profiles with double memory count only if the layout has one.
    """
    names = {placement.profile.removesuffix(_MEDIA) for placement in layout}
    doubled = any(geometry.by_name[name].doubled for name in names)
    wanted = {(placement.profile.removesuffix(_MEDIA), placement.start) for placement in layout}
    among = maximal(geometry, geometry.sized if doubled else geometry.plain)
    return len({mix(full) for full in among if wanted <= {(p.profile, p.start) for p in full}})


def _grown(geometry: MigGeometry, options: list[tuple[int, MigProfile]], layout: Layout, at: int) -> Iterator[Layout]:
    yield layout
    for n in range(at, len(options)):
        start, profile = options[n]
        bigger = (*layout, MigPlacement(profile.name, start))
        if not geometry.objection(bigger):
            yield from _grown(geometry, options, bigger, n + 1)


def _span(profile: MigProfile, start: int) -> int:
    """Return the memory slices that an instance covers, as a bit mask."""
    return ((1 << profile.span) - 1) << start


class GeometryChange(Struct, frozen=True, kw_only=True):
    """Change of the MIG instances of one GPU: those removed and created, and the new layout."""

    layout: Layout | None
    """The new layout; None with MIG mode off."""
    removed: Layout = ()
    created: Layout = ()
    reset: bool = False
    """MIG mode is switched, which resets the GPU."""

    def leavers(self, owners: Mapping[MigPlacement, str], whole: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the pods to evict first: owners of removed instances, or all pods if the GPU is reset.

        `owners` maps instances to pods; `whole` are the pods that hold the GPU as a whole.
        """
        gone = (*whole, *owners.values()) if self.reset else (owners.get(placement, "") for placement in self.removed)
        return tuple(sorted({owner for owner in gone if owner}))


def change(
    geometry: MigGeometry, old: Layout | None, profiles: Iterable[str] | None, busy: Iterable[MigPlacement] = ()
) -> GeometryChange | None:
    """Return the cheapest change of a GPU's layout `old` to instances of these profiles; None if impossible.

    `old` and `profiles` are None for MIG mode off; `busy` are the instances in use. The new layout is the one that
    removes the fewest busy instances, then the fewest instances.
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
