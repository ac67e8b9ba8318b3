"""kube-scheduler as a scenario names it: by a profile of a configuration, or by its own defaults."""

from pathlib import Path
from typing import Any

import pytest

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.scheduling.kube.profile import PlacementPolicy, SchedulerProfile
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError

CONF = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: all
  percentageOfNodesToScore: 100
"""


def read(placement: dict[str, Any], folder: Path | None = None) -> Scenario:
    return load_scenario([{"engine": {"admission": "none", "placement": placement}}], folder=folder)


def test_a_profile_is_kube_schedulers_own_or_one_of_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(CONF)
    whole = SchedulerProfile(name="all", percentage=100)
    assert read({}).policy.placement == PlacementPolicy()
    assert read({"profile": "default-scheduler"}).policy.placement == PlacementPolicy(profile=SchedulerProfile())
    assert read({"conf": CONF}).policy.placement == PlacementPolicy(profile=SchedulerProfile())
    by_file = read({"conf": "scheduler.yaml", "profile": "all", "gangs": False}, tmp_path)
    assert by_file.policy.placement == PlacementPolicy(profile=whole, gangs=False)


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "a profile that there is not": (
        {"conf": CONF, "profile": "spare"},
        "engine.placement.profile: there is no profile spare; there is default-scheduler, all",
    ),
    "a profile and a score": (
        {"profile": "default-scheduler", "score": "fgd"},
        "engine.placement.score: a profile says itself how nodes are scored; leave one of them out",
    ),
    "a field that kube-scheduler would refuse": (
        {"conf": CONF + "speed: 3\n"},
        "engine.placement.conf: engine.placement.conf:8: speed: unknown field 'speed' is ignored",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_wrong_is_named(name: str) -> None:
    placement, problem = PROBLEMS[name]
    with pytest.raises(ScenarioError) as error:
        read(placement)
    assert problem in str(error.value)


AMOUNTS = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "2", "pods": "110"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": AMOUNTS}}


def pod(name: str, gpus: int = 1, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/work:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    metadata = {"name": name, "labels": labels or {}, "annotations": {"gpuconsole.io/duration": "10m"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def running(placement: dict[str, Any], *steps: list[dict[str, Any]]) -> Simulation:
    engine = {"admission": "none", "placement": placement}
    made = [{"advanceSeconds": min(1, number) * 60, "create": things} for number, things in enumerate(steps)]
    return build_simulation(load_scenario([{"engine": engine, "objects": [NODE], "steps": made}]))


def bound(simulation: Simulation) -> dict[str, int]:
    """When each pod got its node, in milliseconds after the start."""
    start = min(each.created for each in simulation.snapshot().pods.all())
    return {each.name: (each.bound - start) // 1000 for each in simulation.snapshot().pods.all() if each.bound}


def test_a_pod_that_was_refused_is_tried_when_its_back_off_is_over() -> None:
    first, second, third = pod("first", 2), pod("second", 2), pod("third", 1)
    simulation = running({"profile": "default-scheduler"}, [first, second], [third])
    simulation.advance(simulation.now + 40 * MINUTE)
    when = bound(simulation)
    # What ends a minute or more after the last refusal finds nobody backing off any more.
    assert (when["first"], when["second"]) == (0, 600_000)


def test_a_simulation_with_a_profile_that_is_saved_goes_on_as_it_would_have() -> None:
    pods = [pod(f"p{number}", 1, priorityClassName="") for number in range(5)]
    simulation = running({"profile": "default-scheduler"}, pods)
    simulation.advance(simulation.now + 10 * MINUTE)
    again = Simulation.load(simulation.save())
    twin = simulation.fork()
    for one in (simulation, again, twin):
        one.advance(one.now + HOUR)
    assert again.save() == simulation.save() == twin.save()
    assert all(each.bound for each in simulation.snapshot().pods.all())


def test_pods_that_name_a_pod_group_start_together() -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 2, "scheduleTimeoutSeconds": 10},
    }
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    simulation = running({}, [group, pod("other"), pod("a", 1, label)], [pod("b", 1, label)])
    simulation.advance(simulation.now + 5 * MINUTE)
    assert set(bound(simulation)) == {"other"}
    waiting = {each.name: each.message for each in simulation.snapshot().pods.all() if not each.node}
    assert waiting["a"].startswith("gang default/train not scheduled: 1 of 2 pods fit; 0/1 nodes are available: ")
    simulation.advance(simulation.now + 10 * MINUTE)
    assert bound(simulation)["a"] == bound(simulation)["b"] == 600_000


def test_the_score_table_of_a_fork_is_that_of_the_original() -> None:
    simulation = running({"profile": "default-scheduler"}, [pod("first", 2), pod("second", 1)])
    simulation.advance(simulation.now + MINUTE)
    waits = simulation.snapshot().pods["default/second"]
    before = simulation.save()
    table = simulation.placement.scores(waits)
    assert table is not None
    assert table == simulation.fork().placement.scores(waits)
    assert table.message == waits.message
    assert simulation.save() == before
