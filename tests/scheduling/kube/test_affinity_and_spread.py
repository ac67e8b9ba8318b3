"""Pods near others, far from them and spread, as the session places, refuses and preempts them."""

from typing import Any

import pytest

from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.labels import HOSTNAME, LabelSelector
from gpuconsole.model.pod_template import PodAffinity, PodTerm, SpreadConstraint
from tests.support.kube_cluster import Cluster, gang, node, pod, pods, template

WEB = LabelSelector({"app": "web"})
BY_HOST, BY_ZONE = PodTerm(HOSTNAME, WEB), PodTerm("zone", WEB)
APART = PodAffinity(required=(BY_HOST,))


def zoned(name: str, zone: str, gpus: int = 4) -> Node:
    return node(name, gpus, labels={HOSTNAME: name, "zone": zone})


def web(stem: str, count: int, gpus: int = 1, priority: int = 0, **fields: Any) -> list[Pod]:
    shared = template(gpus, **fields)
    return pods(stem, count, template=shared, labels={"app": "web"}, priority=priority)


def cluster(**policy: object) -> Cluster:
    return Cluster(zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), **policy)


def test_replicas_that_keep_apart_get_a_node_each_while_others_pack() -> None:
    made = cluster().add(web("web", 3, pod_anti_affinity=APART)).add(pods("train", 3))
    made.run()
    assert made.where() == {"a1": ["train-0", "train-1", "train-2", "web-0"], "a2": ["web-1"], "b1": ["web-2"]}


def test_a_replica_too_many_is_told_why() -> None:
    made = cluster().add(web("web", 4, pod_anti_affinity=APART))
    made.run()
    assert made.told("web-3") == (
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. preemption: 0/3 nodes are available: "
        "3 No preemption victims found for incoming pod."
    )


def test_pods_that_are_there_keep_others_away() -> None:
    made = cluster().add(web("web", 1, pod_anti_affinity=PodAffinity(required=(BY_ZONE,))))
    made.run()
    made.add(web("plain", 1)).run()
    assert made.where() == {"a1": ["web-0"], "b1": ["plain-0"]}
    made.add(web("more", 1))
    made.run()
    assert made.where()["b1"] == ["more-0", "plain-0"]


def test_a_pod_waits_for_its_neighbour_and_follows_it() -> None:
    made = cluster().add(pods("worker", 1, template=template(1, pod_affinity=PodAffinity(required=(BY_ZONE,)))))
    made.run()
    assert made.told("worker-0") == (
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: "
        "3 Preemption is not helpful for scheduling."
    )
    made.add(pod("driver", labels={"app": "web"}, template=template(1, node_selector={"zone": "b"})))
    made.run()
    made.run()
    assert made.where() == {"b1": ["driver", "worker-0"]}


def test_a_gang_whose_pods_want_each_other_near_starts_in_one_zone() -> None:
    near = template(3, pod_affinity=PodAffinity(required=(BY_ZONE,)))
    made = Cluster(zoned("a1", "a"), zoned("b1", "b"), zoned("b2", "b"))
    made.add(pod("old", 2, node="a1"))
    made.add(gang("train", 2, template=near, labels={"app": "web"}))
    made.run()
    assert {name: made.pods[name].node for name in ("train-0", "train-1")} == {"train-0": "b1", "train-1": "b2"}


def test_preferences_add_up_with_the_other_scores() -> None:
    liking = PodAffinity(preferred=((100, BY_ZONE),))
    made = cluster().add(pod("there", node="b1", labels={"app": "web"})).add(pods("p", 1, 0))
    made.add(pods("near", 1, template=template(1, pod_affinity=liking)))
    made.add(pods("far", 1, template=template(1, pod_anti_affinity=liking)))
    made.run()
    assert (made.pods["near-0"].node, made.pods["far-0"].node) == ("b1", "a1")


SPREADS: dict[str, tuple[SpreadConstraint, int, dict[str, list[str]]]] = {
    "one more in any zone than in another": (
        SpreadConstraint("zone", 1, selector=WEB),
        4,
        {"a1": ["web-0", "web-2"], "b1": ["web-1", "web-3"]},
    ),
    "no zone that is not there counts": (
        SpreadConstraint("zone", 1, selector=WEB, min_domains=3),
        2,
        {"a1": ["web-0"], "b1": ["web-1"]},
    ),
    "rather than packed": (
        SpreadConstraint("zone", 1, "ScheduleAnyway", selector=WEB),
        2,
        {"a1": ["web-0"], "b1": ["web-1"]},
    ),
}


