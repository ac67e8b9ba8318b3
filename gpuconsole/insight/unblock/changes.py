"""Changes that may unblock a workload, as data and as text, and their reduction to the smallest sufficient size.

Changes that may unblock a workload, as data; `apply_change` applies them.

A suggestion may have several steps, such as a limit for each of two resources. Steps have a size, in units of what they
change: only the smallest size that is enough is suggested.

Text of suggested changes, as shown to the user.

Reduction of a change to its smallest sufficient size, step by step, verified as a whole.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, Union, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.pending.shortage import freed, show
from gpuconsole.model.resources import is_binary
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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


MEBIBYTE = 2**20


def in_words(steps: Iterable[Step], snapshot: Snapshot, short: Iterable[str] = ()) -> str:
    """Return one line for changes that are made together; `short` names the resources that are short."""
    return ", and ".join(_in_words(step, snapshot, short) for step in steps)


def _in_words(step: Step, snapshot: Snapshot, short: Iterable[str]) -> str:
    match step:
        case End(key):
            return _end(key, snapshot.workloads.get(key), short)
        case RaiseLimit():
            what = f"{show(step.resource, step.by)} of {step.flavor}"
            return f"raise the {step.limit} of {step.kind} {step.name} by {what}"
        case AskLess():
            return _ask_less(step)
        case FewerPods():
            return f"run {step.count} pod{'s' if step.count != 1 else ''} of {step.pod_set} instead of {step.was}"
        case LowerGang():
            return f"lower {step.field} of {step.gang} from {step.was} to {step.count}"
        case LoosenBudget():
            disruptions = f"{step.by} more disruption{'s' if step.by != 1 else ''}"
            return f"let PodDisruptionBudget {step.budget} allow {disruptions}"
        case UsePriority():
            named = f" (class {step.priority_class}: {step.class_priority})" if step.priority_class else ""
            return f"priority {step.priority} instead of {step.was}{named}"
        case AddNodesStep():
            of = f" ({step.flavor})" if step.flavor else ""
            return f"{step.count} more node{'s' if step.count != 1 else ''} like {step.like}{of}"
        case UseTopology():
            near = step.required or step.preferred
            how = "required" if step.required else "preferred"
            return f"{how} topology {near} for {step.pod_set}" if near else f"no topology request for {step.pod_set}"
        case Tolerate():
            taint = f"{step.key}={step.value}:{step.effect}" if step.value else f"{step.key}:{step.effect}"
            return f"add a toleration for {taint} to {step.pod_set}"
        case DropSelector():
            return f"remove label {step.label} from the node selector of {step.pod_set}"
        case MoveTo(queue):
            return f"submit it to LocalQueue {queue}"
        case Resume(kind="Node"):
            return f"uncordon node {step.name}"
        case Resume():
            return f"resume {step.kind} {step.name}"
        case AdmitNamespace():
            return f"let the namespaceSelector of ClusterQueue {step.cluster_queue} match namespace {step.namespace}"
        case _:
            assert_never(step)


def _ask_less(step: AskLess) -> str:
    """Format a smaller request; memory in whole mebibytes, rounded down."""
    if not step.amount:
        return f"do not request {step.resource}"
    unit = MEBIBYTE if is_binary(step.resource) and step.amount >= MEBIBYTE else 1
    amount = step.amount // unit * unit
    return f"request {show(step.resource, amount)} per pod instead of {show(step.resource, step.was)}"


def _end(key: str, workload: Workload | None, short: Iterable[str]) -> str:
    if workload is not None and not workload.reserved:
        return f"{key}, ahead of it in the queue, is deleted"
    amounts = freed(workload, short) if workload is not None else ""
    return f"{key} ends ({amounts})" if amounts else f"{key} ends"


class TriedEnough(Exception):
    """The limit on trials was reached."""


class Tries(Protocol):
    """Tries changes for a pending workload, or for pending pods, in forks."""

    def works(self, steps: Sequence[Step]) -> bool:
        """True if these changes together unblock it; may be False for a change that does. Raises TriedEnough."""

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if these changes certainly do not unblock it. Raises TriedEnough."""


def minimal_changes(tries: Tries, steps: Sequence[Step]) -> Steps:
    """Return the changes, each as small as is still enough; empty if they do not work or none is needed.

    Every returned step is needed in its full size. Raises TriedEnough.
    """
    if not tries.works(steps):
        return ()
    kept: Steps = ()
    for place, step in enumerate(steps):
        kept += _smallest(tries, step, (*kept, *steps[place + 1 :]))
    # A smaller change may be enough where a greater one is not, so the sizes are verified.
    return kept if kept and all(tries.fails(reduced) for reduced in reductions(kept)) else ()


def _smallest(tries: Tries, step: Step, rest: Sequence[Step]) -> Steps:
    """Return the smallest size that is enough with the other steps, as found by doubling from 1; one less is not.

    With more quota other workloads may be admitted first, so that a small size is enough and a greater one is not.
    """
    low, high = -1, size(step)
    while high - low > 1:
        doubled = 0 if low < 0 else max(1, 2 * low)
        tried = doubled if doubled < high else (low + high) // 2
        if tries.works((*rest, *sized(step, tried))):
            high = tried
        else:
            low = tried
    return sized(step, high)
