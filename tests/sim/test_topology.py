"""Topology in the simulated cluster: pods go to their places, failed nodes are replaced, other pods take room."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Delete, Drain, FailNode, RestoreNode, Submit
from gpuconsole.model.events import Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.services_and_pod_groups import WORKER_INDEX
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import TopologyRequest
from gpuconsole.model.queues import AdmissionCheck, CheckRule, ClusterQueue, ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.admission_checks import PROVISIONING_CONTROLLER
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import Autoscaler, SimPolicy
from tests.support.job_manifests import read, worker_set
from tests.support.sim_cluster import A100, START, job, key_of, log, node, pod, queue, run, start, submit, template

RACK = "cloud/rack"
PATIENT = SimPolicy(kueue=KueueConfig(gates={"TASFailedNodeReplacementFailFast": False}))


def racked(name: str, rack: str, gpus: int = 4) -> Node:
    plain = node(name, gpus)
    return replace(plain, labels={**plain.labels, RACK: rack})


def racks(*sizes: int, gpus: int = 4) -> list[Object]:
    """A team with much quota, on racks r1, r2 … of that many nodes n11, n12 …"""
    nodes = [
        racked(f"n{rack}{number}", f"r{rack}", gpus)
        for rack, size in enumerate(sizes, start=1)
        for number in range(1, size + 1)
    ]
    flavor = ResourceFlavor(name="a100", node_labels=A100, topology="racks")
    return [Topology(name="racks", levels=(RACK, HOSTNAME)), flavor, *queue("red", 64), *nodes]


def asking(thing: Job, request: TopologyRequest) -> Job:
    return replace(thing, pod_sets=tuple(replace(pods, topology=request) for pods in thing.pod_sets))


def in_one_rack(thing: Job) -> Job:
    return asking(thing, TopologyRequest(required=RACK))


def where(simulation: Simulation) -> dict[str, str]:
    """Pod → its node, for pods that are not done."""
    return {p.name: p.node for p in simulation.snapshot().pods.all() if not p.done}


def told(events: Iterable[Event]) -> list[tuple[str, str]]:
    lines = [e for e in events if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.PLACES]
    return [(line.reason, line.message) for line in lines]


def assigned(simulation: Simulation, name: str) -> dict[str, int]:
    workload: Workload = simulation.snapshot().workloads[key_of(simulation, name)]
    assert workload.admission is not None
    return {d.values[-1]: d.count for a in workload.admission.pod_sets for d in a.topology}


def test_pods_go_to_the_nodes_that_the_topology_chose() -> None:
    simulation = start(racks(1, 3))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=3)))
    assert assigned(simulation, "red/train") == {"n21": 1, "n22": 1, "n23": 1}
    assert where(simulation) == {"train-0": "n21", "train-1": "n22", "train-2": "n23"}
    assert {p.gates for p in simulation.snapshot().pods.all()} == {()}


def test_pods_of_placed_workloads_do_not_count_twice() -> None:
    simulation = start(racks(2))
    submit(simulation, in_one_rack(job("first", gpus=4)))
    submit(simulation, in_one_rack(job("second", gpus=4)))
    assert sorted(where(simulation).items()) == [("first-0", "n11"), ("second-0", "n12")]


def test_pods_that_no_topology_placed_take_room_until_they_are_gone() -> None:
    simulation = start(racks(1))
    submit(simulation, pod("bare", gpus=2))
    assert where(simulation) == {"bare": "n11"}
    submit(simulation, in_one_rack(job("train", gpus=4)))
    waiting = simulation.snapshot().workloads[key_of(simulation, "red/train")]
    assert not waiting.reserved
    simulation.submit(Delete("pods", "default/bare"))
    simulation.advance(START + 2 * MINUTE)
    assert where(simulation) == {"train-0": "n11"}


def test_another_node_of_the_rack_replaces_one_that_fails() -> None:
    simulation = start(racks(3))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2, duration=20 * MINUTE)))
    simulation.advance(START + 5 * MINUTE)
    simulation.drain()
    simulation.submit(FailNode("n11"))
    failed = simulation.snapshot().workloads[key_of(simulation, "red/train")]
    assert failed.unhealthy_nodes == ("n11",)
    assert failed.admitted
    events = simulation.drain()
    simulation.advance(START + HOUR)
    events += simulation.drain()
    assert log(events) == [
        "5:00 node-down n11",
        "5:00 pod-failed red/train lost 2400s NodeLost",
        "5:00 places red/train UnhealthyNode",
        "5:01 places red/train NodeReplaced",
        "5:01 started red/train",
        "25:01 finished red/train",
    ]
    assert told(events) == [
        ("UnhealthyNode", "Node n11 failed; the pods on it wait for another place"),
        ("NodeReplaced", "Replaced unhealthy node(s): n11"),
    ]


def test_pods_that_run_on_stay_where_they_are() -> None:
    simulation = start(racks(3))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2)))
    simulation.submit(FailNode("n11"))
    simulation.advance(START + MINUTE)
    assert where(simulation) == {"train-0": "n13", "train-1": "n12"}
    assert assigned(simulation, "red/train") == {"n12": 1, "n13": 1}


def test_without_another_node_the_workload_is_evicted_and_queued_again() -> None:
    simulation = start(racks(2, 2))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2, duration=20 * MINUTE)))
    simulation.advance(START + 5 * MINUTE)
    simulation.drain()
    simulation.submit(FailNode("n11"))
    simulation.advance(START + 10 * MINUTE)
    events = simulation.drain()
    assert log(events) == [
        "5:00 node-down n11",
        "5:00 pod-failed red/train lost 2400s NodeLost",
        "5:00 places red/train UnhealthyNode",
        "5:01 places red/train SecondPassFailed",
        "5:01 evicted red/train NodeFailures",
        "5:02 requeued red/train",
        "5:02 admitted red/train",
        "5:02 started red/train",
    ]
    # The old pod train-1 had its name until 5:31.
    assert {name[:7]: node for name, node in where(simulation).items()} == {"train-0": "n21", "train-1": "n22"}
    reasons = told(events)
    assert reasons[-1][0] == "SecondPassFailed"
    assert 'topology "racks" doesn\'t allow to fit any of 1 pod(s)' in reasons[-1][1]


def test_a_patient_scheduler_waits_for_the_node_to_come_back() -> None:
    simulation = start(racks(2), PATIENT)
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2, duration=20 * MINUTE)))
    simulation.advance(START + 5 * MINUTE)
    simulation.submit(FailNode("n11"))
    simulation.schedule_commands(START + 8 * MINUTE, RestoreNode("n11"))
    simulation.advance(START + 9 * MINUTE)
    workload = simulation.snapshot().workloads[key_of(simulation, "red/train")]
    assert workload.unhealthy_nodes == ()
    assert where(simulation) == {"train-0": "n11", "train-1": "n12"}


def test_a_second_failure_before_the_replacement_evicts() -> None:
    simulation = start(racks(4))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2)))
    simulation.advance(START + MINUTE)
    simulation.drain()
    simulation.submit(FailNode("n11"))
    simulation.submit(FailNode("n12"))
    simulation.advance(START + 3 * MINUTE)
    evictions = [e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.EVICTED]
    assert [(e.reason, e.message) for e in evictions] == [
        (
            "NodeFailures",
            "Workload eviction triggered due to multiple TAS assigned node failures, including: n11, n12",
        )
    ]
    assert sorted(where(simulation).values()) == ["n13", "n14"]


def test_a_drained_node_is_replaced_when_its_pods_leave() -> None:
    simulation = start(racks(2))
    submit(simulation, in_one_rack(job("train", gpus=4)))
    simulation.advance(START + MINUTE)
    simulation.submit(Drain("n11"))
    simulation.advance(START + 3 * MINUTE)
    assert where(simulation) == {"train-0": "n12"}


def test_the_same_in_a_fork_and_after_saving() -> None:
    simulation = start(racks(3))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2, duration=20 * MINUTE)))
    simulation.submit(FailNode("n11"))
    simulation.drain()
    fork, loaded = simulation.fork(), Simulation.load(simulation.save())
    runs = [run(one, HOUR) for one in (simulation, fork, loaded)]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0] == ["0:01 places red/train NodeReplaced", "0:01 started red/train", "20:01 finished red/train"]


def test_by_index_pods_of_several_jobs_follow_one_another() -> None:
    request = TopologyRequest(required=RACK, index_label="index", subgroup_index_label="job-index", subgroup_count=2)
    simulation = start(racks(4))
    submit(simulation, asking(job("train", gpus=4, pods=4), request))
    pods = sorted(simulation.snapshot().pods.all(), key=lambda p: p.index)
    assert [(p.labels["job-index"], p.labels["index"], p.node) for p in pods] == [
        ("0", "0", "n11"),
        ("0", "1", "n12"),
        ("1", "0", "n13"),
        ("1", "1", "n14"),
    ]


def test_the_workers_of_a_leader_count_from_one() -> None:
    simulation = start(racks(4))
    (grouped,) = read(worker_set("serve", 1, 4, queue="lq"))
    assert isinstance(grouped, Job)
    in_group = [
        replace(part, template=template(), topology=TopologyRequest(required=RACK, group="g", index_label=WORKER_INDEX))
        for part in grouped.pod_sets
    ]
    submit(simulation, replace(grouped, pod_sets=tuple(in_group)))
    indexes = {pod.name: pod.labels[WORKER_INDEX] for pod in simulation.snapshot().pods.all()}
    assert indexes == {"serve-0": "0", "serve-0-1": "1", "serve-0-2": "2", "serve-0-3": "3"}


def test_places_are_chosen_when_the_nodes_that_were_asked_for_are_there() -> None:
    config = ProvisioningRequestConfig(name="dws", provisioning_class="queued-provisioning.gke.io")
    check = AdmissionCheck(
        name="dws", controller=PROVISIONING_CONTROLLER, parameters="kueue.x-k8s.io/ProvisioningRequestConfig/dws"
    )
    things = [thing for thing in racks(1) if not isinstance(thing, Node)]
    things = [replace(t, checks=(CheckRule("dws"),)) if isinstance(t, ClusterQueue) else t for t in things]
    simulation = start([config, check, *things], SimPolicy(autoscaler=Autoscaler(delay=90 * SECOND)))
    submit(simulation, in_one_rack(job("train", gpus=4, pods=2, duration=20 * MINUTE)))
    key = key_of(simulation, "red/train")
    waiting = simulation.snapshot().workloads[key]
    assert waiting.admission is not None
    assert (waiting.reserved, waiting.admitted, waiting.admission.pod_sets[0].delayed) == (True, False, "Pending")
    simulation.schedule_commands(START + MINUTE, Submit((racked("n11", "r1"), racked("n12", "r1"))))
    simulation.advance(START + 90 * SECOND)
    ready = simulation.snapshot().workloads[key]
    assert [c.state for c in ready.checks] == ["Ready"]
    assert not ready.admitted
    simulation.drain()
    assert run(simulation, HOUR) == [
        "1:31 admitted red/train",
        "1:31 started red/train",
        "21:31 finished red/train",
    ]
