"""Text of suggested changes, as shown to the user."""

from collections.abc import Iterable
from typing import assert_never

from gpuconsole.insight.shortage import freed, show
from gpuconsole.insight.unblock.steps import (
    AddNodesStep,
    AdmitNamespace,
    AskLess,
    DropSelector,
    End,
    FewerPods,
    LoosenBudget,
    LowerGang,
    MoveTo,
    RaiseLimit,
    Resume,
    Step,
    Tolerate,
    UsePriority,
    UseTopology,
)
from gpuconsole.model.resources import is_binary
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

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
