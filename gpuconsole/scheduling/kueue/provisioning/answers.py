"""Updates an admission check from the state of its ProvisioningRequest (Kueue 0.19 controller.go: syncCheckStates)."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest, ProvisioningRequestConfig, RetryStrategy
from gpuconsole.model.clock import SECOND
from gpuconsole.model.workloads import CheckState, PodSetUpdate, Workload
from gpuconsole.scheduling.kueue.provisioning.attempts import attempt_of, template_name
from gpuconsole.scheduling.kueue.requeueing import backoff

PROVISIONED, ACCEPTED, FAILED = "Provisioned", "Accepted", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
INACTIVE = "the check is not active"
NOT_NEEDED = "the provisioning request is not needed"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name"


def without_config(state: CheckState) -> CheckState:
    """Return the check state while the ProvisioningRequestConfig is missing."""
    return replace(state, state="Pending", message=INACTIVE)


def without_need(state: CheckState) -> CheckState:
    """Return the check state of a workload that needs no request: Ready."""
    return state if state.state == "Ready" else replace(state, state="Ready", message=NOT_NEEDED, updates=())


def answered(
    workload: Workload, state: CheckState, request: ProvisioningRequest, config: ProvisioningRequestConfig
) -> CheckState:
    """Return the check state for its newest request. Conditions are evaluated in Kueue's order: Failed first."""
    if request.condition(FAILED):
        return _again(workload, state, request, config.retry, FAILED, "Retrying after failure")
    if request.condition(CAPACITY_REVOKED):
        # Its nodes are being removed: recreated pods would stay pending, so a rejection deactivates the workload.
        if not workload.active or workload.finished:
            return state
        return replace(state, state="Rejected", message=request.message(CAPACITY_REVOKED))
    if request.condition(BOOKING_EXPIRED):
        if workload.admitted:
            return state
        return _again(workload, state, request, config.retry, BOOKING_EXPIRED, "Retrying after booking expired")
    if request.condition(PROVISIONED):
        if state.state == "Ready":
            return state
        updates = tuple(_updates(workload, request, config))
        return replace(state, state="Ready", updates=updates, message=request.message(PROVISIONED))
    if request.condition(ACCEPTED):
        if any(condition.type == PROVISIONED for condition in request.conditions):
            return replace(state, state="Pending", message=request.message(PROVISIONED))
        return state
    return replace(state, state="Pending", message="")


def _again(
    workload: Workload, state: CheckState, request: ProvisioningRequest, retry: RetryStrategy, condition: str, why: str
) -> CheckState:
    """Set the check to Retry, or to Rejected after the last attempt."""
    attempt = attempt_of(request, workload.name, state.name) or 1
    if attempt > retry.limit:
        return replace(state, state="Rejected", message=request.message(condition))
    state = replace(state, message=f"{why}: {request.message(condition)}")
    if attempt <= state.retry_count:
        # The check was already set to Retry for this attempt.
        return state
    return replace(state, state="Retry", requeue_after=backoff(retry.base, retry.most, state.retry_count + 1) // SECOND)


def _updates(
    workload: Workload, request: ProvisioningRequest, config: ProvisioningRequestConfig
) -> Iterator[PodSetUpdate]:
    """Yield the annotations and node selectors with which pods use the provisioned capacity."""
    names = {template_name(request.name, pod_set.name): pod_set.name for pod_set in workload.pod_sets}
    details = request.details
    selector = {label: details[detail] for label, detail in config.node_selectors or () if detail in details}
    for pods in request.pod_sets:
        yield PodSetUpdate(
            name=names.get(pods.template, ""),
            annotations={CONSUMES: request.name, CLASS_NAME: request.provisioning_class},
            node_selector=selector,
        )
