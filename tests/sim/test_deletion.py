"""Deleted work: it ends at once and never well, its pods leave, and nothing comes back."""

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Delete
from tests.sim.cluster import UNQUEUED, job, key_of, log, nodes, run, start, submit, two_teams


def test_a_job_that_nothing_queues_is_gone_with_its_pods() -> None:
    simulation = start(nodes(1), UNQUEUED)
    submit(simulation, job("train", pods=3))
    run(simulation, MINUTE)
    simulation.submit(Delete("jobs", "Job/red/train"))
    assert log(simulation.drain()) == ["1:00 deleted Job/red/train"]
    assert run(simulation, 2 * HOUR) == []
    snapshot = simulation.snapshot()
    assert (list(snapshot.jobs), list(snapshot.pods)) == ([], [])


def test_a_job_is_deleted_with_its_workload() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train"))
    simulation.submit(Delete("jobs", "Job/red/train"))
    run(simulation, MINUTE)
    snapshot = simulation.snapshot()
    assert (list(snapshot.workloads), list(snapshot.jobs), list(snapshot.pods)) == ([], [], [])


def test_deleted_work_does_not_finish_while_its_pods_leave() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", duration=MINUTE))
    run(simulation, 40 * SECOND)
    simulation.submit(Delete("workloads", key_of(simulation, "red/train")))
    assert log(simulation.drain()) == ["0:40 deleted red/train"]
    assert run(simulation, HOUR) == []
