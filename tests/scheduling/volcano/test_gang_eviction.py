"""Room for a whole gang: bundles of victims, domains, nominations."""

import pytest

from gpuconsole.model.cluster import Node
from gpuconsole.model.resources import CPU, GPU, PODS
from gpuconsole.model.volcano import HyperNode, HyperNodeMember, NetworkTopology
from gpuconsole.scheduling.volcano.actions import ACTIONS
from gpuconsole.scheduling.volcano.actions.gang_eviction import restrict_bundles, sort_bundles, split_into_bundles
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME, HyperNodeDomains, HyperNodes
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration, tier_of
from gpuconsole.scheduling.volcano.scheduler_conf import PLUGINS
from gpuconsole.scheduling.volcano.session import VolcanoSession
from tests.support.volcano_clusters import cluster, job, queue, task

TIERS = (tier_of("priority", "gang", "conformance"), tier_of("predicates", "network-topology-aware"))


def running(
    name: str, on: str, count: int, *, least: int = 1, priority: int = 0, role: str = "", **facts: object
) -> JobInfo:
    tasks = [task(f"{name}-{number}", group=name, on=on, role=role) for number in range(count)]
    made = job(tasks, name=name, min_member=least, **facts)
    made.priority = priority
    return made


def waiting(name: str, count: int, *, least: int = 0, priority: int = 10, **facts: object) -> JobInfo:
    made = job([task(f"{name}-{n}", group=name) for n in range(count)], name=name, min_member=least or count, **facts)
    made.priority = priority
    return made


def acted(jobs: list[JobInfo], action: str, *, nodes: int = 2, allow_whole: bool = True) -> VolcanoSession:
    """Nodes n1, n2 … of four GPUs, each in a rack of its own."""
    amounts = {CPU: 64_000, GPU: 4, PODS: 20}
    machines = [Node(name=f"n{number}", allocatable=amounts, capacity=amounts) for number in range(1, nodes + 1)]
    racks = HyperNodes()
    for one in machines:
        racks.set_node(one)
        racks.apply(HyperNode(name=f"rack-{one.name}", tier=1, members=(HyperNodeMember("Node", one.name),)))
    made = cluster(machines, jobs, queues=[queue("team", state="Open"), queue("other", state="Open")])
    made.domains = HyperNodeDomains(racks.tree, racks.real_nodes, by_tier=racks.by_tier)
    arguments = {action: VolcanoArguments({"allowWholeBundle": allow_whole})}
    session = VolcanoSession(
        VolcanoConfiguration(actions=(action,), tiers=TIERS, arguments=arguments), made, plugins=PLUGINS
    )
    ACTIONS[action](session)
    return session


def gone(session: VolcanoSession) -> list[str]:
    return sorted(evicted.task.name for evicted in session.evictions)


def split(owner: JobInfo) -> list[tuple[bool, list[str]]]:
    return [
        (one.breaks_gang, [each.name for each in one.tasks])
        for one in split_into_bundles(owner, list(owner.tasks.values()))
    ]


def test_what_a_gang_can_spare_comes_apart_from_what_ends_it() -> None:
    assert split(running("a", "n1", 4, least=3)) == [(False, ["a-0"]), (True, ["a-1", "a-2", "a-3"])]
    assert split(running("a", "n1", 2, least=2)) == [(True, ["a-0", "a-1"])]


def test_a_gang_that_is_broken_already_spares_everybody() -> None:
    assert split(running("a", "n1", 2, least=3)) == [(False, ["a-0", "a-1"])]


def test_a_role_that_has_no_more_than_it_needs_spares_nobody() -> None:
    owner = running("a", "n1", 3, least=2, role="master", min_task_member={"master": 3})
    assert split(owner) == [(False, ["a-0"]), (True, ["a-1", "a-2"])]
    strict = running("a", "n1", 3, least=3, role="master", min_task_member={"master": 3})
    assert split(strict) == [(True, ["a-0", "a-1", "a-2"])]


def test_a_whole_bundle_falls_if_one_of_its_tasks_has_to_stay() -> None:
    owner = running("a", "n1", 4, least=3)
    bundles = split_into_bundles(owner, list(owner.tasks.values()))
    left = restrict_bundles(bundles, [owner.tasks["a-0"], owner.tasks["a-1"]])
    assert [[one.name for one in bundle.tasks] for bundle in left] == [["a-0"]]


def test_among_whole_jobs_the_one_goes_that_gives_most_for_what_it_costs() -> None:
    dear, cheap = running("dear", "n1", 4, least=4), running("cheap", "n1", 2, least=2)
    bundles = [
        *split_into_bundles(dear, list(dear.tasks.values())),
        *split_into_bundles(cheap, list(cheap.tasks.values())),
    ]
    ordered = sort_bundles(bundles, Resource(scalars={GPU: 2000.0}), lambda *_: 0)
    assert [bundle.job.name for bundle in ordered] == ["cheap", "dear"]


@pytest.mark.parametrize(("allowed", "victims"), [(True, ["low-0", "low-1", "low-2", "low-3"]), (False, [])])
def test_whole_jobs_are_ended_only_if_that_is_allowed(allowed: bool, victims: list[str]) -> None:
    session = acted([running("low", "n1", 4, least=4), waiting("high", 4)], "gangpreempt", nodes=1, allow_whole=allowed)
    assert gone(session) == victims


def test_gangpreempt_takes_no_more_than_the_gang_needs_and_nothing_of_equals() -> None:
    low, same = running("low", "n1", 3, least=1), running("same", "n2", 4, priority=10)
    session = acted([low, same, waiting("high", 2)], "gangpreempt")
    assert gone(session) == ["low-0", "low-1"]
    assert session.jobs["default/high"].sub_jobs["default/high"].nominated_hyper_node == ROOT_NAME


def test_a_gang_that_has_to_be_close_gets_room_in_one_domain() -> None:
    hard = NetworkTopology("hard", 1)
    jobs = [running("a", "n1", 2, least=2), running("b", "n2", 4, least=4)]
    session = acted([*jobs, waiting("near", 3, network_topology=hard)], "gangpreempt")
    assert gone(session) == ["a-0", "a-1"]
    assert {one.node_name for one in session.jobs["default/near"].tasks.values()} == {"n1"}
    assert session.jobs["default/near"].sub_jobs["default/near"].nominated_hyper_node == "rack-n1"


def test_nothing_goes_where_the_gang_would_not_fit_all_the_same() -> None:
    hard = NetworkTopology("hard", 1)
    jobs = [running("a", "n1", 4), running("b", "n2", 4)]
    assert gone(acted([*jobs, waiting("wide", 5, network_topology=hard)], "gangpreempt")) == []


def test_gangreclaim_takes_from_other_queues_only_and_all_that_a_job_can_spare() -> None:
    jobs = [running("ours", "n1", 4), running("theirs", "n2", 4, least=1, priority=99, queue="other")]
    assert gone(acted([*jobs, waiting("gang", 2)], "gangreclaim")) == ["theirs-0", "theirs-1", "theirs-2"]
