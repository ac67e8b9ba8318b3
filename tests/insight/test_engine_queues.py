"""Queues that are not Kueue's: what those of Volcano and KAI deserve and use, and namespaces where there are none."""

from gpuconsole.insight.index.engine_queues import queues
from gpuconsole.insight.index.quota_tree import QuotaNode
from gpuconsole.model.cluster import Pod, ResourceQuota
from gpuconsole.model.job import Job
from gpuconsole.model.kai import UNLIMITED, KaiPodGroup, KaiQueue, QueueResource
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import GPU
from gpuconsole.model.volcano import PodGroup, VolcanoQueue, VolcanoSpec
from tests.support.snapshots import ORG, node, pod, world

GROUP = "scheduling.k8s.io/group-name"


def shape(node: QuotaNode) -> tuple[str, int, int, int, list[object]]:
    """Name, used, nominal, borrowed, children."""
    use = node.gpus
    return node.name, use.used, use.nominal, use.borrowed, [shape(child) for child in node.children]


def of_volcano(*queues_of: VolcanoQueue) -> list[Object]:
    """16 GPUs; `a` runs 10 and waits for 2, `b` runs 2."""
    return [
        node("n1"),
        node("n2"),
        *queues_of,
        PodGroup(namespace="team", name="ga", queue="a"),
        PodGroup(namespace="team", name="gb", queue="b"),
        pod("a-0", "n1", tuple(range(8)), annotations={GROUP: "ga"}),
        pod("a-1", "n2", (0, 1), annotations={GROUP: "ga"}),
        pod("a-2", wants=2, annotations={GROUP: "ga"}),
        pod("b-0", "n2", (2, 3), annotations={GROUP: "gb"}),
    ]


def test_volcanos_queues_deserve_their_part_by_weight_as_far_as_they_ask_for_it() -> None:
    a, b = queues(world(of_volcano(VolcanoQueue(name="a", weight=1), VolcanoQueue(name="b", weight=3))))
    assert (shape(a), shape(b)) == (("a", 10, 12, 0, []), ("b", 2, 2, 0, []))
    assert (a.pending, a.running, a.pending_gpus, a.policy) == (1, 0, 2, "weight 1 · reclaimable")


def test_what_volcano_has_not_let_in_waits_without_pods_and_its_queue_deserves_nothing_for_it() -> None:
    """`b` has a job of 3 x 4 and somebody's PodGroup of 2 outside; its part stays what its pods ask for."""
    template = PodTemplate(containers=(Container(requests={GPU: 4}),))
    tasks = (PodSet(name="main", count=3, template=template),)
    job = Job(kind="VolcanoJob", namespace="team", name="big", uid="u1", pod_sets=tasks, volcano=VolcanoSpec(queue="b"))
    outside = (
        job,
        PodGroup(namespace="team", name="big-u1", queue="b", phase="Pending", min_resources={GPU: 4}),
        PodGroup(namespace="team", name="lone", queue="b", min_resources={GPU: 2}),
        PodGroup(namespace="team", name="let-in", queue="b", phase="Inqueue", min_resources={GPU: 8}),
    )
    known = of_volcano(VolcanoQueue(name="a", weight=1), VolcanoQueue(name="b", weight=3))
    a, b = queues(world([*known, *outside]))
    assert (shape(a), shape(b)) == (("a", 10, 12, 0, []), ("b", 2, 2, 0, []))
    counts = [(one.name, one.pending, one.running, one.pending_gpus) for one in (a, b)]
    assert counts == [("a", 1, 0, 2), ("b", 2, 1, 14)]


def test_what_a_manifest_says_a_volcano_queue_deserves_counts() -> None:
    a, b = queues(
        world(of_volcano(VolcanoQueue(name="a", deserved={GPU: 4}, capability={GPU: 12}), VolcanoQueue(name="b")))
    )
    assert (shape(a), a.gpus.potential, round(a.share_percent)) == (("a", 10, 4, 6, []), 12, 83)
    assert shape(b)[1] == 2


def test_a_closed_volcano_queue_is_marked_as_held() -> None:
    a, b = queues(world(of_volcano(VolcanoQueue(name="a", state="Closed"), VolcanoQueue(name="b"))))
    assert (a.stop, b.stop) == ("Hold", "None")


def test_kais_queues_are_a_tree_with_their_quotas() -> None:
    def quota(gpus: float, weight: float = 1) -> QueueResource:
        return QueueResource(quota=gpus, over_quota_weight=weight, limit=UNLIMITED)

    (org,) = queues(
        world(
            [
                node("n1"),
                KaiQueue(name="org", gpu=quota(8)),
                KaiQueue(name="research", parent="org", gpu=quota(2, 3)),
                KaiQueue(name="product", parent="org", gpu=quota(6)),
                KaiPodGroup(namespace="team", name="g", queue="research"),
                pod("r-0", "n1", (0, 1, 2), annotations={"pod-group-name": "g"}),
                pod("p-0", "n1", (3,), labels={"kai.scheduler/queue": "product"}),
            ]
        )
    )
    assert shape(org) == ("org", 4, 8, 0, [("product", 1, 6, 0, []), ("research", 3, 2, 1, [])])
    assert org.children[1].policy == "over-quota weight 3"


def test_queues_that_are_their_own_ancestors_hang_nowhere_and_break_nothing() -> None:
    things: list[Object] = [
        node("n1"),
        KaiQueue(name="a", parent="b"),
        KaiQueue(name="b", parent="a"),
        pod("p", "n1", (0,)),
    ]
    assert [shape(one) for one in queues(world(things))] == [("team", 1, 8, 0, [])]


def test_without_any_queue_the_namespaces_stand_in() -> None:
    things: list[Object] = [node("n1"), pod("p", "n1", (0, 1))]
    assert [(shape(one), one.policy) for one in queues(world(things))] == [(("team", 2, 8, 0, []), "no quota")]
    limited = ResourceQuota(namespace="team", name="q", hard={f"requests.{GPU}": 4})
    assert [(shape(one), one.policy) for one in queues(world([*things, limited]))] == [
        (("team", 2, 4, 0, []), "ResourceQuota")
    ]


def test_kueues_tree_stays_as_it_is() -> None:
    assert [root.name for root in queues(world(ORG))] == ["org-cohort"]


def test_a_gpu_that_pods_share_is_one_and_each_queue_that_has_a_part_of_one_has_one() -> None:
    def part(name: str, gpus: tuple[int, ...], queue: str) -> Pod:
        return pod(name, "n1", gpus, wants=0, labels={"kai.scheduler/queue": queue})

    objects: list[Object] = [
        node("n1", 4),
        *(KaiQueue(name=name, gpu=QueueResource(quota=2)) for name in ("a", "b")),
        *(part(f"a-{number}", (0,), "a") for number in range(3)),
        part("a-3", (1,), "a"),
        part("b-0", (1,), "b"),
    ]
    assert [shape(queue) for queue in queues(world(objects))] == [("a", 2, 2, 0, []), ("b", 1, 2, 0, [])]
