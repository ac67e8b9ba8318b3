"""controller_admissionchecks_provisioning: what Kueue asks of an autoscaler, and what its answers make of a check."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from gpuconsole.model.autoscaling import ProvisioningRequest, ProvisioningRequestConfig, StoredTemplate
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import AdmissionCheck, ResourceFlavor
from gpuconsole.model.workloads import CheckState, Condition, Workload
from gpuconsole.scheduling.kueue.admission_checks import (
    ACCEPTED,
    PROVISIONED,
    InconsistentAssignments,
    ProvisioningObjects,
    ProvisioningResult,
    active_condition,
    config_of,
    is_needed,
    newest_request,
    reconcile_provisioning,
    requested_pods,
    with_answer,
)
from tests.conformance import world
from tests.conformance.tables import Case, Check, Document, Table, compare

T = TypeVar("T", bound=Object)


def _all(documents: Sequence[Document] | None, kind: type[T]) -> list[T]:
    found = world.decode_all(documents)
    assert all(isinstance(thing, kind) for thing in found)
    return found  # type: ignore[return-value]


def _by_key(things: Iterable[T]) -> Mapping[str, T]:
    return {thing.key: thing for thing in things}


def _around(given: Document) -> ProvisioningObjects:
    return ProvisioningObjects(
        checks=_by_key(_all(given.get("checks"), AdmissionCheck)),
        configs=_by_key(_all(given.get("configs"), ProvisioningRequestConfig)),
        flavors=_by_key(_all(given.get("flavors"), ResourceFlavor)),
        templates=_by_key(_all(given.get("templates"), StoredTemplate)),
        requests=[
            request
            for request in _all(given.get("requests"), ProvisioningRequest)
            if given["workload"]["metadata"]["name"] in request.owners
        ],
    )


def check_reconcile(table: Table, case: Case) -> Iterator[str]:
    """TestReconcile: one step of the controller, with all that it makes, changes and deletes."""
    around, workload = _around(case.input), world.decode_workload(case.input["workload"])
    clean_up = case.gates.get("CleanupProvisioningRequestsOnEviction", True)
    failed, outcome = False, ProvisioningResult(workload=workload)
    try:
        outcome = reconcile_provisioning(workload, around, world.LONG_AGO, clean_up=clean_up)
    except InconsistentAssignments:
        failed = True
    yield from compare("wantReconcileError", failed, bool(case.want.get("wantReconcileError")))
    for name, wanted in (case.want.get("wantWorkloads") or {}).items():
        yield from compare(f"workload {name}", _timeless(outcome.workload), _timeless(world.decode_workload(wanted)))
    requests = {request.name: request for request in around.requests if request.key not in outcome.deleted}
    requests.update({request.name: request for request in outcome.created})
    for name, wanted in (case.want.get("wantRequests") or {}).items():
        yield from compare(f"request {name}", _plain(requests.get(name)), _plain(_request(wanted)))
    for name in case.want.get("wantRequestsNotFound") or ():
        yield from compare(f"request {name}", requests.get(name), None)
    templates = {**around.templates, **_by_key(outcome.templates)}
    for template in _all(list((case.want.get("wantTemplates") or {}).values()), StoredTemplate):
        yield from compare(f"template {template.name}", _anytime(templates.get(template.key)), _anytime(template))
    yield from compare("wantEvents", _events(outcome), case.want.get("wantEvents") or [])


def _request(document: Document) -> ProvisioningRequest:
    named = {**document, "metadata": {"name": "any", **(document.get("metadata") or {})}}
    (request,) = _all([named], ProvisioningRequest)
    return request


def _events(outcome: ProvisioningResult) -> list[dict[str, str]]:
    key = outcome.workload.key
    return [{"Key": key, "EventType": "Normal", "Reason": n.reason, "Message": n.message} for n in outcome.events]


def _untimed(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    return tuple(replace(condition, since=0) for condition in conditions)


def _timeless(workload: Workload) -> Workload:
    """Metadata and the times of conditions are not compared."""
    spec = replace(world.comparable(workload), namespace="", name="any", uid="", labels={}, annotations={}, owner="")
    return replace(spec, conditions=_untimed(spec.conditions))


def _plain(request: ProvisioningRequest | None) -> ProvisioningRequest | None:
    """Of the metadata only the labels are compared; an absent and an empty list are the same."""
    if request is None:
        return None
    return replace(request, namespace="", name="any", created=0, owners=(), conditions=_untimed(request.conditions))


def _anytime(template: StoredTemplate | None) -> StoredTemplate | None:
    """A template without its pods' restartPolicy, which is not compared."""
    return template and replace(template, template=replace(template.template, restart_policy=""))


