"""Detects node changes that matter to pending workloads with TAS (Kueue 0.19 controller/tas/resource_flavor.go)."""

from enum import IntFlag

from gpuconsole.model.cluster import Node


class NodeChange(IntFlag):
    """The parts of a node that changed; other changes requeue no workloads."""

    NOTHING = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 4
    CONDITIONS = 8
    ANNOTATIONS = 16
    UNSCHEDULABLE = 32


def node_changes(old: Node, new: Node) -> NodeChange:
    """Compare a node with what it was."""
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
