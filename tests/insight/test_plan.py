"""Plans on two queues of one cohort: the least of each kind that is enough, tried, the cheapest first."""

import json

import pytest
from msgspec.structs import replace

from gpuconsole.insight.pending.reasons import PendingReason
from gpuconsole.insight.whatif.plan import CapacityPlan, PlanOption, plan
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.commands import AddNodes, Command, Later, SetPreemption, SetPriority, SetQuota, Submit
from gpuconsole.model.manifests import load_text
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    WorkloadPriorityClass,
)
from gpuconsole.model.resources import GPU
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, Latencies
from gpuconsole.ui.answers.cluster_reports import plan_lines
from tests.support.sim_cluster import job as batch
from tests.support.sim_cluster import queue
from tests.support.snapshots import A100, START, cluster_queue, node, waiting

NO_PREEMPTION = ClusterQueuePreemption()


def alone(name: str, nominal: int) -> list[Object]:
    queue: ClusterQueue = cluster_queue(name, "", Quota(nominal), preemption=NO_PREEMPTION)
    return [queue, LocalQueue(namespace=name, name="lq", cluster_queue=name)]


def running(*objects: Object) -> Simulation:
    """The objects a minute on."""
    simulation = Simulation.from_objects([A100, *objects], policy=SimPolicy(), seed=1, start=START)
    simulation.advance(START + MINUTE)
    return simulation


def job(name: str, gpus: int, team: str = "team", priority: int = 0) -> Command:
    notes = {"gpuconsole.io/duration": "10h"}
    return Submit((waiting(name, f"{team}/lq", gpus, annotations=notes, priority=priority),))


def kinds(options: tuple[PlanOption, ...]) -> dict[str, tuple[Command, ...]]:
    return {option.kind: option.commands for option in options}


def test_what_runs_without_any_change_needs_none() -> None:
    found = plan(running(*alone("team", 8), node("n1")), [job("a", 8)], MINUTE)

    assert found.best == found.without == found.options[0]
    assert (found.workloads, found.without.p95_wait, found.failed) == (("team/a",), 0, ())


def test_the_least_quota_is_enough_where_nodes_are_idle() -> None:
    """Three jobs of 8 on a quota of 8 and three idle nodes: 16 GPUs of quota more, and no node."""
    base = running(*alone("team", 8), *(node(f"n{number}") for number in (1, 2, 3)))
    found = plan(base, [job("a", 8), job("b", 8), job("c", 8)], MINUTE)

    assert (found.without.holds, found.without.admitted, found.without.p95_wait) == (False, 1, HOUR + SECOND)
    assert found.best is not None
    assert (found.best.kind, found.best.words, found.best.hourly) == ("quota", "quota team +16 GPUs of a100", 0.0)
    assert found.best.commands == (SetQuota("team", "a100", GPU, 24),)
    assert [option.kind for option in found.options] == ["quota"]
    assert base.snapshot().cluster_queues["team"].quotas()["a100", GPU].nominal == 8


def test_the_least_nodes_are_enough_where_quota_is_left_and_they_have_a_price() -> None:
    found = plan(running(*alone("team", 24), node("n1")), [job("a", 8), job("b", 8), job("c", 8)], MINUTE)

    assert kinds(found.options)["nodes"] == (AddNodes("n1", 2),)
    assert found.best is not None
    assert found.best.kind == "nodes"
    assert found.best.hourly == pytest.approx(2 * 8 * 2.21)
    assert "quota" in kinds(found.failed)


def test_both_together_are_found_where_neither_is_enough() -> None:
    found = plan(running(*alone("team", 8), node("n1")), [job("a", 8), job("b", 8)], MINUTE)

    assert list(kinds(found.options)) == ["quota and nodes"]
    assert found.options[0].commands == (SetQuota("team", "a100", GPU, 16), AddNodes("n1", 1))


def small_pods(count: int) -> Command:
    """A job of pods that take one GPU each."""
    whole = waiting("many", "team/lq", 1, annotations={"gpuconsole.io/duration": "10h"})
    return Submit((replace(whole, pod_sets=tuple(replace(part, count=count) for part in whole.pod_sets)),))


