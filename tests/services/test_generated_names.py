"""Manifests with a generateName that are submitted again at one moment: every submission is an object of its own."""

import json
from pathlib import Path

import pytest

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.whatif import changes_in
from gpuconsole.model.commands import Submit
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import load_text
from gpuconsole.services.console import Console
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy

NOW = 1_000


def manifest(kind: str = "Job", api: str = "batch/v1") -> str:
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    spec = {"template": pod} if api == "batch/v1" else {"tasks": [{"name": "a", "replicas": 1, "template": pod}]}
    meta = {"generateName": "train-", "namespace": "team"}
    return json.dumps({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec})


def simulation(*texts: str) -> Simulation:
    objects = [thing for text in texts for thing in load_text(text, now=NOW).objects]
    return Simulation.from_objects(objects, policy=SimPolicy(), seed=1, start=NOW)


@pytest.mark.parametrize("text", [manifest(), manifest(api="batch.volcano.sh/v1alpha1")], ids=["Job", "VolcanoJob"])
def test_what_is_submitted_twice_at_one_moment_is_two_objects_beside_what_was_there(text: str) -> None:
    cluster = simulation(text)
    console = Console(SimulatedBackend(cluster, speed=1))
    console.pause()
    console.tick(0)
    for _ in range(2):
        console.submit(Submit(console.check(text).objects))
    console.tick(0)
    assert len(console.snapshot.jobs) == 3
    assert not [line for line in console.snapshot.recent if line.what is HistoryEventKind.COMMAND_REFUSED]


def test_the_same_submissions_get_the_same_names() -> None:
    def names() -> list[str]:
        console = Console(SimulatedBackend(simulation(), speed=1))
        return [thing.name for _ in range(3) for thing in console.check(manifest()).objects]

    assert names() == names()
    assert len(set(names())) == 3


def test_a_change_creates_objects_beside_those_of_its_file_and_of_the_cluster(tmp_path: Path) -> None:
    cluster, file = simulation(manifest()), tmp_path / "change.yaml"
    file.write_text(f"{manifest()}\n---\nsteps: [{{create: [{manifest()}, {manifest()}]}}]\n")
    changes = changes_in(file, cluster.now, cluster.snapshot())
    made = [thing for order in changes.commands if isinstance(order, Submit) for thing in order.objects]
    names = [job.name for job in (*made, *cluster.snapshot().jobs.values()) if isinstance(job, Job)]
    assert (len(names), len(set(names))) == (4, 4)
