"""The quota tree: every number worked out by hand, and the sums that hold in any cluster."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.health.alerts import AlertKind, queue_alerts
from gpuconsole.insight.index.quota_tree import NodeKind, QuotaNode, quota_tree
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import ClusterQueue, LocalQueue, Quota, StopPolicy
from gpuconsole.model.resources import GPU, MAX
from gpuconsole.model.snapshot import EVERYTHING
from tests.support.snapshots import (
    A100,
    ORG,
    ORG_QUEUES,
    START,
    cluster_queue,
    cohort,
    group,
    running,
    unseen,
    waiting,
    world,
)

Row = tuple[str, int, int, int, int, int, int]
"""name, used, nominal, borrowed, lent, available, potential"""


def nodes(roots: Iterable[QuotaNode]) -> list[QuotaNode]:
    """The tree, flattened: parents before their children."""
    flat = []
    for root in roots:
        flat += [root, *nodes(root.children)]
    return flat


def tree(objects: Iterable[Object]) -> dict[str, QuotaNode]:
    return {node.name: node for node in nodes(quota_tree(world([A100, *objects])))}


def gpu_rows(objects: Iterable[Object]) -> list[Row]:
    """The GPUs of all cohorts and ClusterQueues."""
    return [
        (node.name, gpus.used, gpus.nominal, gpus.borrowed, gpus.lent, gpus.available, gpus.potential)
        for node in nodes(quota_tree(world([A100, *objects])))
        if node.kind is not NodeKind.LOCAL_QUEUE
        for gpus in [node.gpus]
    ]


def test_org_cohort_reads_as_drawn() -> None:
    found = tree([*ORG, waiting("rlhf-2", "research/lq", 6, minutes_ago=12, inadmissible=True)])

    assert list(found) == ["org-cohort", "cq-prod", "prod/lq", "cq-research", "research/lq"]
    lines = {
        name: (
            f"{node.gpus.used}/{node.gpus.nominal} ▲{node.gpus.borrowed} ▼{node.gpus.lent} "
            f"{node.share_percent:.0f} % {node.weighted_share} ‰ ◐{node.pending} ({node.inadmissible} parked) "
            f"●{node.running}"
        )
        for name, node in found.items()
    }
    assert lines == {
        "org-cohort": "20/24 ▲4 ▼4 83 % 0 ‰ ◐1 (1 parked) ●4",
        "cq-research": "12/8 ▲4 ▼0 75 % 167 ‰ ◐1 (1 parked) ●3",
        "research/lq": "12/0 ▲0 ▼0 75 % 0 ‰ ◐1 (1 parked) ●3",
        "cq-prod": "8/16 ▲0 ▼4 50 % 0 ‰ ◐0 (0 parked) ●1",
        "prod/lq": "8/0 ▲0 ▼0 50 % 0 ‰ ◐0 (0 parked) ●1",
    }
    research = found["cq-research"]
    assert research.policy == "reclaim Any · within LowerPriority · BestEffort"
    assert (research.oldest, research.pending_gpus) == (START - 12 * MINUTE, 6)
    assert (found["org-cohort"].declared, found["org-cohort"].problem) == (False, "")


VECTORS: dict[str, tuple[list[Object], list[Row]]] = {
    "§20.1 a flat cohort: b borrows 5 of a": (
        [
            cluster_queue("a", "c", Quota(10)),
            cluster_queue("b", "c", Quota(10)),
            running("w", "ns/b", 15, "b"),
        ],
        [("c", 15, 20, 5, 5, 5, 20), ("a", 0, 10, 0, 5, 5, 20), ("b", 15, 10, 5, 0, 5, 20)],
    ),
    "§20.2 a lending limit of 4 keeps 6 at home; the cohort's potential counts them": (
        [
            cluster_queue("a", "c", Quota(10)),
            cluster_queue("b", "c", Quota(10, lending_limit=4)),
            running("w", "ns/b", 3, "b"),
        ],
        [("c", 3, 20, 0, 0, 14, 20), ("a", 0, 10, 0, 0, 14, 14), ("b", 3, 10, 0, 0, 17, 20)],
    ),
    "§20.3 a borrowing limit of 2, with 11 used": (
        [
            cluster_queue("a", "c", Quota(10, borrowing_limit=2)),
            cluster_queue("b", "c", Quota(10)),
            running("w", "ns/a", 11, "a"),
        ],
        [("c", 11, 20, 1, 1, 9, 20), ("a", 11, 10, 1, 0, 1, 12), ("b", 0, 10, 0, 1, 9, 20)],
    ),
    "§20.4 cohorts in a cohort: a reaches 13 through x": (
        [
            cohort("r", quota=Quota(5)),
            cohort("x", "r", Quota(0, borrowing_limit=3)),
            cluster_queue("a", "x", Quota(10)),
            cluster_queue("d", "r", Quota(10)),
        ],
        [
            ("r", 0, 25, 0, 0, 25, 25),
            ("x", 0, 10, 0, 0, 13, 13),
            ("a", 0, 10, 0, 0, 13, 13),
            ("d", 0, 10, 0, 0, 25, 25),
        ],
    ),
    "the root's pool is lent before the other queue's quota": (
        [
            cohort("r", quota=Quota(5)),
            cohort("x", "r", Quota(0, borrowing_limit=8)),
            cluster_queue("a", "x", Quota(10)),
            cluster_queue("d", "r", Quota(10)),
            running("w", "ns/a", 17, "a"),
        ],
        [
            ("r", 17, 25, 7, 7, 8, 25),
            ("x", 17, 10, 7, 0, 1, 18),
            ("a", 17, 10, 7, 0, 1, 18),
            ("d", 0, 10, 0, 2, 8, 25),
        ],
    ),
    "a queue without a cohort borrows nothing, even over its quota; nothing is available then": (
        [cluster_queue("alone", "", Quota(4)), running("w", "ns/q", 6, "alone")],
        [("alone", 6, 4, 0, 0, 0, 4)],
    ),
    "a quota cut under running work: the excess is lent by nobody": (
        [
            cluster_queue("a", "c", Quota(2)),
            cluster_queue("b", "c", Quota(4)),
            running("w", "ns/a", 9, "a"),
        ],
        [("c", 9, 6, 7, 4, 0, 6), ("a", 9, 2, 7, 0, 0, 6), ("b", 0, 4, 0, 4, 0, 6)],
    ),
}


@pytest.mark.parametrize(("objects", "want"), VECTORS.values(), ids=VECTORS.keys())
def test_the_arithmetic_is_kueues(objects: list[Object], want: list[Row]) -> None:
    assert gpu_rows(objects) == want


def test_the_weighted_share_is_divided_by_the_weight() -> None:
    def share(weight: float) -> int:
        b = replace(cluster_queue("b", "c", Quota(10)), fair_weight=weight)
        return tree([cluster_queue("a", "c", Quota(10)), b, running("w", "ns/b", 15, "b")])["b"].weighted_share

    assert [share(weight) for weight in (1.0, 2.0, 3.0, 0.0)] == [250, 125, 84, MAX]


def test_flavors_are_kept_apart_and_rolled_up() -> None:
    two = group({"a100": Quota(8), "h100": Quota(4)})
    found = tree([cluster_queue("q", "", resource_groups=(two,)), running("w", "ns/lq", 6, "q")])["q"]

    assert [(use.flavor, use.resource, use.used, use.nominal) for use in found.flavors] == [
        ("a100", GPU, 6, 8),
        ("h100", GPU, 0, 4),
    ]
    assert (found.gpus.used, found.gpus.nominal, found.share_percent) == (6, 12, 50.0)
    assert found.problem == "Can't admit new workloads: references missing ResourceFlavor(s): h100."


def test_without_gpus_the_share_is_that_of_the_most_used_resource() -> None:
    groups = (group({"a100": Quota(1000)}, "cpu"), group({"a100": Quota(100)}, "memory"))
    w = running("w", "ns/lq", 0, "q")
    assert w.admission is not None
    part = replace(w.admission.pod_sets[0], flavors={"cpu": "a100", "memory": "a100"}, usage={"cpu": 250, "memory": 75})
    w = replace(w, admission=replace(w.admission, pod_sets=(part,)))

    found = tree([cluster_queue("q", "", resource_groups=groups), w])["q"]

    assert (found.gpus.used, found.share_percent) == (0, 75.0)


def test_who_counts_as_what() -> None:
    found = tree(
        [
            *ORG_QUEUES,
            running("runs", "prod/lq", 1, "cq-prod"),
            replace(
                running("checks", "prod/lq", 2, "cq-prod"), conditions=running("x", "prod/lq", 1, "q").conditions[:1]
            ),
            waiting("waits", "prod/lq", 4),
            waiting("parked", "prod/lq", 4, inadmissible=True),
            waiting("stopped", "prod/lq", 4, active=False),
            waiting("lost", "nowhere/lq", 4),
        ]
    )["cq-prod"]

    assert (found.running, found.reserved, found.pending, found.inadmissible, found.pending_gpus) == (1, 2, 2, 1, 8)
    assert (found.gpus.used, found.gpus.admitted) == (3, 1)
    door = next(child for child in found.children if child.name == "prod/lq")
    assert (door.gpus.used, door.gpus.admitted, door.flavors[0].admitted) == (3, 1, 1)


def test_a_cycle_of_cohorts_is_named_and_does_not_hang() -> None:
    found = tree(
        [
            cohort("a", "b"),
            cohort("b", "a"),
            cohort("below", "b"),
            cluster_queue("q", "below", Quota(4)),
            cluster_queue("sound", "c", Quota(4)),
        ]
    )

    assert {name: bool(node.problem) for name, node in found.items() if node.kind is NodeKind.COHORT} == {
        "c": False,
        "a": True,
        "b": True,
        "below": True,
    }
    assert found["a"].problem == "cohort a is its own ancestor, or below one that is: nothing in it is admitted"
    assert (found["q"].gpus.nominal, found["q"].gpus.available) == (4, 0)


def test_a_deep_chain_of_cohorts_does_not_exhaust_the_stack() -> None:
    chain: list[Object] = [cohort(f"c{n}", f"c{n + 1}") for n in range(300)]
    found = tree([*chain, cluster_queue("q", "c0", Quota(4)), running("w", "ns/lq", 3, "q")])

    assert (found["c300"].gpus.used, found["c300"].gpus.nominal) == (3, 4)


def test_queues_that_cannot_admit_say_why() -> None:
    found = tree(
        [
            cluster_queue("closed", "", Quota(4), namespace_selector=None),
            replace(cluster_queue("held", "", Quota(4)), stop_policy=StopPolicy.HOLD),
            LocalQueue(namespace="ns", name="lost", cluster_queue="gone"),
            waiting("w", "ns/lost", 2),
        ]
    )

    assert found["closed"].problem.startswith("admits no workload: without a namespaceSelector")
    assert found["held"].stop is StopPolicy.HOLD
    assert (found["ns/lost"].problem, found["ns/lost"].pending) == ("ClusterQueue gone doesn't exist", 1)


def test_a_cluster_queue_that_may_not_be_seen_is_not_missing() -> None:
    door = LocalQueue(namespace="ns", name="main", cluster_queue="hidden")
    for seen, problem in (
        (EVERYTHING, "ClusterQueue hidden doesn't exist"),
        (unseen(ClusterQueue), "its ClusterQueue is not visible: cannot list cluster_queues"),
    ):
        snapshot = world([door, waiting("w", "ns/main", 2)], seen=seen)
        (root,) = quota_tree(snapshot)
        assert (root.name, root.problem) == ("ns/main", problem)
        told = [one.trouble for one in queue_alerts(snapshot)]
        assert told == ([AlertKind.QUEUE_INACTIVE] if seen is EVERYTHING else [])


QUEUE = st.tuples(
    st.integers(0, 12),  # nominal
    st.one_of(st.none(), st.integers(0, 12)),  # borrowing limit
    st.one_of(st.none(), st.integers(0, 12)),  # lending limit
    st.integers(0, 20),  # used
    st.sampled_from(["left", "right", "root"]),
)


def clusters(queues: list[tuple[int, int | None, int | None, int, str]], flat: bool) -> list[Object]:
    objects: list[Object] = [A100, cohort("root"), cohort("left", "root", Quota(3)), cohort("right", "root")]
    for number, (nominal, borrowing, lending, used, parent) in enumerate(queues):
        quota = Quota(nominal, borrowing, min(lending, nominal) if lending is not None else None)
        objects.append(cluster_queue(f"q{number}", "root" if flat else parent, quota))
        if used:
            objects.append(running(f"w{number}", "ns/lq", used, f"q{number}"))
    return objects


@settings(max_examples=60, deadline=None)
@given(st.lists(QUEUE, min_size=1, max_size=6))
def test_in_a_flat_cohort_the_lent_sums_up_to_the_borrowed(
    queues: list[tuple[int, int | None, int | None, int, str]],
) -> None:
    roots = quota_tree(world(clusters(queues, flat=True)))
    root = next(node for node in roots if node.name == "root")
    # What is lent by nobody is used beyond what the whole cohort has; "left" has a pool, which may be lent as well.
    over = root.gpus.borrowed - root.gpus.lent

    assert over >= 0
    assert root.gpus.lent == sum(child.gpus.lent for child in root.children)
    assert all(child.gpus.lent <= max(0, child.gpus.nominal - child.gpus.used) for child in root.children)
    assert over == 0 or root.gpus.available == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(QUEUE, min_size=1, max_size=6))
def test_roll_ups_are_the_sums_of_what_is_below(
    queues: list[tuple[int, int | None, int | None, int, str]],
) -> None:
    roots = quota_tree(world(clusters(queues, flat=False)))
    pools = {"left": 3}
    for node in nodes(roots):
        if node.kind is NodeKind.COHORT:
            below = [child.gpus for child in node.children]
            assert node.gpus.used == sum(gpus.used for gpus in below)
            assert node.gpus.borrowed == sum(gpus.borrowed for gpus in below)
            assert node.gpus.nominal == sum(gpus.nominal for gpus in below) + pools.get(node.name, 0)
            assert node.reserved == sum(child.reserved for child in node.children)
        assert node.gpus.available <= node.gpus.potential or node.gpus.used == 0
        if node.kind is NodeKind.CLUSTER_QUEUE:
            assert 0 <= node.gpus.borrowed <= node.gpus.used
