"""Rules of kube-scheduler that KAI goes by: neighbours, volumes, ports; and by which label pods name their queue."""

from msgspec.structs import replace

from gpuconsole.model.cluster import Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from gpuconsole.model.events import Bind, PlacementDecision, Unschedulable
from gpuconsole.model.labels import HOSTNAME, LabelSelector, NodeTerm, Requirement
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, HostPort, PodAffinity, PodTemplate, PodTerm, PodVolume
from gpuconsole.scheduling.kai.config import KaiPolicy, SchedulerFlags
from tests.scheduling.kai import test_engine as kai

GI = 1024**3
LOCAL = StorageClass(name="local", provisioner="kubernetes.io/no-provisioner", waits=True)
MADE = StorageClass(name="made", provisioner="ebs.csi.aws.com", waits=True)


def node(name: str) -> Node:
    return replace(kai.node(name, 8), labels={HOSTNAME: name, "nvidia.com/gpu.memory": "80000"})


def pod(name: str, *, app: str = "", **facts: object) -> Pod:
    made = kai.pod(name)
    template: PodTemplate = replace(made.template, **facts)
    return replace(made, labels={**made.labels, "app": app or name}, template=template)


def near(*apps: str) -> PodAffinity:
    return PodAffinity(tuple(PodTerm(HOSTNAME, LabelSelector(match_labels={"app": app})) for app in apps))


def decided(*things: Object, policy: KaiPolicy = KaiPolicy()) -> list[PlacementDecision]:  # noqa: B008
    return kai.engine([node("n1"), node("n2"), kai.queue("a", 16), *things], policy).schedule(0)


def homes(decisions: list[PlacementDecision]) -> dict[str, str]:
    return {one.pod.partition("/")[2]: one.node for one in decisions if isinstance(one, Bind)}


def told(decisions: list[PlacementDecision], name: str) -> str:
    return next(one.message for one in decisions if isinstance(one, Unschedulable) and one.pod == f"default/{name}")


def test_pods_that_shun_their_like_are_kept_apart_and_the_third_waits() -> None:
    found = decided(*(pod(name, app="web", pod_anti_affinity=near("web")) for name in ("p0", "p1", "p2", "p3")))
    assert homes(found) == {"p0": "n1", "p1": "n2"}
    reason = "no nodes with enough resources were found: 2 node(s) didn't match pod anti-affinity rules."
    assert told(found, "p2") == told(found, "p3") == reason


def test_a_pod_that_wants_two_labels_near_it_wants_them_of_one_pod() -> None:
    both = PodAffinity(
        (
            PodTerm(HOSTNAME, LabelSelector(match_labels={"app": "cache"})),
            PodTerm(HOSTNAME, LabelSelector(match_labels={"tier": "front"})),
        )
    )
    cache = replace(pod("cache"), node="n1")
    front = replace(pod("front"), labels={"app": "front", "tier": "front"}, node="n1")
    assert homes(decided(cache, front, pod("client", pod_affinity=both))) == {}
    one = replace(cache, labels={"app": "cache", "tier": "front"}, node="n2")
    assert homes(decided(one, pod("client", pod_affinity=both))) == {"client": "n2"}


def test_neighbours_in_other_namespaces_are_found_by_a_selector_of_namespaces() -> None:
    anywhere = PodAffinity(
        (PodTerm(HOSTNAME, LabelSelector(match_labels={"app": "cache"}), namespace_selector=LabelSelector()),)
    )
    cache = replace(pod("cache"), namespace="other", node="n2")
    assert homes(decided(cache, pod("client", pod_affinity=anywhere))) == {"client": "n2"}


def mounting(name: str, claim: str) -> Pod:
    return pod(name, volumes=(PodVolume(name="data", claim=claim),))


def asked(name: str, kind: str = "local", **facts: object) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(**{"name": name, "storage_class": kind, "storage": GI, **facts})  # type: ignore[arg-type]


def disk(name: str, home: str) -> PersistentVolume:
    reached = (NodeTerm((Requirement(HOSTNAME, "In", (home,)),)),)
    return PersistentVolume(name=name, storage=GI, storage_class="local", node_affinity=reached)


def test_a_pod_goes_where_its_claim_gets_a_volume_and_no_two_get_the_same() -> None:
    found = decided(LOCAL, disk("d2", "n2"), asked("one"), asked("two"), mounting("p0", "one"), mounting("p1", "two"))
    assert [(one.pod, one.node, one.volumes) for one in found if isinstance(one, Bind)] == [
        ("default/p0", "n2", (("default/one", "d2"),))
    ]
    missing = "no nodes with enough resources were found: 2 node(s) didn't find available persistent volumes to bind."
    assert told(found, "p1") == missing


def test_a_volume_is_made_for_a_pod_that_gets_a_node() -> None:
    found = decided(MADE, asked("new", "made"), mounting("p0", "new"))
    assert [one.volumes for one in found if isinstance(one, Bind)] == [(("default/new", ""),)]


def test_a_pod_without_its_claim_waits_and_is_told_why() -> None:
    assert 'VolumeBinding: persistentvolumeclaim "gone" not found.' in told(decided(mounting("p0", "gone")), "p0")


def test_a_port_of_a_node_is_one_pods() -> None:
    web = (Container(requests={"cpu": 1000}, ports=(HostPort(8080),)),)
    found = decided(*(pod(name, containers=web) for name in ("p0", "p1", "p2")))
    assert homes(found) == {"p0": "n1", "p1": "n2"}
    assert "2 node(s) didn't have free ports for the requested pod ports" in told(found, "p2")


def test_pods_name_their_queue_by_the_label_that_the_cluster_uses() -> None:
    policy = KaiPolicy(parameters=SchedulerFlags(queue_label="team"))
    named = replace(pod("p0"), labels={"team": "a"})
    lost = replace(pod("p1"), labels={"kai.scheduler/queue": "nobody's"})
    assert homes(decided(named, lost, policy=policy)) == {"p0": "n1", "p1": "n1"}
    assert told(decided(lost), "p1") == "QueueDoesNotExist: Queue 'nobody's' does not exist."
