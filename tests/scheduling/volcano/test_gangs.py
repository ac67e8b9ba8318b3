"""Jobs as Volcano sees them: when a gang is ready, what its roles and sub-groups need, why it waits."""

import pytest

from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.resources import CPU, GPU, PODS
from gpuconsole.model.volcano import NetworkTopology, SubGroupPolicy
from gpuconsole.scheduling.volcano.api.job import (
    DisruptionBudget,
    FitError,
    FitErrors,
    JobInfo,
    PredicateCode,
    SubJobInfo,
    sub_job_id,
)
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from tests.support.volcano_clusters import job, pod, task

S = TaskStatus


def members(*statuses: TaskStatus, role: str = "", start: int = 0) -> list[TaskInfo]:
    """Tasks of these statuses."""
    made = [task(f"p{number}", role=role) for number in range(start, start + len(statuses))]
    for one, status in zip(made, statuses, strict=True):
        one.status = status
    return made


GANGS: dict[str, tuple[tuple[TaskStatus, ...], int, tuple[bool, bool, bool]]] = {
    # ready, pipelined, starving
    "all wait": ((S.PENDING, S.PENDING), 2, (False, False, True)),
    "one runs and one has a node": ((S.RUNNING, S.ALLOCATED), 2, (True, True, False)),
    "one waits for room": ((S.RUNNING, S.PIPELINED), 2, (False, True, False)),
    "one is done": ((S.RUNNING, S.SUCCEEDED), 2, (True, True, False)),
    "one failed": ((S.RUNNING, S.FAILED), 2, (False, False, True)),
    "one is leaving": ((S.BOUND, S.RELEASING), 2, (False, False, True)),
    "more than it needs": ((S.BINDING, S.RUNNING, S.PENDING), 2, (True, True, False)),
}


@pytest.mark.parametrize("name", GANGS)
def test_a_gang_counts_its_tasks(name: str) -> None:
    statuses, least, wanted = GANGS[name]
    gang = job(members(*statuses), min_member=least)
    assert (gang.is_ready(), gang.is_pipelined(), gang.is_starving()) == wanted


def test_a_task_that_asks_for_nothing_counts_as_ready_but_does_not_end_starving() -> None:
    gang = job([task("p", requests={})], min_member=1)
    assert (gang.is_ready(), gang.is_pipelined(), gang.is_starving()) == (True, True, True)
    assert (gang.ready_task_num, gang.pending_best_effort_num) == (0, 1)


def test_sums_follow_the_status_of_tasks() -> None:
    gang = job(members(S.PENDING, S.PENDING))
    first = gang.tasks["p0"]
    each = Resource(1000, 0, {GPU: 1000, PODS: 1})
    gang.update_status(first, S.ALLOCATED)
    assert (gang.allocated, gang.total_request) == (each, each.copy().add(each))
    gang.delete_task(first)
    assert gang.allocated == Resource(0, 0, {GPU: 0, PODS: 0})
    assert (sorted(gang.tasks), [*gang.task_status_index]) == (["p1"], [S.PENDING])


def test_what_is_held_beyond_the_minimum_is_elastic() -> None:
    gang = job(members(S.RUNNING, S.RUNNING), min_resources={CPU: 1500, GPU: 1})
    assert gang.elastic_resources() == Resource(500, 0, {GPU: 1000, PODS: 2})
    assert job(members(S.RUNNING)).min_resources() == Resource()


def test_gated_tasks_do_not_count_unless_only_volcano_keeps_them() -> None:
    ours, theirs = ("scheduling.volcano.sh/queue-allocation-gate",), ("example.com/wait",)
    gang = job([TaskInfo(pod("a", gates=ours)), TaskInfo(pod("b", gates=theirs))])
    assert gang.gated_resources() == Resource(1000, 0, {GPU: 1000, PODS: 1})
    assert gang.without_gated(Resource(1500, 5, {"a/a": 1, GPU: 500})) == Resource(500, 5, {"a/a": 1, GPU: 0})


