"""How jobs start: their pods go where quota and topology put them, and say so; or they can never start."""

from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import FailPod
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import TopologyRequest
from gpuconsole.model.queues import ResourceFlavor, Topology
from gpuconsole.model.workloads import Workload
from tests.support.sim_cluster import A100, job, node, queue, run, start, submit, two_teams

HOST = "kubernetes.io/hostname"


def racks() -> list[Object]:
    """Two racks of two nodes; the flavor knows about racks."""
    nodes = [
        replace(node(f"n{number}"), labels={**A100, "rack": f"r{number // 2}", HOST: f"n{number}"})
        for number in range(4)
    ]
    flavor = ResourceFlavor(name="a100", node_labels=A100, topology="racks")
    return [Topology(name="racks", levels=("rack", HOST)), flavor, *queue("red", 16), *nodes]


def test_pods_run_on_the_nodes_that_the_topology_chose() -> None:
    simulation = start(racks())
    train = job("train", gpus=4, pods=2)
    rack = replace(train.pod_sets[0], topology=TopologyRequest(required="rack"))
    submit(simulation, job("first", gpus=2), replace(train, pod_sets=(rack,)))
    run(simulation, MINUTE)
    pods = simulation.snapshot().pods
    assert {pod.name: pod.node for pod in pods.all() if pod.name.startswith("train")} == {
        "train-0": "n2",
        "train-1": "n3",
    }
    chosen = pods["red/train-1"].template
    assert (chosen.node_selector, chosen.scheduling_gates) == ({**A100, HOST: "n3"}, ())


def test_a_pod_that_is_made_again_goes_where_the_lost_one_was() -> None:
    simulation = start(racks())
    train = job("train", gpus=4, pods=2)
    rack = replace(train.pod_sets[0], topology=TopologyRequest(required="rack"))
    submit(simulation, replace(train, pod_sets=(rack,)))
    run(simulation, MINUTE)
    before = {pod.name: pod.node for pod in simulation.snapshot().pods.all()}
    simulation.submit(FailPod("red/train-0"))
    run(simulation, 5 * MINUTE)
    assert {pod.name: pod.node for pod in simulation.snapshot().pods.all()} == before


def test_pods_carry_the_names_of_their_queues() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train"))
    run(simulation, MINUTE)
    pod = simulation.snapshot().pods["red/train-0"]
    assert pod.labels == {
        "kueue.x-k8s.io/podset": "main",
        "kueue.x-k8s.io/local-queue-name": "lq",
        "kueue.x-k8s.io/cluster-queue-name": "red",
    }
    assert pod.annotations == {"kueue.x-k8s.io/workload": pod.workload.partition("/")[2]}


def test_a_job_whose_labels_contradict_kueues_fails_to_start() -> None:
    simulation = start(two_teams())
    train = job("train")
    template = replace(train.pod_sets[0].template, labels={"kueue.x-k8s.io/podset": "mine"})
    submit(simulation, replace(train, pod_sets=(replace(train.pod_sets[0], template=template),)))
    assert run(simulation, MINUTE) == ["0:00 admitted red/train", "0:00 finished red/train"]
    (workload,) = simulation.snapshot().workloads.all()
    assert isinstance(workload, Workload)
    finished = workload.condition("Finished")
    assert finished is not None
    assert (finished.reason, finished.message) == (
        "FailedToStart",
        "invalid admission check PodSetUpdate: conflict for labels: "
        "conflict for key=kueue.x-k8s.io/podset, value1=mine, value2=main",
    )
    assert not simulation.snapshot().pods


def test_more_pods_than_can_be_simulated_fail_to_start() -> None:
    simulation = start([ResourceFlavor(name="a100"), *queue("red", 2**40), *two_teams()[3:]])
    submit(simulation, job("train", pods=2**31 - 1))
    assert run(simulation, MINUTE) == ["0:00 admitted red/train", "0:00 finished red/train"]
