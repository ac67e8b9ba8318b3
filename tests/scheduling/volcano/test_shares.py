"""Who deserves what: proportion's division, the tree of capacity, dominant shares of jobs and of queues."""

from collections.abc import Mapping
from typing import TypeVar

import pytest

from gpuconsole.model.resources import CPU, GPU
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.task import HIERARCHY, HIERARCHY_WEIGHTS
from gpuconsole.scheduling.volcano.config import (
    ENABLED_BY_DEFAULT,
    EnabledFlag,
    VolcanoArguments,
    VolcanoConfiguration,
    VolcanoPluginOption,
)
from gpuconsole.scheduling.volcano.plugins.capacity import CapacityPlugin
from gpuconsole.scheduling.volcano.plugins.drf import DrfPlugin
from gpuconsole.scheduling.volcano.plugins.proportion import ProportionPlugin
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession
from tests.support.volcano_clusters import cluster, job, node, queue, task

P = TypeVar("P")
GPUS = 8


def opened(
    plugin: str, jobs: list[JobInfo], queues: list[QueueInfo], *, arguments: Mapping[str, object] | None = None
) -> VolcanoSession:
    """A session of one node of eight GPUs; the plugin may arrange queues in a tree."""
    option = VolcanoPluginOption(
        name=plugin, enabled=ENABLED_BY_DEFAULT | {EnabledFlag.HIERARCHY}, arguments=VolcanoArguments(arguments)
    )
    return VolcanoSession(
        VolcanoConfiguration(tiers=((option,),)), cluster([node("n1")], jobs, queues=queues), plugins=PLUGINS
    )


def plugin_of(session: VolcanoSession, kind: type[P]) -> P:
    return next(plugin for plugin in session.plugins if isinstance(plugin, kind))


def wants(queue_name: str, waiting: int, running: int = 0) -> JobInfo:
    """A job of a queue whose pods want a GPU each, and nothing else."""
    tasks = [task(f"{queue_name}-r{n}", group=queue_name, on="n1", requests={GPU: 1}) for n in range(running)]
    tasks += [task(f"{queue_name}-w{n}", group=queue_name, requests={GPU: 1}) for n in range(waiting)]
    return job(tasks, name=queue_name, queue=queue_name, min_member=1)


def opens(name: str, **facts: object) -> QueueInfo:
    return queue(name, state="Open", **facts)


