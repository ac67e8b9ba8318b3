"""Removes scheduling gates of pods that have a topology assignment (Kueue: topology ungater)."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.jobs.services_and_pod_groups import WORKER, WORKER_INDEX
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.podset import TOPOLOGY_GATE, UNCONSTRAINED
from gpuconsole.scheduling.kueue.topology.tas_usage import placed_by_topology
from gpuconsole.scheduling.kueue.topology.topology_ungater import Places, is_gated, let_go
from gpuconsole.sim.world import World


def ungate(world: World, workload: Workload) -> None:
    """Ungate the pods of a workload that have an assignment now."""
    group = world.groups.get(workload.key)
    present = [pod for pod in map(world.pod, group.pods if group is not None else ()) if pod is not None]
    for before, after in zip(present, placed_pods(workload, present), strict=True):
        if before is not after:
            world.put(after)


def placed_pods(workload: Workload, pods: Sequence[Pod]) -> list[Pod]:
    """The pods, with ungated ones bound to their domains; others are the same objects."""
    places = _places(workload, pods)
    return [_bound(pod, places) if pod.key in places else pod for pod in pods]


def gated_pod(pod: Pod, pod_set: PodSet) -> Pod:
    """A new gated pod that waits for its assignment, with its index where the pod set has an index label.

    Its index is its rank; pods of several jobs in one pod set count from 0 in each, a leader's workers from 1.
    """
    annotations, labels, request = pod.annotations, dict(pod.labels), pod_set.topology
    if not placed_by_topology(pod):
        annotations = {**annotations, UNCONSTRAINED: "true"}
    if request is not None and request.index_label:
        size = pod_set.count
        if request.subgroup_index_label and request.subgroup_count:
            size = max(1, size // request.subgroup_count)
            labels[request.subgroup_index_label] = str(pod.index // size)
        first = int(request.index_label == WORKER_INDEX and pod_set.name == WORKER)
        labels[request.index_label] = str(pod.index % size + first)
    return replace(pod, gates=(TOPOLOGY_GATE,), annotations=annotations, labels=labels)


def _places(workload: Workload, pods: Iterable[Pod]) -> Places:
    """The domain of each pod index; an invalid index offset keeps all pods gated."""
    pods = list(pods)
    if not any(map(is_gated, pods)):
        return {}
    try:
        return let_go(workload, pods)
    except ValueError:
        return {}


def _bound(pod: Pod, places: Places) -> Pod:
    template = pod.template
    bound = replace(
        template,
        node_selector={**template.node_selector, **places[pod.key]},
        scheduling_gates=tuple(gate for gate in template.scheduling_gates if gate != TOPOLOGY_GATE),
    )
    return replace(pod, template=bound, gates=tuple(gate for gate in pod.gates if gate != TOPOLOGY_GATE))
