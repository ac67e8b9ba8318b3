"""Filter states for plugins that look at one node at a time: at the node and its pods, or at the node alone."""

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube.plugins.roles import NodeRejection

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
