"""Pods near others, far from others, and spread over domains, as kube-scheduler decides it."""

from collections.abc import Mapping

import pytest

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import HOSTNAME, LabelSelector, Taint
from gpuconsole.model.pod_template import Container, PodAffinity, PodTemplate, PodTerm, SpreadConstraint
from gpuconsole.scheduling.kube import inter_pod_affinity
from gpuconsole.scheduling.kube.inter_pod_affinity import StaticPodLister
from gpuconsole.scheduling.kube.plugins import pod_topology_spread
from gpuconsole.scheduling.kube.pod_classes import PodClasses
from gpuconsole.scheduling.kube.scores import Images

MEGABYTE = 1024 * 1024
WEB, DB = LabelSelector({"app": "web"}), LabelSelector({"app": "db"})
NODES = {
    name: Node(name=name, labels={HOSTNAME: name, "zone": zone} if zone else {HOSTNAME: name})
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("bare", ""))
}


def pod(
    name: str,
    app: str = "web",
    *,
    near: PodAffinity | None = None,
    far: PodAffinity | None = None,
    spread: tuple[SpreadConstraint, ...] = (),
    **facts: object,
) -> Pod:
    template = PodTemplate(pod_affinity=near, pod_anti_affinity=far, spread=spread)
    given: dict[str, object] = {"name": name, "labels": {"app": app}, "template": template, **facts}
    return Pod(**given)  # type: ignore[arg-type]


def around(placed: Mapping[str, list[Pod]], **namespaces: Mapping[str, str]) -> StaticPodLister:
    return StaticPodLister(NODES, lambda name: placed.get(name, []), namespaces)


