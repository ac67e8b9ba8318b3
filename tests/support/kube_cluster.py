"""A small cluster for placement tests: nodes and pods in a line each, and what became of the pods."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.events import Bind, EvictPod, MarkGroup, Nominate, PlacementDecision, SetPhase, Unschedulable
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.model.resources import CPU, GPU, MEMORY
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kube.session import KubePlacement

GIB = 1024**3


def node(name: str, gpus: int = 4, **fields: Any) -> Node:
    """A node with GPUs and plenty of everything else; `allocatable` adds to that or replaces it."""
    extra: Mapping[str, int] = fields.pop("allocatable", {})
    allocatable = {CPU: 64_000, MEMORY: 512 * GIB, **({GPU: gpus} if gpus else {}), **extra}
    return Node(name=name, capacity=allocatable, allocatable=allocatable, **fields)


def template(gpus: int = 1, requests: Mapping[str, int] | None = None, **fields: Any) -> PodTemplate:
    """A pod of one container that asks for GPUs, or for exactly `requests`."""
    wanted = {GPU: gpus} if requests is None else requests
    return PodTemplate(containers=(Container(requests=wanted),), **fields)


def pod(name: str, gpus: int = 1, **fields: Any) -> Pod:
    """A pod of one GPU in the default namespace; `owns` are the indices that it has on its node."""
    owned: tuple[int, ...] = fields.pop("owns", ())
    return Pod(name=name, template=fields.pop("template", None) or template(gpus), gpus=owned, **fields)


def pods(stem: str, count: int, gpus: int = 1, **fields: Any) -> list[Pod]:
    """Equal pods `stem-0` …, created one microsecond after the other."""
    start = fields.pop("created", 0)
    shared = fields.pop("template", None) or template(gpus)
    return [pod(f"{stem}-{i}", template=shared, created=start + i, **fields) for i in range(count)]


def gang(stem: str, count: int, gpus: int = 1, size: int | None = None, **fields: Any) -> list[Pod]:
    """Pods that start together; `size` of them are needed at once."""
    size = count if size is None else size
    return pods(stem, count, gpus, gang=stem, gang_size=size, job=f"Job/default/{stem}", **fields)


class Cluster:
    """Carries out what the session decides, as the simulation does: evicted pods stay until they are `buried`."""

    def __init__(self, *nodes: Node, **policy: Any) -> None:
        self.placement = KubePlacement(PlacementPolicy(**policy))
        self.pods: dict[str, Pod] = {}
        self.log: list[PlacementDecision] = []
        self.time = 0
        for each in nodes:
            self.placement.apply(each, 0)

    def add(self, things: Iterable[Pod] | Pod) -> "Cluster":
        for each in [things] if isinstance(things, Pod) else things:
            self.pods[each.name] = each
            self.placement.apply(each, self.time)
        return self

    def run(self) -> list[PlacementDecision]:
        """Schedule once and apply the outcome; pods bound in the same pass started a microsecond after each other."""
        decisions = self.placement.schedule(self.time)
        for decision in decisions:
            self.time += 1
            self._carry_out(decision)
        self.log += decisions
        return decisions

    def bury(self) -> "Cluster":
        """The grace period of every evicted pod is over."""
        for name in [name for name, each in self.pods.items() if each.deleted]:
            self.remove(name)
        return self

    def remove(self, name: str) -> "Cluster":
        del self.pods[name]
        self.placement.delete("pods", f"default/{name}", self.time)
        return self

    def settle(self) -> "Cluster":
        """Schedule and bury until nothing more happens."""
        for _ in range(100):
            if not self.run():
                return self
            self.bury()
        raise AssertionError("placement does not come to rest")

    def where(self) -> dict[str, list[str]]:
        """Node → names of its pods, sorted."""
        places: dict[str, list[str]] = {}
        for name, each in sorted(self.pods.items()):
            if each.node:
                places.setdefault(each.node, []).append(name)
        return dict(sorted(places.items()))

    def waiting(self) -> list[str]:
        return sorted(name for name, each in self.pods.items() if not each.node)

    def evicted(self) -> list[str]:
        """Names of everything evicted so far, in order."""
        return [short(decision.pod) for decision in self.log if isinstance(decision, EvictPod)]

    def told(self, name: str) -> str:
        return self.pods[name].message

    def _carry_out(self, decision: PlacementDecision) -> None:
        assert not isinstance(decision, SetPhase | MarkGroup), "kube-scheduler leaves PodGroups alone"
        old = self.pods[short(decision.pod)]
        match decision:
            case Bind(_, where, gpus, slices):
                new = replace(old, node=where, gpus=gpus, slices=slices, bound=self.time, nominated_node="", message="")
            case EvictPod():
                new = replace(old, deleted=self.time)
            case Nominate(_, where):
                new = replace(old, nominated_node=where)
            case Unschedulable(_, message):
                new = replace(old, message=message)
        self.pods[new.name] = new
        self.placement.apply(new, self.time)


def short(key: str) -> str:
    """The name in a key."""
    return key.rpartition("/")[2]