def batch_job(name: str, pods: int) -> Command:
    """A batch Job of pods that take eight GPUs each, and work as they come."""
    requests = {"limits": {GPU: "8"}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": requests}]}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": True, "template": {"spec": spec}},
    }
    return Submit(tuple(load_text(json.dumps(document), now=START).objects))


@pytest.mark.parametrize(("pods", "nodes"), [(8, 1), (9, 2), (100, 13)])
def test_of_two_parts_each_is_as_small_as_it_may_be(pods: int, nodes: int) -> None:
    """Pods of one GPU on nodes of eight, all of which are taken: as many GPUs of quota as pods, and few nodes."""
    base = running(*alone("team", 8), node("n1"))
    base.submit(job("first", 8))
    base.advance(base.now + MINUTE)
    found = plan(base, [small_pods(pods)], MINUTE)

    assert list(kinds(found.options)) == ["quota and nodes"]
    assert found.options[0].commands == (SetQuota("team", "a100", GPU, 8 + pods), AddNodes("n1", nodes))


def test_more_than_enough_may_be_too_little_where_others_come_first() -> None:
    """With three nodes more the one that waits for three gets in first, and it takes five; two are enough."""
    base = running(*alone("team", 8), node("n1"))
    base.submit(job("first", 8))
    base.submit(batch_job("huge", 3))
    base.advance(base.now + MINUTE)
    found = plan(base, [batch_job("two", 2)], MINUTE)

    assert list(kinds(found.options)) == ["quota and nodes"]
    assert found.options[0].commands == (SetQuota("team", "a100", GPU, 24), AddNodes("n1", 2))


def stronger(count: int) -> Simulation:
    """Ten minutes later so many come who may evict work of a lower priority."""
    evicting = ClusterQueuePreemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    queue = cluster_queue("team", "", Quota(0), preemption=evicting)
    base = running(queue, LocalQueue(namespace="team", name="lq", cluster_queue="team"), node("n1"))
    for number in range(count):
        base.submit(Later(10 * MINUTE, job(f"strong-{number}", 8, priority=10)))
    return base


def test_what_lets_one_in_that_loses_its_place_again_is_not_enough_where_something_else_is() -> None:
    """With quota for both, the strong one waits for a node instead of taking that of the other one."""
    found = plan(stronger(1), [job("a", 8)], MINUTE)

    assert found.best is not None
    assert (found.best.words, found.best.holds, found.best.evicted_again) == ("quota team +16 GPUs of a100", True, 0)
    assert [option.holds for option in found.options] == [True]


def test_what_lets_one_in_for_a_while_is_enough_where_nothing_else_is_and_said_to_be_that() -> None:
    """The strong ones take all the quota that is tried."""
    found = plan(stronger(64), [job("a", 8)], MINUTE)

    assert found.best is not None
    assert (found.best.kind, found.best.p95_wait, found.best.evicted_again, found.best.victims) == ("quota", 0, 1, 0)
    assert [(option.soon, option.holds) for option in found.options] == [(True, False)]
    lines = plan_lines(found)
    assert lines[3].startswith("evicted later  1/1")
    assert lines[-1] == (
        "no option avoids later eviction; the cheapest that starts them: "
        "quota team +8 GPUs of a100; 1 evicted again; feasible, nothing is reserved"
    )


def test_a_higher_priority_is_told_by_the_name_of_the_job() -> None:
    """Its Workload is called otherwise in every fork, and a what-if that tries the plan has to find it."""
    base = running(*alone("team", 8), node("n1"))
    base.submit(job("first", 8, priority=5))
    base.submit(batch_job("one", 1))
    base.advance(base.now + MINUTE)
    found = kinds(plan(base, [batch_job("other", 1)], MINUTE).failed)

    assert found["priority"] == (SetPriority("Job/team/other", 1000),)


def test_a_job_runs_when_all_of_its_pods_have_nodes() -> None:
    """Two pods of eight on one free node: a Job works with the first, but Kueue takes it back without the second."""
    base = running(*alone("team", 8), node("n1"))
    base.submit(job("first", 8))
    base.advance(base.now + MINUTE)
    found = plan(base, [batch_job("two", 2)], MINUTE)

    assert kinds(found.options) == {"quota and nodes": (SetQuota("team", "a100", GPU, 24), AddNodes("n1", 2))}


