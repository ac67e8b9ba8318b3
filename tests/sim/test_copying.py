"""What is there submitted once more: as it was asked for, with nothing of its life."""

import pytest

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.commands import Copy, FailPod, Finish
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.job import JobPhase
from gpuconsole.model.jobs import pod_name
from gpuconsole.sim.engine import Simulation
from tests.support.sim_cluster import UNQUEUED, job, key_of, pod, run, start, submit, two_teams, workload


def lived() -> Simulation:
    """A job that ran for ten minutes, lost a pod, and holds checkpoints."""
    simulation = start(two_teams())
    submit(simulation, job("train", gpus=2, checkpoint=4 * MINUTE))
    run(simulation, 10 * MINUTE)
    simulation.submit(FailPod(f"red/{pod_name(job('train'), 'main', 0)}"))
    run(simulation, MINUTE)
    return simulation


@pytest.mark.parametrize("named", ["Job/red/train", "red/train", "its workload"])
def test_a_copy_of_a_running_job_begins_anew(named: str) -> None:
    simulation = lived()
    simulation.submit(Copy(key_of(simulation, "red/train") if named == "its workload" else named, "train-copy2"))
    snapshot = simulation.snapshot()
    old, new = snapshot.jobs["Job/red/train"], snapshot.jobs["Job/red/train-copy2"]
    assert (new.pod_sets, new.queue, new.duration, new.checkpoint_interval) == (old.pod_sets, "lq", HOUR, 4 * MINUTE)
    assert (new.created, new.done, new.failures, new.finished) == (simulation.now, 0, 0, 0)
    assert snapshot.workloads[key_of(simulation, "red/train-copy2")].admitted
    run(simulation, 2 * HOUR)
    assert simulation.snapshot().jobs["Job/red/train-copy2"].phase is JobPhase.SUCCEEDED


def test_what_has_ended_can_be_copied_too() -> None:
    simulation = start(two_teams())
    submit(simulation, workload("bare", gpus=2, duration="1h"))
    simulation.submit(Finish("red/bare"))
    simulation.submit(Copy("red/bare", "bare-copy2"))
    copy = simulation.snapshot().workloads["red/bare-copy2"]
    assert (copy.admitted, copy.finished, copy.annotations) == (True, False, {"gpuconsole.io/duration": "1h"})


def test_a_lone_pod_is_copied_without_its_node() -> None:
    simulation = start(two_teams(), UNQUEUED)
    submit(simulation, pod("shell", gpus=4))
    submit(simulation, pod("rest", gpus=4))
    simulation.submit(Copy("Pod/default/shell", "shell-copy2"))
    copy = simulation.snapshot().pods["default/shell-copy2"]
    assert (copy.node, copy.gpus, copy.template.requests) == ("", (), {"nvidia.com/gpu": 4})


REFUSED = {
    "an unknown name": (
        Copy("red/nobody", "x"),
        "there is no job, workload or pod red/nobody to resubmit",
    ),
    "a name that is taken": (
        Copy("red/train", "train"),
        "Job red/train exists already; delete it first, or choose another name",
    ),
}


@pytest.mark.parametrize(("order", "says"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_copied_is_refused(order: Copy, says: str) -> None:
    simulation = lived()
    simulation.submit(order)
    refused = [event for event in simulation.drain() if isinstance(event, HistoryEvent)]
    assert [(line.what, line.message) for line in refused] == [(HistoryEventKind.COMMAND_REFUSED, says)]
