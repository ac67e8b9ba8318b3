"""Who provides nodes is named in a scenario's `engine.capacity`, with a catalogue in it or beside it."""

from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.autoscaling import InstanceType, InstanceTypeCatalogue
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.labels import Taint
from gpuconsole.sim.policy import (
    FIXED,
    AutoscalerPolicy,
    Expander,
    KarpenterPolicy,
    ScalingGroup,
    SimPolicy,
    SpotPolicy,
)
from gpuconsole.sim.run_times import LogNormal
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

SOLD = {"zones": ["a"], "types": {"c.1": {"cpu": 4, "memory": "8Gi", "onDemand": 0.5, "spot": {"a": 0.2}}}}
TYPE = InstanceType(name="c.1", cpu=4000, memory=8 * 2**30, on_demand=0.5, spot={"a": 0.2}, zones=("a",))
CATALOGUE = InstanceTypeCatalogue({"c.1": TYPE})


def policy(**capacity: Any) -> SimPolicy:
    return load_scenario([{"engine": {"capacity": capacity}}]).policy


def test_nodes_are_fixed_where_nothing_else_is_said() -> None:
    assert policy().capacity == policy(kind="fixed", gpusPerNode=4).capacity == FIXED


def test_karpenter_is_read() -> None:
    found = policy(
        kind="karpenter",
        catalogue=SOLD,
        startup="50s",
        unavailable=["c.1/a/spot"],
        spotToSpotConsolidation=True,
        spot={"notice": "30s", "interruptions": 0, "criticalPriority": 100, "diversity": 0.5},
    )
    assert found.capacity == KarpenterPolicy(
        catalogue=CATALOGUE, startup=LogNormal(median=50 * SECOND), unavailable=("c.1/a/spot",), spot_to_spot=True
    )
    assert found.spot == SpotPolicy(notice=30 * SECOND, interruptions=0, critical=100, diversity=0.5)


def test_the_cluster_autoscaler_is_read() -> None:
    group = {
        "name": "g",
        "instanceType": "c.1",
        "zone": "a",
        "capacityType": "spot",
        "min": 1,
        "max": 5,
        "size": 2,
        "labels": {"team": "ml"},
        "taints": [{"key": "ml", "value": "yes", "effect": "NoSchedule"}],
        "priority": 7,
    }
    found = policy(
        kind="cluster-autoscaler",
        catalogue=SOLD,
        groups=[group],
        startup={"median": "3m", "sigma": 0.2},
        expander="price",
        scanInterval="20s",
        newPodScaleUpDelay="5s",
        maxNodeProvisionTime="8m",
        scaleDownUnneededTime="1m",
        scaleDownUnreadyTime="6m",
        scaleDownDelayAfterAdd="2m",
        scaleDownDelayAfterFailure="4m",
        scaleDownUtilizationThreshold=0.4,
        scaleDownGpuUtilizationThreshold=0.6,
    )
    assert found.capacity == AutoscalerPolicy(
        catalogue=CATALOGUE,
        groups=(
            ScalingGroup(
                name="g",
                type="c.1",
                zone="a",
                capacity_type="spot",
                min_size=1,
                max_size=5,
                initial_size=2,
                labels={"team": "ml"},
                taints=(Taint("ml", "yes"),),
                priority=7,
            ),
        ),
        startup=LogNormal(median=3 * MINUTE, sigma=0.2),
        expander=Expander.PRICE,
        scan_interval=20 * SECOND,
        new_pod_delay=5 * SECOND,
        provision_time=8 * MINUTE,
        unneeded_time=MINUTE,
        unready_time=6 * MINUTE,
        delay_after_add=2 * MINUTE,
        delay_after_failure=4 * MINUTE,
        utilization=0.4,
        gpu_utilization=0.6,
    )


def test_a_catalogue_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("zones: [a]\ntypes: {c.1: {cpu: 4, memory: 8Gi, onDemand: 0.5, spot: 0.2}}\n")
    document = {"engine": {"capacity": {"kind": "karpenter", "catalogue": "c.yaml"}}}
    capacity = load_scenario([document], folder=tmp_path).policy.capacity
    assert isinstance(capacity, KarpenterPolicy)
    assert capacity.catalogue == CATALOGUE


