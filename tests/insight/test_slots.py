"""How many gangs would start now, by quota, nodes and topology, and why these three differ."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.engine_queues import engine_shares
from gpuconsole.insight.index.fragmentation import usefulness
from gpuconsole.insight.sharing.slots import StartableGangs, starts
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.kai import UNLIMITED, KaiQueue, QueueResource
from gpuconsole.model.labels import LabelSelector, Taint, Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, QueueingStrategy, Quota, ResourceFlavor, StopPolicy, Topology
from gpuconsole.model.resources import GPU
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.ui.answers.cluster_reports import slots_lines
from tests.support.snapshots import A100, ORG, cluster_queue, node, pod, running, waiting, world

LABELS = {"accelerator": "nvidia-a100-80gb"}
DOOR = LocalQueue(namespace="r", name="lq", cluster_queue="cq")


def only(*things: Object) -> StartableGangs:
    (found,) = starts(world((A100, DOOR, *things)))
    return found


def test_quota_and_nodes_that_give_the_same() -> None:
    sizes = {1: 16, 2: 8, 4: 4, 8: 2, 16: 1, 64: 0}
    assert only(cluster_queue("cq", quota=Quota(16)), node("n1"), node("n2")) == StartableGangs(
        queue="cq",
        local_queues=("r/lq",),
        flavor="a100",
        available=16,
        idle=16,
        by_quota=sizes,
        by_nodes=sizes,
        by_topology=None,
        level="",
        now=sizes,
        text="quota, nodes and topology allow the same",
    )


REASONS: dict[str, tuple[tuple[Object, ...], dict[int, int], str]] = {
    "quota of its own that is nearly used up": (
        (cluster_queue("cq", quota=Quota(8)), node("n1"), running("w", "r/lq", 6, "cq")),
        {1: 2, 2: 1, 4: 0, 8: 0, 16: 0, 64: 0},
        "quota allows 2 of 8 idle GPUs (2 without borrowing): it cannot borrow",
    ),
    "quota that is used up": (
        (cluster_queue("cq", quota=Quota(8)), node("n1"), running("w", "r/lq", 8, "cq")),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "quota allows 0 of 8 idle GPUs (0 without borrowing): all of its quota, borrowing included, is in use",
    ),
    "quota of others that is in use": (
        (
            cluster_queue("cq", "c", Quota(2)),
            cluster_queue("other", "c", Quota(6)),
            LocalQueue(namespace="o", name="lq", cluster_queue="other"),
            node("n1"),
            running("w", "o/lq", 6, "other"),
        ),
        {1: 2, 2: 1, 4: 0, 8: 0, 16: 0, 64: 0},
        "quota allows 2 of 8 idle GPUs (2 without borrowing): the quota of other queues is in use or not lent",
    ),
    "a selector that takes no namespace of its LocalQueues": (
        (
            cluster_queue("cq", quota=Quota(8), namespace_selector=LabelSelector(match_labels={"gpu": "yes"})),
            Namespace(name="r"),
            node("n1"),
        ),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "blocked: its namespaceSelector matches none of its LocalQueues' namespaces (r)",
    ),
    "quota of its own that another one borrows": (
        (
            cluster_queue("cq", "c", Quota(6)),
            cluster_queue("other", "c", Quota(2)),
            LocalQueue(namespace="o", name="lq", cluster_queue="other"),
            node("n1"),
            running("w", "r/lq", 1, "cq"),
            running("v", "o/lq", 6, "other"),
        ),
        {1: 1, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "quota allows 1 of 8 idle GPUs (1 without borrowing, 4 lent): the quota of other queues is in use or not lent",
    ),
    "a single GPU of quota": (
        (cluster_queue("cq", quota=Quota(1)),),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "quota allows 1 GPU, but only 0 are idle on nodes: no node matches the flavor's nodeLabels",
    ),
    "one that waits at the head of a StrictFIFO": (
        (
            cluster_queue("cq", quota=Quota(8), queueing_strategy=QueueingStrategy.STRICT_FIFO),
            node("n1"),
            waiting("big", "r/lq", 16),
        ),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "blocked: it is StrictFIFO and blocked by its head, r/big",
    ),
    "a StrictFIFO in which nobody waits": (
        (cluster_queue("cq", quota=Quota(8), queueing_strategy=QueueingStrategy.STRICT_FIFO), node("n1")),
        {1: 8, 2: 4, 4: 2, 8: 1, 16: 0, 64: 0},
        "quota, nodes and topology allow the same",
    ),
    "a borrowing limit": (
        (
            cluster_queue("cq", "c", Quota(2, borrowing_limit=2)),
            cluster_queue("other", "c"),
            cluster_queue("rich", "c", Quota(8)),
            node("n1"),
        ),
        {1: 4, 2: 2, 4: 1, 8: 0, 16: 0, 64: 0},
        "quota allows 4 of 8 idle GPUs (2 without borrowing): its borrowing limit is 2",
    ),
    "pods on the nodes that no quota counts": (
        (cluster_queue("cq", quota=Quota(8)), node("n1"), pod("p", "n1", (0, 1, 2))),
        {1: 5, 2: 2, 4: 1, 8: 0, 16: 0, 64: 0},
        "quota allows 8 GPUs, but only 5 are idle on nodes: 3 of 8 are allocated, reserved for pods, or on "
        "unschedulable nodes",
    ),
    "more quota than there are GPUs": (
        (cluster_queue("cq", quota=Quota(10)), node("n1")),
        {1: 8, 2: 4, 4: 2, 8: 1, 16: 0, 64: 0},
        "quota allows 10 GPUs, but only 8 are idle on nodes: the flavor's nodes have no more",
    ),
    "idle GPUs that lie apart": (
        (
            cluster_queue("cq", quota=Quota(8)),
            *(node(name) for name in ("n1", "n2")),
            pod("p", "n1", (0, 1, 2, 3)),
            pod("q", "n2", (0, 1, 2, 3)),
        ),
        {1: 8, 2: 4, 4: 2, 8: 0, 16: 0, 64: 0},
        "from size 8, idle GPUs are spread over 2 nodes, at most 4 each",
    ),
    "no node of the flavor": (
        (cluster_queue("cq", quota=Quota(8)), node("n1", labels={})),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "quota allows 8 GPUs, but only 0 are idle on nodes: no node matches the flavor's nodeLabels",
    ),
    "a LocalQueue that is stopped, and no other": (
        (
            cluster_queue("cq", quota=Quota(8)),
            replace(DOOR, stop_policy=StopPolicy.HOLD),
            node("n1"),
        ),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "blocked: each of its LocalQueues is stopped (r/lq)",
    ),
    "a node with a taint that the flavor does not name": (
        (
            cluster_queue("cq", quota=Quota(16)),
            node("n1"),
            replace(node("n2"), taints=(Taint("spare"), Taint(GPU), Taint("soft", effect="PreferNoSchedule"))),
        ),
        {1: 16, 2: 8, 4: 4, 8: 2, 16: 1, 64: 0},
        "quota, nodes and topology allow the same; 8 idle GPUs on nodes with taints that pods must tolerate: spare",
    ),
    "a node with a taint for which the flavor brings a toleration": (
        (
            replace(A100, tolerations=(Toleration(key="spare", operator="Exists"),)),
            cluster_queue("cq", quota=Quota(8)),
            replace(node("n1"), taints=(Taint("spare"),)),
        ),
        {1: 8, 2: 4, 4: 2, 8: 1, 16: 0, 64: 0},
        "quota, nodes and topology allow the same",
    ),
    "a queue that is stopped": (
        (cluster_queue("cq", quota=Quota(8), stop_policy=StopPolicy.HOLD), node("n1")),
        {1: 0, 2: 0, 4: 0, 8: 0, 16: 0, 64: 0},
        "blocked: it is stopped (Hold)",
    ),
}


@pytest.mark.parametrize(("things", "now", "text"), REASONS.values(), ids=REASONS)
def test_why_they_differ(things: tuple[Object, ...], now: dict[int, int], text: str) -> None:
    found = next(one for one in starts(world((A100, DOOR, *things))) if one.queue == "cq")
    assert (found.now, found.text) == (now, text)


RACKS: tuple[Object, ...] = (
    Topology(name="t", levels=("block", "rack", "kubernetes.io/hostname")),
    cluster_queue("cq", quota=Quota(32)),
    *(node(f"n{n}", labels={**LABELS, "block": "b", "rack": f"r{n % 2}"}) for n in range(4)),
)


def test_a_gang_of_one_rack_fits_more_seldom_than_one_of_all_nodes() -> None:
    found = only(*RACKS, pod("p", "n0", tuple(range(8))), pod("q", "n1", tuple(range(8))))
    assert (found.level, found.by_nodes[16], found.by_topology) == ("rack", 1, {1: 16, 2: 8, 4: 4, 8: 2, 16: 0, 64: 0})
    assert found.text == (
        "quota allows 32 GPUs, but only 16 are idle on nodes: 16 of 32 are allocated, reserved for pods, or on "
        "unschedulable nodes; from size 16, no rack has enough idle GPUs: at most 8 in one"
    )


def test_a_flavor_s_own_topology_is_the_one_that_counts() -> None:
    other = Topology(name="a", levels=("block",))
    own = ResourceFlavor(name="a100", node_labels=LABELS, topology="t")
    (found,) = starts(world((own, DOOR, other, *RACKS)))
    assert (found.level, found.by_topology and found.by_topology[16]) == ("rack", 2)


def test_where_no_node_can_be_seen_nobody_says_what_would_start() -> None:
    snapshot = world(ORG)
    assert slots_lines(usefulness(snapshot), starts(snapshot)) == [
        "no nodes are visible, so nothing can start",
        "cq-prod, a100: available quota 4 GPUs",
        "cq-research, a100: available quota 4 GPUs",
    ]


def test_queues_of_volcano_by_their_limits_and_by_what_they_deserve() -> None:
    """`a` may have six at most, of which it has two; `b` is not limited, and may have no more than what is above it."""
    found = starts(
        world(
            [
                node("n1"),
                VolcanoQueue(name="top", capability={GPU: 7}),
                VolcanoQueue(name="a", parent="top", capability={GPU: 6}, deserved={GPU: 4}),
                VolcanoQueue(name="b", parent="top", deserved={GPU: 5}),
                PodGroup(namespace="team", name="g", queue="a"),
                pod("p", "n1", (0, 1), annotations={"scheduling.k8s.io/group-name": "g"}),
            ]
        )
    )
    assert [(one.queue, one.local_queues, one.flavor, one.available, one.idle, one.by_quota) for one in found] == [
        ("a", (), "", 4, 6, {1: 4, 2: 2, 4: 1, 8: 0, 16: 0, 64: 0}),
        ("b", (), "", 5, 6, {1: 5, 2: 2, 4: 1, 8: 0, 16: 0, 64: 0}),
    ]
    assert [one.now for one in found] == [one.by_quota for one in found]
    assert [one.text for one in found] == [
        "it uses 2 of its 4 deserved GPUs; more only while no other queue requests it;"
        " it may use 4 of 6 idle GPUs: its limit is 6",
        "it uses 0 of its 5 deserved GPUs; it may use 5 of 6 idle GPUs: the rest of its limit is reserved for"
        " enqueued jobs, or a parent queue has reached its limit",
    ]


def test_queues_of_volcano_may_lie_deeper_in_each_other_than_the_stack() -> None:
    """The outermost may have no more than two GPUs, and so may the innermost."""
    depth = 1_200
    chain = [VolcanoQueue(name=f"q{n}", parent=f"q{n - 1}") for n in range(1, depth)]
    snapshot = world([node("n1"), VolcanoQueue(name="q0", capability={GPU: 2}), *chain])
    assert [(one.queue, one.available) for one in starts(snapshot)] == [(f"q{depth - 1}", 2)]
    assert [one.depth for one in engine_shares(snapshot)] == [*range(depth)]


def test_queues_of_kai_that_may_have_more_than_is_idle() -> None:
    (found,) = starts(
        world(
            [node("n1", 4), KaiQueue(name="q", gpu=QueueResource(quota=2, limit=UNLIMITED)), pod("p", "n1", (0, 1, 2))]
        )
    )
    assert (found.available, found.idle, found.now[1]) == (4, 1, 1)
    assert found.text == (
        "it uses 0 of its 2 deserved GPUs; more only while no other queue requests it; its limit allows"
        " 4 more, but only 1 are idle on nodes: 3 of 4 are allocated, reserved for pods, or on unschedulable nodes"
    )


def test_what_volcano_let_in_and_has_no_node_yet_counts_against_the_limit_and_a_closed_queue_gives_nothing() -> None:
    """Of a limit of 7, two GPUs are held, one more is promised to the same job and two to another one."""
    let_in = PodGroup(namespace="team", name="waits", queue="q", phase="Inqueue", min_resources={GPU: 2})
    partly = PodGroup(namespace="team", name="g", queue="q", phase="Running", min_resources={GPU: 3})
    things: list[Object] = [
        node("n1"),
        let_in,
        partly,
        pod("p", "n1", (0, 1), annotations={"scheduling.k8s.io/group-name": "g"}),
    ]
    (found,) = starts(world([*things, VolcanoQueue(name="q", capability={GPU: 7}, deserved={GPU: 7})]))
    assert (found.available, found.now) == (2, {1: 2, 2: 1, 4: 0, 8: 0, 16: 0, 64: 0})
    (closed,) = starts(world([*things, VolcanoQueue(name="q", capability={GPU: 7}, state="Closed")]))
    assert (closed.available, closed.text) == (0, "blocked: it is closed")
