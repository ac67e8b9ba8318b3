"""Maps device classes to the quota resources charged for them (Configuration: resources.deviceClassMappings)."""

from collections.abc import Sequence

from msgspec import Struct


class CounterSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A charge by the amount of a shared counter that matching devices of a driver consume."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class CapacitySource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A charge by the amount that a claim requests of a capacity of a driver's devices."""

    name: str
    driver: str
    device_selector: str = ""
    """A CEL expression; an empty one selects all."""


class DeviceClassMapping(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Device classes charged to one quota resource: 1 per device, unless there are sources."""

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
        """Class → (quota resource, source) of each counter."""
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
        """Drivers of all sources: their devices determine charges."""

    def resource(self, device_class: str) -> str | None:
        """The quota resource of a class, from the first mapping that names it; None if none does."""
        return self._resources.get(device_class)