ROLES: dict[str, tuple[int, dict[str, int], tuple[bool, bool, bool]]] = {
    # One worker runs, one waits for room, a third is pending; the master is pending. valid, ready, pipelined
    "each role has enough": (4, {"worker": 1}, (True, True, True)),
    "a role waits for room": (4, {"worker": 2}, (True, False, True)),
    "a role has one without a place": (4, {"worker": 2, "master": 1}, (True, False, False)),
    "a role has too few tasks": (4, {"master": 2}, (False, False, False)),
    "the job needs less than its roles": (1, {"master": 2}, (True, True, True)),
}


@pytest.mark.parametrize("name", ROLES)
def test_roles_count_beside_the_job(name: str) -> None:
    least, roles, wanted = ROLES[name]
    workers = members(S.RUNNING, S.PIPELINED, S.PENDING, role="worker")
    gang = job([*workers, *members(S.PENDING, role="master", start=3)], min_member=least, min_task_member=roles)
    got = gang.role_minimums
    assert (got.are_valid(), got.are_ready(), got.are_pipelined()) == wanted


def failing(gang: JobInfo, *uids: str) -> JobInfo:
    for uid in uids:
        gang.node_fit_errors[uid] = FitErrors()
    return gang


def test_a_job_goes_on_only_while_it_can_become_ready() -> None:
    workers, masters = members(S.PENDING, S.PENDING, role="worker"), members(S.RUNNING, role="master", start=2)

    def continues(least: int, roles: dict[str, int], *failed: str) -> bool:
        gang = failing(job([*workers, *masters], min_member=least, min_task_member=roles), *failed)
        return gang.role_minimums.may_become_ready("default/job")

    assert not continues(3, {}, "p0"), "every task is needed"
    assert continues(1, {}, "p0")
    assert continues(1, {"worker": 2}, "p0"), "the master alone is enough"
    assert not continues(2, {"worker": 2, "master": 1}, "p0"), "nobody is left but workers"
    assert not continues(2, {"worker": 1}, "p0"), "the role has too few"


def test_a_task_of_a_role_that_failed_is_not_tried() -> None:
    gang = failing(job(members(S.PENDING, S.PENDING, role="worker")), "p0")
    assert gang.task_has_fit_errors("default/job", gang.tasks["p1"])
    gang.reset_fit_errors("default/job")
    assert not gang.task_has_fit_errors("default/job", gang.tasks["p1"])


def policy(**facts: object) -> SubGroupPolicy:
    given: dict[str, object] = {"name": "ranks", "size": 2, "match_label_keys": ("rank",), **facts}
    return SubGroupPolicy(**given)  # type: ignore[arg-type]


def test_tasks_are_grouped_by_the_values_of_their_labels() -> None:
    labels: list[dict[str, str]] = [{"rank": "0"}, {"rank": "1"}, {"rank": "1"}, {"rank": ""}, {}]
    tasks = [task(f"p{number}", labels=one) for number, one in enumerate(labels)]
    near = NetworkTopology("hard", 1)
    gang = job(tasks, sub_groups=(policy(network_topology=near, least=2),), network_topology=NetworkTopology("soft"))
    assert {uid: sorted(sub.tasks) for uid, sub in gang.sub_jobs.items()} == {
        "default/job/ranks-0": ["p0"],
        "default/job/ranks-1": ["p1", "p2"],
        "default/job": ["p3", "p4"],
    }
    first = gang.sub_jobs["default/job/ranks-1"]
    assert (first.gid, first.min_available, first.match_index, first.hard_tier) == ("default/job/ranks", 2, 1, 1)
    assert (gang.sub_jobs["default/job"].min_available, gang.sub_jobs["default/job"].is_soft) == (1, True)
    assert (gang.check_sub_job_valid(), gang.check_sub_job_ready()) == (True, False)
    assert gang.contains_hard_topology


def test_a_selector_keeps_other_pods_out_of_a_policy() -> None:
    chosen = policy(selector=LabelSelector({"role": "worker"}))
    gang = job([task("p", labels={"rank": "0"})], sub_groups=(chosen,))
    assert [*gang.sub_jobs] == ["default/job"]


def test_without_policies_the_whole_job_is_one_group() -> None:
    (only,) = job(members(S.PENDING, S.PENDING), min_member=2).sub_jobs.values()
    assert (only.uid, only.min_available, len(only.tasks)) == ("default/job", 2, 2)
    assert only.min_resources() == Resource(2000, 0, {GPU: 2000, PODS: 2})


