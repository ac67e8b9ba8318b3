"""What the actions do to small clusters: gangs start whole, victims go only if that helps, trials leave no trace."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node
from gpuconsole.model.resources import CPU, GPU, PODS
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.config import (
    ENABLED_BY_DEFAULT,
    EnabledFlag,
    Tier,
    VolcanoArguments,
    VolcanoConfiguration,
    VolcanoPluginOption,
    tier_of,
)
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession, VolcanoStatement
from tests.support.volcano_clusters import cluster, job, queue, task

TIERS: tuple[Tier, ...] = (
    (VolcanoPluginOption(name="priority"), VolcanoPluginOption(name="gang"), VolcanoPluginOption(name="conformance")),
    tier_of("predicates", "proportion", "nodeorder"),
)
AS_HELM: tuple[Tier, ...] = (
    (
        VolcanoPluginOption(name="priority"),
        VolcanoPluginOption(name="gang", enabled=ENABLED_BY_DEFAULT - {EnabledFlag.PREEMPTABLE}),
    ),
    tier_of("predicates", "proportion", "nodeorder"),
)
TOPOLOGY_AWARE = {"preempt": VolcanoArguments({"enableTopologyAwarePreemption": True})}


def machine(name: str, gpus: int) -> Node:
    amounts = {CPU: 64_000, GPU: gpus, PODS: 20}
    return Node(name=name, allocatable=amounts, capacity=amounts)


def acted(
    jobs: Iterable[JobInfo],
    *actions: str,
    gpus: Mapping[str, int],
    tiers: tuple[Tier, ...] = TIERS,
    arguments: Mapping[str, VolcanoArguments] | None = None,
    queues: tuple[str, ...] = ("team", "other"),
) -> VolcanoSession:
    nodes = [machine(name, count) for name, count in gpus.items()]
    made = cluster(nodes, jobs, queues=[queue(name, state="Open") for name in queues])
    session = VolcanoSession(
        VolcanoConfiguration(actions=actions, tiers=tiers, arguments=arguments or {}), made, plugins=PLUGINS
    )
    for action in actions:
        ACTIONS[action](session)
    return session


def work(
    name: str, waiting: int = 0, running: int = 0, *, least: int = 1, priority: int = 0, on: str = "n1", **facts: object
) -> JobInfo:
    tasks = [task(f"{name}-r{number}", group=name, on=on, priority=priority) for number in range(running)]
    tasks += [task(f"{name}-w{number}", group=name, priority=priority) for number in range(waiting)]
    made = job(tasks, name=name, min_member=least, **facts)
    made.priority = priority
    return made


def bound(session: VolcanoSession) -> dict[str, str]:
    return {one.name: one.node_name for one in session.binds}


def gone(session: VolcanoSession) -> list[str]:
    return [one.task.name for one in session.evictions]


def books(session: VolcanoSession) -> list[list[float]]:
    """How many GPUs of each node are idle, used, being released, spoken for."""
    nodes = session.node_list
    return [[amount.get(GPU) for amount in (one.idle, one.used, one.releasing, one.pipelined)] for one in nodes]


def test_a_gang_starts_whole_or_not_at_all() -> None:
    gangs = [work("first", 3, least=3), work("second", 2, least=2)]
    assert bound(acted(gangs, "allocate", gpus={"n1": 4})) == {"first-w0": "n1", "first-w1": "n1", "first-w2": "n1"}


def test_a_discarded_statement_leaves_jobs_and_nodes_as_they_were() -> None:
    jobs = [work("low", running=2), work("waiting", 1, least=1)]
    session = acted(jobs, gpus={"n1": 4})
    before = books(session)
    statement = VolcanoStatement(session)
    victim = session.jobs["default/low"].tasks["low-r0"].copy()
    statement.evict(victim, "test")
    statement.pipeline(session.jobs["default/waiting"].tasks["waiting-w0"], "n1", eviction_occurred=True)
    assert books(session) != before
    statement.discard()
    assert books(session) == before
    assert (session.evictions, session.binds) == ([], [])
    assert session.jobs["default/waiting"].tasks["waiting-w0"].node_name == ""


def test_nobody_is_preempted_without_the_action() -> None:
    jobs = [work("low", running=4, least=1), work("high", 2, least=2, priority=10)]
    assert gone(acted(jobs, "enqueue", "allocate", "backfill", gpus={"n1": 4})) == []


def test_preempt_takes_only_what_the_victims_gang_can_spare() -> None:
    jobs = [work("low", running=4, least=3), work("high", 2, least=1, priority=10)]
    assert gone(acted(jobs, "preempt", gpus={"n1": 4})) == ["low-r0"]


def test_preempt_takes_nothing_that_does_not_start_the_gang() -> None:
    jobs = [work("low", running=4, least=3), work("high", 2, least=2, priority=10)]
    assert gone(acted(jobs, "preempt", gpus={"n1": 4})) == []


def test_preempt_leaves_equals_and_other_queues_alone() -> None:
    jobs = [work("equal", running=2, priority=10), work("abroad", running=2, queue="other")]
    jobs.append(work("high", 1, priority=10))
    assert gone(acted(jobs, "preempt", gpus={"n1": 4})) == []


def test_topology_aware_preemption_puts_back_whom_it_can() -> None:
    large = work("large", 1, least=1, priority=10)
    small = job([task("small", group="small", on="n1", requests={GPU: 1})], name="small")
    big = job([task("big", group="big", on="n1", requests={GPU: 3})], name="big")
    large.delete_task(large.tasks["large-w0"])
    large.add_task(task("large-w0", group="large", priority=10, requests={GPU: 3}))
    for victims, arguments in ((["big"], TOPOLOGY_AWARE), (["small", "big"], {})):
        clones = [one.copy() for one in (small, big, large)]
        assert gone(acted(clones, "preempt", gpus={"n1": 4}, tiers=AS_HELM, arguments=arguments)) == victims


def test_reclaim_takes_across_queues_only_what_the_other_has_too_much() -> None:
    jobs = [work("abroad", running=4, queue="other"), work("mine", 4, least=1)]
    session = acted(jobs, "reclaim", gpus={"n1": 4})
    assert len(gone(session)) == 1
    assert session.jobs["default/mine"].is_pipelined()
    fair = [work("abroad", running=2, queue="other"), work("mine", 2, running=2, least=3)]
    assert gone(acted(fair, "reclaim", gpus={"n1": 4})) == []


def test_a_queue_that_is_not_reclaimable_keeps_what_it_borrowed() -> None:
    jobs = [work("abroad", running=4, queue="other"), work("mine", 1)]
    made = cluster([machine("n1", 4)], jobs, queues=[queue("other", state="Open", reclaimable=False)])
    session = VolcanoSession(VolcanoConfiguration(tiers=TIERS), made, plugins=PLUGINS)
    ACTIONS["reclaim"](session)
    assert gone(session) == []


def test_enqueue_lets_in_what_its_queue_and_an_overcommitted_cluster_have_room_for() -> None:
    tiers = (tier_of("overcommit", "proportion"),)
    names = ("a", "b", "c")
    jobs = [work(name, phase="Pending", min_resources={GPU: 2}) for name in names]
    session = acted(jobs, "enqueue", gpus={"n1": 4}, tiers=tiers)
    assert [session.jobs[f"default/{name}"].phase for name in names] == ["Inqueue", "Inqueue", "Pending"]
    assert session.events == [(session.jobs["default/c"], "resource in cluster is overused: overused nvidia.com/gpu")]


def test_backfill_places_tasks_that_ask_for_nothing_on_a_full_node() -> None:
    jobs = [work("full", running=4), job([task("nothing", group="free", requests={})], name="free")]
    assert bound(acted(jobs, "allocate", "backfill", gpus={"n1": 4})) == {"nothing": "n1"}


def test_a_job_whose_pods_are_too_few_is_not_looked_at() -> None:
    assert bound(acted([work("torn", 2, least=3)], "allocate", gpus={"n1": 4})) == {}


def test_of_equals_the_older_comes_first_then_the_name() -> None:
    jobs = [work("b", 4, least=4, created=HOUR), work("a", 4, least=4, created=2 * HOUR)]
    assert set(bound(acted(jobs, "allocate", gpus={"n1": 4}))) == {"b-w0", "b-w1", "b-w2", "b-w3"}
    same = [work("b", 4, least=4), work("a", 4, least=4)]
    assert set(bound(acted(same, "allocate", gpus={"n1": 4}))) == {"a-w0", "a-w1", "a-w2", "a-w3"}
