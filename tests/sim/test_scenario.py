"""The scenario file: what it says comes true, and every key that has no place in it is named."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from gpuconsole.model.clock import HOUR, MINUTE, SECOND, parse_time
from gpuconsole.model.commands import AnswerCheck, Delete, FailNode, Finish, Submit
from gpuconsole.model.documents.reader import decode_strictly
from gpuconsole.scheduling.kube.profile import PlacementPolicy, Score
from gpuconsole.scheduling.kueue.config import PreemptionStrategy
from gpuconsole.sim.run_times import LogNormal
from gpuconsole.sim.scenario import Scenario, build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError
from tests.support.sim_cluster import log, two_teams

WORKLOAD: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "red"},
    "spec": {
        "queueName": "lq",
        "podSets": [
            {
                "name": "main",
                "count": 1,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2"}}}],
                    }
                },
            }
        ],
    },
}


def read(**keys: Any) -> Scenario:
    return load_scenario([keys], "s.yaml", objects=two_teams())


def test_an_empty_scenario_is_a_plain_cluster() -> None:
    scenario = load_scenario([], objects=two_teams())
    assert (scenario.start, scenario.seed, scenario.steps) == (parse_time("2026-01-05T08:00:00Z"), 0, ())
    assert len(build_simulation(scenario).snapshot().nodes) == 2


def test_steps_become_commands_in_the_order_finish_delete_commands_create() -> None:
    scenario = read(
        start="2026-01-05T10:00:00Z",
        steps=[
            {"advanceSeconds": 60, "create": [WORKLOAD], "expect": [{"admitted": ["red/w"]}], "maxCycles": 25},
            {
                "advanceSeconds": 0.5,
                "create": [WORKLOAD],
                "commands": [{"type": "fail-node", "node": "n1"}],
                "delete": ["red/w", "JobSet/red/j", "Node/n2"],
                "finish": ["red/w"],
            },
        ],
    )
    start = parse_time("2026-01-05T10:00:00Z")
    first, second = scenario.steps
    assert (first.at, first.expect) == (start + MINUTE, ({"admitted": ["red/w"]},))
    assert isinstance(first.commands[0], Submit)
    assert second.at == start + MINUTE + SECOND // 2
    assert second.commands[:-1] == (
        Finish("red/w"),
        Delete("", "red/w"),
        Delete("jobs", "JobSet/red/j"),
        Delete("nodes", "n2"),
        FailNode("n1"),
    )


@pytest.mark.parametrize(
    "name",
    [
        *("Job/red/j", "CronJob/red/j", "Deployment/red/j", "StatefulSet/red/j", "LeaderWorkerSet/red/j"),
        *("RayCluster/red/j", "RayService/red/j", "MPIJob/red/j", "TrainJob/red/j", "VolcanoJob/red/j"),
        "PodGroup/red/j",
    ],
)
def test_jobs_of_every_kind_are_deleted_by_name(name: str) -> None:
    assert read(steps=[{"delete": [name]}]).steps[0].commands == (Delete("jobs", name),)


def test_what_is_planned_happens_at_its_time() -> None:
    scenario = read(
        wakeUpBatch="0s",
        steps=[
            {"advanceSeconds": 60, "create": [WORKLOAD]},
            {"advanceSeconds": 60, "finish": ["red/w"]},
            {"advanceSeconds": 60, "delete": ["red/w"]},
        ],
    )
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + HOUR)
    assert log(simulation.drain()) == [
        "1:00 admitted red/w",
        "1:00 started red/w",
        "2:00 finished red/w",
        "3:00 deleted red/w",
    ]


def test_steps_of_one_moment_follow_each_other() -> None:
    second = {**WORKLOAD, "metadata": {"name": "late", "namespace": "red"}}
    scenario = read(wakeUpBatch="0s", steps=[{"create": [WORKLOAD]}, {"finish": ["red/w"]}, {"create": [second]}])
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start)
    assert log(simulation.drain()) == [
        "0:00 admitted red/w",
        "0:00 started red/w",
        "0:00 finished red/w",
        "0:00 admitted red/late",
        "0:00 started red/late",
    ]


def test_the_engine_prices_and_spans_become_the_policy() -> None:
    policy = read(
        engine={"admission": "none", "placement": {"score": "spread", "gangs": False, "preemption": False}},
        prices={"gpu-hour": {"l4": 0.5}, "other": 1.0},
        wakeUpBatch="5s",
        durations={"median": "20m", "sigma": 0.5, "least": "1m", "most": "2h"},
        keepFinished="2h",
    ).policy
    assert policy.kueue is None
    assert policy.placement == PlacementPolicy(score="spread", gangs=False, preemption=False)
    assert (policy.prices.gpu_hour, policy.prices.other) == ({"l4": 0.5}, 1.0)
    assert (policy.wake_up_batch, policy.keep_finished) == (5 * SECOND, 2 * HOUR)
    assert policy.durations == LogNormal(median=20 * MINUTE, sigma=0.5, least=MINUTE, most=2 * HOUR)


@pytest.mark.parametrize("score", get_args(Score))
def test_every_score_can_be_chosen(score: Score) -> None:
    assert read(engine={"placement": {"score": score}}).policy.placement == PlacementPolicy(score=score)


def test_fair_sharing_and_gates_are_kueues() -> None:
    policy = read(
        fairSharingEnabled=True,
        fairSharing=["LessThanInitialShare"],
        featureGates={"PartialAdmission": False},
    ).policy
    assert policy.kueue is not None
    assert (policy.kueue.fair_sharing, policy.kueue.strategies) == (True, (PreemptionStrategy.LESS_THAN_INITIAL_SHARE,))
    assert not policy.kueue.enabled("PartialAdmission")


def test_nodes_are_made_where_there_are_none() -> None:
    objects = [thing for thing in two_teams() if type(thing).__name__ != "Node"]
    scenario = load_scenario([{"engine": {"capacity": {"gpusPerNode": 4}}}], objects=objects)
    assert [node.gpus for node in build_simulation(scenario).snapshot().nodes.all()] == [4, 4]
    assert [node.gpus for node in build_simulation(scenario, gpus_per_node=2).snapshot().nodes.all()] == [2, 2, 2, 2]


def test_files_are_read_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: far}}")
    scenario = load_scenario([{"files": ["cluster.yaml"]}], folder=tmp_path)
    assert [thing.key for thing in scenario.objects] == ["far"]


def test_finished_work_is_removed_after_a_while() -> None:
    scenario = read(keepFinished="10m", durations="5m", steps=[{"create": [WORKLOAD]}])
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + 15 * MINUTE - 1)
    assert (len(simulation.snapshot().workloads), len(simulation.snapshot().pods)) == (1, 1)
    simulation.advance(scenario.start + 15 * MINUTE)
    assert (len(simulation.snapshot().workloads), len(simulation.snapshot().pods)) == (0, 0)


WRONG: dict[str, tuple[Mapping[str, Any], str]] = {
    "a key that is nearly right": ({"step": []}, "s.yaml: unknown key 'step'; did you mean 'steps'?"),
    "a key inside the engine": (
        {"engine": {"placement": {"gang": True}}},
        "s.yaml: engine.placement: unknown key 'gang'; did you mean 'gangs'?",
    ),
    "a key of no form": (
        {"engine": {"capacity": {"colour": 1}}},
        "s.yaml: engine.capacity: unknown key 'colour'; the keys here are kind, gpusPerNode",
    ),
    "a key in a step": (
        {"steps": [{}, {"creat": []}]},
        "s.yaml: steps[1]: unknown key 'creat'; did you mean 'create'?",
    ),
    "a key in a shape": (
        {"arrivals": [{"name": "a", "namespace": "b", "shapes": [{"gpu": 2}]}]},
        "s.yaml: arrivals[0].shapes[0]: unknown key 'gpu'; did you mean 'gpus'?",
    ),
    "a wrong type": (
        {"seed": "seven"},
        "s.yaml: seed: 'seven' stands where a whole number belongs; write a whole number",
    ),
    "a wrong type where several may stand": (
        {"durations": 3},
        "s.yaml: durations: 3 stands where a text or a mapping belongs; write a text or a mapping",
    ),
    "a wrong type among values of any name": (
        {"featureGates": {"A": "maybe"}},
        "s.yaml: featureGates: a value that is a text stands where true or false belongs; write true or false",
    ),
    "a list that is none": (
        {"steps": [{"finish": "ml/train"}]},
        "s.yaml: steps[0].finish: 'ml/train' stands where a list belongs; write a list",
    ),
    "a key that is missing": ({"arrivals": [{"name": "a"}]}, "s.yaml: arrivals[0]: namespace is missing; write it"),
    "an unknown key beside a wrong type": (
        {"sed": 1, "seed": "x"},
        "s.yaml: unknown key 'sed'; did you mean 'seed'?\ns.yaml: seed: 'x' stands where",
    ),
    "an engine that there is not": (
        {"engine": {"admission": "Volcano"}},
        "s.yaml: engine.admission: Invalid enum value 'Volcano'; it must be one of Kueue, none",
    ),
    "a capacity type that there is not": (
        {"engine": {"capacity": {"groups": [{"name": "a", "instanceType": "b", "capacityType": "Spot"}]}}},
        "s.yaml: engine.capacity.groups[0].capacityType: Invalid enum value 'Spot'; it must be one of on-demand, spot",
    ),
    "an answer that there is not": (
        {"steps": [{"commands": [{"type": "answer-check", "workload": "a/b", "check": "c", "state": "ready"}]}]},
        "s.yaml: steps[0].commands[0].state: Invalid enum value 'ready'; it must be one of Pending, Ready, Rejected",
    ),
    "a policy that there is not, where none may be given": (
        {"steps": [{"commands": [{"type": "set-preemption", "clusterQueue": "q", "withinClusterQueue": "Some"}]}]},
        "s.yaml: steps[0].commands[0].withinClusterQueue: Invalid enum value 'Some'; "
        "it must be one of Never, LowerPriority, LowerOrNewerEqualPriority, Any",
    ),
    "a start that is no moment": (
        {"start": "monday"},
        "s.yaml: start: 'monday' is no moment; write it as 2026-01-05T08:00:00Z",
    ),
    "a span that is none": (
        {"wakeUpBatch": "soon"},
        "s.yaml: wakeUpBatch: 'soon' is not a duration; write it as 90s, 30m, 1h30m or 2d",
    ),
    "time that goes back": (
        {"steps": [{"advanceSeconds": -5}]},
        "s.yaml: steps[0].advanceSeconds: -5 is before the last step; time goes on",
    ),
    "a step that is never over": (
        {"steps": [{"advanceSeconds": 1e308}]},
        "s.yaml: steps[0].advanceSeconds: 1e+308 is longer than can be simulated; 292 years are the most",
    ),
    "a day of three hours": (
        {"arrivals": [{"name": "a", "namespace": "b", "byHour": [1, 1, 1]}]},
        "s.yaml: arrivals[0].byHour: it has 3 factors; a day has 24 hours",
    ),
    "an unknown kind": (
        {"steps": [{"create": [{"apiVersion": "v1", "kind": "Cat", "metadata": {"name": "tom"}}]}]},
        "s.yaml: steps[0].create[0]: Cat is not simulated",
    ),
    "a gate that there is not": (
        {"featureGates": {"PartialAdmision": True}},
        "s.yaml: featureGates.PartialAdmision: unrecognized feature gate: PartialAdmision; "
        "did you mean PartialAdmission?",
    ),
    "a gate that cannot be turned off": (
        {"featureGates": {"HierarchicalCohorts": False}},
        "s.yaml: featureGates.HierarchicalCohorts: cannot set feature gate HierarchicalCohorts to false, "
        "feature is locked to true; leave it out",
    ),
    "a gate without the one that it needs": (
        {"featureGates": {"UnadmittedWorkloadsExplicitStatus": True}},
        "s.yaml: featureGates: UnadmittedWorkloadsExplicitStatus requires UnadmittedWorkloadsObservability "
        "to be enabled",
    ),
    "a command that there is not": (
        {"steps": [{"commands": [{"type": "explode"}]}]},
        "s.yaml: steps[0].commands[0].type: 'explode' is no command; delete, set-active, ",
    ),
    "a command with a wrong key": (
        {"steps": [{"commands": [{"type": "drain", "nodes": "n1"}]}]},
        "s.yaml: steps[0].commands[0]: unknown key 'nodes'; did you mean 'node'?",
    ),
    "a command in snake case": (
        {"steps": [{"commands": [{"type": "set-quota", "cluster_queue": "red"}]}]},
        "s.yaml: steps[0].commands[0]: unknown key 'cluster_queue'; did you mean 'clusterQueue'?",
    ),
    "a deletion that names nothing": (
        {"steps": [{"delete": ["everything"]}]},
        "s.yaml: steps[0].delete[0]: 'everything' is no name; write namespace/name, or Kind/name",
    ),
    "prices that are none": (
        {"prices": {"gpu-hour": {"l4": "cheap"}}},
        "s.yaml: prices: prices:1: gpu-hour.l4 is cheap",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_what_is_right(case: tuple[Mapping[str, Any], str]) -> None:
    document, message = case
    with pytest.raises(ScenarioError) as caught:
        load_scenario([document], "s.yaml")
    assert str(caught.value).startswith(message)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario([{"step": [], "sed": 1, "engine": {"gang": 1}}], "s.yaml")
    assert len(str(caught.value).splitlines()) == 3


def test_two_scenarios_at_once_are_one_too_many() -> None:
    with pytest.raises(ScenarioError, match=r"s\.yaml: there are 2 scenarios; give one at a time"):
        load_scenario([{}, {}], "s.yaml")


def test_a_value_that_does_not_fit_is_not_missing_too() -> None:
    problems: list[str] = []
    assert decode_strictly({"check": "c", "state": "ready"}, AnswerCheck, "x", problems) is None
    assert problems == [
        "x.state: Invalid enum value 'ready'; it must be one of Pending, Ready, Rejected, Retry",
        "x: workload is missing; write it",
    ]


def test_a_stream_that_would_stop_the_clock_is_refused() -> None:
    stream = {"name": "flood", "namespace": "red", "perHour": 1e12}
    with pytest.raises(ScenarioError, match=r"arrivals\[0\].perHour: 1e\+12 is more than 1000000 jobs an hour"):
        load_scenario([{"arrivals": [stream]}])
