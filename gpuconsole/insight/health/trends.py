"""GPU utilization over the last hour, in a ring buffer of samples per node.

Some of the samples are stored for the next session on the same cluster.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from gpuconsole.insight.health.telemetry import MeasuredGpu
from gpuconsole.model.clock import HOUR, SECOND, Span, Time
from gpuconsole.model.snapshot import EMPTY, Snapshot, row_changes
from gpuconsole.model.telemetry import NodeTelemetry, busy

SAMPLES = 120
"""Samples per node: an hour of scrapes, in 2 kB."""
APART: Span = 20 * SECOND
"""Minimum time between samples, so that the ring covers an hour."""
BINS = 12
BIN: Span = HOUR // BINS
KEPT_APART: Span = BIN // 2
"""Minimum time between stored samples: two per bin of five minutes."""
_UNKNOWN = 255

DevicePlace = tuple[int, int]
Trend = tuple[float | None, ...]
"""Utilization in percent per five minutes of the last hour, oldest first; None without samples."""


class UtilizationSample(Struct, frozen=True):
    """Utilization of a node's devices at one moment."""

    node: str
    time: Time
    places: tuple[DevicePlace, ...]
    percents: bytes
    """One byte per device: 0 to 100, or 255 if unknown."""


PastSamples = Callable[[Sequence[str]], Iterable[UtilizationSample]]
"""Nodes → their stored samples, oldest first."""


def _nothing(nodes: Sequence[str]) -> Iterable[UtilizationSample]:
    return ()


class _Ring:
    """Samples of one node. Mutates by `add`."""

    __slots__ = ("_at", "kept", "places", "times", "values")

    def __init__(self, places: tuple[DevicePlace, ...]) -> None:
        self.places = places
        self.times = array("q")
        self.values = bytearray()
        """One byte per device and sample."""
        self.kept: Time = 0
        """Time of the newest stored sample."""
        self._at = 0

    def add(self, time: Time, found: bytes) -> None:
        if len(self.times) < SAMPLES:
            self.times.append(time)
            self.values += found
        else:
            width = len(self.places)
            self.times[self._at] = time
            self.values[self._at * width : (self._at + 1) * width] = found
        self._at = (self._at + 1) % SAMPLES

    @property
    def newest(self) -> Time:
        return self.times[self._at - 1] if self.times else 0


class Trends:
    """Recent GPU utilization. Mutates by `take`; it may be read in the meantime."""

    def __init__(self, past: PastSamples = _nothing) -> None:
        """`past` is called once per node, when the node appears."""
        self._past = past
        self._seen = EMPTY.telemetry
        self._rings: dict[str, _Ring] = {}

    def take(self, snapshot: Snapshot) -> Sequence[UtilizationSample]:
        """Add new telemetry; returns the samples to store.

        Costs nothing if the Snapshot has no new telemetry.
        """
        if snapshot.telemetry is self._seen:
            return ()
        gone, come = row_changes(self._seen.rows, snapshot.telemetry.rows)
        self._seen = snapshot.telemetry
        self._recall([node_telemetry.name for node_telemetry in come if node_telemetry.name not in self._rings])
        kept = [sample for node_telemetry in come if (sample := self._add(node_telemetry)) is not None]
        for name in {node_telemetry.name for node_telemetry in gone} - {node_telemetry.name for node_telemetry in come}:
            self._rings.pop(name, None)
        return kept

    def _recall(self, nodes: Sequence[str]) -> None:
        """Load the stored samples of new nodes."""
        for sample in self._past(nodes) if nodes else ():
            ring = self._rings.get(sample.node)
            if ring is None or ring.places != sample.places:
                ring = self._rings[sample.node] = _Ring(sample.places)
            if sample.time > ring.newest and len(sample.percents) == len(ring.places):
                ring.add(sample.time, sample.percents)
                ring.kept = sample.time

    def _add(self, node_telemetry: NodeTelemetry) -> UtilizationSample | None:
        """Add a node's newest values; returns a sample if it is to be stored."""
        ring = self._rings.get(node_telemetry.name)
        places = tuple(device.place for device in node_telemetry.devices)
        if ring is None or ring.places != places:
            # A MIG reconfiguration changes the devices.
            ring = self._rings[node_telemetry.name] = _Ring(places)
        if node_telemetry.time < ring.newest + APART:
            return None
        found = bytes(_percent(busy(node_telemetry, position)) for position in range(len(places)))
        ring.add(node_telemetry.time, found)
        if node_telemetry.time < ring.kept + KEPT_APART:
            return None
        ring.kept = node_telemetry.time
        return UtilizationSample(node_telemetry.name, node_telemetry.time, places, found)

    def of(self, gpus: Iterable[MeasuredGpu], now: Time) -> Trend:
        """Return the mean utilization of devices, each since its present owner holds it; see `Trend`."""
        sums, counts = [0.0] * BINS, [0] * BINS
        for gpu in gpus:
            for time, percent in self._samples(gpu):
                age = now - time
                if gpu.since <= time and 0 <= age < HOUR:
                    place = BINS - 1 - age // BIN
                    sums[place] += percent
                    counts[place] += 1
        return tuple(total / count if count else None for total, count in zip(sums, counts, strict=True))

    def _samples(self, gpu: MeasuredGpu) -> list[tuple[Time, int]]:
        ring = self._rings.get(gpu.node)
        if ring is None or gpu.device.place not in ring.places:
            return []
        column: Sequence[int] = ring.values[ring.places.index(gpu.device.place) :: len(ring.places)]
        return [(time, value) for time, value in zip(ring.times, column, strict=False) if value != _UNKNOWN]


def _percent(value: float | None) -> int:
    return _UNKNOWN if value is None or value != value else max(0, min(100, round(value)))


def known(trend: Trend) -> bool:
    """True if at least one value is known."""
    return any(value is not None for value in trend)