def refused(one: Pod, there: StaticPodLister) -> dict[str, str]:
    found = inter_pod_affinity.affinity_counts(one, there)
    reasons = {name: inter_pod_affinity.refusal(one, node, found) for name, node in NODES.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def required(*terms: PodTerm) -> PodAffinity:
    return PodAffinity(required=terms)


NO, ANTI, THEIRS = (
    inter_pod_affinity.AFFINITY,
    inter_pod_affinity.ANTI_AFFINITY,
    inter_pod_affinity.EXISTING_ANTI_AFFINITY,
)
PLACED = {"a1": [pod("w")], "b1": [pod("d", "db", namespace="team")]}

NEAR: dict[str, tuple[Pod, Mapping[str, list[Pod]], dict[str, str]]] = {
    "the zone of a web pod": (pod("p", near=required(PodTerm("zone", WEB))), PLACED, {"b1": NO, "bare": NO}),
    "both terms by one pod": (
        pod("p", near=required(PodTerm("zone", WEB), PodTerm("zone", DB))),
        PLACED,
        dict.fromkeys(("a1", "a2", "b1", "bare"), NO),
    ),
    "the first of its kind goes anywhere in a zone": (
        pod("p", near=required(PodTerm("zone", WEB))),
        {},
        {"bare": NO},
    ),
    "but not the first of another kind": (
        pod("p", near=required(PodTerm("zone", DB))),
        {},
        dict.fromkeys(("a1", "a2", "b1", "bare"), NO),
    ),
    "another namespace is not meant": (
        pod("p", "x", near=required(PodTerm("zone", DB))),
        PLACED,
        dict.fromkeys(("a1", "a2", "b1", "bare"), NO),
    ),
    "unless it is named": (
        pod("p", "x", near=required(PodTerm("zone", DB, ("team",)))),
        PLACED,
        {"a1": NO, "a2": NO, "bare": NO},
    ),
    "or chosen by labels": (
        pod("p", "x", near=required(PodTerm("zone", DB, (), LabelSelector({"tier": "data"})))),
        PLACED,
        {"a1": NO, "a2": NO, "bare": NO},
    ),
    "away from a web pod's host": (pod("p", far=required(PodTerm(HOSTNAME, WEB))), PLACED, {"a1": ANTI}),
    "away from a web pod's zone": (pod("p", far=required(PodTerm("zone", WEB))), PLACED, {"a1": ANTI, "a2": ANTI}),
    "no selector means nobody": (pod("p", far=required(PodTerm("zone"))), PLACED, {}),
    "where it is shunned": (
        pod("p"),
        {"a2": [pod("shy", "db", far=required(PodTerm("zone", WEB)))]},
        {"a1": THEIRS, "a2": THEIRS},
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_pods_are_kept_near_and_far(name: str) -> None:
    one, placed, wanted = NEAR[name]
    assert refused(one, around(placed, team={"tier": "data"})) == wanted


def preferred(weight: int, term: PodTerm) -> PodAffinity:
    return PodAffinity(preferred=((weight, term),))


LIKED: dict[str, tuple[Pod, Mapping[str, list[Pod]], dict[str, int]]] = {
    "nobody minds": (pod("p"), PLACED, {}),
    "near a web pod": (
        pod("p", near=preferred(4, PodTerm("zone", WEB))),
        PLACED,
        {"a1": 100, "a2": 100, "b1": 0, "bare": 0},
    ),
    "far from a web pod": (
        pod("p", far=preferred(4, PodTerm(HOSTNAME, WEB))),
        PLACED,
        {"a1": 0, "a2": 100, "b1": 100, "bare": 100},
    ),
    "both": (
        pod("p", near=preferred(3, PodTerm("zone", WEB)), far=preferred(1, PodTerm(HOSTNAME, WEB))),
        PLACED,
        {"a1": 66, "a2": 100, "b1": 0, "bare": 0},
    ),
    "what others say counts too": (
        pod("p"),
        {
            "a1": [pod("w", far=preferred(2, PodTerm(HOSTNAME, WEB)))],
            "b1": [pod("v", near=preferred(2, PodTerm("zone", WEB)))],
        },
        {"a1": 0, "a2": 50, "b1": 100, "bare": 50},
    ),
    "what others need counts by its own weight": (
        pod("p"),
        {"b1": [pod("v", near=required(PodTerm("zone", WEB)))]},
        {"a1": 0, "a2": 0, "b1": 100, "bare": 0},
    ),
}


@pytest.mark.parametrize("name", LIKED)
def test_nodes_are_scored_by_neighbours(name: str) -> None:
    one, placed, wanted = LIKED[name]
    assert inter_pod_affinity.scores(one, NODES.values(), around(placed)) == wanted


def test_what_others_need_can_weigh_nothing() -> None:
    there = around({"b1": [pod("v", near=required(PodTerm("zone", WEB)))]})
    assert inter_pod_affinity.scores(pod("p"), NODES.values(), there, hard_weight=0) == {}


def even(key: str = "zone", **facts: object) -> SpreadConstraint:
    given: dict[str, object] = {"topology_key": key, "selector": WEB, **facts}
    return SpreadConstraint(**given)  # type: ignore[arg-type]


MISSING, SKEWED = pod_topology_spread.MISSING_LABEL, pod_topology_spread.TOO_SKEWED
TWO_IN_A = {"a1": [pod("w0")], "a2": [pod("w1")]}

SPREAD: dict[str, tuple[Pod, Mapping[str, list[Pod]], dict[str, str]]] = {
    "not where there is one more already": (
        pod("p", spread=(even(),)),
        {"a1": [pod("w")]},
        {"a1": SKEWED, "a2": SKEWED, "bare": MISSING},
    ),
    "two more are allowed": (pod("p", spread=(even(max_skew=2),)), {"a1": [pod("w")]}, {"bare": MISSING}),
    "who does not count himself may join": (pod("p", "db", spread=(even(),)), {"a1": [pod("w")]}, {"bare": MISSING}),
    "leaving pods and other namespaces do not count": (
        pod("p", spread=(even(),)),
        {"a1": [pod("w", deleted=1)], "a2": [pod("v", namespace="team")]},
        {"bare": MISSING},
    ),
    "too few domains count as empty ones": (
        pod("p", spread=(even(min_domains=3),)),
        {"a1": [pod("w")], "b1": [pod("v")]},
        {"a1": SKEWED, "a2": SKEWED, "b1": SKEWED, "bare": MISSING},
    ),
    "a soft one forbids nothing": (pod("p", spread=(even(when_unsatisfiable="ScheduleAnyway"),)), TWO_IN_A, {}),
    "two constraints": (
        pod("p", spread=(even(max_skew=3), even(HOSTNAME))),
        {"a1": [pod("w")]},
        {"a1": SKEWED, "bare": MISSING},
    ),
}


@pytest.mark.parametrize("name", SPREAD)
def test_pods_are_spread(name: str) -> None:
    one, placed, wanted = SPREAD[name]
    spreads = pod_topology_spread.hard_constraint_states(one, PodClasses().of(one.template), around(placed))
    reasons = {name: pod_topology_spread.refusal(node, spreads) for name, node in NODES.items()}
    assert {name: reason for name, reason in reasons.items() if reason} == wanted


def test_nodes_that_a_pod_cannot_use_are_no_domains_if_so_told() -> None:
    nodes = {"a1": NODES["a1"], "b1": Node(name="b1", labels={"zone": "b"}, taints=(Taint("gpu"),))}
    there = StaticPodLister(nodes, lambda name: [pod("w")] if name == "a1" else [])
    for honors, reason in ((True, ""), (False, SKEWED)):
        one = pod("p", spread=(even(honors_taints=honors),))
        spreads = pod_topology_spread.hard_constraint_states(one, PodClasses().of(one.template), there)
        assert pod_topology_spread.refusal(nodes["a1"], spreads) == reason


def test_soft_constraints_prefer_emptier_domains() -> None:
    soft = even(when_unsatisfiable="ScheduleAnyway")
    one = pod("p", spread=(soft,))
    there = around({**TWO_IN_A, "b1": [pod("w2")]})
    shape = PodClasses().of(one.template)
    # ln(2 + 2) = 1.39: 2 pods of zone a score 3, one of zone b 1; a node without a zone gets nothing.
    assert pod_topology_spread.scores(one, shape, [*NODES.values()], there) == {
        "a1": 33,
        "a2": 33,
        "b1": 100,
        "bare": 0,
    }
    assert pod_topology_spread.scores(one, shape, [*NODES.values()], around({})) == {
        "a1": 100,
        "a2": 100,
        "b1": 100,
        "bare": 0,
    }
    assert pod_topology_spread.scores(pod("p"), shape, [*NODES.values()], there) == {}


def test_hosts_are_counted_one_by_one() -> None:
    one = pod("p", spread=(even(HOSTNAME, when_unsatisfiable="ScheduleAnyway"),))
    there = around({"a1": [pod("w0"), pod("w1")], "a2": [pod("w2")]})
    found = pod_topology_spread.scores(one, PodClasses().of(one.template), [*NODES.values()], there)
    assert found == {"a1": 0, "a2": 50, "b1": 100, "bare": 100}


def test_large_images_that_many_hold_draw_a_pod() -> None:
    sizes = {"model:1": 511 * MEGABYTE + MEGABYTE // 2, "small:latest": MEGABYTE}
    nodes = [
        Node(name="full", images=sizes),
        Node(name="other", images={"model:1": sizes["model:1"]}),
        Node(name="empty"),
    ]
    images = Images([*nodes[:2]])

    def score(image: str) -> list[int]:
        one = Pod(name="p", template=PodTemplate(containers=(Container(image=image),)))
        return [images.score(one, node) for node in nodes]

    assert (score("model:1"), score("small"), score("unknown:2")) == ([50, 50, 0], [0, 0, 0], [0, 0, 0])
    assert (images.has_images, Images([nodes[2]]).has_images) == (True, False)
