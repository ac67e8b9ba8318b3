"""Queue of a pod that has no Kueue Workload: Volcano's or KAI's queue, if it has one."""

from collections.abc import Callable

from gpuconsole.model.cluster import Pod
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.scheduling.kai.config import POD_GROUP, QUEUE_LABEL
from gpuconsole.scheduling.volcano.api.task import group_of
from gpuconsole.scheduling.volcano.jobs.pod_group import QUEUE_NAME

VOLCANO_DEFAULT = "default"
"""The queue of a pod that names none, if Volcano has a queue with this name."""


def group_key(pod: Pod) -> str:
    """Key of the PodGroup that a pod names (Volcano's, KAI's, or its gang's); empty if it names none."""
    named = pod.annotations.get(POD_GROUP, "")
    kai = f"{pod.namespace}/{named}" if named else ""
    return group_of(pod) or kai or (f"{pod.namespace}/{pod.gang}" if pod.gang else "")


def own_queue(pod: Pod) -> str:
    """The queue that the pod itself names, in its labels and annotations or in its template's."""
    places = (pod.annotations, pod.labels, pod.template.annotations, pod.template.labels)
    names = (place[key] for key in (QUEUE_LABEL, QUEUE_NAME) for place in places if key in place)
    return next(filter(None, names), "")


def queue_by(
    group: str,
    own: str,
    kai_group: Callable[[str], KaiPodGroup | None],
    volcano_group: Callable[[str], PodGroup | None],
    volcano_queue: Callable[[str], VolcanoQueue | None],
) -> str:
    """The pod's queue: the PodGroup's, else the one that the pod names (`own`), else Volcano's default queue.

    Empty if there is none.
    """
    kai, volcano = (kai_group(group), volcano_group(group)) if group else (None, None)
    named = kai.queue if kai is not None else volcano.queue if volcano is not None else ""
    return named or own or (VOLCANO_DEFAULT if volcano_queue(VOLCANO_DEFAULT) is not None else "")
