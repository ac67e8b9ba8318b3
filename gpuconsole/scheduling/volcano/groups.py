"""PodGroup of a pod: the one that it names, or one made for its gang or its owner.

Volcano 1.15 controllers/podgroup: pods of one owner that name no PodGroup share one that asks for a single member. A
gang of the simulation that has no PodGroup gets one of its size.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.jobs.ray_schedulers import RAY_PRIORITY
from gpuconsole.model.jobs.ray_schedulers import VOLCANO_QUEUE as RAY_QUEUE
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.volcano.api.labels import GROUP_NAME, group_of
from gpuconsole.scheduling.volcano.jobs.podgroup_controller import PREFIX, QUEUE_NAME, group_of_pod


def grouped(pod: Pod) -> Pod:
    """The pod with the PodGroup that it belongs to in its annotations, and a uid by which equals sort by name."""
    if group_of(pod):
        return replace(pod, uid=pod.key)
    return replace(pod, uid=pod.key, annotations={**pod.annotations, GROUP_NAME: _made_name(pod)})


def ungrouped(pod: Pod) -> Pod:
    """A pod of another scheduler: it belongs to no PodGroup, and only takes room on its node."""
    others = {key: value for key, value in pod.annotations.items() if key != GROUP_NAME}
    return replace(pod, uid=pod.key, annotations=others)


def _made_name(pod: Pod) -> str:
    """A gang that has a PodGroup bears its name; any other is `Kind/name`, as an owner is `Kind/namespace/name`."""
    if pod.gang and "/" not in pod.gang:
        return pod.gang
    kind, _, rest = (pod.gang or pod.job).partition("/")
    return f"{PREFIX}{kind.lower()}-{rest.rpartition('/')[2]}" if kind else PREFIX + pod.name


def group_for(pod: Pod, phases: Mapping[str, str]) -> PodGroup:
    """The PodGroup of a grouped pod where no object says how it is."""
    key = group_of(pod)
    made = group_of_pod(pod, key.rpartition("/")[2], {}, pod.gang_size if pod.gang else 1)
    return replace(
        made,
        created=pod.created,
        queue=_queue(pod),
        priority_class=pod.labels.get(RAY_PRIORITY, made.priority_class),
        # One pod does not tell the minResources of its gang, so no job is held back for them.
        min_resources=None,
        phase=phases.get(key, "Pending"),
    )


def _queue(pod: Pod) -> str:
    for place in (pod.annotations, pod.labels, pod.template.annotations, pod.template.labels):
        if QUEUE_NAME in place:
            return place[QUEUE_NAME]
    # KubeRay makes the PodGroup of its pods, with the queue that this label names; Volcano itself does not read it.
    return pod.labels.get(RAY_QUEUE, "") if pod.job.startswith("Ray") else ""
