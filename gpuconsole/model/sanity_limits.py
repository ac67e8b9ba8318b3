"""Upper limits on input numbers. GPUs and indexes are simulated individually, so absurd numbers would never finish."""

from collections.abc import Iterator, Mapping, Sequence

from gpuconsole.model.cluster import Node
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import BatchRules
from gpuconsole.model.kai import KaiQueue
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Cohort
from gpuconsole.model.resources import MANY, is_gpu, is_mig
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.model.volcano_jobs import VolcanoSpec

MOST_DEVICES = 4_096
"""Most GPUs of one node, including time-slicing replicas."""
MOST_LEVELS = 100
"""Most levels of cohorts, or of queues; schedulers visit them level by level."""
_CARDS = "volcano.sh/gpu-number"
"""Resource of whole GPUs in Volcano's device plugin."""


def too_many_devices(resource: str, amount: int) -> bool:
    """True for more devices than one node can have; each device is stored by its index."""
    return amount > MOST_DEVICES and (is_gpu(resource) or is_mig(resource) or resource == _CARDS)


def parent_of(obj: object) -> str:
    """Return the parent cohort or queue; empty if there is none."""
    return obj.parent if isinstance(obj, Cohort | VolcanoQueue | KaiQueue) else ""


def too_deep(parents: Mapping[str, str]) -> str:
    """Return the first name with too many ancestors; empty if there is none. Cycles are ignored."""
    above: dict[str, int] = {}
    for name in parents:
        trail: dict[str, None] = {}
        at = name
        while at in parents and at not in above and at not in trail:
            trail[at] = None
            at = parents[at]
        known = above.get(at, -1)
        for depth, one in enumerate(reversed(trail), start=known + 1):
            above[one] = depth if at not in trail else 0
        if above[name] > MOST_LEVELS:
            return name
    return ""


def insane_values(objects: Sequence[Object]) -> Iterator[str]:
    """Yield errors for absurd values in these objects: object, field, and the valid range."""
    for kind in (Cohort, VolcanoQueue, KaiQueue):
        deep = too_deep({obj.name: obj.parent for obj in objects if isinstance(obj, kind)})
        if deep:
            place = f"{kind.__name__}/{deep} parent"
            yield f"{place}: more than {MOST_LEVELS} levels lie above it; nest fewer in each other"
    for obj in objects:
        match obj:
            case Node():
                for name, amount in obj.allocatable.items():
                    if too_many_devices(name, amount):
                        place = f"Node/{obj.name} allocatable[{name}]"
                        yield f"{place}: {amount} are more than a machine has; write {MOST_DEVICES} or less"
            case Job(rules=BatchRules(completions=int() as completions)) if not 0 <= completions <= MANY:
                yield f"{obj.key} rules.completions: {completions} is out of range; write 0 to {MANY}"
            case Job(rules=BatchRules(), pod_sets=()):
                yield f"{obj.key} pod_sets: there is none; a Job has one"
            case Job(volcano=VolcanoSpec(tasks=tasks)) if len(tasks) > len(obj.pod_sets):
                said = f"{len(tasks)} tasks are more than the job's {len(obj.pod_sets)} pod sets"
                yield f"{obj.key} volcano.tasks: {said}; write one for each pod set, or fewer"
            case _:
                pass
