"""What a source of telemetry is to the feed that asks it now and then."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.telemetry import NodeTelemetry

NO_IDLE_TIMES: Mapping[tuple[str, int, int], Time] = {}


class Scrape(Struct, frozen=True):
    """What one round of questions told."""

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
        """For people."""

    def read(self, known: Callable[[str], bool], now: Time, lasts: Span) -> Scrape:
        """Ask for everything now; `known` says which names are nodes. Raises TelemetryError where all fails."""

    def close(self) -> None:
        """Let go of connections that are kept."""
