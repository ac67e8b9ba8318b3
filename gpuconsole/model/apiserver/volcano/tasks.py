"""Validation of one task of a Volcano Job: minAvailable, partitions, NUMA policy, pod resources (jobs/validate)."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import Document, at, entries, number
from gpuconsole.model.apiserver.volcano.objections import Objection
from gpuconsole.model.apiserver.volcano.topology import BOTH, names_both
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.quantity import canonical, parse_quantity

_WHOLE_POD = ("cpu", "memory")


def check_partitions(task: Document, job: str, path: Path) -> Iterator[Objection]:
    """Validate that the partitions add up to the replicas, and minPartitions to minAvailable."""
    policy = task.get("partitionPolicy")
    if not isinstance(policy, dict):
        return
    total, size = number(policy, "totalPartitions", default=0), number(policy, "partitionSize", default=0)
    replicas, least = number(task, "replicas", default=0), number(policy, "minPartitions", default=0)
    whose, place = f"in task: {task.get('name', '')}, job: {job}", (*path, "partitionPolicy")
    needed = task.get("minAvailable")
    if total <= 0:
        text, key = f"'TotalPartitions' must be greater than 0 {whose}", "totalPartitions"
    elif size <= 0:
        text, key = f"'PartitionSize' must be greater than 0 {whose}", "partitionSize"
    elif replicas != total * size:
        text, key = f"'Replicas' are not equal to TotalPartitions*PartitionSize {whose}", "totalPartitions"
    elif needed is not None and least > 0 and least * size != needed:
        text, key = f"'MinAvailable' is not equal to MinPartitions*PartitionSize {whose}", "minPartitions"
    else:
        text = key = ""
    if text:
        yield Objection((*place, key), text, "make the numbers agree", "bad-partitions")
    if names_both(policy):
        yield Objection((*place, "networkTopology", "highestTierName"), BOTH, "keep one of them", "bad-topology")


def check_numa(task: Document, path: Path, index: int) -> Iterator[Objection]:
    """Report the first container without whole CPUs in a task with a NUMA policy."""
    if task.get("topologyPolicy") in (None, "", "none"):
        return
    for key in ("containers", "initContainers"):
        pods: Path = ("template", "spec", key)
        before = len(entries(task, "template", "spec", "containers")) if key == "initContainers" else 0
        for n, container in enumerate(entries(task, *pods)):
            asked = at(container, "resources", "requests") or at(container, "resources", "limits") or {}
            cpu = _amount(asked.get("cpu", 0))
            if cpu.denominator != 1 or not cpu:
                text = f"the cpu request isn't  an integer in spec.task[{index}] container[{before + n}]."
                place = (*path, *pods, n, "resources", "requests")
                yield Objection(place, text, "ask for whole CPUs, or drop topologyPolicy", "bad-topology-policy")
                return


def check_pod_resources(task: Document, path: Path, index: int) -> Iterator[Objection]:
    """Validate that a pod's own requests cover those of its containers, and do not exceed its limits."""
    spec = at(task, "template", "spec") or {}
    asked, limits = (at(spec, "resources", kind) or {} for kind in ("requests", "limits"))
    for name, text in asked.items():
        amount, place = _amount(text), (*path, "template", "spec", "resources", "requests")
        needed = sum(
            (_amount((at(c, "resources", "requests") or {}).get(name, 0)) for c in entries(spec, "containers")),
            Fraction(),
        )
        shown = canonical(text)
        if amount < needed and (name in _WHOLE_POD or name.startswith("hugepages-")):
            yield _about_pod(
                index,
                place,
                f'.requests[{name}]: Invalid value: "{shown}": must be greater than or equal to aggregate container '
                f"requests of {canonical(_text(needed))}",
            )
        elif name in limits and amount > _amount(limits[name]):
            limit = canonical(limits[name])
            yield _about_pod(
                index,
                place,
                f'.requests: Invalid value: "{shown}": must be less than or equal to {name} limit of {limit}',
            )


def _about_pod(index: int, place: Path, text: str) -> Objection:
    whole = f"spec.task[{index}].template.spec.resources{text}. "
    return Objection(place, whole, "raise it to what the containers ask for, at most to its limit", "bad-resources")


def _amount(text: Any) -> Fraction:
    try:
        return parse_quantity(text)
    except ValueError:
        return Fraction()


def _text(amount: Fraction) -> str:
    thousandths = amount * 1000
    return str(amount) if amount.denominator == 1 else f"{-(-thousandths.numerator // thousandths.denominator)}m"
