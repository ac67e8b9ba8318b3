"""Kueue's workload controller: admitted and finished workloads, admission checks, and concurrent-admission variants.

`reconcile_workload` applies the rules of `scheduling.kueue.workload_controller` until nothing is left to do: the effect
of queues, time and pods on workloads that hold quota or are finished. `reconcile_workload_variants` creates, activates
and stops the variants of a workload. A variant has no pods: those are created when its parent is admitted, and an
evicted variant keeps its quota until the parent's pods are gone (Kueue 0.19 pkg/controller/concurrentadmission).

A workload with quota waits for its checks. Kueue's ProvisioningRequest check asks for capacity, and the autoscaler
answers: with fixed capacity by what fits now, the Cluster Autoscaler when it scans, Karpenter never. Checks of
controllers that are not simulated pass at once, or wait for a command (`policy.Checks`). A
ClusterQueue with an inactive check is inactive, too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest, ProvisioningRequestConfig, StoredTemplate
from gpuconsole.model.events import HistoryEventKind, KueueEvent
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, ResourceFlavor
from gpuconsole.model.workloads import CheckState, Condition, Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.admission_checks import (
    FAILED,
    PROVISIONED,
    PROVISIONING_CONTROLLER,
    ProvisioningObjects,
    active_condition,
    attempt_of,
    reconcile_provisioning,
)
from gpuconsole.scheduling.kueue.concurrent_admission import PARENT, VARIANT_WAIT, is_parent, reconcile_variants
from gpuconsole.scheduling.kueue.conditions import QUOTA_RESERVED, READY, with_check
from gpuconsole.scheduling.kueue.workload_controller import ReconcileResult, reactivate, reconcile, time_until_deletion
from gpuconsole.sim.controllers import eviction, multikueue, workloads
from gpuconsole.sim.controllers.admission_plugins import CARRIED_OUT, Refusal
from gpuconsole.sim.kernel import AnswerRequest, ReconcileVariants, ReconcileWorkload
from gpuconsole.sim.policy import Checks, FixedCapacity
from gpuconsole.sim.world import Dispatch, World

MAX_RECONCILES = 8
"""Maximum reconciles of a workload at one moment: it is marked for deactivation, deactivated, evicted …"""


def reconcile_when_due(world: World, timer: ReconcileWorkload) -> None:
    """Reconcile a workload when its timer is due, unless another timer replaced that one."""
    if world.reconcile_timers.get(timer.workload) != world.now:
        return
    del world.reconcile_timers[timer.workload]
    if not _delete_deactivated_job(world, timer.workload):
        reconcile_workload(world, timer.workload)


def reconcile_workload(world: World, key: str) -> None:
    """Reconcile a workload that holds quota or is finished, and set the next timer."""
    looked: ReconcileResult | None = None
    for _ in range(MAX_RECONCILES):
        workload, session = world.workload(key), world.session
        if workload is None or session is None or not (workload.reserved or workload.finished):
            return
        outcome = reconcile(workload, session.look_up_queues(workload), session.config, world.now)
        if outcome.workload is workload and outcome.eviction is None:
            looked = outcome
            break
        _apply_result(world, workload, outcome)
    workload = world.workload(key)
    if workload is not None:
        workloads.set_requeue_timer(world, workload, looked)


def reactivate_workload(world: World, workload: Workload) -> None:
    """Reactivate a workload that was evicted when its queue stopped, if the queue runs again."""
    if world.session is None:
        return
    outcome = reactivate(workload, world.session.look_up_queues(workload), world.now)
    if outcome is not None and outcome.workload is not None:
        world.put(outcome.workload)


def _apply_result(world: World, before: Workload, outcome: ReconcileResult) -> None:
    after, why = outcome.workload, outcome.eviction
    if after is None:
        world.drop(Workload, before.key)
        value = outcome.events[0].message
        workloads.record_event(world, HistoryEventKind.DELETED, before, reason="Retention", message=value)
    elif why is not None:
        eviction.evict(world, after, why)
    elif after.admitted and not before.admitted:
        workloads.admit_workload(world, before)
    elif before.reserved and not after.reserved:
        _release_reservation(world, before, after)
    else:
        world.put(after)


def _release_reservation(world: World, before: Workload, after: Workload) -> None:
    """Release the quota of a workload that was not admitted yet."""
    world.put(replace(after, inadmissible=False))
    value = after.condition(QUOTA_RESERVED)
    if value is not None:
        queue = workloads.cluster_queue_of(world, before)
        world.record_event(
            HistoryEventKind.PENDING,
            workload=after.key,
            queue=queue,
            reason=value.reason,
            message=value.message,
            priority=after.priority,
            **world.devices.of_workload(after),
        )
    if after.checks:
        world.workloads_with_checks_due[after.key] = None


def _delete_deactivated_job(world: World, key: str) -> bool:
    """Delete a job that Kueue deactivated, with its workload, after its retention time."""
    workload, session = world.workload(key), world.session
    if workload is None or session is None:
        return True
    kept = session.config.object_retention.after_deactivated_by_kueue
    if kept is None or workload.reserved or time_until_deletion(workload, kept, world.now) != 0:
        return False
    workloads.delete_owner(world, Workload, key)
    return True


def reconcile_workload_variants(world: World, key: str) -> None:
    """Reconcile a workload with its concurrent-admission variants."""
    parent = world.workload(key)
    if parent is None:
        _delete_variants(world, key)
        return
    queue = _cluster_queue_of(world, parent)
    if queue is None or queue.concurrent_admission is None or world.session is None:
        return
    if not is_parent(parent):
        world.put(replace(parent, labels={**parent.labels, PARENT: "true"}))
        return
    names = world.children_workloads.get(key, {})
    variants = [variant for name in names if (variant := world.workload(name)) is not None]
    outcome = reconcile_variants(parent, variants, queue, world.now, granular=world.granular)
    before = {workload.key: workload for workload in (parent, *variants)}
    for variant in outcome.created:
        workloads.submit_workload(world, replace(variant, uid=world.next_uid(variant.key), created=world.now))
    for name in outcome.deleted:
        world.drop(Workload, name)
    for changed in outcome.changed:
        _apply_variant_change(world, before[changed.key], changed)
    for event in outcome.events:
        _record_event(world, event)
    if outcome.reconcile_after == VARIANT_WAIT:
        world.kernel.set_timer(world.now + VARIANT_WAIT, ReconcileVariants(key))


def _cluster_queue_of(world: World, workload: Workload) -> ClusterQueue | None:
    local_queue = world.local_queue(workload.local_queue)
    return world.cluster_queue(local_queue.cluster_queue) if local_queue is not None else None


def _delete_variants(world: World, key: str) -> None:
    """Delete variants with their parent (the garbage collector)."""
    for name in tuple(world.children_workloads.get(key, ())):
        world.drop(Workload, name)


def _apply_variant_change(world: World, before: Workload, after: Workload) -> None:
    """Apply a change of a parent or a variant."""
    evicted = after.condition(conditions.EVICTED)
    if evicted is not None and evicted.status and not before.is_true(conditions.EVICTED):
        eviction.evict_for(world, before, evicted.reason, evicted.message)
    elif after.admitted and not before.admitted:
        workloads.admit_workload(world, after)
    elif before.admitted and before.active and not after.active:
        eviction.evict_for(world, after, conditions.DEACTIVATED, "The workload is deactivated")
    else:
        world.put(after)


def _record_event(world: World, event: KueueEvent) -> None:
    workload = world.workload(event.workload)
    if workload is not None:
        workloads.record_event(world, HistoryEventKind.PENDING, workload, reason=event.reason, message=event.message)


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
    reconcile_workload(world, key)


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
        answered = known is not None and (known.controller == PROVISIONING_CONTROLLER or check is elsewhere)
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
    outcome = reconcile_provisioning(workload, objects, world.now, clean_up=clean_up)
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
    return known is not None and known.controller == PROVISIONING_CONTROLLER


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
