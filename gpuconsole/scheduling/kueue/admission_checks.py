"""Admission checks of Kueue's own controllers: ProvisioningRequests, and MultiKueue (KEP 693).

MultiKueue: a manager reserves quota, and worker clusters compete to run the workload. `next_multikueue_actions`
reconciles a workload of the manager with its copies, one step at a time. Kueue 0.19
pkg/controller/admissionchecks/multikueue/workload.go, reconcileGroup: the first cluster that admits its copy runs it;
the copy's Finished condition becomes the workload's.

Dispatchers choose the worker clusters that get a copy, and when (pkg/controller/workloaddispatcher): `nominate_all`
nominates every cluster of the MultiKueueConfig at once, `nominate_incrementally` a few more in each round.

ProvisioningRequests: the check requests nodes from an autoscaler. `reconcile_provisioning` is one pure step (Kueue 0.19
pkg/controller/admissionchecks/provisioning, controller.go: Reconcile). It uses the parts above it: `requested_pods`
selects the pods to request (reqIsNeeded, mergePodSets), `request_name` gives each attempt of a check its own request
(provisioning.go), `with_answer` updates the check from the state of its request (syncCheckStates), and `config_of`
finds the ProvisioningRequestConfig of a check (pkg/util/admissioncheck).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha1

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import (
    ProvisioningRequest,
    ProvisioningRequestConfig,
    RequestedPods,
    RetryStrategy,
    StoredTemplate,
)
from gpuconsole.model.clock import MINUTE, SECOND, Span, Time
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor
from gpuconsole.model.workloads import CheckState, Condition, PodSetAssignment, PodSetUpdate, Workload
from gpuconsole.scheduling.kueue.conditions import backoff, with_check
from gpuconsole.scheduling.kueue.podset import with_flavors

ROUND_DURATION: Span = 5 * MINUTE
"""Duration of a round; the next one may start when more than this has passed."""


class ClusterNomination(Struct, frozen=True, kw_only=True):
    """The clusters nominated for a workload."""

    clusters: tuple[str, ...]
    started: Time | None = None
    """Start of the current round; None if there is none."""
    next_round: Time | None = None
    """Time of the next round; None if no cluster is left to nominate."""
    exhausted: bool = False
    """True if a new round was due, and no cluster was left to nominate."""


def skips_nomination(workload: Workload, check: CheckState | None, *, elastic: bool = False) -> bool:
    """True if no cluster may be nominated: the check is missing or not Pending, or a cluster has the workload already.

    An elastic workload that has a cluster may still be nominated (Kueue 0.19 workload.ShouldSkipClusterNomination).
    """
    if check is None or check.state != "Pending":
        return True
    return bool(workload.cluster) and not elastic


def nominate_all(remotes: Sequence[str]) -> ClusterNomination:
    """Nominate all clusters."""
    return ClusterNomination(clusters=tuple(remotes))


def nominate_incrementally(
    nominated: Sequence[str],
    remotes: Sequence[str],
    *,
    started: Time | None,
    now: Time,
    step_size: int,
    config_order: bool = True,
) -> ClusterNomination:
    """Nominate `step_size` more clusters if the current round is over or there is none; nominated clusters stay.

    `remotes` are the clusters in the order of the MultiKueueConfig. They are nominated in this order with
    `config_order` (gate MultiKueueIncrementalDispatcherRespectConfigOrder), else by name.
    """
    if started is not None and now - started <= ROUND_DURATION:
        return ClusterNomination(clusters=tuple(nominated), started=started, next_round=started + ROUND_DURATION + 1)
    left = [cluster for cluster in remotes if cluster not in nominated]
    if not left:
        return ClusterNomination(clusters=tuple(nominated), started=started, exhausted=True)
    chosen = (left if config_order else sorted(left))[:step_size]
    return ClusterNomination(
        clusters=(*nominated, *chosen), started=now, next_round=now + ROUND_DURATION + 1 if left[step_size:] else None
    )


MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue"
EVICTED_ON_MANAGER = "EvictedOnManagerCluster"
_OUT_OF_SYNC = "OutOfSync"


class MultiKueueGroup(Struct, frozen=True, kw_only=True):
    """The workload, the state of its MultiKueue check, and its copies."""

    local: Workload
    check: CheckState
    copies: Mapping[str, Workload | None]
    """Reachable cluster → its copy; None if it has none."""
    unreachable: Mapping[str, Time] = {}
    """Unreachable cluster → time since when."""


class MultiKueueActions(Struct, frozen=True, kw_only=True):
    """The actions that one step requires."""

    check: CheckState | None = None
    cluster: str = ""
    """The cluster that admitted the workload; empty if none did in this step."""
    finish: tuple[str, str] | None = None
    """Reason and message of the Finished condition to set."""
    delete_copies: tuple[str, ...] = ()
    """Clusters whose copies are to be deleted."""
    deactivate: tuple[str, str] | None = None
    """(cluster, message): the copy to deactivate, and why."""
    nominate: bool = False
    """True if clusters are to be nominated."""
    reconcile_at: Time | None = None
    """When to reconcile again even if nothing changes; None if not needed."""


def next_multikueue_actions(group: MultiKueueGroup, now: Time, worker_lost_timeout: Span) -> MultiKueueActions:
    """Return the manager's next actions; `worker_lost_timeout`: how long the admitting cluster may be unreachable."""
    local, check = group.local, group.check
    present = tuple(cluster for cluster, copy in group.copies.items() if copy is not None)
    if local.finished or not local.reserved:
        return MultiKueueActions(delete_copies=present)
    cluster, finished = _first(group, "Finished")
    if finished is not None:
        return _finished(check, cluster, finished)
    cluster, evicted = _first(group, "Evicted")
    if evicted is not None and local.is_true("Evicted"):
        return MultiKueueActions()
    if evicted is not None and check.state == "Ready":
        why = f'Workload evicted on worker cluster: "{local.cluster}", resetting for re-admission. Previously: "Ready"'
        return MultiKueueActions(check=replace(check, state="Retry", message=why))
    cluster, admitted = _first(group, "Admitted")
    if admitted is not None:
        return _admitted(group, cluster, tuple(name for name in present if name != cluster))
    if check.state == "Ready":
        return _cluster_lost(group, now, worker_lost_timeout)
    others_ready = all(other.state == "Ready" for other in local.checks if other.name != check.name)
    return MultiKueueActions(nominate=others_ready and not skips_nomination(local, check))


