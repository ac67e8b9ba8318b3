"""Rates of spot interruptions, from recorded interruptions or the instance-type catalogue."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gpuconsole.insight.tables import counted
from gpuconsole.model.autoscaling import INSTANCE_TYPE
from gpuconsole.model.catalogue import InstanceTypeCatalogue
from gpuconsole.model.clock import HOUR, Span, Time, format_span
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.prices import is_spot
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.autoscaling.policy import INTERRUPTED, MONTH, FixedCapacity
from gpuconsole.sim.distributions import draw
from gpuconsole.sim.policy import SimPolicy

USUAL = 0.10
"""Fraction of the spot instances of an unlisted type that is interrupted per month: AWS's Spot Instance Advisor gives
5% to 20% for most types."""
_LEAST: Span = HOUR
"""A record shorter than this counts as this long: one interruption in the first minute is no rate."""


class SpotInterruptions(Struct, frozen=True, kw_only=True):
    """Expected interruptions of the present spot nodes."""

    per_hour: Mapping[str, float]
    """Spot node → expected interruptions per hour."""
    recorded: int
    """Interruptions in the record."""
    span: Span
    """Length of the record."""

    def sample(self, seed: int, start: Time, end: Time) -> list[tuple[Time, str]]:
        """Draw the times of interruptions before `end`, at most one per node; the same for the same seed."""
        found = []
        for node, rate in self.per_hour.items():
            if rate > 0:
                time = start + round(draw(seed, "spot interruption", node).expovariate(rate) * HOUR)
                if time < end:
                    found.append((time, node))
        return found

    @property
    def assumption(self) -> str:
        """Assumption about spot nodes, in words."""
        if not self.per_hour:
            return "no spot interruptions: the cluster has no spot nodes"
        nodes = counted(len(self.per_hour), "spot node")
        hourly = sum(self.per_hour.values())
        source = (
            f"{counted(self.recorded, 'interruption')} recorded in the last {format_span(self.span)}"
            if self.recorded
            else "the rates of the instance-type catalogue"
        )
        return f"spot interruptions are drawn for {nodes}, {hourly:.3g} per hour in total ({source})"


def spot_interruptions(snapshot: Snapshot, policy: SimPolicy, lines: Iterable[HistoryEvent] = ()) -> SpotInterruptions:
    """Estimate the rate of each spot node: the higher of the catalogue's and the recorded one.

    `lines` of history (oldest first) contain the recorded interruptions and the length of the record.
    """
    nodes = {node.name: node.labels for node in snapshot.nodes.all() if is_spot(node.labels)}
    record = list(lines)
    recorded = sum(line.what is HistoryEventKind.CAPACITY and line.reason == INTERRUPTED for line in record)
    span = max(_LEAST, snapshot.time - record[0].time) if record else _LEAST
    exposure = (len(nodes) + recorded) * span / HOUR
    seen = recorded / exposure if recorded else 0.0
    catalogue = InstanceTypeCatalogue() if isinstance(policy.capacity, FixedCapacity) else policy.capacity.catalogue
    return SpotInterruptions(
        per_hour={
            name: max(seen, _catalogued(catalogue, labels) * policy.spot.interruptions)
            for name, labels in sorted(nodes.items())
        },
        recorded=recorded,
        span=span,
    )


def _catalogued(catalogue: InstanceTypeCatalogue, labels: Mapping[str, str]) -> float:
    """Interruptions per hour of an instance of this type."""
    kind = catalogue.types.get(labels.get(INSTANCE_TYPE, ""))
    monthly = USUAL if kind is None else kind.interrupted / 100
    return monthly / (MONTH / HOUR)
