"""Amounts of the three resources that queues share; -1 is unlimited (KAI 0.13 proportion/resource_share)."""

from collections.abc import Mapping

from gpuconsole.scheduling.kai.api.amounts import ResourceAmounts
from gpuconsole.scheduling.kai.api.nodes import request_quota
from gpuconsole.scheduling.kai.api.queues import UNLIMITED
from gpuconsole.scheduling.kai.api.requests import ResourceRequirements

CPU, MEMORY, GPU = "CPU", "Memory", "GPU"
RESOURCES = (CPU, MEMORY, GPU)
Quantities = dict[str, float]


def quantities(cpu: float = 0, memory: float = 0, gpu: float = 0) -> Quantities:
    """Amounts by resource: CPU in milli, memory in bytes, GPUs."""
    return {CPU: cpu, MEMORY: memory, GPU: gpu}


def of_amounts(amounts: ResourceAmounts) -> Quantities:
    """Amounts that count against a queue; MIG slices count as GPUs."""
    return quantities(amounts.cpu, amounts.memory, amounts.gpu_quota)


def of_request(request: ResourceRequirements) -> Quantities:
    """Amounts of a request that count against a queue; MIG slices and claimed devices count as GPUs."""
    return quantities(request.cpu, request.memory, request_quota(request))


def plus(one: Mapping[str, float], other: Mapping[str, float]) -> Quantities:
    """The sum, resource by resource."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in RESOURCES}


def minus(one: Mapping[str, float], other: Mapping[str, float]) -> Quantities:
    """The difference, resource by resource."""
    return {name: one.get(name, 0) - other.get(name, 0) for name in RESOURCES}


def less(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if every resource is below the other's; -1 is compared as a number."""
    return all(one.get(name, 0) < other.get(name, 0) for name in RESOURCES)


def within(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if no resource exceeds the other's; nothing exceeds an unlimited one."""
    return all(_at_most(one.get(name, 0), other.get(name, 0)) for name in RESOURCES)


def _at_most(one: float, other: float) -> bool:
    if other == UNLIMITED:
        return True
    return one != UNLIMITED and one <= other