DIVIDED: dict[str, tuple[dict[str, tuple[int, dict[str, object]]], dict[str, float]]] = {
    "by weight": ({"a": (8, {"weight": 3}), "b": (8, {"weight": 1})}, {"a": 6, "b": 2}),
    "nobody gets more than he asks for, and the rest goes round": (
        {"a": (1, {"weight": 3}), "b": (8, {"weight": 1})},
        {"a": 1, "b": 7},
    ),
    "a capability is the end": ({"a": (8, {"capability": {GPU: 2}}), "b": (8, {})}, {"a": 2, "b": 6}),
    "a guarantee holds even where nobody asks, and limits the others": (
        {"a": (1, {"guarantee": {GPU: 5}}), "b": (8, {})},
        {"a": 5, "b": 3},
    ),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_proportion_divides(name: str) -> None:
    asked, want = DIVIDED[name]
    queues = [opens(queue_name, **facts) for queue_name, (_, facts) in asked.items()]
    jobs = [wants(queue_name, waiting) for queue_name, (waiting, _) in asked.items()]
    books = plugin_of(opened("proportion", jobs, queues), ProportionPlugin).queues
    assert {name: round(book.deserved.get(GPU)) / 1000 for name, book in books.items()} == want


def test_proportion_lets_a_queue_take_what_it_deserves_and_no_more() -> None:
    session = opened("proportion", [wants("a", 8, 3), wants("b", 8, 4)], [opens("a"), opens("b")])
    candidate = task("next", requests={GPU: 1})
    assert [session.allocatable(session.queues[name], candidate) for name in "ab"] == [True, False]
    assert [session.overused(session.queues[name]) for name in "ab"] == [False, False]


def test_a_closed_queue_takes_nothing() -> None:
    session = opened("proportion", [wants("a", 8)], [queue("a", state="Closed")])
    assert not session.allocatable(session.queues["a"], task("next", requests={GPU: 1}))
    assert not session.job_enqueueable(session.jobs["default/a"])


TREE = [
    opens("root"),
    opens("org", parent="root", capability={GPU: 6}, deserved={GPU: 6}),
    opens("lab", parent="org", deserved={GPU: 2}, guarantee={GPU: 1}),
    opens("app", parent="org", deserved={GPU: 4}),
    opens("else", parent="root", deserved={GPU: 2}),
]


def test_parents_count_what_their_children_have_and_children_inherit_limits() -> None:
    session = opened("capacity", [wants("lab", 1, 3), wants("app", 1, 2), wants("else", 0, 1)], TREE)
    books = plugin_of(session, CapacityPlugin).queues.attributes
    got = {name: (book.allocated.get(GPU) / 1000, book.deserved.get(GPU) / 1000) for name, book in books.items()}
    assert got["root"] == (6, 8)
    assert (got["org"], got["lab"], got["app"], got["else"]) == ((5, 6), (3, 2), (2, 4), (1, 2))
    assert books["app"].real_capability.get(GPU) == 5000
    assert [books[name].share for name in ("lab", "app")] == [1.5, 0.5]


def test_a_task_needs_room_in_its_queue_and_in_all_above() -> None:
    session = opened("capacity", [wants("lab", 1, 3), wants("app", 1, 3), wants("else", 0, 1)], TREE)
    candidate = task("next", requests={GPU: 1})
    taken = {name: session.allocatable(session.queues[name], candidate) for name in ("lab", "app", "else", "org")}
    assert taken == {"lab": False, "app": False, "else": True, "org": False}


def test_nothing_is_scheduled_where_the_queues_are_no_tree() -> None:
    broken = [opens("root"), opens("a", parent="b"), opens("b", parent="a")]
    session = opened("capacity", [wants("a", 1)], broken)
    assert not session.allocatable(session.queues["a"], task("next", requests={GPU: 1}))
    assert not session.job_enqueueable(session.jobs["default/a"])


def test_a_queue_gives_back_what_it_has_beyond_its_due_but_never_its_guarantee() -> None:
    jobs = [wants("lab", 0, 3), wants("app", 1, 2), wants("else", 0, 1)]
    session = opened("capacity", jobs, TREE)
    victims = session.reclaimable(jobs[1].tasks["app-w0"], [one.copy() for one in jobs[0].tasks.values()])
    assert [one.name for one in victims or ()] == ["lab-r2"]


def test_an_ancestor_that_keeps_to_its_due_protects_its_queues() -> None:
    jobs = [wants("lab", 0, 3), wants("app", 0, 2), wants("else", 1, 1)]
    for level, want in ((0, ["lab-r2"]), (1, [])):
        session = opened("capacity", jobs, TREE, arguments={"ancestorReclaimLevel": level})
        victims = session.reclaimable(jobs[2].tasks["else-w0"], [one.copy() for one in jobs[0].tasks.values()])
        assert [one.name for one in victims or ()] == want


def test_the_job_with_the_smaller_dominant_share_comes_first() -> None:
    cpu = job([task("c", group="cpu", on="n1", requests={CPU: 2000, GPU: 0})], name="cpu")
    gpu = job([task("g", group="gpu", on="n1", requests={CPU: 100, GPU: 1})], name="gpu")
    session = opened("drf", [cpu, gpu], [])
    assert plugin_of(session, DrfPlugin).shares == {"default/cpu": 0.25, "default/gpu": 0.125}
    assert session.job_precedes(gpu, cpu)


def test_drf_takes_from_jobs_that_keep_at_least_the_share_of_the_other() -> None:
    rich = job([task(f"r{n}", group="rich", on="n1", requests={GPU: 1}) for n in range(4)], name="rich")
    poor = job([task("p", group="poor", requests={GPU: 2})], name="poor")
    session = opened("drf", [rich, poor], [])
    victims = session.preemptable(poor.tasks["p"], [one.copy() for one in rich.tasks.values()])
    assert [one.name for one in victims or ()] == ["r0", "r1"]


def test_queues_of_hierarchical_drf_come_by_weighted_share_level_by_level() -> None:
    def placed(name: str, path: str, weights: str) -> QueueInfo:
        return opens(name, annotations={HIERARCHY: path, HIERARCHY_WEIGHTS: weights})

    queues = [placed("sci", "root/sci", "1/4"), placed("dev", "root/eng/dev", "1/1/1")]
    jobs = [wants("sci", 4, 3), wants("dev", 4, 1)]
    session = opened("drf", jobs, queues)
    assert session.queue_precedes(session.queues["sci"], session.queues["dev"])
    light = [placed("sci", "root/sci", "1/1"), placed("dev", "root/eng/dev", "1/1/1")]
    session = opened("drf", [wants("sci", 4, 3), wants("dev", 4, 1)], light)
    assert session.queue_precedes(session.queues["dev"], session.queues["sci"])
