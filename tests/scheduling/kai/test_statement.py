"""A trial leaves no trace: whatever a statement did, discarding it restores nodes, jobs and queues."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.scheduling.kai.api.tasks import KaiPodStatus
from gpuconsole.scheduling.kai.job_placement import KaiStatement, place_fractional_task
from gpuconsole.scheduling.kai.session import EvictedTask, KaiSession
from tests.support.kai_clusters import job, node, queue, session


def cluster() -> KaiSession:
    jobs = [
        job("half", 0.5, ["n1", "n1", ""], groups=["g", "g", "g"], least=1),
        job("whole", 1, ["n1", "n2", ""], queue="b", least=1),
        job("late", 0.25, ["", ""], queue="b", least=1),
    ]
    return session([node("n1", 3), node("n2", 2)], [queue("a", 2), queue("b", 2)], jobs)


def picture(found: KaiSession) -> Any:
    """Everything that decisions look at."""
    nodes = {
        name: (
            (n.idle.gpus, n.idle.cpu, n.releasing.gpus, n.releasing.cpu, n.used.gpus),
            {group: memory for group, memory in n.shared.used.items() if memory},
            {group: memory for group, memory in n.shared.releasing.items() if memory},
            {group: memory for group, memory in n.shared.allocated.items() if memory},
            sorted(n.tasks),
        )
        for name, n in found.nodes.items()
    }
    tasks = {t.uid: (t.status, t.node, t.is_virtual_status) for j in found.jobs.values() for t in j.tasks()}
    held = {
        uid: (
            j.active_allocated_tasks,
            j.active_used_tasks,
            j.allocated.gpus,
            [p.active_allocated_tasks for p in j.pod_sets.values()],
        )
        for uid, j in found.jobs.items()
    }
    uses = [found.queue_usage_text(q) for q in found.queues.values()]
    return nodes, tasks, held, uses


def change(found: KaiSession, statement: KaiStatement, kind: str, number: int, where: str) -> None:
    """One thing that an action might do; nothing if it cannot be done now."""
    tasks = [task for _, j in sorted(found.jobs.items()) for task in j.tasks()]
    task = tasks[number % len(tasks)]
    target = found.nodes[where]
    if kind == "evict":
        if task.status is KaiPodStatus.RUNNING:
            statement.evict(EvictedTask(task=task, message="", action="test"))
    elif task.should_allocate(False) and target.is_allocatable_or_pipelinable(task):
        if task.is_fractional:
            # What was evicted is only ever placed to see it wait.
            place_fractional_task(
                found, statement, task, target, only_pipeline=kind == "wait" or task.status is not KaiPodStatus.PENDING
            )
        elif kind == "place" and task.status is KaiPodStatus.PENDING and target.is_allocatable(task):
            statement.allocate(task, where)
        else:
            statement.pipeline(task, where, False)


STEPS = st.lists(
    st.tuples(st.sampled_from(["evict", "place", "wait"]), st.integers(0, 7), st.sampled_from(["n1", "n2"])), max_size=8
)


@given(STEPS)
def test_whatever_was_tried_and_is_discarded_leaves_no_trace(steps: list[tuple[str, int, str]]) -> None:
    found = cluster()
    before, statement = picture(found), KaiStatement(found)
    # As every action does it: victims go first.
    for kind, number, where in sorted(steps, key=lambda step: step[0] != "evict"):
        change(found, statement, kind, number, where)
    statement.discard()
    assert picture(found) == before
    assert found.decisions == []


def test_a_victim_that_stays_where_it_was_is_no_victim() -> None:
    found = cluster()
    before, statement = picture(found), KaiStatement(found)
    task = next(task for task in found.jobs["whole"].tasks() if task.node == "n1")
    statement.evict(EvictedTask(task=task, message="", action="test"))
    statement.pipeline(task, "n1", False)
    assert picture(found) == before
    statement.commit()
    assert found.decisions == []


def test_a_rollback_undoes_what_came_after_the_checkpoint_alone() -> None:
    found = cluster()
    statement = KaiStatement(found)
    first, second = found.jobs["whole"].pending_tasks[0], found.jobs["half"].pending_tasks[0]
    statement.allocate(first, "n2")
    kept, checkpoint = picture(found), statement.checkpoint()
    place_fractional_task(found, statement, second, found.nodes["n1"], only_pipeline=False)
    assert picture(found) != kept
    statement.rollback(checkpoint)
    assert picture(found) == kept


def test_evictions_that_are_discarded_bring_everybody_back() -> None:
    found = cluster()
    before, statement = picture(found), KaiStatement(found)
    running = [task for j in found.jobs.values() for task in j.tasks() if task.node]
    for task in running:
        statement.evict(EvictedTask(task=task, message="", action="test"))
    assert found.nodes["n1"].releasing.gpus == 2
    statement.discard()
    assert picture(found) == before
