"""Workloads with reserved quota that are not admitted: admission checks or topology assignment are pending."""

from msgspec import Struct

from gpuconsole.insight.derived import memoized
from gpuconsole.insight.device_demand import held_units
from gpuconsole.insight.queue_index import queue_index
from gpuconsole.model.clock import Time
from gpuconsole.model.device_units import Units
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import CheckState, Workload

READY = "Ready"


class Checking(Struct, frozen=True, kw_only=True):
    """A workload that has reserved quota and is not admitted."""

    workload: str
    gpus: int
    """Accelerators that it reserves and does not use yet."""
    units: Units
    """The reserved accelerators by unit."""
    since: Time
    open: tuple[CheckState, ...]
    """Its checks that are not ready; empty while it waits for its topology assignment."""

    @property
    def names(self) -> str:
        """Name the admission checks that are pending, or the topology assignment."""
        return ", ".join(check.name for check in self.open) or "topology assignment"


def open_checks(workload: Workload) -> tuple[CheckState, ...]:
    """Return the admission checks of a workload that are not Ready."""
    return tuple(check for check in workload.checks if check.state != READY)


@memoized(
    "workloads", "local_queues", "cluster_queues", "cohorts", "nodes", "device_classes", "resource_claim_templates"
)
def checking(snapshot: Snapshot) -> tuple[Checking, ...]:
    """List the workloads with reserved quota that are not admitted, the longest wait first."""
    found = []
    for index in queue_index(snapshot).by_queue.values():
        if index.count.reserved > index.count.admitted:
            found += [_checking(snapshot, workload) for workload in index.holding if not workload.admitted]
    return tuple(sorted(found, key=lambda one: (one.since, one.workload)))


def _checking(snapshot: Snapshot, workload: Workload) -> Checking:
    reserved, units = workload.condition("QuotaReserved"), held_units(snapshot, workload)
    return Checking(
        workload=workload.key,
        gpus=sum(units.values()),
        units=units,
        since=reserved.since if reserved is not None else workload.created,
        open=open_checks(workload),
    )