@pytest.mark.parametrize("name", SPREADS)
def test_pods_are_spread(name: str) -> None:
    constraint, count, places = SPREADS[name]
    made = cluster().add(web("web", count, spread=(constraint,)))
    made.run()
    assert made.where() == places


def test_with_fewer_zones_than_there_should_be_each_takes_only_max_skew() -> None:
    made = cluster().add(web("web", 3, spread=(SpreadConstraint("zone", 1, selector=WEB, min_domains=3),)))
    made.run()
    assert made.told("web-2") == (
        "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints. preemption: 0/3 nodes are "
        "available: 3 No preemption victims found for incoming pod."
    )


def test_a_constraint_can_look_at_pods_of_its_own_revision_only() -> None:
    constraint = SpreadConstraint("zone", 1, selector=WEB, match_label_keys=("rev",))
    made = cluster()
    for number in range(3):
        made.add(pod(f"old-{number}", node="a1", labels={"app": "web", "rev": "1"}))
    made.add(pod("new", labels={"app": "web", "rev": "2"}, template=template(1, spread=(constraint,))))
    made.run()
    assert made.pods["new"].node == "a1"


def test_the_least_important_pods_that_are_in_the_way_are_evicted() -> None:
    made = cluster()
    for name, priority in (("a1", 5), ("a2", 3), ("b1", 4)):
        made.add(pod(f"web-{name}", node=name, labels={"app": "web"}, priority=priority))
        made.add(pod(f"other-{name}", node=name, priority=0))
    made.add(web("new", 1, pod_anti_affinity=APART, priority=9))
    made.run()
    assert [name for name, each in made.pods.items() if each.deleted] == ["web-a2"]
    assert made.pods["new-0"].nominated_node == "a2"
    made.bury().run()
    assert made.pods["new-0"].node == "a2"


def test_room_that_is_reserved_counts_for_those_who_keep_apart() -> None:
    made = Cluster(zoned("a1", "a", 2), zoned("b1", "b", 1))
    made.add(pod("low", 2, node="a1", priority=0))
    made.add(web("big", 1, 2, pod_anti_affinity=PodAffinity(required=(BY_ZONE,)), priority=9))
    made.run()
    made.add(web("late", 1, 0, pod_anti_affinity=APART, priority=9))
    made.run()
    assert (made.pods["big-0"].nominated_node, made.pods["late-0"].node) == ("a1", "b1")


def test_another_namespace_is_chosen_by_its_labels() -> None:
    term = PodTerm("zone", WEB, namespace_selector=LabelSelector({"team": "x"}))
    made = cluster()
    made.placement.apply(Namespace(name="other", labels={"team": "x"}), 0)
    made.add(pod("there", node="b1", namespace="other", labels={"app": "web"}))
    made.add(pods("near", 1, template=template(1, pod_affinity=PodAffinity(required=(term,)))))
    made.run()
    assert made.pods["near-0"].node == "b1"


def test_the_table_has_a_column_for_each_of_them() -> None:
    made = cluster().add(pod("there", node="b1", labels={"app": "web"}))
    new = pod(
        "new",
        labels={"app": "web"},
        template=template(
            1,
            pod_anti_affinity=PodAffinity(required=(BY_HOST,), preferred=((10, BY_ZONE),)),
            spread=(SpreadConstraint("zone", 1, selector=WEB), SpreadConstraint("zone", 2, "ScheduleAnyway", WEB)),
        ),
    )
    table = made.placement.scores(new)
    rows = {row.node: row for row in table.rows}
    assert rows["b1"].refusal == "node(s) didn't match pod topology spread constraints"
    assert [verdict for verdict in rows["b1"].verdicts if verdict] == [
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod anti-affinity rules",
    ]
    used = {column.plugin for column in table.plugins if not column.skipped}
    assert used == {"TaintToleration", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"}
    assert table.chosen == "a1"
    made.add(new).run()
    assert made.pods["new"].node == "a1"
