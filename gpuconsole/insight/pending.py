"""Why does it wait: the scheduler's own text beside a plain sentence, the arithmetic, and what would help."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.advice import advise
from gpuconsole.insight.demand import held
from gpuconsole.insight.gangs import gang_key, waiting_gangs
from gpuconsole.insight.positions import Position, position
from gpuconsole.insight.reasons import Code, Reason, dominant, read_kueue, read_nodes
from gpuconsole.insight.shortage import (
    MOST_HOLDERS,
    Holder,
    Remedy,
    Shortage,
    describe_holder,
    holders,
    remedies,
    shortages,
)
from gpuconsole.model.clock import Time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.queues import ClusterQueue, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue import conditions
from gpuconsole.scheduling.kueue.readiness import readiness

KUEUE = "Kueue"
KUBE_SCHEDULER = "kube-scheduler"


class Explanation(Struct, frozen=True, kw_only=True):
    """One answer: the dominant reason, its evidence, its arithmetic, and the next step."""

    subject: str
    code: Code
    headline: str
    """One plain sentence."""
    text: str = ""
    """The scheduler's own words, verbatim; empty if it wrote none."""
    source: str = ""
    """Who wrote `text`: Kueue or kube-scheduler; empty if the answer was read from the objects themselves."""
    queue: str = ""
    """ClusterQueue."""
    since: Time | None = None
    """Since when the reason is what it is: the age of the evidence."""
    position: Position | None = None
    parked: bool = False
    lines: tuple[str, ...] = ()
    """The arithmetic, a line for each flavor or node reason."""
    shortages: tuple[Shortage, ...] = ()
    holders: tuple[Holder, ...] = ()
    """Who holds what it wants, the largest first."""
    remedies: tuple[Remedy, ...] = ()


def explain(snapshot: Snapshot, key: str) -> Explanation:
    """Explain a workload (`ns/name`), a job (`Kind/ns/name`) or a pod (`ns/name`).

    What the objects show now comes before what a scheduler wrote earlier: a queue that was stopped since outranks a
    text about quota. An unknown key gives `other`.
    """
    workload = snapshot.workloads.get(key)
    if workload is None and key in snapshot.jobs:
        workload = next((w for w in snapshot.workloads.all() if w.owner == key), None)
    if workload is not None:
        return _explain_workload(snapshot, workload)
    pods = [pod for pod in snapshot.pods.all() if key in (pod.job, pod.key)]
    if pods:
        return _explain_pods(snapshot, key, pods) or _fine(key, "It runs: every pod has its node.")
    return Explanation(subject=key, code=Code.OTHER, headline=f"{key} is not known: it may be gone by now.")


def _fine(key: str, headline: str) -> Explanation:
    return Explanation(subject=key, code=Code.NOT_WAITING, headline=headline)


def _explain_workload(snapshot: Snapshot, workload: Workload) -> Explanation:
    if workload.finished:
        finished = workload.condition("Finished")
        text = finished.message if finished is not None else ""
        return Explanation(subject=workload.key, code=Code.NOT_WAITING, headline="It is finished.", text=text)
    if workload.reserved:
        return _explain_reserved(snapshot, workload)
    return _explain_waiting(snapshot, workload)


def _explain_reserved(snapshot: Snapshot, workload: Workload) -> Explanation:
    queue = workload.cluster_queue
    evicted = workload.condition("Evicted")
    if evicted is not None and evicted.status:
        headline = "It was evicted and holds its quota until its pods are gone."
        return Explanation(
            subject=workload.key,
            code=Code.NOT_WAITING,
            headline=headline,
            text=evicted.message,
            source=KUEUE,
            queue=queue,
            since=evicted.since,
        )
    if not workload.admitted:
        open_checks = [check for check in workload.checks if check.state != "Ready"]
        why = conditions.unadmitted(workload)
        late = why is not None and why.reason == conditions.TOPOLOGY_PENDING
        names = "a place in its topology" if late else ", ".join(check.name for check in open_checks) or "its checks"
        return Explanation(
            subject=workload.key,
            code=Code.CHECKS,
            headline=f"It has its quota in {queue} and waits for {names}.",
            text="; ".join(check.message for check in open_checks if check.message),
            source=KUEUE,
            queue=queue,
            lines=tuple(f"{check.name}: {check.state}" for check in workload.checks),
        )
    pods = [pod for pod in snapshot.pods.all() if pod.workload == workload.key]
    return _explain_pods(snapshot, workload.key, pods, queue) or _fine(workload.key, _runs(workload, queue))


def _runs(workload: Workload, queue: str) -> str:
    where = f" in cluster {workload.cluster}" if workload.cluster else ""
    return f"It runs{where}, admitted by {queue}."


