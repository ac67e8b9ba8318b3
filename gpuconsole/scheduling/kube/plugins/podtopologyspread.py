"""PodTopologySpread: pods of one kind spread over the domains of a node's label."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.pod_template import SpreadConstraint
from gpuconsole.scheduling.kube import spreading
from gpuconsole.scheduling.kube.neighbours import Around
from gpuconsole.scheduling.kube.plugins.roles import Asker, Refusal
from gpuconsole.scheduling.kube.profile import SYSTEM_CONSTRAINTS, Profile
from gpuconsole.scheduling.kube.shapes import Shape
from gpuconsole.scheduling.kube.spreading import HARD, SOFT, Spread


class Skew(Struct, frozen=True):
    """How the pods are spread that one pod's hard constraints count."""

    pod: Pod
    shape: Shape
    spreads: tuple[Spread, ...]

    def refusal(self, node: Node) -> Refusal | None:
        text = spreading.refusal(node, self.spreads)
        return Refusal((text,), final=text == spreading.MISSING_LABEL) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Skew":
        if any(one.constraint.topology_key not in node.labels for one in self.spreads):
            return self
        others = list(pods)
        spreads = tuple(spreading.moved(one, self.pod, self.shape, node, others, by) for one in self.spreads)
        return replace(self, spreads=spreads)


class Evenness(Struct, frozen=True):
    """The pod's soft constraints, and the pods around."""

    asker: Asker
    constraints: tuple[SpreadConstraint, ...]
    around: Around
    complete: bool

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        pod, shape = self.asker.pod, self.asker.shape
        return spreading.raw_scores(pod, shape, nodes, self.around, self.constraints, complete=self.complete)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return spreading.normalised(nodes, raw)


def meeting(rules: Profile, asker: Asker, around: Around) -> Skew | None:
    """None for a pod without hard constraints."""
    constraints = constraints_of(rules, asker.pod)
    if not any(one.when_unsatisfiable == HARD for one in constraints):
        return None
    return Skew(asker.pod, asker.shape, spreading.hard_spreads(asker.pod, asker.shape, around, constraints))


def wish(rules: Profile, asker: Asker, around: Around) -> Evenness | None:
    """None for a pod without soft constraints."""
    constraints = tuple(one for one in constraints_of(rules, asker.pod) if one.when_unsatisfiable == SOFT)
    # Nodes without a zone are spread over, too, by what kube-scheduler chooses itself.
    complete = bool(asker.pod.template.spread) or rules.spread is not None
    return Evenness(asker, constraints, around, complete) if constraints else None


def constraints_of(rules: Profile, pod: Pod) -> tuple[SpreadConstraint, ...]:
    """The pod's own constraints, else the profile's for pods that a controller of replicas owns."""
    if pod.template.spread:
        return pod.template.spread
    defaults = SYSTEM_CONSTRAINTS if rules.spread is None else rules.spread
    like = siblings(pod) if defaults else None
    return () if like is None else tuple(replace(one, selector=like) for one in defaults)


def siblings(pod: Pod) -> LabelSelector | None:
    """What the pods of the same Deployment or StatefulSet have in common; None for pods of anything else.

    kube-scheduler asks Services and the owner for their selectors; pods of jobs belong to neither (DefaultSelector).
    """
    kind = pod.job.partition("/")[0]
    if kind not in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController") or not pod.template.labels:
        return None
    return LabelSelector(dict(pod.template.labels))
