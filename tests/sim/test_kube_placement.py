"""kube-scheduler as a scenario names it: by a profile of a configuration, or by its own defaults."""

from pathlib import Path
from typing import Any

import pytest

from gpuconsole.scheduling.kube.policy import PlacementPolicy
from gpuconsole.scheduling.kube.profile import Profile
from gpuconsole.sim.scenario import Scenario, ScenarioError, load_scenario

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
    whole = Profile(name="all", percentage=100)
    assert read({}).policy.placement == PlacementPolicy()
    assert read({"profile": "default-scheduler"}).policy.placement == PlacementPolicy(profile=Profile())
    assert read({"conf": CONF}).policy.placement == PlacementPolicy(profile=Profile())
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
