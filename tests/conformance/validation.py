"""webhooks, manifests: what Kueue refuses and stores, by its webhooks alone and by the API server's write path."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from gpuconsole.model.apiserver import KINDS, WriteResult, create, update
from gpuconsole.model.apiserver.kueue_webhooks import validate as validate_queue
from gpuconsole.model.documents.findings import FieldError
from tests.conformance.tables import Case, Check, Document, Table, compare

_NOT_CHECKED = "some validation rules were not checked"
SUFFIX = "x7k2p"
"""What generateName was followed by when the data was made."""


Differences = Callable[[Table, Case], Iterator[str]]


def check_webhook(kind: str, new: str, old: str, ignored: Sequence[str]) -> Differences:
    """The webhook of a kind alone, on objects that no schema has seen: its errors in their order."""

    def check(table: Table, case: Case) -> Iterator[str]:
        given = case.input
        validate = KINDS[kind].validate
        assert validate is not None
        for gates in case.variants or ({},):
            thing = deepcopy(given[new])
            errors = list(validate(thing, given[old] if old else None, {**case.gates, **gates}))
            wanted = _listed(case.want.get("wantErr"))
            yield from compare("wantErr", [_shown(e, ignored) for e in errors], [_without(e, ignored) for e in wanted])
            detail, value = case.want.get("wantDetail"), case.want.get("wantBadValue")
            if detail:
                yield from compare("wantDetail", errors[0].detail if errors else "", detail)
            if value:
                yield from compare("wantBadValue", str(errors[0].value) if errors else "", value)
            warn = KINDS[kind].warn
            warnings = list(warn(thing)) if warn is not None else []
            yield from compare("wantWarnings", warnings, case.want.get("wantWarnings") or [])

    return check


def _listed(want: Any) -> list[Document]:
    if not want:
        return []
    return list(want.get("$errors") or [want]) if isinstance(want, dict) else list(want)


def _without(error: Document, ignored: Sequence[str]) -> dict[str, Any]:
    keys = [key for key in ("type", "field", "badValue", "detail") if key not in ignored]
    return {key: error.get(key, "") for key in keys}


def _shown(error: FieldError, ignored: Sequence[str]) -> dict[str, Any]:
    whole = {"type": error.kind.value, "field": error.field, "badValue": error.value, "detail": error.detail}
    return _without(whole, ignored)


def check_totals(table: Table, case: Case) -> Iterator[str]:
    """TestValidateTotal…, TestValidateFlavorResourceCombinations: queues of a given size, one group for each 64."""
    numbers: Mapping[str, int] = case.input
    if "numCoveredRes" in numbers:
        groups = _spread(numbers["numCoveredRes"], lambda names: _group(names, [f"f-{names[0]}"]))
    elif "numResources" in numbers:
        resources = [f"r{n}" for n in range(numbers["numResources"])]
        groups = [_group(resources, [f"f{n}" for n in range(numbers["numFlavors"])])]
    else:
        groups = _spread(numbers["numFlavors"], lambda names: _group([f"r-{names[0]}"], names))
    errors = list(validate_queue({"spec": {"resourceGroups": groups}}, None, case.gates))
    yield from compare("wantErr", bool(errors), case.want.get("wantErr", False))


def _spread(count: int, group: Any) -> list[dict[str, Any]]:
    names = [f"n{n:03}" for n in range(count)]
    return [group(names[start : start + 64]) for start in range(0, count, 64)]


def _group(resources: Sequence[str], flavors: Sequence[str]) -> dict[str, Any]:
    quotas = [{"name": resource, "nominalQuota": "1"} for resource in resources]
    return {
        "coveredResources": list(resources),
        "flavors": [{"name": flavor, "resources": quotas} for flavor in flavors],
    }


def check_creation(table: Table, case: Case) -> Iterator[str]:
    """unit_table_objects, shipped_manifest_objects: an object is sent, and judged."""
    document = case.document
    yield from _compare(_created(document["object"], case), document["outcome"], document["object"])


def check_mutation(table: Table, case: Case) -> Iterator[str]:
    """mutations: a valid object with one change is sent; what is stored is known of the unchanged ones."""
    change = case.document
    thing = deepcopy(table.document["bases"][change["kind"]])
    if "op" in change:
        _apply(thing, change)
    changed = thing if "op" not in change else None
    yield from _compare(_created(thing, case), change["outcome"], changed)


def _apply(thing: Any, change: Document) -> None:
    *way, last = change["path"]
    for key in way:
        thing = thing[key]
    match change["op"]:
        case "set":
            thing[last] = change["value"]
        case "delete":
            del thing[last]
        case "duplicate":
            thing.insert(last, deepcopy(thing[last]))


def check_spec(table: Table, case: Case) -> Iterator[str]:
    """integration_specs: the writes of a spec in their order."""
    for n, step in enumerate(case.document["steps"]):
        if step["verb"] == "create":
            verdict, sent = _created(step["object"], case), step["object"]
        else:
            status = step.get("subresource") == "status"
            kind = KINDS[step["object"]["kind"]]
            verdict = update(kind, step["object"], step["old"], status=status, gates=case.gates)
            sent = None
        for difference in _compare(verdict, step["outcome"], sent):
            yield f"step {n} {step['verb']} {step['resource']}: {difference}"


def _created(document: Mapping[str, Any], case: Case) -> WriteResult:
    return create(KINDS[document["kind"]], document, gates=case.gates, suffix=SUFFIX)


def _compare(verdict: WriteResult, outcome: Document, sent: Document | None) -> Iterator[str]:
    """`sent` is what is stored unless the outcome says otherwise; None if that is not known."""
    yield from compare("accepted", verdict.accepted, outcome["accepted"])
    if outcome["accepted"]:
        if "stored" in outcome or sent is not None:
            yield from compare("stored", dict(verdict.stored), outcome.get("stored", sent))
        return
    yield from compare("by", verdict.by, outcome["by"])
    if outcome["by"] == "decoding":
        return
    yield from compare("reason", (verdict.reason, verdict.code), (outcome["reason"], outcome["code"]))
    got = {(e.kind.value, e.field or "<nil>") for e in verdict.refusals if not e.detail.startswith(_NOT_CHECKED)}
    want = {(e["type"], e["field"]) for e in outcome["errors"] if not e.get("detail", "").startswith(_NOT_CHECKED)}
    yield from compare("errors", sorted(got), sorted(want))


_LOOSE = ("badValue", "detail")
_CHECKS: dict[str, Differences] = {
    "webhooks/TestValidateClusterQueue": check_webhook("ClusterQueue", "clusterQueue", "", _LOOSE),
    "webhooks/TestValidateClusterQueueUpdate": check_webhook(
        "ClusterQueue", "newClusterQueue", "oldClusterQueue", _LOOSE
    ),
    "webhooks/TestValidateCohort": check_webhook("Cohort", "cohort", "", ("badValue",)),
    "webhooks/TestValidateResourceFlavor": check_webhook("ResourceFlavor", "rf", "", ("detail",)),
    "webhooks/TestValidateWorkload": check_webhook("Workload", "workload", "", _LOOSE),
    "webhooks/TestValidateWorkloadUpdate": check_webhook("Workload", "after", "before", _LOOSE),
    "webhooks/TestValidateTotalFlavors": check_totals,
    "webhooks/TestValidateTotalCoveredResources": check_totals,
    "webhooks/TestValidateFlavorResourceCombinations": check_totals,
    "manifests/integration_specs": check_spec,
    "manifests/unit_table_objects": check_creation,
    "manifests/shipped_manifest_objects": check_creation,
    "manifests/mutations": check_mutation,
}


def _in_full(differences: Differences) -> Check:
    return lambda table, case: list(differences(table, case))


CHECKS: dict[str, Check] = {name: _in_full(differences) for name, differences in _CHECKS.items()}