def test_the_asked_ones_are_no_victims_of_what_was_not_enough_for_them() -> None:
    """Quota alone admits it to full nodes; Kueue evicts it again when its pods are not ready in time."""
    base = running(*alone("team", 8), node("n1"))
    base.submit(job("first", 8))
    base.advance(base.now + MINUTE)
    found = plan(base, [job("second", 8)], MINUTE)

    assert {option.kind: option.victims for option in found.failed} == {"priority": 0, "quota": 0, "nodes": 0}


def test_policy_is_no_matter_of_a_queue_without_a_cohort() -> None:
    found = plan(running(*alone("team", 8), node("n1")), [job("a", 16)], MINUTE)
    assert not {"preemption", "fair sharing"} & {option.kind for option in (*found.options, *found.failed)}


def test_a_lender_that_may_not_reclaim_needs_to_be_allowed_to() -> None:
    """Borrowers have the cluster; the lender gets its own by policy alone, and they pay for it."""
    queues: list[Object] = [
        cluster_queue("team", "org", Quota(8), preemption=NO_PREEMPTION),
        cluster_queue("other", "org", Quota(0), preemption=NO_PREEMPTION),
        LocalQueue(namespace="team", name="lq", cluster_queue="team"),
        LocalQueue(namespace="other", name="lq", cluster_queue="other"),
        WorkloadPriorityClass(name="x", value=1),
        node("n1"),
    ]
    base = running(*queues)
    base.submit(job("borrows", 8, "other"))
    base.advance(START + 11 * MINUTE)
    found = plan(base, [job("mine", 8)], MINUTE)

    policy = found.options[0]
    assert policy.commands == (SetPreemption("team", reclaim_within_cohort=PreemptionPolicy.ANY),)
    assert (policy.victims, policy.p95_wait) == (1, 30 * SECOND)
    assert policy.lost_gpu_hours == pytest.approx(8 * 602 / 3600)
    assert found.best is policy
    assert [option.kind for option in found.options] == ["preemption", "quota and nodes"]


def test_everything_that_is_proposed_holds_when_it_is_tried_again() -> None:
    base = running(*alone("team", 8), node("n1"))
    asked = [job("a", 8), job("b", 8)]
    options = plan(base, asked, MINUTE).options
    assert [option.kind for option in options] == ["quota and nodes"]
    for option in options:
        again = base.fork()
        for command in (*option.commands, *asked):
            again.submit(command)
        again.advance(again.now + MINUTE)
        assert {pod.name for pod in again.snapshot().pods.all() if pod.node} == {"a-0", "b-0"}


def obstacle(found: CapacityPlan) -> tuple[str, PendingReason, str, tuple[str, ...]]:
    (one,) = found.obstacles
    return one.workload, one.code, one.why, one.remedies


def test_who_waits_already_comes_before_who_is_submitted_after_the_change() -> None:
    """Eight more would let in the one that waits, which is older: it takes sixteen for both."""
    base = running(*alone("team", 8), *(node(f"n{number}") for number in (1, 2, 3)))
    base.submit(job("first", 8))
    base.submit(job("waits", 8))
    base.advance(base.now + MINUTE)
    found = plan(base, [job("asked", 8)], MINUTE)

    assert kinds(found.options)["quota"] == (SetQuota("team", "a100", GPU, 24),)


def test_without_anybody_to_let_in_nothing_is_tried() -> None:
    found = plan(running(*alone("team", 8), node("n1")), [SetQuota("team", "a100", GPU, 9)], MINUTE)
    assert (found.workloads, found.best, found.failed, found.obstacles) == ((), None, (), ())


def test_what_no_candidate_can_mend_is_named_with_what_helps() -> None:
    """No quota and no node opens a queue that is not there."""
    found = plan(running(*alone("team", 8), node("n1")), [job("a", 8, "nowhere")], MINUTE)

    what = "LocalQueue lq does not exist in namespace nowhere."
    helps = "create it, or move the workload to another queue"
    assert found.best is None
    assert obstacle(found) == ("nowhere/a", PendingReason.QUEUE_MISSING, what, (helps,))
    assert plan_lines(found)[-3:] == [
        "no option meets the target",
        f"  nowhere/a: {what}",
        f"    fix: {helps}",
    ]