def check_newest(table: Table, case: Case) -> Iterator[str]:
    """TestActiveOrLastPRForChecks: the request that counts for each check."""
    workload = world.decode_workload(table.shared["workload"])
    requests = _all(case.input.get("requests"), ProvisioningRequest)
    for name, document in table.shared["checkConfig"].items():
        (config,) = _all([document], ProvisioningRequestConfig)
        wanted = (case.want.get("wantResult") or {}).get(name)
        got = newest_request(workload, name, config, requests)
        yield from compare(name, _plain(got), _plain(_request(wanted)) if wanted else None)


def check_needed(table: Table, case: Case) -> Iterator[str]:
    """TestReqIsNeeded: is there anything to ask for?"""
    (config,) = _all([table.fixtures["prc"]], ProvisioningRequestConfig)
    workload, failed, got = world.decode_workload(case.input["workload"]), False, False
    try:
        got = is_needed(workload, config)
    except InconsistentAssignments:
        failed = True
    yield from compare("want", got, case.want["want"])
    yield from compare("wantErr", failed, bool(case.want.get("wantErr")))


def check_merged(table: Table, case: Case) -> Iterator[str]:
    """TestMergePodSetsSkipsZeroCounts: which pod sets are asked for, and how many pods of each."""
    config = ProvisioningRequestConfig(name="any", merge_policy=case.input.get("mergePolicy") or "")
    got = requested_pods(world.decode_workload(case.input["workload"]), config)
    yield from compare("wantNames", [pods.pod_set.name for pods in got], case.want.get("wantNames") or [])
    yield from compare("wantCounts", [pods.count for pods in got], case.want.get("wantCounts") or [])


def check_activity(table: Table, case: Case) -> Iterator[str]:
    """TestReconcileAdmissionCheck: is a check of this controller active, and why not?"""
    (check,) = _all([case.input["check"]], AdmissionCheck)
    configs = _by_key(_all(case.input.get("configs"), ProvisioningRequestConfig))
    got, wanted = active_condition(check, configs), case.want.get("wantCondition")
    shown = None if got is None else (got.type, got.status, got.reason, got.message)
    expected = wanted and (wanted["type"], wanted["status"] == "True", wanted["reason"], wanted["message"])
    yield from compare("wantCondition", shown, expected)


def check_index_of_checks(table: Table, case: Case) -> Iterator[str]:
    """TestIndexAdmissionChecks: the checks that use a config."""
    wanted = case.input["filter"]["spec.provisioningRequestConfig"]
    checks = _all(case.input.get("checks"), AdmissionCheck)
    yield from compare(
        "wantList", [c.name for c in checks if wanted and config_of(c) == wanted], case.want.get("wantList") or []
    )


def check_index_of_requests(table: Table, case: Case) -> Iterator[str]:
    """TestIndexProvisioningRequests: the requests that a workload owns."""
    wanted = case.input["filter"]["metadata.ownedByWorkload"]
    requests = _all(case.input.get("requests"), ProvisioningRequest)
    got = [request.name for request in requests if wanted in request.owners]
    yield from compare("wantList", got, case.want.get("wantList") or [])


def check_index_of_workloads(table: Table, case: Case) -> Iterator[str]:
    """TestIndexWorkload: the workloads that have a check."""
    wanted = case.input["filter"]["status.admissionChecks"]
    workloads = list(map(world.decode_workload, case.input.get("workloads") or ()))
    got = [workload.name for workload in workloads if any(state.name == wanted for state in workload.checks)]
    yield from compare("wantList", got, case.want.get("wantList") or [])


def check_message(table: Table, case: Case) -> Iterator[str]:
    """TestUpdateCheckMessage: what the autoscaler says while it works becomes the check's message."""
    state = CheckState(name="check1", message=case.input["message"])
    says = (Condition(ACCEPTED, True), Condition(PROVISIONED, False, message=case.input["newMessage"]))
    request = ProvisioningRequest(name="wl-check1-1", conditions=says)
    got = with_answer(Workload(name="wl"), state, request, ProvisioningRequestConfig(name="any"))
    yield from compare("wantMessage", got.message, case.want["wantMessage"])
    yield from compare("wantChanged", got != state, case.want["wantChanged"])


CHECKS: dict[str, Check] = {
    f"controller_admissionchecks_provisioning/{name}": lambda table, case, check=check: list(check(table, case))  # type: ignore[misc]
    for name, check in {
        "TestReconcile": check_reconcile,
        "TestActiveOrLastPRForChecks": check_newest,
        "TestReqIsNeeded": check_needed,
        "TestMergePodSetsSkipsZeroCounts": check_merged,
        "TestReconcileAdmissionCheck": check_activity,
        "TestIndexAdmissionChecks": check_index_of_checks,
        "TestIndexProvisioningRequests": check_index_of_requests,
        "TestIndexWorkload": check_index_of_workloads,
        "TestUpdateCheckMessage": check_message,
    }.items()
}
