"""Quota charged for counters: as much as the largest matching device consumes (Kueue 0.19 pkg/dra/counters.go)."""

from collections.abc import Sequence

from gpuconsole.model.devices import Device, DeviceRequest
from gpuconsole.model.resources import MAX
from gpuconsole.scheduling.kueue.dra.catalogue import DeviceCatalogue
from gpuconsole.scheduling.kueue.dra.matching import enough, matching, selectors_of
from gpuconsole.scheduling.kueue.dra.problems import ClaimError, Problem, ProblemKind


def charge(value: int, count: int) -> int:
    """The charge for `count` devices at `value` each: never negative, at most MaxInt64."""
    return min(MAX, max(0, value) * max(1, count))


def counter_charge(counter: str, matched: Sequence[Device], count: int) -> int | None:
    """The charge for `count` devices by one counter, each at the maximum of any; None if no device consumes it."""
    consumed = [counters[counter] for device in matched for counters in device.counters if counter in counters]
    return charge(max(consumed), count) if consumed else None


def charge_by_counters(catalogue: DeviceCatalogue, request: DeviceRequest, path: str) -> dict[str, int]:
    """Quota resource → charge for a request, by the counters of its device class. Raises ClaimError, naming `path`.

    Empty if the class has no counter sources.
    """
    sources = catalogue.map.counters.get(request.device_class, [])
    costs: dict[str, int] = {}
    selectors = selectors_of(catalogue, request, path) if sources else ([], [])
    for resource, source in sources:
        matched = matching(catalogue, source, selectors, path)
        enough(matched, request.count, "counter", path)
        cost = counter_charge(source.name, matched, request.count)
        if cost is None:
            detail = f'matched devices have no consumesCounters entry for counter "{source.name}"'
            raise ClaimError(Problem(ProblemKind.INTERNAL, path, detail=detail))
        costs[resource] = min(MAX, costs.get(resource, 0) + cost)
    return costs