def test_what_cannot_be_submitted_is_said_in_the_words_of_the_refusal() -> None:
    base = running(*alone("team", 8), node("n1"))
    base.submit(job("a", 8))
    found = plan(base, [job("a", 8)], MINUTE)

    assert found.best is None
    said = "refused: Workload team/a exists already; delete it first, or choose another name"
    assert obstacle(found) == ("", PendingReason.INVALID, said, ())
    assert plan_lines(found)[-1] == f"  {said}"


def test_what_waits_for_less_than_a_change_has_no_obstacle_once_it_runs() -> None:
    assert plan(running(*alone("team", 8), node("n1")), [job("a", 8)], MINUTE).obstacles == ()


def test_quota_that_is_enough_is_found_though_more_of_it_lets_others_in_first_and_no_node_is_bought_beside_it() -> None:
    """With all the quota that is tried the huge one, which came first, takes the idle node."""
    base = running(*alone("team", 8), node("n1"), node("n2"))
    base.submit(job("first", 8))
    base.submit(batch_job("huge", 2))
    base.advance(base.now + MINUTE)
    found = plan(base, [job("a", 8)], MINUTE)

    assert kinds(found.options) == {"quota": (SetQuota("team", "a100", GPU, 16),)}
    assert "quota" in kinds(found.failed)


def test_of_two_queues_only_the_one_that_has_too_little_gets_more() -> None:
    base = running(*alone("rich", 8), *alone("poor", 0), node("n1"), node("n2"))
    found = plan(base, [job("a", 8, "rich"), job("b", 8, "poor")], MINUTE)

    assert kinds(found.options) == {"quota": (SetQuota("poor", "a100", GPU, 8),)}
    assert found.options[0].words == "quota poor +8 GPUs of a100"


def test_only_a_queue_that_takes_nothing_back_yet_is_to_take_it_back() -> None:
    def lender(name: str, reclaims: PreemptionPolicy) -> list[Object]:
        queue = cluster_queue(name, "org", Quota(8), preemption=ClusterQueuePreemption(reclaim_within_cohort=reclaims))
        return [queue, LocalQueue(namespace=name, name="lq", cluster_queue=name)]

    lenders = (*lender("meek", PreemptionPolicy.NEVER), *lender("bold", PreemptionPolicy.ANY))
    idle = LocalQueue(namespace="borrower", name="lq", cluster_queue="borrower")
    base = running(*lenders, cluster_queue("borrower", "org", Quota(0)), idle, node("n1"), node("n2"))
    base.submit(job("one", 8, "borrower"))
    base.submit(job("two", 8, "borrower"))
    base.advance(base.now + MINUTE)
    found = plan(base, [job("a", 8, "meek"), job("b", 8, "bold")], MINUTE)

    takes_back = (SetPreemption("meek", reclaim_within_cohort=PreemptionPolicy.ANY),)
    assert kinds(found.options)["preemption"] == takes_back


@pytest.mark.parametrize("latencies", [None, MEASURED])
def test_who_waits_already_comes_first_however_long_its_victim_holds_quota(latencies: Latencies | None) -> None:
    """Blue may reclaim: its pending job gets the quota of the guest, and loses it to the asked one."""
    blue: ClusterQueue = cluster_queue(
        "blue", "org", Quota(8), preemption=ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY)
    )
    ranks = [WorkloadPriorityClass(name="low", value=100), WorkloadPriorityClass(name="high", value=200)]
    guest, pending, asked = (
        replace(batch(name, team, gpus=8, duration=10 * HOUR, priority_class=rank), created=START)
        for name, team, rank in (("guest", "red", ""), ("pending", "blue", "low"), ("asked", "blue", "high"))
    )
    objects = [A100, node("n1"), *queue("red", 0), blue, LocalQueue(namespace="blue", name="lq", cluster_queue="blue")]
    policy = SimPolicy(latencies=latencies)
    base = Simulation.from_objects([*objects, *ranks, guest], policy=policy, seed=1, start=START)
    base.advance(START + MINUTE)
    base.submit(Submit((pending,)))
    base.advance(START + 2 * MINUTE)

    (option,) = (one for one in plan(base, [Submit((asked,))], 2 * MINUTE).options if one.kind == "preemption")
    assert (option.victims, option.holds) == (2, True)
