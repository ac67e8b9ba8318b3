"""PriorityClasses with the system's prefix: two that every cluster has, any other is refused by the API server."""

import json
from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.manifests import load_text
from gpuconsole.sim.scenario import build_simulation, load_scenario

RESERVED = "Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "
REFUSED = {
    "an own name": ("system-train", {}, "system-train is not a known system priority class"),
    "a high value": ("system-train", {"value": 2_000_000_000}, "system-train is not a known system priority class"),
    "another value": (
        "system-node-critical",
        {"value": 2_000_000_000},
        "value of system-node-critical PriorityClass must be 2000001000",
    ),
    "a global default": (
        "system-cluster-critical",
        {"value": 2_000_000_000, "globalDefault": True},
        "globalDefault of system-cluster-critical PriorityClass must be false",
    ),
}


def priority_class(name: str, **fields: Any) -> dict[str, Any]:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return {**head, "value": 5, **fields}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("name", "fields", "error"), REFUSED.values(), ids=REFUSED)
def test_a_name_of_the_system_is_refused_with_the_words_of_the_server(
    name: str, fields: dict[str, Any], error: str, strict: bool
) -> None:
    (finding,) = load_text(json.dumps(priority_class(name, **fields)), strict=strict).findings
    assert (finding.severity.value, finding.path) == ("error" if strict else "warning", "metadata.name")
    assert finding.problem == RESERVED + error


@pytest.mark.parametrize(
    ("name", "value"),
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000), ("systematic", 5)],
)
def test_the_classes_of_kubernetes_itself_and_names_that_only_look_alike_are_taken(name: str, value: int) -> None:
    assert load_text(json.dumps(priority_class(name, value=value)), strict=True).findings == ()


def test_a_value_that_only_the_system_may_use_is_refused() -> None:
    (finding,) = load_text(json.dumps(priority_class("high", value=1_000_000_001)), strict=True).findings
    assert (finding.severity.value, finding.path) == ("error", "value")
    assert finding.problem == "Forbidden: maximum allowed value of a user defined priority is 1000000000"


def test_pods_have_the_values_of_the_classes_that_every_cluster_has() -> None:
    def pod(name: str, priority_class: str) -> dict[str, Any]:
        spec = {"priorityClassName": priority_class, "restartPolicy": "Never", "containers": [{"name": "c"}]}
        job = {"template": {"spec": spec}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}

    classes = ["system-cluster-critical", "system-node-critical"]
    scenario = load_scenario([{"objects": [pod(name, name) for name in classes]}])
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + MINUTE)
    assert sorted(found.priority for found in simulation.snapshot().pods.values()) == [2_000_000_000, 2_000_001_000]
