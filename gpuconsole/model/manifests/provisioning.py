"""Provisioning of capacity: ProvisioningRequestConfig, ProvisioningRequest and the PodTemplates that it names."""

from gpuconsole.model.clock import SECOND, Time
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.names import PATH, name, unique
from gpuconsole.model.documents.pods import pod_template
from gpuconsole.model.documents.reader import INT32, Reader
from gpuconsole.model.manifests.core import owner
from gpuconsole.model.manifests.workload import condition
from gpuconsole.model.provisioning import (
    ProvisioningRequest,
    ProvisioningRequestConfig,
    RequestedPods,
    RetryStrategy,
    StoredTemplate,
)

MERGE_POLICIES = ("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements")
_MOST_PARAMETERS = 100
_MOST_POD_SETS = 32


def config(reader: Reader, now: Time) -> ProvisioningRequestConfig:
    """Read a ProvisioningRequestConfig, with Kueue's defaults for retries."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(
        reader,
        *("provisioningClassName", "parameters", "managedResources", "retryStrategy"),
        *("podSetUpdates", "podSetMergePolicy"),
    )
    managed = spec.texts("managedResources", _MOST_PARAMETERS)
    unique(spec, "managedResources", managed)
    return ProvisioningRequestConfig(
        name=meta.name,
        provisioning_class=name(spec, "provisioningClassName", PATH, required=True),
        parameters=spec.labels("parameters", limit=255),
        managed_resources=managed,
        retry=_retry(spec.mapping("retryStrategy")),
        node_selectors=_node_selectors(spec),
        merge_policy=spec.one_of("podSetMergePolicy", "", MERGE_POLICIES),
    )


def _retry(place: Reader) -> RetryStrategy:
    place.only("backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
    usual = RetryStrategy()
    return RetryStrategy(
        limit=place.number("backoffLimitCount", usual.limit, low=0, high=INT32),
        base=place.number("backoffBaseSeconds", usual.base // SECOND, low=0, high=INT32) * SECOND,
        most=place.number("backoffMaxSeconds", usual.most // SECOND, low=0, high=INT32) * SECOND,
    )


def _node_selectors(spec: Reader) -> tuple[tuple[str, str], ...] | None:
    if "podSetUpdates" not in spec:
        return None
    updates = spec.mapping("podSetUpdates")
    updates.only("nodeSelector")
    return tuple(
        (place.required("key"), place.required("valueFromProvisioningClassDetail"))
        for place in updates.items("nodeSelector", 8)
    )


def request(reader: Reader, now: Time) -> ProvisioningRequest:
    """Read a ProvisioningRequest."""
    meta = metadata(reader, now)
    spec, status = reader.mapping("spec"), reader.mapping("status")
    owners = reader.mapping("metadata").items("ownerReferences")
    return ProvisioningRequest(
        namespace=meta.namespace,
        name=meta.name,
        created=meta.created,
        labels=meta.labels,
        owners=tuple(place.text("name") for place in owners),
        provisioning_class=spec.text("provisioningClassName"),
        parameters=spec.labels("parameters", limit=255),
        pod_sets=tuple(_pods(place) for place in spec.items("podSets", _MOST_POD_SETS)),
        conditions=tuple(condition(place, now) for place in status.items("conditions")),
        details=status.labels("provisioningClassDetails", limit=32768),
    )


def _pods(place: Reader) -> RequestedPods:
    return RequestedPods(place.mapping("podTemplateRef").text("name"), place.number("count", 1, low=1))


def stored_template(reader: Reader, now: Time) -> StoredTemplate:
    """Read a PodTemplate."""
    meta = metadata(reader, now)
    return StoredTemplate(
        namespace=meta.namespace,
        name=meta.name,
        labels=meta.labels,
        owner=owner(reader, meta.namespace),
        template=pod_template(reader.mapping("template"), checked=False),
    )
