"""Admission checks in the simulation: the controllers that answer them, and whether checks are active.

A workload with quota waits for its checks. Kueue's ProvisioningRequest check asks for capacity, and the autoscaler
answers: with fixed capacity by what fits now, the Cluster Autoscaler when it scans, Karpenter never. Checks of
controllers that are not simulated pass at once, or wait for a command (`policy.Checks`). `workload_controller` applies
the answers. A ClusterQueue with an inactive check is inactive, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest, ProvisioningRequestConfig, StoredTemplate
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor
from gpuconsole.model.workloads import CheckState, Condition, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.conditions import READY, with_check
from gpuconsole.scheduling.kueue.provisioning import (
    CONTROLLER,
    FAILED,
    PROVISIONED,
    ProvisioningObjects,
    active_condition,
    attempt_of,
    reconcile,
)
from gpuconsole.sim.autoscaling.policy import FixedCapacity
from gpuconsole.sim.controllers import multikueue, workload_controller
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, Refusal
from gpuconsole.sim.kernel import AnswerRequest
from gpuconsole.sim.policy import Checks
from gpuconsole.sim.world import Dispatch, World

NOT_SIMULATED_MESSAGE = "Passed: the simulation has no controller for this check"


def reconcile_checks(world: World, key: str) -> None:
    """Let the controllers of a workload's admission checks answer, and apply their answers to the workload."""
    workload = world.workload(key)
    if workload is None:
        _delete_requests(world, key)
        return
    if workload.reserved and multikueue.check_of(world, workload) is not None:
        world.dispatches.setdefault(key, Dispatch())
    answered = _reconcile_requests(world, _with_passed_checks(world, workload))
    if answered is not workload:
        world.put(answered)
    workload_controller.reconcile_workload(world, key)


def set_check_state(world: World, key: str, name: str, state: str, message: str) -> Refusal:
    """Set the state of an admission check (`name`) of a workload (`key`), or return why that is not possible."""
    workload = world.workload(key)
    if workload is None or workload.finished:
        return f"there is no workload {key}" if workload is None else f"workload {key} is finished"
    known = next((check for check in workload.checks if check.name == name), None)
    if known is None:
        names = ", ".join(check.name for check in workload.checks) or "none"
        return f"workload {key} has no check {name}; it has: {names}"
    if not workload.reserved or workload.is_true(conditions.EVICTED):
        return f"workload {key} has no reserved quota; set its admission checks after it reserves quota"
    _store_check(world, workload, replace(known, state=state, message=message, since=world.now))
    world.workloads_with_checks_due[key] = None
    return CARRIED_OUT


def _store_check(world: World, workload: Workload, state: CheckState) -> None:
    world.put(replace(workload, checks=with_check(workload.checks, state, world.now)))


def _with_passed_checks(world: World, workload: Workload) -> Workload:
    """Set checks of controllers that are not simulated to Ready, if the policy says so."""
    if world.policy.checks is Checks.WAIT or not workload.reserved or workload.is_true(conditions.EVICTED):
        return workload
    checks, elsewhere = workload.checks, multikueue.check_of(world, workload)
    for check in checks:
        known: AdmissionCheck | None = world.state.get(AdmissionCheck, check.name)
        answered = known is not None and (known.controller == CONTROLLER or check is elsewhere)
        if check.state == "Pending" and not answered:
            state = replace(check, state=READY, message=NOT_SIMULATED_MESSAGE, since=world.now)
            checks = with_check(checks, state, world.now)
    return workload if checks is workload.checks else replace(workload, checks=checks)


# ProvisioningRequests


