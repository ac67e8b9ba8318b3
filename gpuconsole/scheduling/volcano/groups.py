"""PodGroup of a pod: the one that it names, or one created for its gang or its owner.

Volcano 1.15 controllers/podgroup: pods of one owner that name no PodGroup share one with minMember 1. A gang of the
simulation without a PodGroup gets one of its size.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.jobs.ray import RAY_PRIORITY
from gpuconsole.model.jobs.ray import VOLCANO_QUEUE as RAY_QUEUE
from gpuconsole.model.volcano import PodGroup
from gpuconsole.scheduling.volcano.api.labels import GROUP_NAME, group_of
from gpuconsole.scheduling.volcano.jobs.podgroup_controller import PREFIX, QUEUE_NAME, group_of_pod


def grouped(pod: Pod) -> Pod:
    """The pod with its PodGroup in its annotations, and with its key as uid so that ties are broken by name."""
    if group_of(pod):
        return replace(pod, uid=pod.key)
    return replace(pod, uid=pod.key, annotations={**pod.annotations, GROUP_NAME: _made_name(pod)})


def ungrouped(pod: Pod) -> Pod:
    """A pod of another scheduler, without a PodGroup: it only uses resources of its node."""
    others = {key: value for key, value in pod.annotations.items() if key != GROUP_NAME}
    return replace(pod, uid=pod.key, annotations=others)


def _made_name(pod: Pod) -> str:
    """The name of the PodGroup: that of a gang with a PodGroup, else made from `Kind/name` of the gang or of
    the owner.
    """
    if pod.gang and "/" not in pod.gang:
        return pod.gang
    kind, _, rest = (pod.gang or pod.job).partition("/")
    return f"{PREFIX}{kind.lower()}-{rest.rpartition('/')[2]}" if kind else PREFIX + pod.name


def group_for(pod: Pod, phases: Mapping[str, str]) -> PodGroup:
    """The PodGroup of a grouped pod for which no object exists; `phases` are those set by earlier sessions."""
    key = group_of(pod)
    made = group_of_pod(pod, key.rpartition("/")[2], {}, pod.gang_size if pod.gang else 1)
    return replace(
        made,
        created=pod.created,
        queue=_queue(pod),
        priority_class=pod.labels.get(RAY_PRIORITY, made.priority_class),
        # minResources of the gang are unknown from one pod, so the enqueue action does not check them.
        min_resources=None,
        phase=phases.get(key, "Pending"),
    )


def _queue(pod: Pod) -> str:
    for place in (pod.annotations, pod.labels, pod.template.annotations, pod.template.labels):
        if QUEUE_NAME in place:
            return place[QUEUE_NAME]
    # KubeRay makes the PodGroup of its pods, with the queue that this label names; Volcano itself does not read it.
    return pod.labels.get(RAY_QUEUE, "") if pod.job.startswith("Ray") else ""
