"""Capacity on request: what is asked of an autoscaler, attempt by attempt, and what its answers make of a check."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    ProvisioningRequest,
    ProvisioningRequestConfig,
    RequestedPods,
    RetryStrategy,
    StoredTemplate,
)
from gpuconsole.model.clock import SECOND
from gpuconsole.model.labels import Toleration
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor
from gpuconsole.model.workloads import Admission, CheckState, Condition, PodSetAssignment, PodSetUpdate, Workload
from gpuconsole.scheduling.kueue.admission_checks import (
    PROVISIONING_CONTROLLER,
    InconsistentAssignments,
    ProvisioningEvent,
    ProvisioningObjects,
    ProvisioningResult,
    active_condition,
    attempt_of,
    config_of,
    is_needed,
    reconcile_provisioning,
    request_name,
    requested_pods,
    template_name,
)

PARAMETERS = "kueue.x-k8s.io/ProvisioningRequestConfig/dws"
CHECK = AdmissionCheck(name="dws", controller=PROVISIONING_CONTROLLER, parameters=PARAMETERS)
CONFIG = ProvisioningRequestConfig(name="dws", provisioning_class="queued", parameters={"maxRun": "24h"})
H200 = ResourceFlavor(
    name="h200", node_labels={"gpu": "h200"}, tolerations=(Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),)
)
TEMPLATE = PodTemplate(containers=(Container(requests={"nvidia.com/gpu": 8}, limits={"nvidia.com/gpu": 8}),))
TRAIN = Workload(
    namespace="ml",
    name="train",
    pod_sets=(PodSet(name="workers", count=4, template=TEMPLATE),),
    conditions=(Condition("QuotaReserved", True),),
    admission=Admission(
        cluster_queue="research",
        pod_sets=(PodSetAssignment(name="workers", flavors={"nvidia.com/gpu": "h200"}, count=4),),
    ),
    checks=(CheckState(name="dws"),),
)
FIRST = ProvisioningRequest(
    namespace="ml",
    name="train-dws-1",
    created=7,
    labels={"kueue.x-k8s.io/managed": "true"},
    owners=("train",),
    provisioning_class="queued",
    parameters={"maxRun": "24h"},
    pod_sets=(RequestedPods("ppt-train-dws-1-workers", 4),),
)


def around(*requests: ProvisioningRequest, config: ProvisioningRequestConfig = CONFIG) -> ProvisioningObjects:
    return ProvisioningObjects(
        checks={"dws": CHECK}, configs={"dws": config}, flavors={"h200": H200}, templates={}, requests=requests
    )


def said(type: str, message: str = "so it is", request: ProvisioningRequest = FIRST) -> ProvisioningRequest:
    return replace(request, conditions=(Condition(type, True, message=message),))


def with_check(**changes: object) -> Workload:
    return replace(TRAIN, checks=(replace(CheckState(name="dws"), **changes),))


def test_a_workload_with_quota_asks_for_its_pods_where_its_flavor_is() -> None:
    template = StoredTemplate(
        namespace="ml",
        name="ppt-train-dws-1-workers",
        labels={"kueue.x-k8s.io/managed": "true"},
        owner="ProvisioningRequest/ml/train-dws-1",
        template=replace(TEMPLATE, node_selector={"gpu": "h200"}, tolerations=H200.tolerations),
    )
    assert reconcile_provisioning(TRAIN, around(), 7) == ProvisioningResult(
        workload=TRAIN,
        created=(FIRST,),
        templates=(template,),
        events=(ProvisioningEvent("ProvisioningRequestCreated", 'Created ProvisioningRequest: "train-dws-1"'),),
    )


def test_the_template_asks_for_its_limits_where_it_requests_nothing_else() -> None:
    limited = replace(TEMPLATE, containers=(Container(requests={"cpu": 1000}, limits={"cpu": 2000, "gpu": 1}),))
    train = replace(TRAIN, pod_sets=tuple(replace(pods, template=limited) for pods in TRAIN.pod_sets))
    (template,) = reconcile_provisioning(train, around(), 7).templates
    (container,) = template.template.containers
    assert (container.requests, container.limits) == ({"cpu": 1000, "gpu": 1}, {"cpu": 2000, "gpu": 1})


def test_nothing_is_asked_before_there_is_quota() -> None:
    waiting = replace(TRAIN, conditions=(), admission=None)
    assert reconcile_provisioning(waiting, around(), 7) == ProvisioningResult(workload=waiting)


def test_annotations_of_the_workload_are_passed_on_as_parameters() -> None:
    annotated = replace(TRAIN, annotations={"provreq.kueue.x-k8s.io/zone": "b", "other": "x"})
    (request,) = reconcile_provisioning(annotated, around(), 7).created
    assert request.parameters == {"maxRun": "24h", "zone": "b"}


CONSUMER = {
    "autoscaling.x-k8s.io/consume-provisioning-request": "train-dws-1",
    "autoscaling.x-k8s.io/provisioning-class-name": "queued",
}
ANSWERS = {
    "failure sends it back for a minute": (
        said("Failed", "no room"),
        CheckState(name="dws", state="Retry", message="Retrying after failure: no room", requeue_after=60),
    ),
    "an expired booking, too": (
        said("BookingExpired", "too late"),
        CheckState(name="dws", state="Retry", message="Retrying after booking expired: too late", requeue_after=60),
    ),
    "capacity that is taken away rejects it": (
        said("CapacityRevoked", "spot is gone"),
        CheckState(name="dws", state="Rejected", message="spot is gone"),
    ),
    "capacity lets it run, and tells its pods where": (
        said("Provisioned", "4 nodes"),
        CheckState(
            name="dws",
            state="Ready",
            message="4 nodes",
            updates=(PodSetUpdate(name="workers", annotations=CONSUMER),),
        ),
    ),
    "an estimate is passed on": (
        replace(FIRST, conditions=(Condition("Accepted", True), Condition("Provisioned", False, message="ETA 10:36"))),
        CheckState(name="dws", message="ETA 10:36"),
    ),
    "no answer yet": (FIRST, CheckState(name="dws")),
}


@pytest.mark.parametrize(("request_", "state"), ANSWERS.values(), ids=ANSWERS)
def test_the_answer_decides_the_check(request_: ProvisioningRequest, state: CheckState) -> None:
    outcome = reconcile_provisioning(TRAIN, around(request_), 7)
    moved = replace(state, since=None if state.state == "Pending" else 7)
    assert outcome.workload == replace(TRAIN, checks=(moved,))
    assert (outcome.created, outcome.deleted) == ((), ())


def test_delays_double_up_to_the_longest_and_the_fourth_failure_rejects() -> None:
    config = replace(CONFIG, retry=RetryStrategy(limit=3, base=60 * SECOND, most=100 * SECOND))
    states = []
    for attempt in (1, 2, 3, 4):
        failed = said("Failed", "no room", replace(FIRST, name=f"train-dws-{attempt}"))
        (state,) = reconcile_provisioning(
            with_check(retry_count=attempt - 1), around(failed, config=config), 7
        ).workload.checks
        states.append((state.state, state.requeue_after))
    assert states == [("Retry", 60), ("Retry", 100), ("Retry", 100), ("Rejected", None)]


def test_after_a_failure_the_next_attempt_is_made_when_the_workload_has_its_quota_again() -> None:
    failed = said("Failed", "no room")
    again = reconcile_provisioning(with_check(retry_count=1), around(failed), 9)
    assert [request.name for request in again.created] == ["train-dws-2"]
    kept = reconcile_provisioning(with_check(retry_count=1), around(), 9)
    assert [request.name for request in kept.created] == ["train-dws-2"], "the check remembers attempts that are gone"


def test_a_booking_that_expires_while_the_workload_runs_is_of_no_concern() -> None:
    running = replace(
        with_check(state="Ready"), conditions=(Condition("QuotaReserved", True), Condition("Admitted", True))
    )
    assert reconcile_provisioning(running, around(said("BookingExpired")), 9) == ProvisioningResult(workload=running)


def test_requests_go_when_the_workload_is_evicted_or_ends_or_the_config_asks_for_something_else() -> None:
    evicted = TRAIN.with_condition(Condition("Evicted", True, "Preempted"))
    assert reconcile_provisioning(evicted, around(FIRST), 9) == ProvisioningResult(
        workload=evicted, deleted=("ml/train-dws-1",)
    )
    assert reconcile_provisioning(evicted, around(FIRST), 9, clean_up=False) == ProvisioningResult(workload=evicted)
    finished = TRAIN.with_condition(Condition("Finished", True))
    assert reconcile_provisioning(finished, around(FIRST), 9) == ProvisioningResult(
        workload=finished, deleted=("ml/train-dws-1",)
    )
    other = replace(FIRST, parameters={"maxRun": "1h"})
    outcome = reconcile_provisioning(TRAIN, around(other), 9)
    assert (outcome.deleted, [request.name for request in outcome.created]) == (("ml/train-dws-1",), ["train-dws-1"])


def test_a_workload_without_managed_resources_passes_at_once() -> None:
    config = replace(CONFIG, managed_resources=("google.com/tpu",))
    outcome = reconcile_provisioning(TRAIN, around(config=config), 9)
    message = "the provisioning request is not needed"
    assert outcome == ProvisioningResult(
        workload=with_check(state="Ready", message=message, since=9),
        events=(
            ProvisioningEvent(
                "AdmissionCheckUpdated",
                f"Admission check dws updated state from Pending to Ready with message: {message}",
            ),
        ),
    )


def test_a_check_without_its_config_waits() -> None:
    lost = ProvisioningObjects(checks={"dws": CHECK}, configs={}, flavors={}, templates={}, requests=())
    assert reconcile_provisioning(TRAIN, lost, 9) == ProvisioningResult(
        workload=with_check(message="the check is not active")
    )


def test_pod_sets_that_need_the_same_are_asked_for_together() -> None:
    sets = tuple(PodSet(name=name, count=2, template=TEMPLATE) for name in ("a", "b"))
    urgent = replace(sets[1], template=replace(TEMPLATE, priority_class="urgent"))
    given = tuple(PodSetAssignment(name=name, count=2) for name in ("a", "b"))
    alike = replace(TRAIN, pod_sets=sets, admission=Admission(cluster_queue="q", pod_sets=given))
    differing = replace(alike, pod_sets=(sets[0], urgent))

    def counts(workload: Workload, policy: str) -> list[tuple[str, int]]:
        config = replace(CONFIG, merge_policy=policy)
        return [(pods.pod_set.name, pods.count) for pods in requested_pods(workload, config)]

    assert counts(alike, "") == [("a", 2), ("b", 2)]
    assert counts(alike, "IdenticalPodTemplates") == [("a", 4)]
    assert counts(differing, "IdenticalPodTemplates") == [("a", 2), ("b", 2)]
    assert counts(differing, "IdenticalWorkloadSchedulingRequirements") == [("a", 4)]


def test_an_admission_that_misses_a_pod_set_is_an_error() -> None:
    lacking = replace(TRAIN, admission=Admission(cluster_queue="q"))
    with pytest.raises(InconsistentAssignments, match='missing assignment for PodSet "workers"'):
        is_needed(lacking, CONFIG)


def test_names_tell_the_attempt_and_stay_within_253_characters() -> None:
    assert (request_name("w", "c", 12), template_name("w-c-12", "main")) == ("w-c-12", "ppt-w-c-12-main")
    assert attempt_of(ProvisioningRequest(name="w-c-12"), "w", "c") == 12
    assert attempt_of(ProvisioningRequest(name="w-c-12"), "w", "d") is None
    long = request_name("w" * 240, "check-of-some-length", 1)
    assert (len(long), long[:247]) == (253, ("w" * 240 + "-check-of-some-length")[:247])


REFERENCES = {
    "to its config": (PARAMETERS, "dws", "The admission check is active"),
    "to a config that is not there": (
        "kueue.x-k8s.io/ProvisioningRequestConfig/lost",
        "lost",
        'provisioningrequestconfigs.kueue.x-k8s.io "lost" not found',
    ),
    "to another kind": (
        "kueue.x-k8s.io/MultiKueueConfig/dws",
        "",
        'wrong kind "MultiKueueConfig", expecting "ProvisioningRequestConfig": bad parameters reference',
    ),
    "to another group": (
        "x.io/ProvisioningRequestConfig/dws",
        "",
        'wrong group "x.io", expecting "kueue.x-k8s.io": bad parameters reference',
    ),
    "to nothing": ("", "", "missing parameters reference"),
}


@pytest.mark.parametrize(("parameters", "config", "message"), REFERENCES.values(), ids=REFERENCES)
def test_a_check_is_active_while_it_refers(parameters: str, config: str, message: str) -> None:
    check = replace(CHECK, parameters=parameters)
    condition = active_condition(check, {"dws": CONFIG})
    assert condition is not None
    assert (config_of(check), condition.message, condition.status) == (config, message, parameters == PARAMETERS)
    assert active_condition(replace(check, controller="other"), {"dws": CONFIG}) is None
