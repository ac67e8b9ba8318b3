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
    """Failed requests, as sentences that name the address."""
    unusable: int = 0
    """Number of series without a node or a GPU."""
    idle: Mapping[tuple[str, int, int], Time] = NO_IDLE_TIMES
    """(node, GPU, instance) → time since which it has been idle, if the source knows."""


class TelemetrySource(Protocol):
    """A Prometheus, or the exporters. Its methods are called by one thread."""

    @property
    def address(self) -> str:
        """Address in messages."""

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Poll everything; `known` tells if a name is a node. Raises TelemetryError if no metrics can be read."""

    def close(self) -> None:
        """Close the connections."""
