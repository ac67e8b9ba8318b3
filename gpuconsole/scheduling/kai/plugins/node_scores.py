"""Plugins that score nodes, or the GPUs of a node (gpupack, gpuspread), and the score bands (KAI 0.13 plugins).

The bands decide one after the other: each weight below exceeds the sum of the lower ones (plugins/scores). Scores of
topology and podaffinity are multiples of their weight: up to ten times, and by the sum of the terms' weights.
"""

from collections.abc import Hashable, Mapping

from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo, fits_shared
from gpuconsole.scheduling.kai.api.tasks import CPU, GPU, PodInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.functions import NodeScorer
from gpuconsole.scheduling.kai.plugins.predicates import pods_except
from gpuconsole.scheduling.kai.session import WHOLE_GPU, KaiSession
from gpuconsole.scheduling.kube.inter_pod_affinity import Domain, has_pod_affinity, preferred_weights

DENSITY = 9
RESOURCE_TYPE = 10
AVAILABILITY = 100
GPU_SHARING = 1_000
TOPOLOGY = 10_000
POD_AFFINITY = 100_000
NOMINATED = 1_000_000


class GpuPack:
    """gpupack plugin: prefers the fullest shared GPU, and unused GPUs last."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.gpu_order.append(gpu_pack_score)


class GpuSpread:
    """gpuspread plugin: prefers unused GPUs, and then the emptiest shared GPU."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.gpu_order.append(gpu_spread_score)


def gpu_pack_score(task: PodInfo, node: KaiNodeInfo, group: str) -> float:
    """Score of a GPU, 0 to 1: its used fraction."""
    return 0 if group == WHOLE_GPU else used_fraction(node, group)


def gpu_spread_score(task: PodInfo, node: KaiNodeInfo, group: str) -> float:
    """Score of a GPU, 0 to 1: its unused fraction."""
    return 1 if group == WHOLE_GPU else 1 - used_fraction(node, group)


def used_fraction(node: KaiNodeInfo, group: str) -> float:
    """Used fraction of a GPU's memory. Raises ValueError if the node's GPUs have less than 100 MiB."""
    if node.gpu_memory < 100:
        raise ValueError(f"node <{node.name}> has invalid GPU memory")
    return node.shared.used.get(group, 0) / node.gpu_memory


class GpuSharingOrder:
    """gpusharingorder plugin: prefers nodes with a shared GPU that fits the task."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(NodeScorer("gpusharingorder", GPU_SHARING, shared_gpu_score))


def shared_gpu_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`GPU_SHARING` if a shared GPU of the node fits the task, else 0."""
    takes = any(fits_shared(node, task.request, group) for group in node.shared.used)
    return GPU_SHARING if takes else 0


class NodeAvailability:
    """nodeavailability plugin: prefers nodes where the task could start at once."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(NodeScorer("nodeavailability", AVAILABILITY, availability_score))


def availability_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`AVAILABILITY` if the task could start on the node now, else 0."""
    return AVAILABILITY if node.is_allocatable(task) else 0


SPREAD = "spread"


class NodePlacement:
    """nodeplacement plugin: packs or spreads tasks by free GPUs or, for tasks without GPUs, by free CPU.

    The arguments cpu and gpu are binpack (the default) or spread.
    """

    plugin, band = "nodeplacement", DENSITY

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self._strategies = {CPU: arguments.text("cpu", "binpack"), GPU: arguments.text("gpu", "binpack")}

    def open(self, session: KaiSession) -> None:
        if SPREAD in self._strategies.values():
            session.functions.node_order.append(NodeScorer("nodeplacement", 1, self._spread_score))
        session.functions.relative_scores.append(self)

    def _spread_score(self, task: PodInfo, node: KaiNodeInfo) -> float:
        name = packing_resource(task)
        return node_spread_score(node, name) if self._strategies[name] == SPREAD else 0

    def measure(self, task: PodInfo, node: KaiNodeInfo) -> float | None:
        """Free amount of the resource by which the task is packed; None if it is spread, or the node has none."""
        name = packing_resource(task)
        if self._strategies[name] == SPREAD or not node.allocatable.get(name):
            return None
        return node.idle_or_releasing_of(name)

    def score(self, value: float | None, minimum: float, maximum: float) -> float:
        """The binpack score, higher for the less free; 0 without a value."""
        return 0 if value is None else node_pack_score(value, minimum, maximum)


def packing_resource(task: PodInfo) -> str:
    """The resource by which the task is packed or spread."""
    return GPU if task.needs_gpu else CPU


def node_pack_score(free: float, minimum: float, maximum: float) -> float:
    """The binpack score: 0 for the node with the most free, 9 for the one with the least."""
    if maximum == 0:
        return 0
    if minimum == maximum:
        return DENSITY
    return DENSITY * (1 - (free - minimum) / (maximum - minimum))


def node_spread_score(node: KaiNodeInfo, name: str) -> float:
    """The spread score: the free fraction, 0 to 1, of the node's resource."""
    has = node.gpu_count if name == GPU else node.allocatable.get(name)
    return node.idle_or_releasing_of(name) / has if has else 0


class NominatedNode:
    """nominatednode plugin: gives the pod's nominated node the highest score."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(NodeScorer("nominatednode", NOMINATED, nominated_node_score))


def nominated_node_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`NOMINATED` for the pod's nominated node, else 0."""
    return NOMINATED if task.spec.nominated == node.name else 0


class PodAffinityPlugin:
    """podaffinity plugin: prefers nodes near pods that the task prefers, or that prefer the task. Mutates.

    Not one of KAI's default plugins. Its score is kube-scheduler's before it is normalised, in the band of Kubernetes'
    plugins; a required affinity of an existing pod counts as a preferred one. Caches a task's weights by domain until a
    node changes.
    """

    def __init__(self, arguments: KaiPluginArguments) -> None:
        self._counts_key: tuple[str, int] = ("", -1)
        self._counts: Mapping[Domain, int] = {}

    def open(self, session: KaiSession) -> None:
        self._session = session
        seated = (task for node in session.nodes.values() for task in node.tasks.values())
        if session.has_pod_affinity or any(has_pod_affinity(task.spec.pod) for task in seated):
            session.functions.node_order.append(NodeScorer("podaffinity", POD_AFFINITY, self._score))
            session.functions.score_keys.append(self._score_key)

    def _score_key(self, task: PodInfo) -> Hashable:
        return task.uid, len(self._session.changes)

    def _score(self, task: PodInfo, node: KaiNodeInfo) -> float:
        now = task.uid, len(self._session.changes)
        if self._counts_key != now:
            self._counts_key = now
            self._counts = preferred_weights(task.spec.pod, pods_except(self._session, task))
        labels = node.node.labels
        return POD_AFFINITY * sum(w for (key, value), w in self._counts.items() if labels.get(key) == value)


class ResourceType:
    """resourcetype plugin: tasks without GPUs prefer nodes without GPUs."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.node_order.append(NodeScorer("resourcetype", RESOURCE_TYPE, resource_type_score))


def resource_type_score(task: PodInfo, node: KaiNodeInfo) -> float:
    """`RESOURCE_TYPE` if neither the task nor the node has GPUs, else 0."""
    return RESOURCE_TYPE if not task.needs_gpu and node.is_cpu_only else 0
