"""Admission checks: a workload with quota waits for them, runs, is sent back, or is stopped."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequestConfig
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.commands import AnswerCheck, Delete
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck, CheckRule, ClusterQueue, ResourceFlavor
from gpuconsole.model.workloads import CheckState, PodSetUpdate, WorkloadPhase, phase
from gpuconsole.scheduling.kueue.admission_checks import PROVISIONING_CONTROLLER
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import Autoscaler, Checks, SimPolicy
from tests.support.sim_cluster import A100, START, job, key_of, nodes, queue, run, start, submit

WAITING = SimPolicy(checks=Checks.WAIT)
DWS = AdmissionCheck(
    name="dws", controller=PROVISIONING_CONTROLLER, parameters="kueue.x-k8s.io/ProvisioningRequestConfig/dws"
)


def checked(*names: str, checks: tuple[AdmissionCheck, ...] = ()) -> list[Object]:
    """One team with 8 GPUs on two nodes, whose workloads pass these checks."""
    team, door = queue("red", 8)
    assert isinstance(team, ClusterQueue)
    rules = tuple(CheckRule(name) for name in names)
    known = checks or tuple(AdmissionCheck(name=name, controller="example.com/budget") for name in names)
    flavor = ResourceFlavor(name="a100", node_labels=A100)
    return [flavor, *nodes(2), *known, replace(team, checks=rules), door]


def states(simulation: Simulation, name: str = "red/train") -> list[tuple[str, str, str]]:
    workload = simulation.snapshot().workloads[key_of(simulation, name)]
    return [(check.name, check.state, check.message) for check in workload.checks]


def test_a_check_that_nobody_here_answers_passes_at_once() -> None:
    simulation = start(checked("budget"))
    submit(simulation, job("train", duration=MINUTE))
    assert run(simulation, 0) == [
        "0:00 reserved red/train",
        "0:00 admitted red/train",
        "0:00 started red/train",
    ]
    assert states(simulation) == [("budget", "Ready", "Passed: the simulation has no controller for this check")]


def test_where_checks_wait_the_workload_holds_its_quota_without_pods_until_all_are_answered() -> None:
    simulation = start(checked("budget", "security"), WAITING)
    submit(simulation, job("train", duration=MINUTE))
    key = key_of(simulation, "red/train")
    assert phase(simulation.snapshot().workloads[key]) is WorkloadPhase.QUOTA_RESERVED
    simulation.submit(AnswerCheck(key, "budget", "Ready", "paid"))
    assert (phase(simulation.snapshot().workloads[key]), len(simulation.snapshot().pods)) == (
        WorkloadPhase.QUOTA_RESERVED,
        0,
    )
    simulation.advance(START + 5 * SECOND)
    simulation.submit(AnswerCheck(key, "security", "Ready"))
    assert run(simulation, 10 * MINUTE) == [
        "0:00 reserved red/train",
        "0:05 admitted red/train",
        "0:05 started red/train",
        "1:05 finished red/train",
    ]


def test_retry_sends_the_workload_back_and_it_reserves_again() -> None:
    simulation = start(checked("budget"), WAITING)
    submit(simulation, job("train", duration=MINUTE))
    key = key_of(simulation, "red/train")
    simulation.submit(AnswerCheck(key, "budget", "Retry", "month is over"))
    workload = simulation.snapshot().workloads[key]
    evicted = workload.condition("Evicted")
    assert evicted is not None
    message = 'Evicted due to AdmissionCheck in Retry state: "budget" (month is over)'
    assert (evicted.reason, evicted.message) == ("AdmissionCheck", message)
    assert workload.checks == (
        CheckState(
            name="budget", message="Reset to Pending after eviction. Previously: Retry", retry_count=1, since=START
        ),
    )
    simulation.advance(START + MINUTE)
    workload = simulation.snapshot().workloads[key]
    requeued = workload.condition("Requeued")
    assert requeued is not None
    assert (requeued.status, requeued.reason) == (True, "BackoffFinished")
    assert phase(workload) is WorkloadPhase.QUOTA_RESERVED


def test_a_rejection_stops_the_workload() -> None:
    simulation = start(checked("budget"), WAITING)
    submit(simulation, job("train", duration=MINUTE))
    key = key_of(simulation, "red/train")
    simulation.submit(AnswerCheck(key, "budget", "Rejected", "too dear"))
    simulation.advance(START + MINUTE)
    workload = simulation.snapshot().workloads[key]
    evicted = workload.condition("Evicted")
    assert evicted is not None
    assert (workload.active, workload.reserved, evicted.reason, evicted.message) == (
        False,
        False,
        "DeactivatedDueToAdmissionCheck",
        'The workload is deactivated due to AdmissionCheck in Rejected state: "budget" (too dear)',
    )


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    simulation = start(checked("budget"), WAITING)
    submit(simulation, job("train", gpus=4, pods=2), job("late"))
    train, late = key_of(simulation, "red/train"), key_of(simulation, "red/late")
    for workload, check in (("red/nobody", "budget"), (train, "bugdet"), (late, "budget")):
        simulation.submit(AnswerCheck(workload, check, "Ready"))
    refused = [line.message for line in simulation.snapshot().recent if line.what is HistoryEventKind.COMMAND_REFUSED]
    assert refused == [
        "there is no workload red/nobody",
        f"workload {train} has no check bugdet; it has: budget",
        f"workload {late} has no check budget; it has: none",
    ]


@pytest.mark.parametrize("name", ["red/train", "Job/red/train"])
def test_a_check_is_answered_by_the_name_of_the_job_too(name: str) -> None:
    simulation = start(checked("budget"), WAITING)
    submit(simulation, job("train", gpus=4, pods=2))
    simulation.submit(AnswerCheck(name, "budget", "Ready", "fine"))
    assert states(simulation) == [("budget", "Ready", "fine")]


def capacity(**autoscaler: int) -> Simulation:
    config = ProvisioningRequestConfig(name="dws", provisioning_class="queued-provisioning.gke.io")
    policy = SimPolicy(autoscaler=Autoscaler(**autoscaler))
    return start([config, *checked("dws", checks=(DWS,))], policy)


def test_capacity_is_asked_for_and_the_pods_are_told_where_it_is() -> None:
    simulation = capacity(delay=90 * SECOND)
    submit(simulation, job("train", gpus=4, duration=MINUTE))
    key = key_of(simulation, "red/train")
    name = f"{key.partition('/')[2]}-dws-1"
    assert list(simulation.snapshot().provisioning_requests) == [f"red/{name}"]
    assert run(simulation, 90 * SECOND) == [
        "0:00 reserved red/train",
        "1:30 admitted red/train",
        "1:30 started red/train",
    ]
    (state,) = simulation.snapshot().workloads[key].checks
    annotations = {
        "autoscaling.x-k8s.io/consume-provisioning-request": name,
        "autoscaling.x-k8s.io/provisioning-class-name": "queued-provisioning.gke.io",
    }
    assert state == CheckState(
        name="dws",
        state="Ready",
        message="capacity is found in the cluster",
        since=START + 90 * SECOND,
        updates=(PodSetUpdate(name="main", annotations=annotations),),
    )
    simulation.advance(START + 10 * MINUTE)
    assert len(simulation.snapshot().provisioning_requests) == len(simulation.snapshot().pod_templates) == 0


def test_failed_attempts_follow_each_other_after_longer_and_longer_back_offs() -> None:
    simulation = capacity(delay=10 * SECOND, failures=2)
    submit(simulation, job("train", gpus=4, duration=MINUTE))
    # Each attempt is answered after 10 s. For 60 s, then 120 s after a failure Kueue only waits, quota and all.
    assert run(simulation, 10 * MINUTE) == [
        "0:00 reserved red/train",
        "1:10 evicted red/train AdmissionCheck",
        "1:11 requeued red/train",
        "1:11 reserved red/train",
        "3:21 evicted red/train AdmissionCheck",
        "3:22 requeued red/train",
        "3:22 reserved red/train",
        "3:32 admitted red/train",
        "3:32 started red/train",
        "4:32 finished red/train",
    ]


def test_after_the_fourth_failure_the_workload_is_stopped() -> None:
    simulation = capacity(delay=10 * SECOND, failures=9)
    submit(simulation, job("train", gpus=4, duration=MINUTE))
    key = key_of(simulation, "red/train")
    simulation.advance(START + 60 * MINUTE)
    workload = simulation.snapshot().workloads[key]
    evicted = workload.condition("Evicted")
    assert evicted is not None
    message = 'The workload is deactivated due to AdmissionCheck in Rejected state: "dws" (capacity is not available)'
    assert (workload.active, evicted.message) == (False, message)


def test_what_does_not_fit_the_nodes_is_not_found() -> None:
    simulation = capacity(delay=10 * SECOND)
    submit(simulation, job("wide", gpus=8, duration=MINUTE))
    name = key_of(simulation, "red/wide").partition("/")[2]
    simulation.advance(START + 70 * SECOND)
    evicted = simulation.snapshot().workloads[f"red/{name}"].condition("Evicted")
    assert evicted is not None
    lacking = f"capacity is not found: 0 of 1 pods of ppt-{name}-dws-1-main would fit"
    assert evicted.message == f'Evicted due to AdmissionCheck in Retry state: "dws" (Retrying after failure: {lacking})'


def test_a_deleted_workload_takes_its_request_along() -> None:
    simulation = capacity(delay=10 * SECOND)
    submit(simulation, job("train", gpus=4))
    simulation.submit(Delete("workloads", key_of(simulation, "red/train")))
    snapshot = simulation.snapshot()
    assert (len(snapshot.provisioning_requests), len(snapshot.pod_templates)) == (0, 0)


def test_a_saved_and_a_forked_simulation_wait_for_the_same_answer() -> None:
    simulation = capacity(delay=90 * SECOND, failures=1)
    submit(simulation, job("train", gpus=4, duration=MINUTE))
    simulation.advance(START + 30 * SECOND)
    twins = [simulation.fork(), Simulation.load(simulation.save())]
    expected = run(simulation, 20 * MINUTE)
    assert [run(twin, 20 * MINUTE) for twin in twins] == [expected, expected]
    assert expected[-1].endswith("finished red/train")


def test_a_check_without_its_config_keeps_the_queue_inactive_until_it_comes() -> None:
    simulation = start(checked("dws", checks=(DWS,)))
    assert not simulation.snapshot().admission_checks["dws"].active
    submit(simulation, job("train", duration=MINUTE))
    (workload,) = simulation.snapshot().workloads.all()
    assert [condition.message for condition in workload.conditions] == ["ClusterQueue red is inactive"]
    submit(simulation, ProvisioningRequestConfig(name="dws", provisioning_class="queued"))
    assert simulation.snapshot().admission_checks["dws"].active
    assert run(simulation, 0) == ["0:00 reserved red/train"]
    simulation.submit(Delete("provisioning_request_configs", "dws"))
    assert not simulation.snapshot().admission_checks["dws"].active
