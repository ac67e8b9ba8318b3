"""A big cluster in a few seconds: thousands of nodes, pods and Workloads, with queues that they belong to."""

from collections.abc import Iterator

from tests.live import stock
from tests.live.api import Api, Manifest
from tests.live.controlplane import ControlPlane

TEAMS = 10
GPUS = 8


def fill(plane: ControlPlane, *, nodes: int, pods: int, workloads: int) -> None:
    """Fill a control plane: each pod runs on a node and has an admitted Workload, the other Workloads wait."""
    api = plane.api()
    for team in range(TEAMS):
        stock.namespace(api, _namespace(team))
    api.apply(*_queues(nodes))
    stock.fill(plane.etcd_url, stock.gpu_nodes(nodes, gpus=GPUS))
    stock.fill(plane.etcd_url, _pods(nodes, pods))
    stock.fill(plane.etcd_url, _workloads(workloads, min(pods, workloads // 2)))


def touch(api: Api, workload: int, value: int) -> None:
    """Change a Workload a little, as a controller does."""
    path = f"/apis/{stock.KUEUE}/namespaces/{_namespace(workload % TEAMS)}/workloads/{_name(workload)}"
    api.patch(path, {"metadata": {"annotations": {"touched": str(value)}}})


def key(workload: int) -> str:
    """By which the console knows a Workload."""
    return f"{_namespace(workload % TEAMS)}/{_name(workload)}"


def _namespace(team: int) -> str:
    return f"crowd-{team}"


def _name(number: int) -> str:
    return f"train-{number:05}"


def _queues(nodes: int) -> Iterator[Manifest]:
    yield stock.flavor("h100")
    for team in range(TEAMS):
        yield stock.cluster_queue(f"crowd-{team}", {"h100": nodes * GPUS // TEAMS}, cohort="crowd")
        yield stock.local_queue("main", f"crowd-{team}", namespace=_namespace(team))


def _pods(nodes: int, pods: int) -> Iterator[Manifest]:
    for number in range(pods):
        place = f"h100-{number % nodes:04}"
        labels = {"kueue.x-k8s.io/podset": "main", "job-name": _name(number)}
        pod = stock.running_pod(_name(number), place, namespace=_namespace(number % TEAMS), gpus=1, labels=labels)
        pod["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": _name(number)}
        yield pod


def _workloads(workloads: int, admitted: int) -> Iterator[Manifest]:
    for number in range(workloads):
        team = number % TEAMS
        place = (f"crowd-{team}", "h100") if number < admitted else None
        yield stock.workload(
            _name(number), "main", namespace=_namespace(team), gpus=1, priority=number % 7, admitted=place
        )
