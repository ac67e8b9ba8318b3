"""Changes that may unblock a workload, as data; `apply_change` applies them.

A suggestion may have several steps, such as a limit for each of two resources. Steps have a size, in units of what they
change: only the smallest size that is enough is suggested.
"""

from collections.abc import Sequence
from typing import Literal, Union

from msgspec import Struct
from msgspec.structs import replace

Owner = Literal["ClusterQueue", "Cohort"]
Limit = Literal["nominalQuota", "borrowingLimit", "lendingLimit"]


class End(Struct, frozen=True, tag="end"):
    """A workload ends, or is removed from its queue."""

    workload: str


class RaiseLimit(Struct, frozen=True, kw_only=True, tag="raise-limit"):
    """A quota, or a limit, of a ClusterQueue or a Cohort is raised by an amount, in base units."""

    kind: Owner
    name: str
    limit: Limit
    flavor: str
    resource: str
    by: int


class AskLess(Struct, frozen=True, kw_only=True, tag="ask-less"):
    """Each pod of a pod set requests less of a resource."""

    pod_set: str
    resource: str
    amount: int
    was: int


class FewerPods(Struct, frozen=True, kw_only=True, tag="fewer-pods"):
    """A pod set has fewer pods."""

    pod_set: str
    count: int
    was: int


class LowerGang(Struct, frozen=True, kw_only=True, tag="lower-gang"):
    """A gang starts with fewer pods."""

    gang: str
    """The pod set (partial admission), the job, or the PodGroup (`PodGroup/namespace/name`)."""
    field: str
    """The field: minCount, minAvailable or minMember."""
    count: int
    was: int


class LoosenBudget(Struct, frozen=True, kw_only=True, tag="loosen-budget"):
    """A PodDisruptionBudget allows more disruptions."""

    budget: str
    """`namespace/name`."""
    by: int


class UsePriority(Struct, frozen=True, kw_only=True, tag="use-priority", omit_defaults=True):
    """The workload has another priority; with the lowest PriorityClass that was tried and admits it, too."""

    priority: int
    was: int
    priority_class: str = ""
    class_priority: int = 0


class AddNodesStep(Struct, frozen=True, kw_only=True, tag="add-nodes"):
    """More nodes like an existing one, in the same topology domain."""

    flavor: str
    like: str
    count: int


class UseTopology(Struct, frozen=True, kw_only=True, tag="use-topology"):
    """A pod set requests another topology level; both empty = none."""

    pod_set: str
    required: str = ""
    preferred: str = ""


class Tolerate(Struct, frozen=True, kw_only=True, tag="tolerate"):
    """The pods of a pod set tolerate a taint."""

    pod_set: str
    key: str
    value: str = ""
    effect: str = ""


class DropSelector(Struct, frozen=True, kw_only=True, tag="drop-selector"):
    """The pods of a pod set lose a label of their node selector."""

    pod_set: str
    label: str


class MoveTo(Struct, frozen=True, tag="move-to"):
    """The workload moves to another LocalQueue of its namespace."""

    queue: str


class Resume(Struct, frozen=True, kw_only=True, tag="resume"):
    """The workload, its LocalQueue or its ClusterQueue is resumed; a node is uncordoned."""

    kind: Literal["Workload", "LocalQueue", "ClusterQueue", "Node"]
    name: str


class AdmitNamespace(Struct, frozen=True, kw_only=True, tag="admit-namespace"):
    """The namespace gets the labels that the ClusterQueue selects; one without a selector selects all instead."""

    cluster_queue: str
    namespace: str


Step = Union[
    End,
    RaiseLimit,
    AskLess,
    FewerPods,
    LowerGang,
    LoosenBudget,
    UsePriority,
    AddNodesStep,
    UseTopology,
    Tolerate,
    DropSelector,
    MoveTo,
    Resume,
    AdmitNamespace,
]
Steps = tuple[Step, ...]


def size(step: Step) -> int:
    """Return the size of a change; 1 for a change without an amount."""
    match step:
        case RaiseLimit() | LoosenBudget():
            return step.by
        case AskLess():
            return step.was - step.amount
        case FewerPods() | LowerGang():
            return step.was - step.count
        case UsePriority():
            return step.priority - step.was
        case AddNodesStep():
            return step.count
        case _:
            return 1


def sized(step: Step, units: int) -> tuple[Step, ...]:
    """Return the same change with another size; empty for size 0."""
    if units <= 0:
        return ()
    match step:
        case RaiseLimit() | LoosenBudget():
            return (replace(step, by=units),)
        case AskLess():
            return (replace(step, amount=step.was - units),)
        case FewerPods() | LowerGang():
            return (replace(step, count=step.was - units),)
        case UsePriority():
            return (replace(step, priority=step.was + units),)
        case AddNodesStep():
            return (replace(step, count=units),)
        case _:
            return (step,)


def reductions(steps: Sequence[Step]) -> list[Steps]:
    """Return all variants of the changes in which one is smaller by one unit, or left out if it has only one."""
    return [(*steps[:place], *sized(step, size(step) - 1), *steps[place + 1 :]) for place, step in enumerate(steps)]
