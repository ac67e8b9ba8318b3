"""CronJobs make Jobs on their schedule; some pods decide how a job of Kubeflow ends; TrainJobs meet their runtimes."""

from typing import Any

import pytest

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Delete, SetActive
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.volcano.config import VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.job_manifests import Manifest, job, meta, pod, read, service, worker_set
from tests.support.sim_cluster import START, UNQUEUED, log, nodes, run, start, submit, two_teams


def cron(name: str, schedule: str, *, queue: str = "", duration: str = "10m", **more: Any) -> Manifest:
    inner = job("x", 1, 1, queue=queue, notes={"duration": duration})
    template = {"metadata": {k: v for k, v in inner["metadata"].items() if k in ("labels", "annotations")}}
    spec = {"schedule": schedule, "jobTemplate": {**template, "spec": inner["spec"]}, **more}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta(name), "spec": spec}


def unqueued(*documents: Manifest, count: int = 2) -> Simulation:
    simulation = start(nodes(count), UNQUEUED)
    submit(simulation, *read(*documents))
    return simulation


def numbered(lines: list[str]) -> list[str]:
    """Lines in which the Job of the n-th half hour since eight is called JOB-n."""
    first = START // MINUTE
    for number in range(20):
        lines = [line.replace(f"-{first + 30 * number}", f"-{number}") for line in lines]
    return lines


def history(simulation: Simulation, span: int) -> list[str]:
    return numbered(run(simulation, span))


def test_a_job_is_made_at_each_time_and_old_ones_go() -> None:
    simulation = unqueued(cron("c", "*/30 * * * *", successfulJobsHistoryLimit=1))
    assert history(simulation, 100 * MINUTE) == [
        "30:00 started Job/red/c-1",
        "40:00 finished Job/red/c-1",
        "60:00 started Job/red/c-2",
        "70:00 finished Job/red/c-2",
        "70:00 deleted Job/red/c-1",
        "90:00 started Job/red/c-3",
        "100:00 finished Job/red/c-3",
        "100:00 deleted Job/red/c-2",
    ]


OVERLAPS = {
    "Allow": [
        "30:00 started Job/red/c-1",
        "60:00 started Job/red/c-2",
        "75:00 finished Job/red/c-1",
        "90:00 started Job/red/c-3",
    ],
    # The time that it missed while the first Job ran is made good when that has ended.
    "Forbid": ["30:00 started Job/red/c-1", "75:00 finished Job/red/c-1", "75:00 started Job/red/c-2"],
    "Replace": [
        "30:00 started Job/red/c-1",
        "60:00 deleted Job/red/c-1",
        "60:00 started Job/red/c-2",
        "90:00 deleted Job/red/c-2",
        "90:00 started Job/red/c-3",
    ],
}


@pytest.mark.parametrize("policy", OVERLAPS)
def test_jobs_that_take_longer_than_the_schedule(policy: str) -> None:
    simulation = unqueued(cron("c", "*/30 * * * *", duration="45m", concurrencyPolicy=policy))
    assert history(simulation, 100 * MINUTE) == OVERLAPS[policy]


def test_a_time_that_was_missed_for_too_long_is_not_made_good() -> None:
    late = cron("c", "*/30 * * * *", duration="45m", concurrencyPolicy="Forbid", startingDeadlineSeconds=60)
    assert history(unqueued(late), 100 * MINUTE) == [
        "30:00 started Job/red/c-1",
        "75:00 finished Job/red/c-1",
        "90:00 started Job/red/c-3",
    ]


def test_a_suspended_cron_job_makes_nothing_until_it_is_resumed() -> None:
    simulation = unqueued(cron("c", "*/30 * * * *", suspend=True))
    assert history(simulation, HOUR) == []
    simulation.submit(SetActive("CronJob/red/c", True))
    # The latest of the times that it missed comes at once.
    assert history(simulation, 15 * MINUTE) == ["60:00 started Job/red/c-2", "70:00 finished Job/red/c-2"]
    simulation.submit(SetActive("CronJob/red/c", False))
    assert history(simulation, HOUR) == []


def test_a_schedule_follows_the_clocks_of_its_time_zone() -> None:
    simulation = unqueued(cron("c", "30 9 * * *", timeZone="Europe/Berlin"))
    # At 8:30 UTC it is half past nine in Berlin in January.
    assert history(simulation, HOUR) == ["30:00 started Job/red/c-1", "40:00 finished Job/red/c-1"]


def test_jobs_of_a_cron_job_stand_in_the_queue_that_they_name() -> None:
    simulation = start(two_teams())
    submit(simulation, *read(cron("c", "*/30 * * * *", queue="lq")))
    assert history(simulation, 50 * MINUTE) == [
        "30:00 admitted red/c-1",
        "30:00 started red/c-1",
        "40:00 finished red/c-1",
    ]