def test_names_of_groups_that_are_too_long_are_hashed() -> None:
    assert sub_job_id("j", "p", ("a" * 64, "b" * 64)) == "j/p-ddbfd9fcb"
    assert sub_job_id("j", "p", ("a" * 64, "b" * 63)) == f"j/p-{'a' * 64}-{'b' * 63}"


def test_a_soft_topology_becomes_a_hard_one_that_all_keep() -> None:
    soft, hard = (
        policy(network_topology=NetworkTopology("soft", 1)),
        policy(network_topology=NetworkTopology("hard", 1)),
    )
    for given, wanted in ((soft, 5), (hard, 1)):
        group = SubJobInfo("g", "u", "j", given)
        group.convert_to_hard(5)
        assert group.network_topology == NetworkTopology("hard", wanted)


def test_what_a_pod_group_says_of_its_job() -> None:
    said = {
        "volcano.sh/sla-waiting-time": "never",
        "sla-waiting-time": "1h",
        "volcano.sh/preemptable": "true",
        "volcano.sh/jdb-min-available": "50%",
    }
    gang = job(annotations=said)
    assert (gang.waiting_time, gang.preemptable, gang.revocable_zone) == (3_600_000_000, True, "*")
    assert gang.budget == DisruptionBudget(min_available="50%")
    silent = job(labels={"volcano.sh/preemptable": "maybe"}, annotations={"volcano.sh/revocable-zone": "zone-1"})
    assert (silent.waiting_time, silent.preemptable, silent.revocable_zone) == (None, False, "")


def test_a_clone_has_tasks_of_its_own() -> None:
    gang = job(members(S.RUNNING, S.PENDING), min_member=2)
    gang.sub_jobs["default/job"].nominated_hyper_node = "rack"
    twin = gang.copy()
    twin.update_status(twin.tasks["p1"], S.ALLOCATED)
    assert (gang.ready_task_num, twin.ready_task_num, twin.min_available) == (1, 2, 2)
    assert twin.sub_jobs["default/job"].nominated_hyper_node == "rack"


def test_a_job_says_why_it_waits() -> None:
    gang = job(members(S.PENDING, S.PENDING, S.PENDING), min_member=3)
    placed, waiting, failed = gang.tasks.values()
    for one, status, where in ((placed, S.ALLOCATED, "n1"), (waiting, S.PIPELINED, "n2")):
        one.status, one.node_name, one.eviction_occurred = status, where, True
        one.save_transaction()
        one.status = S.PENDING
    errors = FitErrors()
    errors.set_error("n1", FitError.from_reasons(PredicateCode.UNSCHEDULABLE, "Insufficient cpu"))
    errors.set_error(
        "n2", FitError.from_reasons(PredicateCode.UNRESOLVABLE, "node(s) were unschedulable", "Insufficient cpu")
    )
    gang.node_fit_errors[failed.uid] = errors
    text = "0/2 nodes are unavailable: 1 node(s) were unschedulable, 2 Insufficient cpu."
    assert errors.unresolvable_nodes() == {"n2"}
    assert [gang.task_reason(uid) for uid in gang.tasks] == [
        ("Schedulable", "Pod default/p0 can possibly be assigned to n1, once minAvailable is satisfied", ""),
        (
            "Unschedulable",
            "Pod default/p1 can possibly be assigned to n2, once resource is released and minAvailable is satisfied",
            "n2",
        ),
        ("Unschedulable", text, ""),
    ]
    start = "pod group is not ready, 3 Pending, 3 minAvailable; Pending: 1 Schedulable, 2 Unschedulable"
    assert gang.fit_message == f"{start}. Origin reason is p2: {text}"
    gang.fit_error = "queue is full"
    assert gang.fit_message == f"{start}. Origin reason is: queue is full"


def test_tasks_go_by_the_number_of_their_name_then_by_age() -> None:
    second, tenth = task("job-worker-2"), task("job-worker-10")
    older, younger = TaskInfo(pod("b", created=1)), TaskInfo(pod("a", created=2))
    assert (second.precedes(tenth), tenth.precedes(second)) == (True, False)
    assert (older.precedes(younger), younger.precedes(older)) == (True, False)
    assert task("x-1").precedes(task("x-0")) is False, "two parts are no number of a task"
