"""Packing policies as node scores of kube-scheduler: translates `NodeState` and `PodClass` into their inputs.

GPUs are always whole here. FGD's typical pods are those of the cluster itself, running and pending.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

from gpuconsole.model.cluster import Node
from gpuconsole.model.prices import gpu_type
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.kube.nodes import NO_OWNERS, NodeState
from gpuconsole.scheduling.kube.packing.fragmentation import Fragmentation
from gpuconsole.scheduling.kube.packing.free_capacity import MILLI, FreeCapacity, PodDemand
from gpuconsole.scheduling.kube.packing.policies import POLICIES, Name
from gpuconsole.scheduling.kube.packing.typical import Typical, typical
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.policy import PlacementPolicy


class Packing:
    """Scores nodes by one packing policy. Mutates: it stores the typical pods and caches free capacities."""

    def __init__(self, policy: Name) -> None:
        self._policy = POLICIES[policy]
        self._pods: Typical = ()
        self._measure = Fragmentation(())
        self._rooms: dict[str, tuple[NodeState, FreeCapacity]] = {}
        self._models: dict[str, tuple[Node, str]] = {}

    def learn(self, pods: Typical) -> bool:
        """Set the typical pods; True if they changed."""
        if pods == self._pods:
            return False
        self._pods, self._measure = pods, Fragmentation(pods)
        return True

    def score(self, state: NodeState, demand: PodDemand) -> int:
        """The policy's score of a node for the pod; higher is better."""
        known = self._rooms.get(state.name)
        if known is None or known[0] is not state:
            known = self._rooms[state.name] = (state, room(state, self._model(state)))
        return self._policy.score(known[1], demand, self._measure)

    def _model(self, state: NodeState) -> str:
        node = state.node
        if node is None:
            return ""
        known = self._models.get(node.name)
        if known is None or known[0] is not node:
            # Labels change rarely, and finding the GPU model in them is slow.
            known = self._models[node.name] = (node, gpu_type(node.labels))
        return known[1]


def packing(policy: PlacementPolicy) -> Packing | None:
    """The node scorer, if the policy names a packing policy."""
    return None if policy.packing is None else Packing(policy.packing)


def room(state: NodeState, model: str) -> FreeCapacity:
    """Free capacity of a node with GPUs of this model; each GPU is either free or taken as a whole."""
    allocatable = state.node.allocatable if state.node is not None else {}
    return FreeCapacity(
        allocatable.get(CPU, 0) - state.used.get(CPU, 0),
        allocatable.get(MEMORY, 0) - state.used.get(MEMORY, 0),
        tuple(MILLI if owner == NO_OWNERS else 0 for owner in state.owners),
        model,
        frozenset(f"{seat.shape.gpus}-gpu" for seat in state.seats.values() if seat.shape.gpus),
    )


def demand(shape: PodClass) -> PodDemand:
    """Requests of a pod; the GPU model comes from its nodeSelector."""
    model = gpu_type(shape.node_selector) if shape.gpus else ""
    return PodDemand(
        cpu=shape.requests.get(CPU, 0),
        memory=shape.requests.get(MEMORY, 0),
        gpus=shape.gpus,
        milli=MILLI if shape.gpus else 0,
        models=(model,) if model else (),
    )


def typical_pods(shapes: Iterable[PodClass]) -> Typical:
    """The typical pods of a cluster with their shares in whole percents, at least 1.

    Rounding keeps them, and the cached scores, stable while pods come and go.
    """
    counts: Counter[PodDemand] = Counter()
    for shape, count in Counter(shapes).items():
        counts[demand(shape)] += count
    found = typical(counts)
    total = sum(count for _, count in found)
    return tuple((pod, max(1, (100 * count + total // 2) // total)) for pod, count in found)


def drawn(pod: str, names: Sequence[str]) -> str:
    """A pseudo-random node, chosen by the pod's key so that repeated runs agree."""
    return sorted(names)[zlib.crc32(pod.encode()) % len(names)]
