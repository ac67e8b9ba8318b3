"""Catalogue of device classes, claim templates and published devices, with the mapping to quota resources."""

from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.model.devices import DeviceClass, DeviceRequest, ResourceClaimTemplate, ResourceSlice
from gpuconsole.scheduling.devices.cel.tree import Tree
from gpuconsole.scheduling.kueue.dra.mapping import ClassMap, DeviceClassMapping
from gpuconsole.scheduling.kueue.dra.pools import ResourcePool, pools_of
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind
from gpuconsole.scheduling.kueue.dra.selectors import compiled


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