def _explain_waiting(snapshot: Snapshot, workload: Workload) -> Explanation:
    door = snapshot.local_queues.get(workload.local_queue)
    queue = snapshot.cluster_queues.get(door.cluster_queue) if door is not None else None
    refused = workload.condition("QuotaReserved")
    text = refused.message if refused is not None and not refused.status else ""
    reasons = read_kueue(text) if text else ()
    code = _obstacle(snapshot, workload) or _code(workload, reasons, queue)
    gaps = shortages(snapshot, workload, queue, reasons) if queue is not None and code is Code.QUOTA else ()
    advice = advise(snapshot, workload, queue, code, reasons, gaps)
    base = Explanation(
        subject=workload.key,
        code=code,
        headline=advice.headline,
        text=text,
        source=KUEUE if text else "",
        queue=door.cluster_queue if door is not None else "",
        since=refused.since if refused is not None and text else workload.created,
        position=position(snapshot, workload.key),
        parked=workload.parked,
        lines=advice.lines,
        remedies=advice.remedies,
    )
    return _with_holders(snapshot, workload, queue, base, gaps)


def _with_holders(
    snapshot: Snapshot, workload: Workload, queue: ClusterQueue | None, base: Explanation, gaps: Sequence[Shortage]
) -> Explanation:
    if queue is None or not gaps:
        return base
    held_by = holders(snapshot, queue.name, [(gap.flavor, gap.resource) for gap in gaps])
    first = [w for w in held_by if w.admission is not None and _holds(w, gaps[0])]
    return replace(
        base,
        shortages=tuple(gaps),
        holders=tuple(describe_holder(snapshot, holder) for holder in held_by[:MOST_HOLDERS]),
        remedies=(*remedies(snapshot, workload, queue, gaps[0], first), *base.remedies),
    )


def _holds(workload: Workload, gap: Shortage) -> bool:
    return any(pair == (gap.flavor, gap.resource) for pair, _ in held(workload))


def _obstacle(snapshot: Snapshot, workload: Workload) -> Code | None:
    """What the objects show now: it cannot even be tried."""
    if not workload.active:
        return Code.DEACTIVATED
    door = snapshot.local_queues.get(workload.local_queue)
    queue = snapshot.cluster_queues.get(door.cluster_queue) if door is not None else None
    if door is None or queue is None:
        return Code.QUEUE_MISSING
    if door.stop_policy is not StopPolicy.NONE or queue.stop_policy is not StopPolicy.NONE:
        return Code.QUEUE_STOPPED
    if not readiness(queue, snapshot).active:
        return Code.QUEUE_INACTIVE
    if workload.requeue.at is not None and workload.requeue.at > snapshot.time:
        return Code.BACKOFF
    return None


def _code(workload: Workload, reasons: Sequence[Reason], queue: ClusterQueue | None) -> Code:
    if not reasons:
        return Code.PARKED if workload.parked else Code.QUEUED
    return dominant(reasons, _groups(queue) if queue is not None else {})


def _groups(queue: ClusterQueue) -> dict[str, str]:
    """Flavor → a name for its resource group."""
    return {flavor.name: str(number) for number, group in enumerate(queue.resource_groups) for flavor in group.flavors}


def _explain_pods(snapshot: Snapshot, key: str, pods: Sequence[Pod], queue: str = "") -> Explanation | None:
    """Why pods have no node; None if all have one."""
    waiting = [pod for pod in pods if not pod.node and not pod.done]
    if not waiting:
        return None
    first = next((pod for pod in waiting if pod.message), waiting[0])
    gang = next((gang for gang in waiting_gangs(snapshot) if gang.key == gang_key(first)), None)
    reasons = read_nodes(first.message)
    if gang is not None:
        holds = f"; those hold {gang.held_gpus} GPUs and do no work" if gang.held_gpus else "; none holds anything"
        headline = f"Its pods start together: {gang.placed} of {gang.needed} have a node{holds}."
        remedy = Remedy(True, f"{gang.missing_gpus} more GPUs become free at once")
    elif first.gates:
        headline, remedy = f"Its pods are held by a scheduling gate: {', '.join(first.gates)}.", None
    else:
        worst = f": {reasons[0].text}" if reasons and reasons[0].count else ""
        headline = f"{len(waiting)} of {len(pods)} pods have no node{worst}."
        remedy = _node_remedy(reasons)
    return Explanation(
        subject=key,
        code=Code.GANG if gang is not None else Code.GATED if first.gates else Code.NODES,
        headline=headline,
        text=first.message,
        source=KUBE_SCHEDULER if first.message else "",
        queue=queue,
        since=min(pod.created for pod in waiting),
        lines=tuple(reason.text for reason in reasons),
        remedies=(remedy,) if remedy is not None else (),
    )


def _node_remedy(reasons: Sequence[Reason]) -> Remedy | None:
    if not reasons:
        return None
    first = reasons[0]
    if first.resource:
        return Remedy(True, f"a node with enough free {first.resource}: see the GPU map for where it is used")
    if first.name:
        return Remedy(True, f"add a toleration for the taint {{{first.name}}} to its pods")
    if "unschedulable" in first.text:
        return Remedy(True, "uncordon a node")
    if "affinity" in first.text:
        return Remedy(True, "a node with the labels that it selects, or another selector")
    return None
