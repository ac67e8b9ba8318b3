"""Indexes of pods within their job, from labels and names, or assigned. Pure."""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain, count

from gpuconsole.model.cluster import Pod
from gpuconsole.model.jobs.batch import lacking, stands_in
from gpuconsole.model.jobs.services_and_pod_groups import LEADER, ROLE, WORKER, WORKER_INDEX
from gpuconsole.model.pod_template import PodSet
from gpuconsole.scheduling.volcano.jobs.tasks import TASK_INDEX, TASK_SPEC

Place = tuple[str, int]
"""A pod set, and a pod's index in it."""
_SET_MARKS = (
    *("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type", TASK_SPEC, ROLE),
    "ray.io/group",
)
"""Labels and annotations that name the pod set of a pod."""
FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of pods of Jobs with a backoffLimitPerIndex (Kubernetes' indexed_job_utils.go)."""
_SAME = {"headgroup": "head"}
"""Controllers' name of a pod set → Kueue's name."""


def with_pod_indexes(
    pods: Sequence[Pod],
    sets: Sequence[PodSet],
    sizes: Mapping[str, int],
    names: Mapping[str, Place] = {},
    over: Sequence[str] = (),
) -> dict[str, Place]:
    """Pod → its index; no two pods have the same.

    Labels take precedence, then the job's pod names in `names`, then the pods' own fields. Others get the remaining
    indexes in the order of `pods`: first those of their pod set, then numbers above its size. Indexes in `over` are
    never assigned.
    """
    known = {part.name: part for part in sets}
    found: dict[str, Place] = {}
    taken: set[Place] = set()

    def take(pod: Pod, place: Place | None) -> None:
        if place is not None and place not in taken and not (over and stands_in(place[1], over)):
            found[pod.key] = place
            taken.add(place)

    for pod in pods:
        place = _labelled(pod, known) or names.get(pod.name)
        if place is not None and 0 <= place[1] < sizes.get(place[0], 0):
            take(pod, place)
    for pod in pods:
        if pod.key not in found:
            own = _set_of(pod, known)
            take(pod, (own, pod.index) if own else None)
    left = {name: _left(name, sizes[name], over, taken) for name in sizes}
    for pod in pods:
        if pod.key not in found:
            own = _set_of(pod, known)
            places = left[own] if own in left else chain.from_iterable(left.values())
            take(pod, next(places, None) or _beyond(own or sets[0].name, sizes, taken))
    return found


def _left(name: str, size: int, over: Sequence[str], taken: Set[Place]) -> Iterator[Place]:
    return ((name, index) for index in lacking(over, size) if (name, index) not in taken)


def _beyond(name: str, sizes: Mapping[str, int], taken: Set[Place]) -> Place:
    return next((name, index) for index in count(sizes.get(name, 0)) if (name, index) not in taken)


def labelled_index(pod: Pod, part: PodSet) -> int | None:
    """The index in its pod set by a pod's labels; None without such labels.

    Pods of several jobs in one pod set count from 0 in each; a leader's workers count from 1, as the leader is 0.
    """
    request = part.topology
    index = _number(pod, TASK_INDEX if request is None else request.index_label)
    if index is None or request is None:
        return index
    if request.index_label == WORKER_INDEX and part.name == WORKER:
        return index - 1
    if not request.subgroup_index_label or not request.subgroup_count:
        return index
    group = _number(pod, request.subgroup_index_label)
    return None if group is None else group * max(1, part.count // request.subgroup_count) + index


def failures_before(pod: Pod) -> int | None:
    """The failures of a pod's index before it was created, by the Job controller's annotation; None without it."""
    return _number(pod, FAILURES)


def _labelled(pod: Pod, sets: Mapping[str, PodSet]) -> Place | None:
    name = _set_of(pod, sets)
    index = labelled_index(pod, sets[name]) if name else None
    return None if index is None else (name, index)


def _set_of(pod: Pod, sets: Mapping[str, PodSet]) -> str:
    """The pod set of a pod by its own field or by labels; empty if unknown."""
    if pod.pod_set in sets or len(sets) == 1:
        return pod.pod_set if pod.pod_set in sets else next(iter(sets))
    for mark in _SET_MARKS:
        said = (pod.labels.get(mark) or pod.annotations.get(mark, "")).lower()
        if _SAME.get(said, said) in sets:
            return _SAME.get(said, said)
    if sets.keys() >= {LEADER, WORKER} and WORKER_INDEX in pod.labels:
        return LEADER if pod.labels[WORKER_INDEX] == "0" else WORKER
    return ""


def _number(pod: Pod, mark: str) -> int | None:
    text = pod.labels.get(mark) or pod.annotations.get(mark, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None
