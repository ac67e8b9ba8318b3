"""Assigns gated pods to the domains of their workload's topology assignment and removes their gates.

Kueue 0.19 controller/tas/topology_ungater.go. Pods with an index label get domains in the order of their index;
without one, or with inconsistent indices, they fill the domains that still lack pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuconsole.model.cluster import Pod
from gpuconsole.model.jobs.workloads import POD_SET, WORKLOAD
from gpuconsole.model.pod_template import TopologyRequest
from gpuconsole.model.workloads import PodSetAssignment, Workload
from gpuconsole.scheduling.kueue.conditions import node_of
from gpuconsole.scheduling.kueue.podset import SLICE_NAME, TOPOLOGY_GATE

INDEX_OFFSET = "kueue.x-k8s.io/pod-index-offset"
"""Annotation: the first index of a pod set's pods."""
_MOST = 2**64
Values = tuple[str, ...]
Places = dict[str, Mapping[str, str]]
"""Pod → the node labels of its domain."""


class _Ranks(NamedTuple):
    """Valid index labels of a pod set: from `offset`, below `bound`."""

    offset: int
    bound: int


class _Unranked(Exception):
    """Error: the pods' indices do not give every pod its own rank."""


def let_go(workload: Workload, pods: Iterable[Pod]) -> Places:
    """Return the gated pods of an admitted workload that can be ungated, with the node labels of their domains.

    A pod whose domain is a failed node stays gated. Raises ValueError for an offset annotation that is no integer.
    """
    if not workload.admitted or workload.admission is None:
        return {}
    mine = _pods_by_set(workload, pods)
    requests = {pod_set.name: pod_set.topology for pod_set in workload.pod_sets}
    found: Places = {}
    for assignment, ranks in _ranks(workload, requests):
        members = mine.get(assignment.name, [])
        if not assignment.topology or not members:
            continue
        offset = int(members[0].annotations.get(INDEX_OFFSET, "0"))
        shifted = _Ranks(ranks.offset + offset, ranks.bound + offset)
        for key, values in _assign(assignment, members, requests.get(assignment.name), shifted).items():
            if node_of(assignment.levels, values) not in workload.unhealthy_nodes:
                found[key] = dict(zip(assignment.levels, values, strict=True))
    return found


def is_gated(pod: Pod) -> bool:
    """True while the pod has the topology scheduling gate."""
    return TOPOLOGY_GATE in pod.gates


def pods_of(workload: Workload, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of a workload; for a workload slice, those of all slices of its job."""
    name = workload.annotations.get(SLICE_NAME, workload.name)
    return [
        pod
        for pod in pods
        if pod.namespace == workload.namespace
        and pod.annotations.get(SLICE_NAME, pod.annotations.get(WORKLOAD)) == name
    ]


def _pods_by_set(workload: Workload, pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return the unfinished pods by pod set; finished pods are ignored because they are recreated."""
    found: dict[str, list[Pod]] = {}
    for pod in pods_of(workload, pods):
        if not pod.done and POD_SET in pod.labels:
            found.setdefault(pod.labels[POD_SET], []).append(pod)
    return found


def _ranks(
    workload: Workload, requests: Mapping[str, TopologyRequest | None]
) -> Iterable[tuple[PodSetAssignment, _Ranks]]:
    """Yield the index range of each pod set; in a group the smaller one, the leader, comes before the workers."""
    assert workload.admission is not None
    groups: dict[str | int, list[PodSetAssignment]] = {}
    for index, assignment in enumerate(workload.admission.pod_sets):
        request = requests.get(assignment.name)
        group = request.group if request is not None else ""
        groups.setdefault(group or index, []).append(assignment)
    for members in groups.values():
        if len(members) == 1:
            yield members[0], _Ranks(0, members[0].count)
            continue
        small, large = members[:2]
        if small.count > large.count:
            small, large = large, small
        yield small, _Ranks(0, small.count)
        yield large, _Ranks(small.count, large.count + small.count)


def _assign(
    assignment: PodSetAssignment, pods: Sequence[Pod], request: TopologyRequest | None, ranks: _Ranks
) -> dict[str, Values]:
    by_rank = [domain.values for domain in assignment.topology for _ in range(domain.count)]
    try:
        ranked = _rank_all(assignment, pods, request, ranks)
        for rank, pod in ranked.items():
            if rank >= len(by_rank):
                raise _Unranked
            if not is_gated(pod) and _domain(pod, assignment.levels) != by_rank[rank]:
                raise _Unranked
    except _Unranked:
        return _fill(assignment, pods)
    return {pod.key: by_rank[rank] for rank, pod in ranked.items() if is_gated(pod)}


def _fill(assignment: PodSetAssignment, pods: Sequence[Pod]) -> dict[str, Values]:
    """Assign gated pods, in order, to the first domains that have fewer pods than assigned."""
    used: dict[Values, int] = {}
    for pod in pods:
        if not is_gated(pod):
            values = _domain(pod, assignment.levels)
            used[values] = used.get(values, 0) + 1
    waiting = iter([pod.key for pod in pods if is_gated(pod)])
    found: dict[str, Values] = {}
    for domain in assignment.topology:
        for _, key in zip(range(domain.count - used.get(domain.values, 0)), waiting, strict=False):
            found[key] = domain.values
    return found


def _domain(pod: Pod, levels: Sequence[str]) -> Values:
    return tuple(pod.template.node_selector.get(level, "") for level in levels)


def _rank_all(
    assignment: PodSetAssignment, pods: Sequence[Pod], request: TopologyRequest | None, ranks: _Ranks
) -> dict[int, Pod]:
    """Rank → pod, by the pods' index labels. Raises _Unranked."""
    if request is None or not request.index_label:
        raise _Unranked
    size = assignment.count
    job_size = size
    if request.subgroup_index_label:
        if not request.subgroup_count or request.subgroup_count <= 0:
            raise _Unranked
        job_size = size // request.subgroup_count
    found: dict[int, Pod] = {}
    for pod in pods:
        index = _number(pod, request.index_label, ranks.bound)
        rank = index - ranks.offset
        if request.subgroup_index_label:
            rank += _number(pod, request.subgroup_index_label, request.subgroup_count or 0) * job_size
            if index >= job_size:
                raise _Unranked
        if not 0 <= rank < size or rank in found:
            raise _Unranked
        found[rank] = pod
    return found


def _number(pod: Pod, label: str, bound: int) -> int:
    text = pod.labels.get(label, "")
    if not (text.isascii() and text.isdigit()) or not int(text) < min(bound, _MOST):
        raise _Unranked
    return int(text)
