"""Volcano's objects and what pods and nodes say to its scheduler, from manifests."""

from typing import Any

import pytest

from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.manifests import decode_object
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodAffinity, PodTerm, SpreadConstraint
from gpuconsole.model.volcano import (
    GroupAffinity,
    HyperNode,
    HyperNodeMember,
    NetworkTopology,
    PodGroup,
    SubGroupPolicy,
    VolcanoQueue,
)

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
ROLE = {"matchLabels": {"app": "web"}}

READ: dict[str, tuple[dict[str, Any], Object]] = {
    "a hyper node of nodes": (
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": "rack"},
            "spec": {
                "tier": 1,
                "tierName": "rack",
                "members": [
                    {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
                    {"type": "Node", "selector": {"regexMatch": {"pattern": "^n[2-4]$"}}},
                    {"type": "Node", "selector": {"labelMatch": ROLE}},
                    {"type": "HyperNode", "selector": {"exactMatch": {"name": "host"}}},
                ],
            },
        },
        HyperNode(
            name="rack",
            tier=1,
            tier_name="rack",
            members=(
                HyperNodeMember("Node", "n1"),
                HyperNodeMember("Node", pattern="^n[2-4]$"),
                HyperNodeMember("Node", selector=LabelSelector({"app": "web"})),
                HyperNodeMember("HyperNode", "host"),
            ),
        ),
    ),
    "a gang with parts": (
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": "gang",
                "namespace": "team",
                "uid": "u",
                "annotations": {"a": "b"},
                "labels": {"c": "d"},
            },
            "spec": {
                "minMember": 4,
                "minTaskMember": {"worker": 3, "master": 1},
                "minResources": {},
                "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
                "subGroupPolicy": [
                    {
                        "name": "ranks",
                        "subGroupSize": 2,
                        "minSubGroups": 1,
                        "labelSelector": ROLE,
                        "matchLabelKeys": ["rank"],
                        "networkTopology": {"mode": "soft", "highestTierName": "rack"},
                    }
                ],
            },
            "status": {"phase": "Inqueue"},
        },
        PodGroup(
            namespace="team",
            name="gang",
            uid="u",
            annotations={"a": "b"},
            labels={"c": "d"},
            min_member=4,
            min_task_member={"worker": 3, "master": 1},
            min_resources={},
            network_topology=NetworkTopology("hard", 2),
            sub_groups=(
                SubGroupPolicy(
                    "ranks",
                    2,
                    1,
                    NetworkTopology("soft", None, "rack"),
                    LabelSelector({"app": "web"}),
                    ("rank",),
                ),
            ),
            phase="Inqueue",
        ),
    ),
    "a queue with groups of nodes": (
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "team", "uid": "u", "annotations": {"volcano.sh/hierarchy": "root/team"}},
            "spec": {
                "dequeueStrategy": "fifo",
                "affinity": {
                    "nodeGroupAffinity": {REQUIRED: ["a"], PREFERRED: ["b", "c"]},
                    "nodeGroupAntiAffinity": {REQUIRED: ["d"], PREFERRED: ["e"]},
                },
            },
            "status": {"state": "Closed"},
        },
        VolcanoQueue(
            name="team",
            uid="u",
            annotations={"volcano.sh/hierarchy": "root/team"},
            dequeue_strategy="fifo",
            affinity=GroupAffinity(("a",), ("b", "c"), ("d",), ("e",)),
            state="Closed",
        ),
    ),
    "a node with images": (
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"images": [{"names": ["model@sha256:1", "model:1"], "sizeBytes": 5000000000}]},
        },
        Node(name="n", images={"model@sha256:1": 5_000_000_000, "model:1": 5_000_000_000}),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_an_object_arrives_complete(name: str) -> None:
    document, wanted = READ[name]
    assert decode_object(document) == wanted


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Pod:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers, **spec},
        "status": status or {},
    }
    read = decode_object(document)
    assert isinstance(read, Pod)
    return read


def test_a_pod_says_which_others_it_wants_near_and_far() -> None:
    term = {"labelSelector": ROLE, "topologyKey": "zone", "namespaces": ["team"], "namespaceSelector": {}}
    template = pod(
        {
            "affinity": {
                "podAffinity": {
                    REQUIRED: [term],
                    PREFERRED: [{"weight": 7, "podAffinityTerm": {"topologyKey": "host"}}],
                },
                "podAntiAffinity": {},
            }
        }
    ).template
    wanted = PodTerm("zone", LabelSelector({"app": "web"}), ("team",), LabelSelector())
    assert template.pod_affinity == PodAffinity((wanted,), ((7, PodTerm("host")),))
    assert template.pod_anti_affinity is None


def test_a_pod_says_in_which_labels_others_have_to_be_like_it_or_to_differ() -> None:
    term = {"topologyKey": "host", "matchLabelKeys": ["version"], "mismatchLabelKeys": ["tenant"]}
    template = pod({"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}).template
    wanted = PodTerm("host", match_label_keys=("version",), mismatch_label_keys=("tenant",))
    assert template.pod_anti_affinity == PodAffinity((wanted,), ())


def test_a_constraint_says_which_nodes_count() -> None:
    listed = {"topologyKey": "zone", "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    spread = pod({"topologySpreadConstraints": [{"topologyKey": "zone"}, listed]}).template.spread
    assert spread == (SpreadConstraint("zone"), SpreadConstraint("zone", honors_affinity=False, honors_taints=True))


def held(cpu: str, allocated: str | None = None) -> dict[str, Any]:
    """The status of the container: what is in force, and what the node set aside."""
    status: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {"containerStatuses": [{**status, "allocatedResources": {"cpu": allocated}} if allocated else status]}


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}

RESIZED: dict[str, tuple[dict[str, Any], int]] = {
    "nothing is known of its containers": ({}, 2000),
    "it grows: what it asks for": (held("1"), 2000),
    "it shrinks: what it still has": (held("3"), 3000),
    "what was set aside for it": (held("1", "4"), 4000),
    "it cannot grow here: what it has": ({**held("1"), **INFEASIBLE}, 1000),
    "it cannot grow yet": ({**held("1"), **DEFERRED}, 2000),
    "another container": ({"containerStatuses": [{"name": "other", "resources": {"requests": {"cpu": "9"}}}]}, 2000),
}


@pytest.mark.parametrize("name", RESIZED)
def test_a_pod_that_is_being_resized_counts_for_what_it_holds(name: str) -> None:
    status, cpu = RESIZED[name]
    assert pod({}, status).template.containers == (Container("main", requests={"cpu": cpu}),)
