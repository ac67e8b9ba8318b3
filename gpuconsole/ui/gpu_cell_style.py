"""Glyph and colour of a cell of the GPU map: by state, queue, owner, age, utilization or temperature.

A cell always has a glyph, so that the map is readable without colour: by state the glyphs of the states, by queue the
letter of the legend, by owner the first letter of the workload's name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import inf
from string import ascii_letters
from typing import NamedTuple
from zlib import crc32

from rich.cells import cell_len

from gpuconsole.insight.health.telemetry import HOT
from gpuconsole.insight.index.gpu_map import GpuCell, GpuRow, GpuState
from gpuconsole.model.clock import DAY, HOUR, Span, Time
from gpuconsole.model.telemetry import GpuMetric, NodeTelemetry, busy
from gpuconsole.model.text import clean
from gpuconsole.ui import paint
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Painted, join

SERIES = 8
GPU_GLYPHS = {
    GpuState.OWN: "▣",
    GpuState.BORROWED: paint.GLYPHS["borrowed"],
    GpuState.IDLE: paint.GLYPHS["idle"],
    GpuState.FAULT: paint.GLYPHS["fault"],
    GpuState.HELD: paint.GLYPHS["held"],
    GpuState.UNKNOWN: paint.GLYPHS["unknown"],
}
WORDS = {
    GpuState.OWN: "nominal quota",
    GpuState.BORROWED: "borrowed",
    GpuState.IDLE: "idle",
    GpuState.FAULT: "fault",
    GpuState.HELD: "held",
    GpuState.UNKNOWN: "unknown",
}
IN_USE = "in use"
"""Word for an allocated GPU whose pod no queue manages, instead of `nominal quota`."""
FREE = (GpuState.IDLE, GpuState.FAULT, GpuState.HELD, GpuState.UNKNOWN)
AGES = ((HOUR, "under 1h", "1"), (6 * HOUR, "under 6h", "6"), (DAY, "under 1d", "d"), (7 * DAY, "under 7d", "w"))
OLDEST = ("7d and more", "W")
"""Label and glyph of pods older than the last of `AGES`."""


class ColourBy(StrEnum):
    """The property that a cell's colour and glyph show."""

    STATE = "state"
    QUEUE = "queue"
    OWNER = "owner"
    AGE = "age"
    """How long the pod has had the GPU."""
    UTILISATION = "utilization"
    TEMPERATURE = "temperature"

    @property
    def next(self) -> "ColourBy":
        ways = list(ColourBy)
        return ways[(ways.index(self) + 1) % len(ways)]


class ColourStep(NamedTuple):
    """A step of a colour scale: values below `below` (percent or °C) get its word, glyph and role."""

    below: float
    word: str
    glyph: str
    role: str


UNKNOWN = ColourStep(0.0, "not measured", "·", "dim")
SCALES: Mapping[ColourBy, tuple[ColourStep, ...]] = {
    ColourBy.UTILISATION: (
        ColourStep(1, "idle", "▁", "idle"),
        ColourStep(25, "under 25%", "▂", "pending"),
        ColourStep(50, "under 50%", "▄", "lent"),
        ColourStep(75, "under 75%", "▆", "series-1"),
        ColourStep(inf, "75% and more", "█", "own"),
    ),
    ColourBy.TEMPERATURE: (
        ColourStep(45, "under 45 °C", "▁", "idle"),
        ColourStep(65, "under 65 °C", "▃", "own"),
        ColourStep(HOT, f"under {HOT:.0f} °C", "▅", "pending"),
        ColourStep(inf, f"{HOT:.0f} °C and more", "█", "fault"),
    ),
}
LASTING = (ColourBy.STATE, ColourBy.QUEUE, ColourBy.OWNER)
"""Properties that depend on the nodes alone, so that the map need not be redrawn as time passes."""
UNMEASURED: Mapping[str, NodeTelemetry] = {}
Known = dict[str, tuple[NodeTelemetry | None, GpuRow, Sequence[ColourStep]]]
"""Cache of colour steps: node → the telemetry and row that they were computed from, and the step of each GPU."""


