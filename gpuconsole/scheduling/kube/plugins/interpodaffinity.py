"""InterPodAffinity: filter and score by required and preferred affinity between pods."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import Domain, InterPodAffinityState, PodLister
from gpuconsole.scheduling.kube.plugins.roles import NodeRejection, PodContext
from gpuconsole.scheduling.kube.profile import SchedulerProfile


class Near(Struct, frozen=True):
    """PreFilter state of InterPodAffinity for one pod."""

    pod: Pod
    found: InterPodAffinityState
    namespaces: Mapping[str, Mapping[str, str]]

    def refusal(self, node: Node) -> NodeRejection | None:
        text = inter_pod_affinity.refusal(self.pod, node, self.found)
        return NodeRejection((text,), final=text == inter_pod_affinity.AFFINITY) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Near":
        return replace(self, found=inter_pod_affinity.moved(self.found, self.pod, node, pods, self.namespaces, by))


class InterPodAffinityScores(Struct, frozen=True):
    """PreScore state for one pod: the weight of matching preferred terms by topology domain."""

    found: Mapping[Domain, int]

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        return inter_pod_affinity.raw_scores(nodes, self.found)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return inter_pod_affinity.normalised(raw)


def inter_pod_affinity_filter(rules: SchedulerProfile, asker: PodContext, around: PodLister) -> Near | None:
    """The filter for a pod; None if it has no required terms and no existing pod's anti-affinity matches it."""
    found = inter_pod_affinity.nearness(asker.pod, around)
    template = asker.pod.template
    said = (template.pod_affinity, template.pod_anti_affinity)
    if not found.shunning and not any(one is not None and one.required for one in said):
        return None
    return Near(asker.pod, found, around.namespaces)


def inter_pod_affinity_score(
    rules: SchedulerProfile, asker: PodContext, around: PodLister
) -> InterPodAffinityScores | None:
    """The score for a pod; None if no preferred term applies."""
    found = inter_pod_affinity.preferred_weights(
        asker.pod, around, hard_weight=rules.hard_affinity_weight, ignore_theirs=rules.ignore_theirs
    )
    return InterPodAffinityScores(found) if found else None