def _reconcile_requests(world: World, workload: Workload) -> Workload:
    objects = _provisioning_objects(world, workload)
    if not objects.requests and not any(_is_provisioning_check(objects, check) for check in workload.checks):
        return workload
    kueue = world.policy.kueue
    clean_up = kueue is None or kueue.enabled("CleanupProvisioningRequestsOnEviction")
    outcome = reconcile(workload, objects, world.now, clean_up=clean_up)
    for key in outcome.deleted:
        _delete_request(world, key)
    for template in outcome.templates:
        world.put(template)
    for request in outcome.created:
        world.put(request)
        if isinstance(world.policy.capacity, FixedCapacity):
            world.kernel.set_timer(world.now + world.policy.autoscaler.delay, AnswerRequest(request.key))
    return outcome.workload


def _is_provisioning_check(objects: ProvisioningObjects, check: CheckState) -> bool:
    known = objects.checks.get(check.name)
    return known is not None and known.controller == CONTROLLER


def _provisioning_objects(world: World, workload: Workload) -> ProvisioningObjects:
    return ProvisioningObjects(
        checks=_table(world, AdmissionCheck),
        configs=_table(world, ProvisioningRequestConfig),
        flavors=_table(world, ResourceFlavor),
        templates=_table(world, StoredTemplate),
        requests=list(_requests_named(world, workload.namespace, workload.name)),
    )


def _table(world: World, kind: type[Object]) -> Mapping[str, Any]:
    return world.state.table(TABLES[kind]).freeze()


def _requests_named(world: World, namespace: str, name: str) -> Iterator[ProvisioningRequest]:
    for request in world.state.table(TABLES[ProvisioningRequest]).all():
        if request.namespace == namespace and name in request.owners:
            yield request


def _delete_requests(world: World, key: str) -> None:
    """Delete the ProvisioningRequests of a deleted workload."""
    namespace, _, name = key.partition("/")
    for request in list(_requests_named(world, namespace, name)):
        _delete_request(world, request.key)


def _delete_request(world: World, key: str) -> None:
    world.drop(ProvisioningRequest, key)
    for template in list(world.state.table(TABLES[StoredTemplate]).all()):
        if template.owner == f"ProvisioningRequest/{key}":
            world.drop(StoredTemplate, template.key)


def answer_request(world: World, timer: AnswerRequest) -> None:
    """Answer a ProvisioningRequest: provisioned if all its pods fit now, else failed.

    The first attempts fail in any case, as many as the policy's `Autoscaler.failures`.
    """
    request: ProvisioningRequest | None = world.state.get(ProvisioningRequest, timer.request)
    if request is None or request.conditions:
        return
    workload = world.workload(f"{request.namespace}/{request.owners[0]}") if request.owners else None
    if workload is None:
        return
    attempt = next((n for c in workload.checks if (n := attempt_of(request, workload.name, c.name)) is not None), 1)
    lacking = (
        _missing_capacity(world, request) if attempt > world.policy.autoscaler.failures else "capacity is not available"
    )
    answered = (
        Condition(FAILED, True, "CapacityIsNotFound", lacking, world.now)
        if lacking
        else Condition(PROVISIONED, True, "CapacityIsFound", "capacity is found in the cluster", world.now)
    )
    world.put(replace(request, conditions=(answered,)))
    world.workloads_with_checks_due[workload.key] = None


def _missing_capacity(world: World, request: ProvisioningRequest) -> str:
    """What keeps the pods of a request from running; empty if they all fit."""
    for pods in request.pod_sets:
        stored: StoredTemplate | None = world.state.get(StoredTemplate, f"{request.namespace}/{pods.template}")
        room = world.placement.largest_gang(stored.template) if stored is not None else 0
        if room < pods.count:
            return f"capacity is not found: {room} of {pods.count} pods of {pods.template} would fit"
    return ""


def refresh_active_checks(world: World) -> None:
    """Set the Active condition of every ProvisioningRequest check: its config must exist.

    Checks of other controllers are not changed.
    """
    configs = world.state.table(TABLES[ProvisioningRequestConfig]).freeze()
    for check in list(world.state.table(TABLES[AdmissionCheck]).all()):
        found = active_condition(check, configs)
        if found is not None and found.status != check.active:
            world.put(replace(check, active=found.status))
