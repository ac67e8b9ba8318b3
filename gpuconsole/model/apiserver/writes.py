"""Writes as the API server handles them: defaults, mutating webhook, schema and rules, validating webhook.

`KINDS` has the schema and the webhooks of each kind of Kueue's API.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver import kueue_webhooks, workload_webhook
from gpuconsole.model.apiserver.common_validation import METADATA, NO_GATES, Gates, check_change, check_metadata
from gpuconsole.model.apiserver.schema import (
    TEXT,
    Schema,
    SchemaRule,
    Transition,
    check,
    check_rules,
    record,
    unreadable,
    with_defaults,
    written_back,
)
from gpuconsole.model.documents.findings import FieldError, FieldErrorKind, Path

Object = Mapping[str, Any]
GROUP = "kueue.x-k8s.io"
IN_USE = f"{GROUP}/resource-in-use"
"""Finalizer that keeps objects in use from being deleted."""


class ApiKind(Struct, frozen=True, kw_only=True):
    """Schema and webhooks of one kind of Kueue's API."""

    name: str
    schema: Schema
    namespaced: bool = False
    default: Callable[[Object, Gates], Object] | None = None
    """Mutating webhook, called for new objects only; None if there is none."""
    validate: Callable[[Object, Object | None, Gates], Iterator[FieldError]] | None = None
    """Validating webhook, called with the new object and the old one; None if there is none."""
    warn: Callable[[Object], Iterator[str]] | None = None

    @property
    def webhook(self) -> str:
        """Name of the validating webhook."""
        return f"v{self.name.lower()}.kb.io"

    @property
    def has_status(self) -> bool:
        """True if the kind has a status subresource."""
        return "status" in self.schema.fields


def _keep_in_use(obj: Object, gates: Gates) -> Object:
    meta = obj.get("metadata") or {}
    finalizers = meta.get("finalizers") or []
    if IN_USE in finalizers:
        return obj
    return {**obj, "metadata": {**meta, "finalizers": [*finalizers, IN_USE]}}


