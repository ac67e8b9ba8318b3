"""What job plugins add to pods, and what they make beside a job."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.job import Job
from gpuconsole.model.pod_template import Container, PodTemplate
from gpuconsole.scheduling.volcano.jobs.job_plugins import (
    MissingHeadTask,
    UnknownPlugin,
    apply_plugins,
    parse_flags,
)
from gpuconsole.scheduling.volcano.jobs.pods import pod_of
from gpuconsole.scheduling.volcano.jobs.states import tasks_of
from tests.support.volcano_jobs import job


def made(task: int, index: int, *tasks: tuple[str, int], templates: Any = None, **plugins: tuple[str, ...]) -> Pod:
    one = job(*(tasks or (("master", 1), ("worker", 2))), plugins=plugins, templates=templates)
    return apply_plugins(one, pod_of(one, tasks_of(one)[task], index))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), {"port": 1, "name": "a", "on": False}),
        (("--port=7", "-name", "b", "--on"), {"port": 7, "name": "b", "on": True}),
        (("--on=false", "--port=0x10"), {"port": 16, "name": "a", "on": False}),
        (("--port=x", "--name=b"), {"port": 1, "name": "a", "on": False}),
        (("--what=1", "--name=b"), {"port": 1, "name": "a", "on": False}),
        (("plain", "--name=b"), {"port": 1, "name": "a", "on": False}),
        (("--name",), {"port": 1, "name": "a", "on": False}),
    ],
    ids=["none", "all forms", "a flag that is off", "no number", "unknown", "no flag", "without its value"],
)
def test_arguments_are_read_as_gos_flags(arguments: tuple[str, ...], wanted: Mapping[str, object]) -> None:
    assert parse_flags(arguments, {"port": 1, "name": "a", "on": False}) == wanted


def test_env_tells_a_pod_its_number() -> None:
    assert made(1, 1, env=()).env == {"VK_TASK_INDEX": "1", "VC_TASK_INDEX": "1"}


def test_svc_names_pods_and_lists_the_hosts_of_each_task() -> None:
    pod = made(1, 0, ("ps", 1), ("gpu-worker", 2), svc=())
    assert (pod.hostname, pod.subdomain) == ("train-gpu-worker-0", "train")
    assert pod.env == {
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "VC_GPU_WORKER_HOSTS": "train-gpu-worker-0.train,train-gpu-worker-1.train",
        "VC_GPU_WORKER_NUM": "2",
    }


def test_a_template_that_names_its_host_has_one_host() -> None:
    named = {"worker": PodTemplate(hostname="box", subdomain="lab")}
    pod = made(1, 1, templates=named, svc=())
    assert (pod.hostname, pod.subdomain, pod.env["VC_WORKER_HOSTS"]) == ("box", "lab", "box.lab")


@pytest.mark.parametrize(("task", "index", "rank"), [(0, 0, "0"), (1, 0, "1"), (1, 1, "2")])
def test_pytorch_tells_where_the_master_is_and_which_rank_a_pod_has(task: int, index: int, rank: str) -> None:
    assert made(task, index, pytorch=("--port=5000",)).env == {
        "MASTER_ADDR": "train-master-0.train",
        "MASTER_PORT": "5000",
        "WORLD_SIZE": "3",
        "RANK": rank,
    }


def test_pytorch_leaves_a_job_without_master_alone() -> None:
    assert made(0, 0, ("worker", 2), pytorch=()).env == {}
    others = made(1, 0, ("master", 1), ("watcher", 1), pytorch=())
    assert "RANK" not in others.env
    assert others.env["WORLD_SIZE"] == "1"


def test_tensorflow_tells_each_pod_the_cluster_and_its_part() -> None:
    pod = made(1, 1, ("ps", 1), ("worker", 2), tensorflow=("--port=3000",))
    assert json.loads(pod.env["TF_CONFIG"]) == {
        "cluster": {
            "ps": ["train-ps-0.train:3000"],
            "worker": ["train-worker-0.train:3000", "train-worker-1.train:3000"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert made(0, 0, ("worker", 1), tensorflow=()).env == {}


def test_mpi_tells_its_master_the_workers() -> None:
    assert made(0, 0, mpi=()).env == {"MPI_HOST": "train-worker-0.train,train-worker-1.train"}
    assert made(1, 0, mpi=()).env == {}
    assert made(0, 0, ("launcher", 1), ("node", 1), mpi=("--master=launcher", "--worker=node")).env == {
        "MPI_HOST": "train-node-0.train"
    }


def test_ray_starts_its_head_and_lets_workers_join() -> None:
    boxes = {name: PodTemplate(containers=(Container(name=name),)) for name in ("head", "worker")}
    tasks = (("head", 1), ("worker", 2))
    head = made(0, 0, *tasks, templates=boxes, ray=("--port=1",))
    assert head.command == (
        "ray start --head --block --dashboard-host=0.0.0.0 --port=1 --dashboard-port=8265"
        " --ray-client-server-port=10001"
    )
    worker = made(1, 0, *tasks, templates=boxes, ray=("--port=1",))
    assert worker.command == "ray start --block --address=train-head-0.train:1"
    with pytest.raises(MissingHeadTask, match="job train doesn't have head task head"):
        made(0, 0, ("worker", 1), ray=())


def test_hcclrank_takes_the_rank_that_is_known_or_counts() -> None:
    rank = "hccl/rankIndex"
    assert made(0, 0, hcclrank=()).annotations[rank] == "0"
    assert made(1, 1, hcclrank=()).annotations[rank] == "2"
    assert rank not in made(0, 0, ("other", 1), hcclrank=()).annotations
    one = job(("worker", 2), plugins={"hcclrank": ()})
    known = replace(pod_of(one, tasks_of(one)[0], 1), env={"RANK": "7"})
    assert apply_plugins(one, known).annotations[rank] == "7"


def test_a_plugin_that_does_not_exist_stops_everything() -> None:
    one: Job = job(("w", 1), plugins={"sla": ()})
    with pytest.raises(UnknownPlugin, match="failed to get plugin sla"):
        apply_plugins(one, Pod(name="train-w-0"))
