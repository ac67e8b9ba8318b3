"""Interfaces of scheduler plugins, and filter states that several plugins share.

Interfaces of scheduler plugins, for the entries of the plugin registry.

Filter states for plugins that look at one node at a time: at the node and its pods, or at the node alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube.inter_pod_affinity import PodLister
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.pod_classes import PodClass
from gpuconsole.scheduling.kube.profile import SchedulerProfile
from gpuconsole.scheduling.kube.scores import Images
from gpuconsole.scheduling.kube.volumes import ClaimsAndVolumes

NodeFilter = Callable[[Node], str]
"""Why a node can never take the pod, whatever runs on it; empty if it can. Preemption never helps."""

UsageFilterFunction = Callable[[NodeState, int], tuple[str, ...]]
"""Why a node has too little free for a pod of this priority; empty if it fits. Preemption may help."""

UsageScoreFunction = Callable[[NodeState], int]
"""Score of a node, 0 to 100, by its resource usage; such scores are not normalised."""


class NodeRejection(Struct, frozen=True):
    """Why a filter rejects a node because of other pods."""

    texts: tuple[str, ...]
    """The reasons, each of which counts separately in the FailedScheduling message."""
    final: bool = False
    """Preemption on the node would not help (UnschedulableAndUnresolvable)."""


class PreFilterRejection(Struct, frozen=True):
    """Why a plugin's PreFilter rejects the pod for all nodes."""

    text: str


class Nearby(PodLister, Protocol):
    """Read access to all pods, for plugins."""

    def on(self, node: str) -> Iterable[Pod]:
        """The pods of a node."""


class PreFilterState(Protocol):
    """PreFilter state of a plugin for one pod."""

    def refusal(self, node: Node) -> NodeRejection | None:
        """Why the node is rejected; None if it is not."""

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "PreFilterState":
        """The state after these pods are removed from the node (`by` −1) or added to it (1)."""


class PreScoreState(Protocol):
    """PreScore state of a scoring plugin for one pod."""

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        """Each node's score by name, before it is normalised."""

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        """Score of each node by name, 0 to 100, from the raw scores."""


class PodContext(Struct, frozen=True):
    """The pod that is being scheduled."""

    pod: Pod
    shape: PodClass
    means: ClaimsAndVolumes


class NodeLocalFilter(Protocol):
    """A filter that depends only on the pod and the node object, not on other pods."""

    def __call__(self, rules: SchedulerProfile, shape: PodClass) -> NodeFilter | None:
        """The filter for pods of this class; None if it does not apply to them (Skip)."""


class NodeUsageFilter(Protocol):
    """A filter by the resource usage of the node; returns None for pods that it does not apply to."""

    def __call__(self, rules: SchedulerProfile, shape: PodClass) -> UsageFilterFunction | None: ...


class Scoring(Protocol):
    """A score that depends only on the pod and one node, usually on the node's resource usage.

    Returns None for pods that it does not apply to.
    """

    def __call__(self, rules: SchedulerProfile, shape: PodClass, images: Images) -> UsageScoreFunction | None: ...


class PodFilter(Protocol):
    """A filter that depends on pods of any node, or on claims.

    Returns its PreFilter state or rejection of a pod; None if it does not apply to the pod.
    """

    def __call__(
        self, rules: SchedulerProfile, asker: PodContext, around: Nearby
    ) -> PreFilterState | PreFilterRejection | None: ...


class PodScore(Protocol):
    """A score that depends on pods of any node.

    Returns its PreScore state for a pod; None if it does not apply to the pod.
    """

    def __call__(self, rules: SchedulerProfile, asker: PodContext, around: Nearby) -> PreScoreState | None: ...


Question = Callable[[Node, Iterable[Pod]], str]
"""Why the node refuses the pod while these other pods are on it; empty if it does not."""


class Local(Struct, frozen=True):
    """A filter by the pods of each node, some of which preemption may remove."""

    ask: Question
    on: Callable[[str], Iterable[Pod]]
    gone: frozenset[str] = frozenset()
    """Pods that are assumed to be removed."""
    come: tuple[tuple[str, Pod], ...] = ()
    """(node, pod) of pods that are assumed to be there as well."""

    def refusal(self, node: Node) -> NodeRejection | None:
        there = [pod for pod in self.on(node.name) if pod.key not in self.gone]
        there += [pod for name, pod in self.come if name == node.name]
        text = self.ask(node, there)
        return NodeRejection((text,)) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Local":
        if by < 0:
            return replace(self, gone=self.gone.union(pod.key for pod in pods))
        return replace(self, come=(*self.come, *((node.name, pod) for pod in pods)))


class Fixed(Struct, frozen=True):
    """A filter that does not depend on other pods, so preemption never helps."""

    ask: Callable[[Node], tuple[str, ...]]

    def refusal(self, node: Node) -> NodeRejection | None:
        texts = self.ask(node)
        return NodeRejection(texts, final=True) if texts else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Fixed":
        return self
