"""GPU indices of pods on their node: from the pod, from telemetry, or guessed."""

from collections.abc import Iterable, Mapping, Sequence

from gpuconsole.insight.demand import pod_gpus
from gpuconsole.model.cluster import Pod
from gpuconsole.model.snapshot import TableView, row_changes
from gpuconsole.model.telemetry import NodeTelemetry

GpuIndices = tuple[int, ...]


def known_gpu_indices(pods: Iterable[Pod], reported: NodeTelemetry | None, gpus: int) -> Mapping[str, GpuIndices]:
    """Map pods to the indices of their whole GPUs on a node with `gpus` GPUs; pods with unknown indices are left out.

    The pod's own indices are used, unless they were guessed. Telemetry is used if it names as many GPUs as the pod has:
    a sample taken while a pod starts or ends may name fewer.
    """
    owned: dict[str, GpuIndices] = {}
    for device in reported.devices if reported is not None else ():
        if device.pod and device.instance < 0 and 0 <= device.gpu < gpus:
            owned[device.pod] = (*owned.get(device.pod, ()), device.gpu)
    return {pod.key: _known(pod, owned.get(pod.key, ())) for pod in pods}


def _known(pod: Pod, reported: GpuIndices) -> GpuIndices:
    if pod.gpus and not pod.guessed:
        return pod.gpus
    wanted = _gpu_assignment_wanted(pod)
    return reported if wanted and len(reported) == wanted else ()


def guessed_gpu_indices(pod: Pod, free: Sequence[int]) -> GpuIndices:
    """Guess unknown indices of a pod: the previous guess, so that the pod does not move on the map, then the lowest
    free ones."""
    kept = [index for index in pod.gpus if index in free]
    return tuple(sorted([*kept, *(index for index in free if index not in kept)][: _gpu_assignment_wanted(pod)]))


def _gpu_assignment_wanted(pod: Pod) -> int:
    return len(pod.gpus) or pod_gpus(pod.template)


def nodes_with_new_owners(old: TableView[NodeTelemetry], new: TableView[NodeTelemetry]) -> set[str]:
    """Return the nodes whose GPU owners changed in telemetry."""
    if old is new:
        return set()
    gone, come = row_changes(old.rows, new.rows)
    before = {reported.name: reported.devices for reported in gone}
    changed = {reported.name for reported in come if before.pop(reported.name, None) is not reported.devices}
    return changed | before.keys()