def _first(group: MultiKueueGroup, condition: str) -> tuple[str, Condition | None]:
    """Return the cluster whose copy has had a condition for the longest time, and the condition.

    The cluster that runs the workload comes first: a copy on a cluster that was lost and is back does not count.
    """
    found = [
        (cluster != group.local.cluster, known.since, cluster, known)
        for cluster, copy in group.copies.items()
        if copy is not None and (known := copy.condition(condition)) is not None and known.status
    ]
    _, _, cluster, known = min(found, key=lambda entry: entry[:3], default=(False, 0, "", None))
    return cluster, known


def _finished(check: CheckState, cluster: str, finished: Condition) -> MultiKueueActions:
    if finished.reason != _OUT_OF_SYNC:
        return MultiKueueActions(finish=(finished.reason, finished.message))
    if check.state != "Ready":
        return MultiKueueActions()
    why = f'Remote workload on worker cluster "{cluster}" is out of sync with its user job, resetting for re-dispatch'
    return MultiKueueActions(check=_check_reset(check, why))


def _admitted(group: MultiKueueGroup, cluster: str, others: tuple[str, ...]) -> MultiKueueActions:
    """Keep the copy on one cluster and remove the others."""
    local, check = group.local, group.check
    evicted = local.condition("Evicted")
    if evicted is not None and evicted.status:
        return MultiKueueActions(delete_copies=others, deactivate=(cluster, f"Evicted on manager: {evicted.message}"))
    if check.state != "Pending":
        return MultiKueueActions(delete_copies=others)
    ready = replace(check, state="Ready", message=f'The workload was admitted on "{cluster}"')
    return MultiKueueActions(delete_copies=others, cluster=cluster, check=ready)


