"""MultiKueue: worker clusters compete for a manager's workloads, run them, are lost and come back."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Cordon, Delete, InCluster, LoseCluster, RestoreCluster, Submit
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ResourceFlavor,
)
from gpuconsole.model.workloads import WorkloadPhase, phase
from gpuconsole.scheduling.kueue.admission_checks import MULTIKUEUE_CONTROLLER
from gpuconsole.scheduling.kueue.config import KueueConfig, MultiKueueSettings
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.sim.scenario_form import ScenarioError
from tests.support.sim_cluster import A100, START, USUAL, job, key_of, nodes, queue, run, submit, workload

FLAVOR = ResourceFlavor(name="a100", node_labels=A100)
INCREMENTAL = SimPolicy(kueue=KueueConfig(multi_kueue=MultiKueueSettings(incremental=True, step_size=1)))


def manager(*clusters: str, nominal: int = 8) -> list[Object]:
    check = AdmissionCheck(
        name="fleet", controller=MULTIKUEUE_CONTROLLER, parameters="kueue.x-k8s.io/MultiKueueConfig/fleet"
    )
    team, door = queue("red", nominal)
    assert isinstance(team, ClusterQueue)
    known = [MultiKueueCluster(name=name) for name in clusters]
    config = MultiKueueConfig(name="fleet", clusters=clusters)
    return [FLAVOR, *known, config, check, replace(team, checks=(CheckRule("fleet"),)), door]


def worker(gpus: int) -> list[Object]:
    """A cluster with the same LocalQueue, and another one for its own people."""
    own = LocalQueue(namespace="own", name="lq", cluster_queue="red")
    return [FLAVOR, *queue("red", gpus), own, *nodes(gpus // 4)]


def fleet(policy: SimPolicy = USUAL, /, **gpus: int) -> Simulation:
    names = [name.replace("_", "-") for name in gpus]
    clusters = {name: worker(size) for name, size in zip(names, gpus.values(), strict=True)}
    simulation = Simulation.from_objects(manager(*names), policy=policy, seed=1, start=START, clusters=clusters)
    simulation.drain()
    return simulation


def at(simulation: Simulation, cluster: str) -> dict[str, WorkloadPhase]:
    """The workloads of a worker cluster."""
    snapshot = simulation.clusters[cluster].snapshot()
    return {key: phase(workload) for key, workload in snapshot.workloads.items()}


def test_the_cluster_that_has_room_runs_the_workload_and_the_others_forget_it() -> None:
    simulation = fleet(east=0, west=8)
    submit(simulation, job("train", gpus=4, duration=10 * MINUTE))
    key = key_of(simulation, "red/train")
    assert (at(simulation, "east"), at(simulation, "west")) == ({}, {key: WorkloadPhase.RUNNING})
    local = simulation.snapshot().workloads[key]
    (check,) = local.checks
    assert (local.cluster, check.state, check.message) == ("west", "Ready", 'The workload was admitted on "west"')
    assert len(simulation.snapshot().pods) == 0, "its pods are on the worker"
    assert run(simulation, HOUR) == [
        "0:00 reserved red/train",
        "0:00 admitted red/train",
        "0:00 started red/train",
        "10:00 finished red/train",
    ]
    assert simulation.snapshot().jobs["Job/red/train"].phase is JobPhase.SUCCEEDED
    assert at(simulation, "west") == {}, "the copy is deleted when the workload is done"


def test_nothing_is_dispatched_before_the_manager_has_quota() -> None:
    simulation = fleet(east=8)
    submit(simulation, job("first", gpus=4, pods=2, duration=10 * MINUTE), job("second", gpus=4, duration=MINUTE))
    assert list(at(simulation, "east")) == [key_of(simulation, "red/first")]
    assert run(simulation, HOUR)[-1] == "11:01 finished red/second"


def test_incremental_dispatch_offers_the_next_cluster_after_five_minutes() -> None:
    simulation = fleet(INCREMENTAL, north=0, east=0, west=8)
    submit(simulation, job("train", gpus=4, duration=10 * MINUTE))
    key = key_of(simulation, "red/train")
    offered = []
    for minute in (1, 6, 11):
        simulation.advance(START + minute * MINUTE)
        local = simulation.snapshot().workloads[key]
        offered.append((local.nominated_clusters, local.cluster))
    assert offered == [(("north",), ""), (("north", "east"), ""), ((), "west")]


def test_a_preemption_on_the_worker_sends_the_workload_back_to_be_dispatched_again() -> None:
    simulation = fleet(east=4, west=4)
    submit(simulation, job("train", gpus=4, duration=10 * MINUTE))
    key = key_of(simulation, "red/train")
    assert simulation.snapshot().workloads[key].cluster == "east"
    local = replace(workload("urgent", "own", gpus=4, duration="1h"), priority=1000)
    simulation.advance(START + 2 * MINUTE)
    simulation.submit(InCluster("east", Submit((local,))))
    assert run(simulation, 5 * MINUTE) == [
        "0:00 reserved red/train",
        "0:00 admitted red/train",
        "0:00 started red/train",
        "2:00 evicted red/train AdmissionCheck",
        "2:30 requeued red/train",
        "2:30 reserved red/train",
        "2:30 admitted red/train",
        "2:30 started red/train",
    ]
    assert simulation.snapshot().workloads[key].cluster == "west"


def test_a_workload_that_the_manager_evicts_is_stopped_on_the_worker_and_holds_its_quota_until_then() -> None:
    simulation = fleet(east=8)
    submit(simulation, job("train", gpus=4, pods=2, duration=10 * MINUTE))
    train = key_of(simulation, "red/train")
    simulation.advance(START + MINUTE)
    simulation.drain()
    high = replace(workload("urgent", gpus=4, pods=2, duration="1m"), priority=1000)
    submit(simulation, high)
    copy = simulation.clusters["east"].workload(train)
    assert copy is not None
    evicted = copy.condition("Evicted")
    assert evicted is not None
    assert evicted.reason == "DeactivatedDueToEvictedOnManagerCluster"
    assert evicted.message.startswith("The workload is deactivated due to Evicted on manager: Preempted to accommodate")
    assert run(simulation, 3 * MINUTE) == [
        "1:00 preempted red/train by red/urgent InClusterQueue",
        "1:00 evicted red/train by red/urgent Preempted",
        "1:30 requeued red/train",
        "1:30 reserved red/urgent",
        "1:30 admitted red/urgent",
        "1:30 started red/urgent",
        "2:30 finished red/urgent",
        "2:31 reserved red/train",
        "2:31 admitted red/train",
        "2:31 started red/train",
    ]


def test_a_lost_cluster_is_waited_for_and_then_given_up() -> None:
    simulation = fleet(east=4, west=4)
    submit(simulation, job("train", gpus=4, duration=HOUR))
    key = key_of(simulation, "red/train")
    simulation.advance(START + MINUTE)
    simulation.submit(LoseCluster("east"))
    assert not simulation.snapshot().multikueue_clusters["east"].active
    simulation.drain()
    assert run(simulation, 14 * MINUTE) == []
    assert run(simulation, 2 * MINUTE) == [
        "16:00 evicted red/train AdmissionCheck",
        "16:00 requeued red/train",
        "16:00 reserved red/train",
        "16:00 admitted red/train",
        "16:00 started red/train",
    ]
    assert simulation.snapshot().workloads[key].cluster == "west"
    assert at(simulation, "east") == {key: WorkloadPhase.RUNNING}, "the lost cluster does not know"
    simulation.submit(RestoreCluster("east"))
    assert at(simulation, "east") == {}


def test_a_cluster_that_comes_back_in_time_was_never_missed() -> None:
    simulation = fleet(east=4, west=4)
    submit(simulation, job("train", gpus=4, duration=20 * MINUTE))
    simulation.advance(START + MINUTE)
    simulation.submit(LoseCluster("east"))
    simulation.advance(START + 10 * MINUTE)
    simulation.submit(RestoreCluster("east"))
    simulation.drain()
    assert run(simulation, HOUR) == ["20:00 finished red/train"]


def test_only_known_clusters_are_lost_and_found() -> None:
    simulation = fleet(east=4)
    for command in (LoseCluster("south"), InCluster("south", Delete("nodes", "n1")), RestoreCluster("east")):
        simulation.submit(command)
    told = [(line.what, line.message) for line in simulation.snapshot().recent if line.what.startswith("command-")]
    unknown = (HistoryEventKind.COMMAND_REFUSED, "there is no worker cluster south; there are: east")
    assert told == [unknown, unknown, (HistoryEventKind.COMMAND_NEEDLESS, "worker cluster east is connected already")]


def test_deleting_the_workload_deletes_its_copies() -> None:
    simulation = fleet(east=0, west=0)
    submit(simulation, job("train", gpus=4))
    key = key_of(simulation, "red/train")
    assert (list(at(simulation, "east")), list(at(simulation, "west"))) == ([key], [key])
    simulation.submit(Delete("workloads", key))
    assert (at(simulation, "east"), at(simulation, "west")) == ({}, {})


def test_a_saved_and_a_forked_fleet_go_on_alike_and_never_touch_each_other() -> None:
    simulation = fleet(INCREMENTAL, east=0, west=8)
    submit(simulation, job("train", gpus=4, duration=10 * MINUTE))
    simulation.advance(START + MINUTE)
    twins = [simulation.fork(), Simulation.load(simulation.save())]
    expected = run(simulation, HOUR)
    assert expected[-1] == "15:00 finished red/train"
    assert [run(twin, HOUR) for twin in twins] == [expected, expected]


def test_a_scenario_names_its_worker_clusters_and_what_happens_in_them() -> None:
    within = {"type": "in-cluster", "cluster": "east", "commands": [{"type": "cordon", "node": "n1", "cordoned": True}]}
    steps = [{"advanceSeconds": 60, "commands": [within, {"type": "lose-cluster", "cluster": "east"}]}]
    node_n1 = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8"}}}
    scenario = load_scenario([{"clusters": {"east": {"objects": [node_n1]}}, "steps": steps}])
    (planned,) = scenario.steps
    assert planned.commands == (InCluster("east", Cordon("n1", True)), LoseCluster("east"))
    simulation = build_simulation(scenario)
    simulation.advance(scenario.start + MINUTE)
    assert simulation.clusters["east"].snapshot().nodes["n1"].unschedulable


def test_a_command_for_a_cluster_that_makes_no_sense_is_named_by_its_place() -> None:
    within = {"type": "in-cluster", "cluster": "east", "commands": [{"type": "cordn"}], "creat": []}
    with pytest.raises(ScenarioError) as caught:
        load_scenario([{"steps": [{"commands": [within]}]}])
    assert "steps[0].commands[0]" in str(caught.value)
    assert "unknown key 'creat'; did you mean 'create'?" in str(caught.value)