def test_the_usual_catalogue_stands_in() -> None:
    document = {"engine": {"capacity": {"kind": "karpenter"}}}
    capacity = load_scenario([document], catalogue=CATALOGUE).policy.capacity
    assert isinstance(capacity, KarpenterPolicy)
    assert capacity.catalogue == CATALOGUE


def test_no_nodes_are_made_from_quotas_where_an_autoscaler_makes_them() -> None:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
    quota = {"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": {"resourceGroups": [group]},
    }
    counts = {
        kind: len(
            build_simulation(
                load_scenario([{"objects": [flavor, queue], "engine": {"capacity": {"kind": kind, "catalogue": SOLD}}}])
            )
            .snapshot()
            .nodes
        )
        for kind in ("fixed", "karpenter")
    }
    assert counts == {"fixed": 1, "karpenter": 0}


CA = {"kind": "cluster-autoscaler", "catalogue": SOLD}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a kind that there is not": ({"kind": "magic"}, "engine.capacity.kind: "),
    "no catalogue": (
        {"kind": "karpenter"},
        "engine.capacity.catalogue: there is no instance-type catalogue; name a file",
    ),
    "a catalogue in a file, of a scenario in none": (
        {"kind": "karpenter", "catalogue": "c.yaml"},
        "engine.capacity.catalogue: a file is relative to the scenario's own, and this one has none",
    ),
    "a wrong catalogue": (
        {"kind": "karpenter", "catalogue": {"zones": ["a"], "types": {"c.1": {"onDemand": -1}}}},
        "engine.capacity.catalogue.types[c.1].onDemand: -1 is not a valid number; write 0 or more",
    ),
    "a group of a type that is not sold": (
        {**CA, "groups": [{"name": "g", "instanceType": "c.9"}]},
        "engine.capacity.groups[0]: the catalogue has no c.9 on-demand",
    ),
    "a group in a zone where it is not sold": (
        {**CA, "groups": [{"name": "g", "instanceType": "c.1", "zone": "z", "capacityType": "spot"}]},
        "engine.capacity.groups[0]: the catalogue has no c.1 spot in z",
    ),
    "two groups of one name": (
        {**CA, "groups": [{"name": "g", "instanceType": "c.1"}, {"name": "g", "instanceType": "c.1"}]},
        "engine.capacity.groups[1].name: there is another group g",
    ),
    "a group whose sizes are in no order": (
        {**CA, "groups": [{"name": "g", "instanceType": "c.1", "min": 4, "max": 2}]},
        "engine.capacity.groups[0]: min 4, size 0 and max 2 are not in this order",
    ),
    "a taint that is none": (
        {**CA, "groups": [{"name": "g", "instanceType": "c.1", "taints": [{"key": "a", "effect": "Never"}]}]},
        "engine.capacity.groups[0].taints[0].effect: ",
    ),
    "a notice that is none": ({"spot": {"notice": "soon"}}, "engine.capacity.spot.notice: 'soon' is not a duration"),
    "interruptions below none": (
        {"spot": {"interruptions": -1}},
        "engine.capacity.spot: interruptions and diversity are 0 or more",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    capacity, message = WRONG[name]
    with pytest.raises(ScenarioError) as caught:
        policy(**capacity)
    assert f"scenario: {message}" in str(caught.value)


def test_a_file_that_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("zones: [a]\ntypes:\n  c.1: {spot: x}\n")
    for file, says in (("c.yaml", "c.yaml:3: types[c.1].spot: "), ("d.yaml", "No such file or directory")):
        document = {"engine": {"capacity": {"kind": "karpenter", "catalogue": file}}}
        with pytest.raises(ScenarioError) as caught:
            load_scenario([document], folder=tmp_path)
        assert f"engine.capacity.catalogue: {says}" in str(caught.value)
