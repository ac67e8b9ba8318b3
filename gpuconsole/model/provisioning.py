"""ProvisioningRequests, by which Kueue requests capacity from an autoscaler before admission (autoscaling.x-k8s.io)."""

from collections.abc import Mapping

from msgspec import Struct

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.workloads import Condition


class RetryStrategy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Number and delay of retries after a failed request."""

    limit: int = 3
    base: Span = 60 * SECOND
    most: Span = 1800 * SECOND


class ProvisioningRequestConfig(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Parameters of a provisioning admission check (kueue.x-k8s.io)."""

    name: str
    provisioning_class: str = ""
    parameters: Mapping[str, str] = NO_LABELS
    managed_resources: tuple[str, ...] = ()
    """Only pod sets that request one of these are included; empty means all."""
    retry: RetryStrategy = RetryStrategy()
    node_selectors: tuple[tuple[str, str], ...] | None = None
    """(node label, provisioning class detail that is its value) for the pods; None without podSetUpdates."""
    merge_policy: str = ""
    """`IdenticalPodTemplates` or `IdenticalWorkloadSchedulingRequirements`: pod sets that are merged in the request."""

    @property
    def key(self) -> str:
        return self.name


class RequestedPods(Struct, frozen=True):
    """A number of pods of a PodTemplate in the same namespace."""

    template: str
    count: int


class ProvisioningRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """One attempt to get capacity for a workload. The autoscaler sets its conditions."""

    namespace: str = "default"
    name: str
    created: Time = 0
    labels: Mapping[str, str] = NO_LABELS
    owners: tuple[str, ...] = ()
    """Names of its owners, in its namespace: the workload that needs the capacity."""
    provisioning_class: str = ""
    parameters: Mapping[str, str] = NO_LABELS
    pod_sets: tuple[RequestedPods, ...] = ()
    conditions: tuple[Condition, ...] = ()
    details: Mapping[str, str] = NO_LABELS
    """provisioningClassDetails: the autoscaler's details of the provisioned capacity."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def condition(self, type: str) -> Condition | None:
        """Return its condition of this type if it is true."""
        return next((c for c in self.conditions if c.type == type and c.status), None)

    def message(self, type: str) -> str:
        """Return the message of its condition of this type, true or not; empty if absent."""
        return next((c.message for c in self.conditions if c.type == type), "")


class StoredTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A PodTemplate object, which describes the pods of a ProvisioningRequest."""

    namespace: str = "default"
    name: str
    labels: Mapping[str, str] = NO_LABELS
    owner: str = ""
    """`Kind/namespace/name` of its controlling owner."""
    template: PodTemplate = PodTemplate()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
