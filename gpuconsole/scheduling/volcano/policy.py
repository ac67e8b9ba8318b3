"""Volcano options: the scheduler's configuration."""

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
"""What Volcano's Helm chart installs."""


GATES = ("DynamicResourceAllocation", "StorageCapacityScoring")
"""Feature gates of Kubernetes that change what vc-scheduler's predicates do: claims for devices, scores of volumes."""


class VolcanoPolicy(Struct, frozen=True, kw_only=True, tag="Volcano", tag_field="engine"):
    """Pods are placed by Volcano."""

    conf: str = HELM_CONF
    """Text of volcano-scheduler.conf."""
    devices: str = ""
    """Text of device-config.yaml: into which MIG instances Volcano's device plugin may divide GPUs."""
    feature_gates: Mapping[str, bool] = {}
    """Those that are not at Kubernetes' defaults (vc-scheduler --feature-gates)."""
    default_queue: str = "default"
    """The queue of PodGroups that name none; it is made if there is none of that name."""
    scheduler: str = ""
    """The schedulerName of the pods that it places, where another scheduler places the rest; empty: all pods."""