def _cluster_lost(group: MultiKueueGroup, now: Time, worker_lost_timeout: Span) -> MultiKueueActions:
    """Wait for the lost cluster of a running copy until its timeout."""
    lost = group.unreachable.get(group.local.cluster)
    if lost is None:
        return MultiKueueActions(check=_check_reset(group.check, "Admitting remote no longer exists"))
    if now < lost + worker_lost_timeout:
        return MultiKueueActions(reconcile_at=lost + worker_lost_timeout)
    return MultiKueueActions(check=_check_reset(group.check, "Admitting remote lost"))


def _check_reset(check: CheckState, why: str) -> CheckState:
    return replace(check, state="Retry", message=f'{why}, Previously: "{check.state}"')


class InconsistentAssignments(ValueError):
    """Error: the workload's admission lacks one of its pod sets."""

    def __init__(self, pod_set: str) -> None:
        super().__init__(f'inconsistent podSet assignments: missing assignment for PodSet "{pod_set}"')


class PodsToRequest(Struct, frozen=True):
    """Pods for one entry of a ProvisioningRequest: the first of their pod sets, its assignment, the count of all."""

    pod_set: PodSet
    assignment: PodSetAssignment
    count: int


def is_needed(workload: Workload, config: ProvisioningRequestConfig) -> bool:
    """True if any pod needs a resource that the config manages (any, if it lists none).

    Raises InconsistentAssignments.
    """
    return any(count > 0 for _, _, count in _manages_pods(workload, config))


def requested_pods(workload: Workload, config: ProvisioningRequestConfig) -> tuple[PodsToRequest, ...]:
    """Return the pods to request, merged by the config's merge policy. Raises InconsistentAssignments."""
    found: list[PodsToRequest] = []
    for pod_set, assignment, count in _manages_pods(workload, config):
        if count <= 0:
            continue
        like = next(
            (n for n, other in enumerate(found) if _is_mergeable(other.pod_set, pod_set, config.merge_policy)), None
        )
        if like is None:
            found.append(PodsToRequest(pod_set, assignment, count))
        else:
            found[like] = replace(found[like], count=found[like].count + count)
    return tuple(found)


def _manages_pods(
    workload: Workload, config: ProvisioningRequestConfig
) -> Iterator[tuple[PodSet, PodSetAssignment, int]]:
    admission = workload.admission
    given = {a.name: a for a in admission.pod_sets} if admission is not None else {}
    for pod_set in workload.pod_sets:
        if pod_set.count <= 0 or not _uses_managed_resource(pod_set.template, config.managed_resources):
            continue
        assignment = given.get(pod_set.name)
        if assignment is None:
            raise InconsistentAssignments(pod_set.name)
        yield pod_set, assignment, assignment.count


def _uses_managed_resource(template: PodTemplate, managed: tuple[str, ...]) -> bool:
    containers = (*template.init_containers, *template.containers)
    asked = {resource for c in containers for part in (c.requests, c.limits) for resource in part}
    return not managed or not asked.isdisjoint(managed)


def _is_mergeable(one: PodSet, other: PodSet, policy: str) -> bool:
    match policy:
        case "IdenticalPodTemplates":
            return one.template == other.template
        case "IdenticalWorkloadSchedulingRequirements":
            return _requirements(one.template) == _requirements(other.template)
        case _:
            return False


def _requirements(template: PodTemplate) -> tuple[object, ...]:
    """Return the fields that decide on which nodes a pod fits."""
    return (
        [container.requests for container in template.containers],
        [container.requests for container in template.init_containers],
        template.node_selector,
        template.tolerations,
        template.affinity,
        template.preferred,
        template.resource_claims,
    )


_LONGEST_NAME = 247
"""Names have up to 253 characters; 6 are reserved for a dash and five characters of a hash."""


