"""Changes in words, for people."""

from collections.abc import Iterable
from typing import assert_never

from gpuconsole.insight.shortage import freed, show
from gpuconsole.insight.unblock.steps import (
    AddNodes,
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
from gpuconsole.model.quantity import is_binary
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

MEBIBYTE = 2**20


def in_words(steps: Iterable[Step], snapshot: Snapshot, short: Iterable[str] = ()) -> str:
    """One line for changes that are made together; `short` names the resources whose amounts matter where one ends."""
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
            pods = f"{step.count} pod{'s' if step.count != 1 else ''}"
            return f"let {step.gang} start with {pods} instead of {step.was} ({step.field})"
        case LoosenBudget():
            pods = f"{step.by} more pod{'s' if step.by != 1 else ''}"
            return f"let PodDisruptionBudget {step.budget} allow {pods} to be away"
        case UsePriority():
            named = f" (class {step.priority_class}: {step.class_priority})" if step.priority_class else ""
            return f"priority {step.priority} instead of {step.was}{named}"
        case AddNodes():
            of = f" ({step.flavor})" if step.flavor else ""
            return f"{step.count} more node{'s' if step.count != 1 else ''} like {step.like}{of}"
        case UseTopology():
            near = step.required or step.preferred
            how = "required" if step.required else "preferred"
            return f"topology of {step.pod_set}: {how} {near}" if near else f"topology of {step.pod_set}: anywhere"
        case Tolerate():
            taint = f"{step.key}={step.value}:{step.effect}" if step.value else f"{step.key}:{step.effect}"
            return f"tolerate {taint} ({step.pod_set})"
        case DropSelector():
            return f"do not select nodes by {step.label} ({step.pod_set})"
        case MoveTo(queue):
            return f"submit it to LocalQueue {queue}"
        case Resume(kind="Node"):
            return f"uncordon node {step.name}"
        case Resume():
            return f"resume {step.kind} {step.name}"
        case AdmitNamespace():
            return f"let namespace {step.namespace} into ClusterQueue {step.cluster_queue}"
        case _:
            assert_never(step)


def _ask_less(step: AskLess) -> str:
    """In units that people write: of memory whole mebibytes, rounded to what is enough as well."""
    if not step.amount:
        return f"do not ask for {step.resource}"
    unit = MEBIBYTE if is_binary(step.resource) and step.amount >= MEBIBYTE else 1
    amount = step.amount // unit * unit
    return f"ask for {show(step.resource, amount)} a pod instead of {show(step.resource, step.was)}"


def _end(key: str, workload: Workload | None, short: Iterable[str]) -> str:
    if workload is not None and not workload.reserved:
        return f"{key} is withdrawn, which waits before it"
    amounts = freed(workload, short) if workload is not None else ""
    return f"{key} ends ({amounts})" if amounts else f"{key} ends"
