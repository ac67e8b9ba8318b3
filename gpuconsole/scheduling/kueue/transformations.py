"""Transforms a pod's requests into quota requests: excludes some resources and converts others.

Kueue 0.19 pkg/workload/workload.go (dropExcludedResources, applyResourceTransformations); set by `resources` in Kueue's
Configuration.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache

from msgspec import Struct

from gpuconsole.model.queues import ClusterQueue, Cohort
from gpuconsole.model.resources import CPU, GPU, HAMI_CORES, HAMI_MEMORY, Resources, parse_quantity, to_int

RETAIN = "Retain"
REPLACE = "Replace"


class Transformation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that counts as others: `outputs` for each unit of `input`."""

    input: str
    strategy: str = RETAIN
    """`Retain` counts the input as well, `Replace` does not."""
    multiply_by: str = ""
    """A resource of the same pod whose quantity multiplies the outputs, if the pod requests it."""
    outputs: Mapping[str, str] = {}
    """Resource → quantity, as written, per whole unit (one core) of the input; negative ones reduce other outputs."""


_HAMI = {
    "nvidia.com/total-gpucores": Transformation(
        input=HAMI_CORES, strategy=REPLACE, multiply_by=GPU, outputs={"nvidia.com/total-gpucores": "1"}
    ),
    "nvidia.com/total-gpumem": Transformation(
        input=HAMI_MEMORY, strategy=REPLACE, multiply_by=GPU, outputs={"nvidia.com/total-gpumem": "1"}
    ),
}
"""Quota resource → transformation of HAMi's vGPUs into it (Kueue's documentation, tasks/run/using_hami)."""


def hami_transformations(objects: Iterable[object]) -> dict[str, Transformation]:
    """Return Kueue's documented transformations of HAMi's vGPUs whose outputs have quotas, keyed by input."""
    queues = [obj for obj in objects if isinstance(obj, (ClusterQueue, Cohort))]
    covered = {resource for queue in queues for _, resource in queue.quotas()}
    return {rule.input: rule for output, rule in _HAMI.items() if output in covered}


def without_excluded(requests: Resources, prefixes: tuple[str, ...]) -> Resources:
    """Return the requests whose names start with none of the prefixes."""
    return (
        {name: amount for name, amount in requests.items() if not name.startswith(prefixes)} if prefixes else requests
    )


def transformed(requests: Resources, transformations: Mapping[str, Transformation]) -> Resources:
    """Return one pod's requests after the transformations, which are keyed by input.

    Outputs for one resource are summed; a negative sum counts as 0, so that it does not reduce the pod's own requests.
    """
    if not transformations or transformations.keys().isdisjoint(requests):
        return requests
    kept: dict[str, Fraction] = {}
    generated: dict[str, Fraction] = {}
    for name, amount in requests.items():
        quantity = _quantity(name, amount)
        rule = transformations.get(name)
        if rule is None or rule.strategy == RETAIN:
            kept[name] = quantity
        if rule is not None:
            if rule.multiply_by in requests:
                quantity *= _quantity(rule.multiply_by, requests[rule.multiply_by])
            for output, factor in rule.outputs.items():
                generated[output] = generated.get(output, Fraction(0)) + quantity * _factor(factor)
    for output, quantity in generated.items():
        kept[output] = kept.get(output, Fraction(0)) + max(Fraction(0), quantity)
    return {name: to_int(name, quantity) for name, quantity in kept.items()}


def _quantity(resource: str, amount: int) -> Fraction:
    return Fraction(amount, 1000) if resource == CPU else Fraction(amount)


@cache
def _factor(text: str) -> Fraction:
    return parse_quantity(text)
