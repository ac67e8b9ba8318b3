"""Maps each device class to the quota resource that pays for it (Configuration: resources.deviceClassMappings)."""

from collections.abc import Sequence

from msgspec import Struct


class CounterSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The charge is what matching devices of a driver consume of a counter."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class CapacitySource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The charge is what the claim asks for of a capacity that a driver's devices share out."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class DeviceClassMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Classes whose devices are paid for in one quota resource: one each, unless there are sources."""

    name: str
    device_class_names: tuple[str, ...] = ()
    counters: tuple[CounterSource, ...] = ()
    capacities: tuple[CapacitySource, ...] = ()


class ClassMap:
    """The mappings by class. Frozen after construction."""

    __slots__ = ("_resources", "capacities", "counters", "drivers")

    def __init__(self, mappings: Sequence[DeviceClassMapping]) -> None:
        self._resources: dict[str, str] = {}
        self.counters: dict[str, list[tuple[str, CounterSource]]] = {}
        """Class → the quota resource and the source of each counter."""
        self.capacities: dict[str, list[CapacitySource]] = {}
        for mapping in mappings:
            for name in mapping.device_class_names:
                self._resources.setdefault(name, mapping.name)
                if mapping.counters:
                    self.counters.setdefault(name, []).extend((mapping.name, source) for source in mapping.counters)
                if mapping.capacities:
                    self.capacities.setdefault(name, []).extend(mapping.capacities)
        drivers = [source.driver for mapping in mappings for source in mapping.counters]
        drivers += [source.driver for mapping in mappings for source in mapping.capacities]
        self.drivers = frozenset(drivers)
        """Drivers whose devices decide what is charged."""

    def resource(self, device_class: str) -> str | None:
        """The quota resource of a class; the first mapping that names the class counts."""
        return self._resources.get(device_class)
