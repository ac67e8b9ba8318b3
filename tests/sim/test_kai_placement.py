"""A scenario may name KAI as the engine that places pods, with its configuration and past use."""

from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.clock import HOUR, SECOND
from gpuconsole.scheduling.kai.config import KaiPolicy, UsagePolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

CONF = "actions: allocate\ntiers:\n- plugins:\n  - name: proportion\n"
QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "team"},
    "spec": {
        "resources": {name: {"quota": -1, "overQuotaWeight": 1, "limit": -1} for name in ("gpu", "cpu", "memory")}
    },
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "2", "pods": "110"}},
}


def pod(name: str, gpus: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "team"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
    }


def read(placement: dict[str, Any], folder: Path | None = None, **keys: Any) -> Scenario:
    engine = {"admission": "none", "placement": {"engine": "KAI", **placement}}
    return load_scenario([{"engine": engine, **keys}], "s.yaml", folder=folder)


def test_the_configuration_is_written_out_or_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "kai.yaml").write_text(CONF)
    assert read({}).policy.placement == KaiPolicy()
    assert read({"conf": CONF}).policy.placement == KaiPolicy(conf=CONF)
    assert read({"conf": "kai.yaml"}, tmp_path).policy.placement == KaiPolicy(conf=CONF)


def test_past_use_has_a_window_and_a_half_life() -> None:
    usage = UsagePolicy(window=24 * HOUR, half_life=HOUR)
    assert read({"usage": {"window": "24h", "halfLife": "1h"}}).policy.placement == KaiPolicy(usage=usage)


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        (
            {"conf": "actions: allocate, dance\n# no such action\n"},
            "engine.placement.conf: failed to find Action dance as given in the config, ignore it",
        ),
        ({"engine": "kube-scheduler", "usage": {}}, "engine.placement.usage: only KAI looks at past use"),
        ({"usage": {"window": "soon"}}, "engine.placement.usage.window: "),
    ],
)
def test_what_is_wrong_is_named(placement: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        read(placement)
    assert problem in str(raised.value)


def test_a_saved_simulation_goes_on_as_the_one_that_was_saved() -> None:
    scenario = read({"usage": {}}, objects=[NODE, QUEUE, pod("a", "1"), pod("b", "2")])
    simulation = build_simulation(scenario)
    simulation.advance(simulation.now + SECOND)
    again = Simulation.from_snapshot(simulation.snapshot(), policy=scenario.policy, seed=0)
    for each in (simulation, again):
        each.advance(each.now + HOUR)
    pods = [{p.name: (p.node, p.gpus, p.message) for p in each.snapshot().pods.all()} for each in (simulation, again)]
    assert pods[0] == pods[1]
    assert pods[0]["a"][:2] == ("n1", (0,))


def test_the_policy_is_kept_with_what_is_saved() -> None:
    policy = SimPolicy(placement=KaiPolicy(usage=UsagePolicy()))
    assert build_simulation(read({"usage": {}})).policy.placement == policy.placement
