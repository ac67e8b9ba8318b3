"""InterPodAffinity: pods that have to be, or would rather be, near others or far from them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.scheduling.kube import neighbours
from gpuconsole.scheduling.kube.neighbours import Around, Domain, Nearness
from gpuconsole.scheduling.kube.plugins.roles import Asker, Refusal
from gpuconsole.scheduling.kube.profile import Profile


class Near(Struct, frozen=True):
    """What one pod meets."""

    pod: Pod
    found: Nearness
    namespaces: Mapping[str, Mapping[str, str]]

    def refusal(self, node: Node) -> Refusal | None:
        text = neighbours.refusal(self.pod, node, self.found)
        return Refusal((text,), final=text == neighbours.AFFINITY) if text else None

    def moved(self, node: Node, pods: Iterable[Pod], by: int) -> "Near":
        return replace(self, found=neighbours.moved(self.found, self.pod, node, pods, self.namespaces, by))


class Liking(Struct, frozen=True):
    """What one pod and those that are there would rather have, by domain."""

    found: Mapping[Domain, int]

    def raw(self, nodes: Sequence[Node]) -> Mapping[str, int]:
        return neighbours.raw_scores(nodes, self.found)

    def normalised(self, nodes: Sequence[Node], raw: Mapping[str, int]) -> Mapping[str, int]:
        return neighbours.normalised(raw)


def meeting(rules: Profile, asker: Asker, around: Around) -> Near | None:
    """None for a pod that requires nothing of others, and of which nobody requires anything."""
    found = neighbours.nearness(asker.pod, around)
    template = asker.pod.template
    said = (template.pod_affinity, template.pod_anti_affinity)
    if not found.shunning and not any(one is not None and one.required for one in said):
        return None
    return Near(asker.pod, found, around.namespaces)


def wish(rules: Profile, asker: Asker, around: Around) -> Liking | None:
    """None where nobody minds."""
    found = neighbours.likings(
        asker.pod, around, hard_weight=rules.hard_affinity_weight, ignore_theirs=rules.ignore_theirs
    )
    return Liking(found) if found else None
