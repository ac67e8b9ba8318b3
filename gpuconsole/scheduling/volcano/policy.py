"""Options of the Volcano engine."""

from collections.abc import Mapping

from msgspec import Struct

HELM_CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""The configuration in Volcano's Helm chart."""


GATES = ("DynamicResourceAllocation", "StorageCapacityScoring")
"""Feature gates of Kubernetes that change vc-scheduler's predicates: ResourceClaims, and scores of volumes."""


class VolcanoPolicy(Struct, frozen=True, kw_only=True, tag="Volcano", tag_field="engine"):
    """Options of the Volcano engine, which then places pods."""

    conf: str = HELM_CONF
    """Text of volcano-scheduler.conf."""
    devices: str = ""
    """Text of device-config.yaml: the MIG instances into which Volcano's device plugin can divide GPUs."""
    feature_gates: Mapping[str, bool] = {}
    """Feature gates that differ from Kubernetes' defaults (vc-scheduler --feature-gates)."""
    default_queue: str = "default"
    """The queue of PodGroups that name none; it is assumed to exist."""
    scheduler: str = ""
    """The schedulerName of the pods that Volcano places; empty if it places all pods."""