def test_a_deleted_cron_job_takes_its_jobs_along() -> None:
    simulation = unqueued(cron("c", "*/30 * * * *", duration="2h"))
    simulation.advance(START + 70 * MINUTE)
    simulation.submit(Delete("jobs", "CronJob/red/c"))
    simulation.advance(START + 5 * HOUR)
    assert (list(simulation.snapshot().jobs), list(simulation.snapshot().pods)) == ([], [])


def test_a_saved_or_taken_over_cron_job_keeps_its_times() -> None:
    original = unqueued(cron("c", "*/30 * * * *"))
    original.advance(START + 35 * MINUTE)
    original.drain()
    twins = [
        original.fork(),
        Simulation.load(original.save()),
        Simulation.from_snapshot(original.snapshot(), policy=UNQUEUED, seed=1),
    ]
    wanted = run(original, 2 * HOUR)
    assert [run(twin, 2 * HOUR) for twin in twins] == [wanted] * 3
    assert len(wanted) > 4


def kubeflow(kind: str, field: str, name: str, **replicas: int) -> Manifest:
    version = "v2beta1" if kind == "MPIJob" else "v1"
    specs = {
        type: {"replicas": count, "template": pod(0 if type in ("Launcher", "PS") else 1)}
        for type, count in replicas.items()
    }
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": meta(name, duration="10m"),
        "spec": {field: specs},
    }


def phases(simulation: Simulation) -> dict[str, str]:
    return {pod.name: pod.phase.value for pod in simulation.snapshot().pods.all()}


def test_the_launcher_decides_and_its_workers_go() -> None:
    simulation = unqueued(kubeflow("MPIJob", "mpiReplicaSpecs", "m", Launcher=1, Worker=2))
    assert run(simulation, HOUR) == ["0:00 started MPIJob/red/m", "10:00 finished MPIJob/red/m"]
    assert phases(simulation) == {"m-launcher-0": "Succeeded"}


def test_parameter_servers_do_not_decide_how_a_tf_job_ends() -> None:
    simulation = unqueued(kubeflow("TFJob", "tfReplicaSpecs", "t", PS=1, Worker=2))
    simulation.advance(START + HOUR)
    assert phases(simulation) == {"t-worker-0": "Succeeded", "t-worker-1": "Succeeded"}


def train(name: str, runtime: str, **trainer: Any) -> Manifest:
    spec = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    api = "trainer.kubeflow.org/v1alpha1"
    return {"apiVersion": api, "kind": "TrainJob", "metadata": meta(name, duration="10m"), "spec": spec}


def test_a_train_job_has_the_pods_of_its_runtime() -> None:
    limits = {"nvidia.com/gpu": "2"}
    simulation = unqueued(train("t", "torch-distributed", numNodes=3, resourcesPerNode={"limits": limits}))
    assert {pod.name: len(pod.gpus) for pod in simulation.snapshot().pods.all()} == {
        "t-node-0": 2,
        "t-node-1": 2,
        "t-node-2": 2,
    }
    assert run(simulation, HOUR)[-1] == "10:00 finished TrainJob/red/t"


def test_a_train_job_without_its_runtime_is_refused() -> None:
    simulation = unqueued(train("t", "mine"))
    refused = [
        e for e in simulation.drain() if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.COMMAND_REFUSED
    ]
    said = "specified clusterTrainingRuntime must be created before the TrainJob is created"
    assert [event.message for event in refused] == [f"spec.runtimeRef: mine not found: {said}"]


ENGINES: dict[str, PlacementPolicy | VolcanoPolicy | KaiPolicy] = {
    "kube-scheduler": PlacementPolicy(),
    "Volcano": VolcanoPolicy(),
    "KAI": KaiPolicy(),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_kind_runs_on_every_engine(engine: str) -> None:
    simulation = start(nodes(6), SimPolicy(kueue=None, placement=ENGINES[engine]))
    submit(
        simulation,
        *read(
            service("Deployment", "web", 2),
            service("StatefulSet", "db", 2),
            worker_set("llm", 1, 3),
            job("sweep", 2, 4),
            cron("c", "*/30 * * * *"),
            kubeflow("MPIJob", "mpiReplicaSpecs", "m", Launcher=1, Worker=2),
            kubeflow("TFJob", "tfReplicaSpecs", "t", PS=1, Worker=2),
            train("tj", "torch-distributed", numNodes=2),
        ),
    )
    simulation.advance(START + 3 * HOUR)
    ended = {job.key: job.phase for job in simulation.snapshot().jobs.all() if not job.owner}
    running, done = JobPhase.RUNNING, JobPhase.SUCCEEDED
    assert ended == {
        "CronJob/red/c": running,
        "Deployment/red/web": running,
        "Job/red/sweep": done,
        "LeaderWorkerSet/red/llm": running,
        "MPIJob/red/m": done,
        "StatefulSet/red/db": running,
        "TFJob/red/t": done,
        "TrainJob/red/tj": done,
    }
    assert not [line for line in log(simulation.drain()) if "refused" in line or "evicted" in line]