def request_name(workload: str, check: str, attempt: int) -> str:
    """Name of the request of an attempt, from the workload's name without its namespace; attempts count from 1."""
    return _limited_name(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """Name of the stored template of a pod set that a request asks for."""
    return _limited_name(f"ppt-{request}-{pod_set}")


def attempt_of(request: ProvisioningRequest, workload: str, check: str) -> int | None:
    """Return the attempt number in a request's name; None if it belongs to another workload or check."""
    prefix = re.escape(_limited_name(f"{workload}-{check}-"))
    found = re.fullmatch(f"{prefix}([0-9]+)", request.name)
    return int(found[1]) if found else None


def _limited_name(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    # Not for security: the hash keeps truncated names distinct, and equal to Kueue's.
    return f"{name[:_LONGEST_NAME]}-{sha1(name.encode(), usedforsecurity=False).hexdigest()[:5]}"


PROVISIONED, ACCEPTED, FAILED = "Provisioned", "Accepted", "Failed"
BOOKING_EXPIRED, CAPACITY_REVOKED = "BookingExpired", "CapacityRevoked"
INACTIVE = "the check is not active"
NOT_NEEDED = "the provisioning request is not needed"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotation of pods: class of their ProvisioningRequest; the annotation `CONSUMES` has the request's name."""


def missing_config_state(state: CheckState) -> CheckState:
    """Return the check state while the ProvisioningRequestConfig is missing."""
    return replace(state, state="Pending", message=INACTIVE)


def not_needed_state(state: CheckState) -> CheckState:
    """Return the check state of a workload that needs no request: Ready."""
    return state if state.state == "Ready" else replace(state, state="Ready", message=NOT_NEEDED, updates=())


def with_answer(
    workload: Workload, state: CheckState, request: ProvisioningRequest, config: ProvisioningRequestConfig
) -> CheckState:
    """Return the check state for its newest request. Conditions are evaluated in Kueue's order: Failed first."""
    if request.condition(FAILED):
        return _with_retry(workload, state, request, config.retry, FAILED, "Retrying after failure")
    if request.condition(CAPACITY_REVOKED):
        # Its nodes are being removed: recreated pods would stay pending, so a rejection deactivates the workload.
        if not workload.active or workload.finished:
            return state
        return replace(state, state="Rejected", message=request.message(CAPACITY_REVOKED))
    if request.condition(BOOKING_EXPIRED):
        if workload.admitted:
            return state
        return _with_retry(workload, state, request, config.retry, BOOKING_EXPIRED, "Retrying after booking expired")
    if request.condition(PROVISIONED):
        if state.state == "Ready":
            return state
        updates = tuple(_pod_set_updates(workload, request, config))
        return replace(state, state="Ready", updates=updates, message=request.message(PROVISIONED))
    if request.condition(ACCEPTED):
        if any(condition.type == PROVISIONED for condition in request.conditions):
            return replace(state, state="Pending", message=request.message(PROVISIONED))
        return state
    return replace(state, state="Pending", message="")


def _with_retry(
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


def _pod_set_updates(
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


PROVISIONING_CONTROLLER = "kueue.x-k8s.io/provisioning-request"
_CONFIG_GROUP, _CONFIG_KIND = "kueue.x-k8s.io", "ProvisioningRequestConfig"


def config_of(check: AdmissionCheck) -> str:
    """Name of the config that a check refers to; empty for an invalid reference or another controller's check."""
    return (
        check.parameters.rpartition("/")[2]
        if check.controller == PROVISIONING_CONTROLLER and not _config_error(check)
        else ""
    )


def active_condition(check: AdmissionCheck, configs: Mapping[str, ProvisioningRequestConfig]) -> Condition | None:
    """Return the Active condition that this controller sets on a check; None for checks of other controllers."""
    if check.controller != PROVISIONING_CONTROLLER:
        return None
    fault = _config_error(check)
    name = config_of(check)
    if not fault and name not in configs:
        fault = f'provisioningrequestconfigs.{_CONFIG_GROUP} "{name}" not found'
    if fault:
        return Condition("Active", False, "BadParametersRef", fault)
    return Condition("Active", True, "Active", "The admission check is active")


def _config_error(check: AdmissionCheck) -> str:
    group, _, rest = check.parameters.partition("/")
    kind, _, name = rest.partition("/")
    if not check.parameters:
        return "missing parameters reference"
    if not name:
        return "empty name: bad parameters reference"
    if group != _CONFIG_GROUP:
        return f'wrong group "{group}", expecting "{_CONFIG_GROUP}": bad parameters reference'
    if kind != _CONFIG_KIND:
        return f'wrong kind "{kind}", expecting "{_CONFIG_KIND}": bad parameters reference'
    return ""


PARAMETERS = "provreq.kueue.x-k8s.io/"
"""Prefix of a workload's annotations that become parameters of its requests."""
MANAGED: Mapping[str, str] = {"kueue.x-k8s.io/managed": "true"}


class ProvisioningObjects(Struct, frozen=True, kw_only=True):
    """The objects that the controller reads besides the workload, by key."""

    checks: Mapping[str, AdmissionCheck]
    configs: Mapping[str, ProvisioningRequestConfig]
    flavors: Mapping[str, ResourceFlavor]
    templates: Mapping[str, StoredTemplate]
    requests: Sequence[ProvisioningRequest]
    """The requests that the workload owns."""


class ProvisioningEvent(Struct, frozen=True):
    """An event of Kueue: reason and message."""

    reason: str
    message: str


class ProvisioningResult(Struct, frozen=True, kw_only=True):
    """The workload after one reconciliation, the requests and templates to create, requests to delete, and events."""

    workload: Workload
    created: tuple[ProvisioningRequest, ...] = ()
    templates: tuple[StoredTemplate, ...] = ()
    """Templates that are created, or get their request as owner."""
    deleted: tuple[str, ...] = ()
    """Keys of requests to delete."""
    events: tuple[ProvisioningEvent, ...] = ()


def reconcile_provisioning(
    workload: Workload, objects: ProvisioningObjects, now: Time, *, clean_up: bool = True
) -> ProvisioningResult:
    """Reconcile a workload's checks with its ProvisioningRequests.

    Each check has one request at a time, its newest attempt; after a failure the next one is created when the workload
    has reserved quota again. `clean_up` is the gate CleanupProvisioningRequestsOnEviction. Raises
    InconsistentAssignments.
    """
    evicted = workload.is_true("Evicted")
    if workload.finished or (evicted and clean_up):
        return ProvisioningResult(workload=workload, deleted=tuple(request.key for request in objects.requests))
    if evicted or not workload.reserved:
        return ProvisioningResult(workload=workload)
    configs = dict(_configs(workload, objects))
    latest = {name: newest_request(workload, name, config, objects.requests) for name, config in configs.items()}
    synced = _sync(workload, configs, latest, now)
    kept = {request.name for request in latest.values() if request is not None}
    dropped = tuple(request.key for request in objects.requests if request.name not in kept)
    events = list(_changes(workload, synced))
    created: list[ProvisioningRequest] = []
    templates: dict[str, StoredTemplate] = {}
    for name, config in configs.items():
        state = _state(synced, name)
        if config is None or state.state == "Ready" or not is_needed(workload, config):
            continue
        request = latest[name]
        attempt = _next_attempt(workload, state, request)
        if request is None or attempt is not None:
            request = _request(workload, name, config, attempt or 1, now)
            templates.update(_missing_templates(workload, request, config, objects))
            created.append(request)
            events.append(
                ProvisioningEvent("ProvisioningRequestCreated", f'Created ProvisioningRequest: "{request.name}"')
            )
        templates.update(_with_owner(request, {**objects.templates, **templates}))
    return ProvisioningResult(
        workload=synced,
        created=tuple(created),
        templates=tuple(templates.values()),
        deleted=dropped,
        events=tuple(events),
    )


def _configs(
    workload: Workload, objects: ProvisioningObjects
) -> Iterator[tuple[str, ProvisioningRequestConfig | None]]:
    for state in workload.checks:
        check = objects.checks.get(state.name)
        if check is not None and check.controller == PROVISIONING_CONTROLLER:
            yield state.name, objects.configs.get(config_of(check))


def newest_request(
    workload: Workload,
    check: str,
    config: ProvisioningRequestConfig | None,
    requests: Sequence[ProvisioningRequest],
) -> ProvisioningRequest | None:
    """Return the last request of a check that still matches its config; None if there is none, or none is needed.

    Raises InconsistentAssignments.
    """
    if config is None or not is_needed(workload, config):
        return None
    attempts = ((attempt_of(request, workload.name, check), request) for request in requests)
    synced = [
        (number, request) for number, request in attempts if number is not None and _has_parameters_of(request, config)
    ]
    return max(synced, key=lambda pair: pair[0])[1] if synced else None


def _has_parameters_of(request: ProvisioningRequest, config: ProvisioningRequestConfig) -> bool:
    asked = request.parameters
    return request.provisioning_class == config.provisioning_class and all(
        asked.get(name) == value for name, value in config.parameters.items()
    )


def _sync(
    workload: Workload,
    configs: Mapping[str, ProvisioningRequestConfig | None],
    latest: Mapping[str, ProvisioningRequest | None],
    now: Time,
) -> Workload:
    """Return the workload with its checks updated from their requests; unchanged while a request is missing."""
    checks = workload.checks
    for name, config in configs.items():
        state, request = _state(workload, name), latest[name]
        if config is None:
            state = missing_config_state(state)
        elif not is_needed(workload, config):
            state = not_needed_state(state)
        elif request is None:
            return workload
        else:
            state = with_answer(workload, state, request, config)
        checks = with_check(checks, replace(state, since=now), now)
    return workload if checks == workload.checks else replace(workload, checks=checks)


def _state(workload: Workload, name: str) -> CheckState:
    return next(state for state in workload.checks if state.name == name)


def _changes(before: Workload, after: Workload) -> Iterator[ProvisioningEvent]:
    for old, new in zip(before.checks, after.checks, strict=True):
        if old.state != new.state:
            message = f"Admission check {new.name} updated state from {old.state} to {new.state}"
            yield ProvisioningEvent(
                "AdmissionCheckUpdated", message + (f" with message: {new.message}" if new.message else "")
            )


def _next_attempt(workload: Workload, state: CheckState, request: ProvisioningRequest | None) -> int | None:
    """Return the number of the attempt to create now; None unless the current one failed and the check is Pending.

    A booking that expires after the workload was admitted is ignored. If the last request is gone, the number follows
    from the check's retry count.
    """
    if request is None:
        return state.retry_count + 1
    over = request.condition(FAILED) or (request.condition(BOOKING_EXPIRED) and not workload.admitted)
    if not over or state.state != "Pending":
        return None
    return (attempt_of(request, workload.name, state.name) or 1) + 1


def _request(
    workload: Workload, check: str, config: ProvisioningRequestConfig, attempt: int, now: Time
) -> ProvisioningRequest:
    name = request_name(workload.name, check, attempt)
    passed_on = {
        key.removeprefix(PARAMETERS): value for key, value in workload.annotations.items() if key.startswith(PARAMETERS)
    }
    return ProvisioningRequest(
        namespace=workload.namespace,
        name=name,
        created=now,
        labels=MANAGED,
        owners=(workload.name,),
        provisioning_class=config.provisioning_class,
        parameters={**config.parameters, **passed_on},
        pod_sets=tuple(
            RequestedPods(template_name(name, pods.pod_set.name), pods.count)
            for pods in requested_pods(workload, config)
        ),
    )


def _missing_templates(
    workload: Workload, request: ProvisioningRequest, config: ProvisioningRequestConfig, objects: ProvisioningObjects
) -> Iterator[tuple[str, StoredTemplate]]:
    for pods in requested_pods(workload, config):
        template = StoredTemplate(
            namespace=workload.namespace,
            name=template_name(request.name, pods.pod_set.name),
            labels=MANAGED,
            template=_requested_template(with_flavors(pods.pod_set.template, pods.assignment, objects.flavors)),
        )
        if template.key not in objects.templates:
            yield template.key, template


def _requested_template(template: PodTemplate) -> PodTemplate:
    """Return the template with limits in place of missing requests (Kueue's UseLimitsAsMissingRequests)."""
    return replace(
        template,
        containers=tuple(replace(one, requests=one.effective) for one in template.containers),
        init_containers=tuple(replace(one, requests=one.effective) for one in template.init_containers),
    )


def _with_owner(
    request: ProvisioningRequest, templates: Mapping[str, StoredTemplate]
) -> Iterator[tuple[str, StoredTemplate]]:
    """Yield the templates of a request that do not have it as owner yet, with it as owner."""
    owner = f"ProvisioningRequest/{request.key}"
    for pods in request.pod_sets:
        template = templates.get(f"{request.namespace}/{pods.template}")
        if template is not None and template.owner != owner:
            yield template.key, replace(template, owner=owner)
