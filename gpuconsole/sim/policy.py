"""How a simulation behaves, as one value: which engine admits, how pods are placed, how long work takes, what it costs."""

from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.prices import Prices

if TYPE_CHECKING:
    from gpuconsole.scheduling.kube.policy import PlacementPolicy
    from gpuconsole.scheduling.kueue.config import KueueConfig


class SimPolicy(Struct, frozen=True, kw_only=True):
    """Everything that decides how a simulation runs, besides its objects and its seed."""

    kueue: "KueueConfig | None"
    """None = no queueing at all: every job's pods are made at once."""
    placement: "PlacementPolicy"
    wake_up_batch: Span = SECOND
    """Kueue gathers the events that free parked workloads for this long; 0 wakes them at once."""
    prices: Prices = field(default_factory=Prices)
