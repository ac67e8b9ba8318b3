"""Deleted work: it ends at once and never well, its pods leave, and nothing comes back."""

import pytest

from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import Delete
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from tests.support.sim_cluster import UNQUEUED, job, key_of, log, nodes, run, start, submit, two_teams


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


@pytest.mark.parametrize(("table", "key"), [("workloads", "red/train"), ("jobs", "red/train"), ("", "red/train")])
def test_it_is_known_by_the_name_of_its_job_as_everywhere(table: str, key: str) -> None:
    simulation = start(two_teams())
    submit(simulation, job("train"))
    simulation.drain()
    simulation.submit(Delete(table, key))
    assert [line.what for line in simulation.drain() if isinstance(line, HistoryEvent)] == [HistoryEventKind.DELETED]
    assert list(simulation.snapshot().jobs) == []


@pytest.mark.parametrize(
    ("table", "said"), [("workloads", "there is no Workload red/no"), ("jobs", "there is no Job red/no")]
)
def test_what_nobody_has_the_name_of_cannot_be_deleted(table: str, said: str) -> None:
    simulation = start(two_teams())
    simulation.drain()
    simulation.submit(Delete(table, "red/no"))
    assert [line.message for line in simulation.drain() if isinstance(line, HistoryEvent)] == [said]


def test_deleted_work_does_not_finish_while_its_pods_leave() -> None:
    simulation = start(two_teams())
    submit(simulation, job("train", duration=MINUTE))
    run(simulation, 40 * SECOND)
    simulation.submit(Delete("workloads", key_of(simulation, "red/train")))
    assert log(simulation.drain()) == ["0:40 deleted red/train"]
    assert run(simulation, HOUR) == []
