"""Numbers that no cluster has. GPUs and pieces of work are counted one by one: a simulation of these never ends."""

from collections.abc import Iterable, Iterator

from gpuconsole.model.cluster import Node
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import BatchRules
from gpuconsole.model.objects import Object
from gpuconsole.model.resources import MANY, is_gpu, is_mig

MOST_DEVICES = 4_096
"""GPUs of one node: time-slicing multiplies them, but not without end."""
_CARDS = "volcano.sh/gpu-number"
"""Whole GPUs as Volcano's device plugin counts them."""


def too_many_devices(resource: str, amount: int) -> bool:
    """True for more of a resource than a machine has of it, where each is kept by its index."""
    return amount > MOST_DEVICES and (is_gpu(resource) or is_mig(resource) or resource == _CARDS)


def impossible(objects: Iterable[Object]) -> Iterator[str]:
    """What is wrong with these objects, by object and field, and what would be right."""
    for thing in objects:
        match thing:
            case Node():
                for name, amount in thing.allocatable.items():
                    if too_many_devices(name, amount):
                        place = f"Node/{thing.name} allocatable[{name}]"
                        yield f"{place}: {amount} are more than a machine has; write {MOST_DEVICES} or less"
            case Job(rules=BatchRules(completions=int() as completions)) if not 0 <= completions <= MANY:
                yield f"{thing.key} rules.completions: {completions} is out of range; write 0 to {MANY}"
            case _:
                pass
