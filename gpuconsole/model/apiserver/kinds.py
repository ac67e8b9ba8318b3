"""Registry of the kinds of Kueue's API: the schema of each, and its webhooks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver import capacity, checks, cluster_queue, queues, workload, workload_webhook
from gpuconsole.model.apiserver.gates import Gates
from gpuconsole.model.apiserver.metadata import METADATA
from gpuconsole.model.apiserver.schema import TEXT, Schema, SchemaRule, Transition, record
from gpuconsole.model.documents.fields import FieldError

Object = Mapping[str, Any]
GROUP = "kueue.x-k8s.io"
IN_USE = f"{GROUP}/resource-in-use"
"""Finalizer that keeps objects in use from being deleted."""


class ApiKind(Struct, frozen=True, kw_only=True):
    """Settings for writes of one kind."""

    name: str
    schema: Schema
    namespaced: bool = False
    default: Callable[[Object, Gates], Object] | None = None
    """Mutating webhook, called for new objects only."""
    validate: Callable[[Object, Object | None, Gates], Iterator[FieldError]] | None = None
    """Validating webhook."""
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
        schema=_whole(cluster_queue.CLUSTER_QUEUE),
        default=_keep_in_use,
        validate=cluster_queue.validate,
    ),
    ApiKind(name="Cohort", schema=_whole(queues.COHORT), validate=queues.validate_cohort),
    ApiKind(name="LocalQueue", schema=_whole(queues.LOCAL_QUEUE), namespaced=True),
    ApiKind(name="WorkloadPriorityClass", schema=_whole(queues.WORKLOAD_PRIORITY_CLASS)),
    ApiKind(
        name="ResourceFlavor",
        schema=_whole(capacity.RESOURCE_FLAVOR),
        default=_keep_in_use,
        validate=capacity.validate_flavor,
    ),
    ApiKind(name="Topology", schema=_whole(capacity.TOPOLOGY)),
    ApiKind(name="AdmissionCheck", schema=_whole(checks.ADMISSION_CHECK)),
    ApiKind(name="ProvisioningRequestConfig", schema=_whole(checks.PROVISIONING_REQUEST_CONFIG)),
    ApiKind(name="MultiKueueConfig", schema=_whole(checks.MULTI_KUEUE_CONFIG)),
    ApiKind(name="MultiKueueCluster", schema=_whole(checks.MULTI_KUEUE_CLUSTER)),
    ApiKind(
        name="Workload",
        schema=_whole(workload.WORKLOAD, workload.RULES),
        namespaced=True,
        default=workload_webhook.default,
        validate=workload_webhook.validate,
        warn=workload_webhook.warn,
    ),
)
KINDS: Mapping[str, ApiKind] = {kind.name: kind for kind in _ALL}
