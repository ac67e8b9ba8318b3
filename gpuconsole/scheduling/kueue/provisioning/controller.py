"""The controller of ProvisioningRequest admission checks as one pure step (Kueue 0.19 controller.go: Reconcile)."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest, ProvisioningRequestConfig, RequestedPods, StoredTemplate
from gpuconsole.model.clock import Time
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor
from gpuconsole.model.workloads import CheckState, Workload
from gpuconsole.scheduling.kueue.checks import with_check
from gpuconsole.scheduling.kueue.podset import flavored
from gpuconsole.scheduling.kueue.provisioning import answers
from gpuconsole.scheduling.kueue.provisioning.attempts import attempt_of, request_name, template_name
from gpuconsole.scheduling.kueue.provisioning.needs import is_needed, needed
from gpuconsole.scheduling.kueue.provisioning.references import CONTROLLER, config_of

PARAMETERS = "provreq.kueue.x-k8s.io/"
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
    """The changes of one reconciliation."""

    workload: Workload
    made: tuple[ProvisioningRequest, ...] = ()
    templates: tuple[StoredTemplate, ...] = ()
    """Templates that are created, or get their request as owner."""
    dropped: tuple[str, ...] = ()
    """Keys of requests to delete."""
    notices: tuple[ProvisioningEvent, ...] = ()


def reconcile(
    workload: Workload, objects: ProvisioningObjects, now: Time, *, clean_up: bool = True
) -> ProvisioningResult:
    """Reconcile a workload's checks with its ProvisioningRequests.

    Each check has one request at a time, its newest attempt; after a failure the next one is created when the workload
    has reserved quota again. `clean_up` is the gate CleanupProvisioningRequestsOnEviction. Raises
    InconsistentAssignments.
    """
    evicted = workload.is_true("Evicted")
    if workload.finished or (evicted and clean_up):
        return ProvisioningResult(workload=workload, dropped=tuple(request.key for request in objects.requests))
    if evicted or not workload.reserved:
        return ProvisioningResult(workload=workload)
    configs = dict(_configs(workload, objects))
    latest = {name: newest(workload, name, config, objects.requests) for name, config in configs.items()}
    synced = _sync(workload, configs, latest, now)
    kept = {request.name for request in latest.values() if request is not None}
    dropped = tuple(request.key for request in objects.requests if request.name not in kept)
    notices = list(_changes(workload, synced))
    made: list[ProvisioningRequest] = []
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
            made.append(request)
            notices.append(
                ProvisioningEvent("ProvisioningRequestCreated", f'Created ProvisioningRequest: "{request.name}"')
            )
        templates.update(_handed_over(request, {**objects.templates, **templates}))
    return ProvisioningResult(
        workload=synced,
        made=tuple(made),
        templates=tuple(templates.values()),
        dropped=dropped,
        notices=tuple(notices),
    )


def _configs(
    workload: Workload, objects: ProvisioningObjects
) -> Iterator[tuple[str, ProvisioningRequestConfig | None]]:
    for state in workload.checks:
        check = objects.checks.get(state.name)
        if check is not None and check.controller == CONTROLLER:
            yield state.name, objects.configs.get(config_of(check))


def newest(
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
    synced = [(number, request) for number, request in attempts if number is not None and _asks_as(request, config)]
    return max(synced, key=lambda pair: pair[0])[1] if synced else None


def _asks_as(request: ProvisioningRequest, config: ProvisioningRequestConfig) -> bool:
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
            state = answers.without_config(state)
        elif not is_needed(workload, config):
            state = answers.without_need(state)
        elif request is None:
            return workload
        else:
            state = answers.answered(workload, state, request, config)
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
    over = request.condition(answers.FAILED) or (request.condition(answers.BOOKING_EXPIRED) and not workload.admitted)
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
            RequestedPods(template_name(name, pods.pod_set.name), pods.count) for pods in needed(workload, config)
        ),
    )


def _missing_templates(
    workload: Workload, request: ProvisioningRequest, config: ProvisioningRequestConfig, objects: ProvisioningObjects
) -> Iterator[tuple[str, StoredTemplate]]:
    for pods in needed(workload, config):
        template = StoredTemplate(
            namespace=workload.namespace,
            name=template_name(request.name, pods.pod_set.name),
            labels=MANAGED,
            template=_asking(flavored(pods.pod_set.template, pods.assignment, objects.flavors)),
        )
        if template.key not in objects.templates:
            yield template.key, template


def _asking(template: PodTemplate) -> PodTemplate:
    """Return the template with limits in place of missing requests (Kueue's UseLimitsAsMissingRequests)."""
    return replace(
        template,
        containers=tuple(replace(one, requests=one.effective) for one in template.containers),
        init_containers=tuple(replace(one, requests=one.effective) for one in template.init_containers),
    )


def _handed_over(
    request: ProvisioningRequest, templates: Mapping[str, StoredTemplate]
) -> Iterator[tuple[str, StoredTemplate]]:
    """Yield the templates of a request that do not have it as owner yet, with it as owner."""
    owner = f"ProvisioningRequest/{request.key}"
    for pods in request.pod_sets:
        template = templates.get(f"{request.namespace}/{pods.template}")
        if template is not None and template.owner != owner:
            yield template.key, replace(template, owner=owner)
