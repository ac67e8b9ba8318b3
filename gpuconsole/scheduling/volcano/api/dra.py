"""DRA requests of tasks: number of devices and amounts of capacity by device class."""

from collections.abc import Mapping

from msgspec import Struct, field


class DraResource(Struct):
    """Devices of one class (api.DRAResource). Mutates by `add` and `sub`."""

    count: int = 0
    capacity: dict[str, int] = field(default_factory=dict)
    """Amounts by dimension, in base units (bytes for memory)."""

    def clone(self) -> "DraResource":
        """An independent copy."""
        return DraResource(self.count, dict(self.capacity))

    def add(self, other: "DraResource", times: int = 1) -> None:
        """Add the other, multiplied by `times`."""
        self.count += other.count * times
        for name, amount in other.capacity.items():
            self.capacity[name] = self.capacity.get(name, 0) + amount * times

    def sub(self, other: "DraResource") -> None:
        """Subtract, never below zero."""
        self.count = max(self.count - other.count, 0)
        for name in self.capacity.keys() & other.capacity.keys():
            self.capacity[name] = max(self.capacity[name] - other.capacity[name], 0)


Devices = Mapping[str, DraResource]
"""Claimed devices by device class."""
