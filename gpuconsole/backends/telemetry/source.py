"""Interface of a telemetry source that the feed polls."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.telemetry import NodeTelemetry

NO_IDLE_TIMES: Mapping[tuple[str, int, int], Time] = {}


class Scrape(Struct, frozen=True):
    """Result of one poll."""

    nodes: tuple[NodeTelemetry, ...] = ()
    troubles: tuple[str, ...] = ()
    """What could not be asked or read, each in a sentence that names the address."""
    unusable: int = 0
    """Series that name no node or no GPU."""
    idle: Mapping[tuple[str, int, int], Time] = NO_IDLE_TIMES
    """(node, GPU, instance) → since when it has done nothing, where the source remembers."""


class TelemetrySource(Protocol):
    """A Prometheus, or the exporters. Its methods are called by one thread."""

    @property
    def address(self) -> str:
        """Address for people."""

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Poll everything; `known` says whether a name is a node. Raises TelemetryError if every request fails."""

    def close(self) -> None:
        """Close the connections."""
