"""Detects node changes that matter to pending workloads with TAS (Kueue 0.19 controller/tas/resource_flavor.go)."""

from enum import IntFlag

from gpuconsole.model.cluster import Node


class NodeChange(IntFlag):
    """The changed parts of a node; changes of other parts do not requeue workloads."""

    NOTHING = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 4
    CONDITIONS = 8
    ANNOTATIONS = 16
    UNSCHEDULABLE = 32


def node_changes(old: Node, new: Node) -> NodeChange:
    """Compare the old and the new version of a node."""
    pairs = (
        (NodeChange.ALLOCATABLE, old.allocatable, new.allocatable),
        (NodeChange.LABELS, old.labels, new.labels),
        (NodeChange.TAINTS, old.taints, new.taints),
        (NodeChange.CONDITIONS, (old.ready, old.conditions), (new.ready, new.conditions)),
        (NodeChange.ANNOTATIONS, old.annotations, new.annotations),
        (NodeChange.UNSCHEDULABLE, old.unschedulable, new.unschedulable),
    )
    changes = NodeChange.NOTHING
    for change, before, after in pairs:
        if before != after:
            changes |= change
    return changes