def _whole(fields: Mapping[str, Schema], rules: tuple[SchemaRule | Transition, ...] = ()) -> Schema:
    return record({"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA, **fields}, rules=rules)


_ALL = (
    ApiKind(
        name="ClusterQueue",
        schema=_whole(kueue_webhooks.CLUSTER_QUEUE),
        default=_keep_in_use,
        validate=kueue_webhooks.validate,
    ),
    ApiKind(name="Cohort", schema=_whole(kueue_webhooks.COHORT), validate=kueue_webhooks.validate_cohort),
    ApiKind(name="LocalQueue", schema=_whole(kueue_webhooks.LOCAL_QUEUE), namespaced=True),
    ApiKind(name="WorkloadPriorityClass", schema=_whole(kueue_webhooks.WORKLOAD_PRIORITY_CLASS)),
    ApiKind(
        name="ResourceFlavor",
        schema=_whole(kueue_webhooks.RESOURCE_FLAVOR),
        default=_keep_in_use,
        validate=kueue_webhooks.validate_flavor,
    ),
    ApiKind(name="Topology", schema=_whole(kueue_webhooks.TOPOLOGY)),
    ApiKind(name="AdmissionCheck", schema=_whole(kueue_webhooks.ADMISSION_CHECK)),
    ApiKind(name="ProvisioningRequestConfig", schema=_whole(kueue_webhooks.PROVISIONING_REQUEST_CONFIG)),
    ApiKind(name="MultiKueueConfig", schema=_whole(kueue_webhooks.MULTI_KUEUE_CONFIG)),
    ApiKind(name="MultiKueueCluster", schema=_whole(kueue_webhooks.MULTI_KUEUE_CLUSTER)),
    ApiKind(
        name="Workload",
        schema=_whole(workload_webhook.WORKLOAD, workload_webhook.RULES),
        namespaced=True,
        default=workload_webhook.default,
        validate=workload_webhook.validate,
        warn=workload_webhook.warn,
    ),
)
KINDS: Mapping[str, ApiKind] = {kind.name: kind for kind in _ALL}
"""Kind → its schema and webhooks, for all kinds of Kueue's API."""


NOT_CHECKED = "not-checked"
"""Code of the notice that rules were not evaluated because of other errors."""
_NOTICE = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_BLOCKING = (
    *(FieldErrorKind.NOT_SUPPORTED, FieldErrorKind.REQUIRED, FieldErrorKind.TOO_LONG, FieldErrorKind.TOO_MANY),
    FieldErrorKind.TYPE_INVALID,
)


class WriteStage(StrEnum):
    """Stage of a write in the API server that refused it; later stages do not run."""

    DECODING = "decoding"
    """The object cannot be decoded into Kueue's Go types."""
    SCHEMA = "schema"
    WEBHOOK = "webhook"


class WriteResult(Struct, frozen=True, kw_only=True):
    """Result of writing an object: accepted, or refused with the errors."""

    kind: str
    stored: Object
    """The object as it would be stored; of a refused write, as far as it was processed."""
    stage: WriteStage | None = None
    """Stage that refused it; None if it was accepted."""
    by: str = ""
    """The stage as text, such as `webhook vclusterqueue.kb.io`; empty if the write was accepted."""
    refusals: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.stage is None

    @property
    def reason(self) -> str:
        """Reason in the server's response."""
        return {WriteStage.SCHEMA: "Invalid", WriteStage.WEBHOOK: "Forbidden"}.get(self.stage, "") if self.stage else ""

    @property
    def code(self) -> int:
        """HTTP status of the response."""
        return (
            {WriteStage.SCHEMA: 422, WriteStage.WEBHOOK: 403, WriteStage.DECODING: 400}.get(self.stage, 201)
            if self.stage
            else 201
        )


def create(kind: ApiKind, document: Object, *, gates: Gates = NO_GATES, suffix: str = "00000") -> WriteResult:
    """Process the creation of an object as the API server does; `suffix` follows a generateName if there is no name.

    The first stage that refuses ends the write, as in the server; `hidden` returns the errors of later stages.
    """
    found = with_defaults(kind.schema, document)
    if kind.default is not None:
        problem = unreadable(kind.schema, found)
        if problem is not None:
            return _unreadable(kind, found, problem)
        changed = kind.default(found, gates)
        if changed is not found:
            found = with_defaults(kind.schema, written_back(kind.schema, changed))
    if kind.has_status:
        found = {key: value for key, value in found.items() if key != "status"}
    return _judge(kind, _with_name(found, suffix), None, gates)


def update(
    kind: ApiKind, document: Object, old: Object, *, status: bool = False, gates: Gates = NO_GATES
) -> WriteResult:
    """Process an update from `old` to `document` as the API server does.

    `status` writes only the status; otherwise the old status stays.
    """
    found = with_defaults(kind.schema, document)
    if kind.has_status:
        ours, theirs = (old, found) if status else (found, old)
        found = {key: value for key, value in ours.items() if key != "status"}
        found |= {"status": theirs["status"]} if "status" in theirs else {}
    return _judge(kind, found, old, gates)


def _with_name(document: dict[str, Any], suffix: str) -> dict[str, Any]:
    meta = document.get("metadata")
    if not isinstance(meta, dict) or meta.get("name") or not isinstance(meta.get("generateName"), str):
        return document
    return {**document, "metadata": {**meta, "name": meta["generateName"] + suffix}}


def _unreadable(kind: ApiKind, found: Object, problem: FieldError) -> WriteResult:
    return WriteResult(kind=kind.name, stored=found, stage=WriteStage.DECODING, by="decoding", refusals=(problem,))


def _judge(kind: ApiKind, found: Object, old: Object | None, gates: Gates) -> WriteResult:
    refusals: list[FieldError] = []
    check(kind.schema, found, refusals.append, (), old)
    if not any(refusal.path[:1] == ("metadata",) for refusal in refusals):
        refusals += check_metadata(found, namespaced=kind.namespaced)
        refusals += check_change(found, old) if old is not None else ()
    if kind.schema.ruled:
        if any(refusal.kind in _BLOCKING for refusal in refusals):
            refusals.append(FieldError(FieldErrorKind.INVALID, (), _NOTICE, code=NOT_CHECKED))
        else:
            check_rules(kind.schema, found, refusals.append, (), old)
    if refusals:
        return WriteResult(kind=kind.name, stored=found, stage=WriteStage.SCHEMA, by="schema", refusals=tuple(refusals))
    # A new object was decoded before the mutating webhook.
    if kind.validate is not None and (old is not None or kind.default is None):
        problem = unreadable(kind.schema, found)
        if problem is not None:
            return _unreadable(kind, found, problem)
    refused = tuple(kind.validate(found, old, gates)) if kind.validate is not None else ()
    return WriteResult(
        kind=kind.name,
        stored=found,
        stage=WriteStage.WEBHOOK if refused else None,
        by=f"webhook {kind.webhook}" if refused else "",
        refusals=refused,
        warnings=tuple(kind.warn(found)) if kind.warn is not None else (),
    )


def hidden(
    kind: ApiKind, verdict: WriteResult, old: Object | None = None, *, gates: Gates = NO_GATES
) -> list[FieldError]:
    """Return the errors that later stages would report for a write that the schema refused, as far as they can be
    determined.

    The server stops at the first stage that refuses, but users want all errors at once. Errors within a part that is
    already reported are left out.
    """
    if verdict.stage is not WriteStage.SCHEMA or unreadable(kind.schema, verdict.stored) is not None:
        return []
    known = list(verdict.refusals)
    if any(refusal.kind in _BLOCKING for refusal in known):
        check_rules(kind.schema, verdict.stored, known.append, (), old, lenient=True)
    codes = {refusal.code for refusal in known if refusal.code and refusal.deeper}
    later = kind.validate(verdict.stored, old, gates) if kind.validate is not None else ()
    found = [*known[len(verdict.refusals) :], *(refusal for refusal in later if refusal.code not in codes)]
    wrong = {(*refusal.path, *refusal.deeper) for refusal in verdict.refusals if refusal.path}
    return [refusal for refusal in found if _is_apart(refusal, wrong)]


def _is_apart(refusal: FieldError, wrong: Collection[Path]) -> bool:
    """True if neither the field nor one that contains it is among the wrong ones."""
    return not any(refusal.path[:length] in wrong for length in range(1, len(refusal.path) + 1))
