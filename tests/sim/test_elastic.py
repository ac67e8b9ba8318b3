"""Elastic jobs grow by a slice that takes over, shrink in place, and never lose what they have while they wait."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Command, Delete, Finish, Scale
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import START, job, log, node, queue, start, submit, template, two_teams

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


def elastic(name: str = "train", *, pods: int = 2, priority_class: str = "") -> Job:
    return replace(job(name, pods=pods, duration=HOUR, priority_class=priority_class), annotations=ELASTIC)


def slices(simulation: Simulation, name: str = "train") -> list[tuple[int, str]]:
    """The job's Workloads, oldest first: pods, and what became of them."""
    everything: list[Workload] = list(simulation.snapshot().workloads.all())
    return [(w.pod_sets[0].count, _state(w)) for w in everything if w.owner == f"Job/red/{name}"]


def _state(workload: Workload) -> str:
    finished = workload.condition("Finished")
    if finished is not None:
        return finished.reason
    return "admitted" if workload.admitted else "waits"


def running(simulation: Simulation, name: str = "train") -> int:
    pods = simulation.snapshot().pods.all()
    return sum(pod.name.startswith(f"{name}-") and bool(pod.node) and not pod.done and not pod.deleted for pod in pods)


def used(simulation: Simulation) -> int:
    session = simulation.session
    assert session is not None
    return 4 - session.available("red", "a100", "nvidia.com/gpu")


def alone() -> Simulation:
    """Red has 4 GPUs and nobody to borrow from."""
    team = queue("red", 4, cohort="")
    return start([two_teams()[0], *team, node("n1"), node("n2")])


def test_a_job_that_grows_needs_quota_only_for_what_it_adds() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=3))
    simulation.advance(START + 10 * MINUTE)
    simulation.submit(Scale("red/train", 4))
    assert slices(simulation) == [(3, "WorkloadSliceReplaced"), (4, "admitted")]
    assert (used(simulation), running(simulation)) == (4, 4)


def test_what_an_old_slice_is_told_when_it_is_replaced() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=1))
    simulation.submit(Scale("red/train", 2))
    old, new = (w for w in simulation.snapshot().workloads.all() if w.owner)
    finished = old.condition("Finished")
    assert finished is not None
    assert finished.message == (
        f"Replaced to accommodate a workload (UID: {new.uid}, JobUID: train) due to workload slice aggregation"
    )
    assert new.annotations == {
        **ELASTIC,
        "kueue.x-k8s.io/workload-slice-replacement-for": old.key,
        "kueue.x-k8s.io/workload-slice-name": old.name,
    }


def test_the_work_goes_on_while_a_job_grows() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=2))
    simulation.advance(START + 40 * MINUTE)
    simulation.submit(Scale("red/train", 3))
    simulation.drain()
    simulation.advance(START + 2 * HOUR)
    assert log(simulation.drain()) == ["60:00 finished red/train"]


def test_a_job_that_cannot_grow_keeps_what_it_has() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=2), job("other", gpus=2, duration=20 * MINUTE))
    simulation.submit(Scale("red/train", 4))
    assert slices(simulation) == [(2, "admitted"), (4, "waits")]
    assert running(simulation) == 2
    simulation.advance(START + 21 * MINUTE)
    assert slices(simulation) == [(2, "WorkloadSliceReplaced"), (4, "admitted")]
    assert running(simulation) == 4


def test_a_slice_is_ready_when_the_pods_that_it_added_run() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=2))
    simulation.submit(Scale("red/train", 3))
    assert [w.is_true("PodsReady") for w in simulation.snapshot().workloads.all() if not w.finished] == [True]


def test_of_an_evicted_job_that_wants_to_grow_only_the_larger_slice_goes_on() -> None:
    simulation = alone()
    submit(simulation, *two_teams()[-3:], elastic(pods=2), job("other", gpus=2, priority_class="high"))
    simulation.submit(Scale("red/train", 3))
    submit(simulation, job("urgent", gpus=2, duration=10 * MINUTE, priority_class="high"))
    simulation.advance(START + 5 * MINUTE)
    assert slices(simulation) == [(2, "WorkloadSliceReplaced"), (3, "waits")]
    assert (slices(simulation, "urgent"), running(simulation)) == ([(1, "admitted")], 0)
    simulation.advance(START + 2 * HOUR)
    assert slices(simulation)[-1] == (3, "admitted")
    assert running(simulation) == 3


def test_a_slice_that_waits_is_edited_in_place() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=2), job("other", gpus=2))
    for size in (4, 3, 5):
        simulation.submit(Scale("red/train", size))
        assert slices(simulation) == [(2, "admitted"), (size, "waits")]