class GpuCellStyle:
    """Chooses glyph and colour role of each cell of the GPU map, and makes the legend.

    Made for one set of rows; a queue keeps its letter while it exists.
    """

    def __init__(
        self,
        by: ColourBy,
        rows: Iterable[GpuRow],
        now: Time = 0,
        telemetry: Mapping[str, NodeTelemetry] = UNMEASURED,
        known: Known | None = None,
    ) -> None:
        """`known` caches the bands of earlier looks at the same metric; it is updated."""
        self.by = by
        self._telemetry = telemetry
        self._known: Known = {} if known is None else known
        self._now = now
        self.counts: Counter[str] = Counter()
        self.states: Counter[GpuState] = Counter()
        self._queued = False
        """Some cell is used by a workload of a queue."""
        for row in rows:
            if by in SCALES:
                for band in self._bands(row):
                    self.counts[band.word] += 1
                continue
            for state, count in row.states.items():
                self.states[state] += count
            self._queued = self._queued or any(cell.queue for cell in row.all_cells)
            if by is not ColourBy.STATE:
                self.counts.update(self._group(cell) for cell in row.all_cells if cell.state not in FREE)
        names = sorted(self.counts) if by is ColourBy.QUEUE else ()
        self._letters = {name: ascii_letters[26:][position % 26] for position, name in enumerate(names)}
        self._series = {name: f"series-{position % SERIES + 1}" for position, name in enumerate(names)}

    def _group(self, cell: GpuCell) -> str:
        """The group of an allocated cell, by which it is counted and coloured."""
        match self.by:
            case ColourBy.QUEUE:
                return cell.queue
            case ColourBy.AGE:
                return age_of(self._now - cell.since)
            case _:
                return cell.workload or cell.pod

    def row(self, row: GpuRow) -> list[tuple[str, str]]:
        """Return (glyph, role) of each cell of a node; stale metrics are dim."""
        if self.by not in SCALES:
            return [self.cell(cell) for cell in row.all_cells]
        telemetry = self._telemetry.get(row.node)
        stale = telemetry is not None and telemetry.stale(self._now)
        return [(band.glyph, "dim" if stale else band.role) for band in self._bands(row)]

    def _bands(self, row: GpuRow) -> Sequence[ColourStep]:
        telemetry, known = self._telemetry.get(row.node), self._known.get(row.node)
        if known is not None and known[0] is telemetry and known[1] is row:
            return known[2]
        values = heat(telemetry, self.by is ColourBy.TEMPERATURE)
        bands = [band_of(values.get(cell.index), SCALES[self.by]) for cell in row.cells]
        bands += [UNKNOWN] * len(row.devices)
        self._known[row.node] = (telemetry, row, bands)
        return bands

    def cell(self, cell: GpuCell) -> tuple[str, str]:
        """Return (glyph, role) of one cell."""
        if self.by is ColourBy.STATE or cell.state in FREE:
            return GPU_GLYPHS[cell.state], cell.state
        return self.owned(self._group(cell))

    def owned(self, name: str) -> tuple[str, str]:
        """Return (glyph, role) of the cells of the queue, workload or age that is called `name`."""
        if self.by is ColourBy.AGE:
            words = [word for _, word, _ in AGES]
            place = words.index(name) if name in words else len(AGES)
            return (AGES[place][2] if place < len(AGES) else OLDEST[1]), f"series-{place + 1}"
        if self.by is ColourBy.QUEUE:
            return self._letters.get(name, "▣") if name else "▣", self._series.get(name, "series-1")
        first = clean(called(name).rpartition("/")[2][:1]) or "▣"
        return (first if cell_len(first) == 1 else "▣"), f"series-{crc32(name.encode()) % SERIES + 1}"

    def legend(self) -> Painted:
        """The legend: groups with most GPUs first; metrics from low to high."""
        if self.by in SCALES:
            bands = (*SCALES[self.by], UNKNOWN)
            return join(
                [((b.glyph, b.role), (f" {b.word} {self.counts[b.word]}", "")) for b in bands if self.counts[b.word]]
            )
        free = [state for state in FREE if self.states[state]]
        entries: list[Painted] = []
        if self.by is ColourBy.STATE:
            free = [state for state in (GpuState.OWN, GpuState.BORROWED) if self.states[state]] + free
        else:
            for name, count in self.counts.most_common():
                entries.append((self.owned(name), (f" {called(name) or 'no queue'} {count}", "")))
        entries += [((GPU_GLYPHS[state], state), (f" {self._word(state)} {self.states[state]}", "")) for state in free]
        return join(entries)

    def _word(self, state: GpuState) -> str:
        """The word for a state; without queues, running pods use no quota."""
        return IN_USE if state is GpuState.OWN and not self._queued else WORDS[state]


def word_of(cell: GpuCell) -> str:
    """Return the word for the state of a cell; `in use` where no queue manages the pod."""
    return IN_USE if cell.state is GpuState.OWN and not cell.queue else WORDS[cell.state]


def heat(telemetry: NodeTelemetry | None, temperature: bool) -> dict[int, float]:
    """Map each GPU of a node to its temperature in °C or utilization in percent; for MIG, of its busiest instance."""
    found: dict[int, float] = {}
    if telemetry is None:
        return found
    for position, device in enumerate(telemetry.devices):
        value = telemetry.value(position, GpuMetric.TEMPERATURE) if temperature else busy(telemetry, position)
        if value is not None:
            found[device.gpu] = max(value, found.get(device.gpu, 0.0))
    return found


def band_of(value: float | None, scale: Sequence[ColourStep]) -> ColourStep:
    """Return the step of a colour scale into which a value falls; None stands for a missing metric."""
    return UNKNOWN if value is None else next((band for band in scale if value < band.below), scale[-1])


def age_of(span: Span) -> str:
    """Return the label for the time that a pod has had its GPU, such as `under 6h`."""
    return next((words for most, words, _ in AGES if span < most), OLDEST[0])