def test_a_job_that_shrinks_gives_quota_back_at_once() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=4), job("other", gpus=2))
    simulation.submit(Scale("red/train", 2))
    simulation.advance(START + 2 * MINUTE)
    assert slices(simulation) == [(2, "admitted")]
    assert (used(simulation), running(simulation)) == (4, 2)
    assert slices(simulation, "other") == [(1, "admitted")]


def test_a_job_that_shrank_can_be_evicted_and_comes_back_at_its_size() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=4))
    simulation.submit(Scale("red/train", 1))
    simulation.advance(START + 2 * MINUTE)
    submit(simulation, job("urgent", gpus=4, duration=10 * MINUTE, priority_class="high"), *two_teams()[-3:])
    submit(simulation, job("very", gpus=4, duration=10 * MINUTE, priority_class="high"))
    simulation.advance(START + 5 * MINUTE)
    assert slices(simulation) == [(1, "waits")]
    simulation.advance(START + 30 * MINUTE)
    assert (slices(simulation), running(simulation)) == ([(1, "admitted")], 1)


def test_a_waiting_slice_ends_with_its_job() -> None:
    for order in (Finish("red/train"), Delete("", "red/train")):
        simulation = alone()
        submit(simulation, elastic(pods=2), job("other", gpus=2))
        simulation.submit(Scale("red/train", 4))
        simulation.submit(order)
        simulation.advance(START + 2 * HOUR)
        left = [state for _, state in slices(simulation)]
        assert left == (["Succeeded", "Succeeded"] if isinstance(order, Finish) else [])


def test_of_a_job_of_several_parts_one_is_scaled() -> None:
    simulation = alone()
    parts = (PodSet(name="driver", template=template(1)), PodSet(name="workers", count=2, template=template(1)))
    submit(simulation, replace(elastic(), pod_sets=parts))
    simulation.submit(Scale("Job/red/train", 1, "workers"))
    simulation.advance(START + MINUTE)
    names = sorted(pod.name for pod in simulation.snapshot().pods.all() if not pod.deleted)
    assert names == ["train-driver-0", "train-workers-0"]
    simulation.submit(Scale("Job/red/train", 3, "workers"))
    names = sorted(pod.name for pod in simulation.snapshot().pods.all() if not pod.deleted)
    assert names == ["train-driver-0", "train-workers-0", "train-workers-1", "train-workers-2"]


def test_a_pod_that_is_older_than_its_slice_is_made_again_in_a_simulation_of_a_snapshot() -> None:
    original = alone()
    submit(original, elastic(pods=2))
    original.advance(START + MINUTE)
    original.submit(Scale("red/train", 3))
    original.advance(START + 2 * MINUTE)
    twin = Simulation.from_snapshot(original.snapshot(), policy=original.policy, seed=1)
    for simulation in (original, twin):
        simulation.submit(Delete("pods", "red/train-0"))
        simulation.advance(START + 3 * MINUTE)
        left = [(pod.name, pod.deleted) for pod in simulation.snapshot().pods.all()]
        assert sorted(left) == [("train-0", 0), ("train-1", 0), ("train-2", 0)]


def test_a_saved_simulation_goes_on_growing() -> None:
    simulation = alone()
    submit(simulation, elastic(pods=2), job("other", gpus=2, duration=20 * MINUTE))
    simulation.submit(Scale("red/train", 4))
    twin = Simulation.load(simulation.save())
    for each in (simulation, twin):
        each.advance(START + 30 * MINUTE)
    assert slices(twin) == slices(simulation) == [(2, "WorkloadSliceReplaced"), (4, "admitted")]


REFUSED: dict[str, tuple[Command, str]] = {
    "an unknown job": (Scale("red/nobody", 2), "there is no unfinished job red/nobody"),
    "a job that is not elastic": (
        Scale("red/rigid", 2),
        'job Job/red/rigid is not elastic: only a queued job with kueue.x-k8s.io/elastic-job: "true" can be scaled',
    ),
    "an unknown part": (Scale("red/train", 2, "workers"), "job Job/red/train has no pod set workers; it has: main"),
    "less than nothing": (Scale("red/train", -1), "a job has 0 to 100000 pods, not -1"),
}


@pytest.mark.parametrize(("order", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_scaled_is_refused(order: Command, message: str) -> None:
    simulation = alone()
    submit(simulation, elastic(pods=1), job("rigid", pods=1))
    simulation.drain()
    simulation.submit(order)
    assert log(simulation.drain()) == [f"0:00 command-refused {message}"]


def test_without_the_gate_no_job_is_elastic() -> None:
    config = KueueConfig(gates={"ElasticJobsViaWorkloadSlices": False})
    simulation = start(two_teams(), policy=SimPolicy(kueue=config))
    submit(simulation, elastic(pods=1))
    simulation.submit(Scale("red/train", 2))
    assert slices(simulation) == [(1, "admitted")]
