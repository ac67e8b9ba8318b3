"""What needs an operator's eye, found by looking at one Snapshot and the newest history."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from gpuconsole.insight.antipatterns.crowd import monopoly
from gpuconsole.insight.antipatterns.usage import oversized
from gpuconsole.insight.books import books
from gpuconsole.insight.borrowing import borrowed_gpus
from gpuconsole.insight.checking import checking
from gpuconsole.insight.gangs import deadlock, waiting_gangs
from gpuconsole.insight.gpumap import GpuRow, GpuState, gpu_rows
from gpuconsole.insight.measured import Rule
from gpuconsole.insight.preemptions import rows
from gpuconsole.insight.quota import quota_tree
from gpuconsole.insight.quota_node import NodeKind, QuotaNode
from gpuconsole.insight.telemetry import Alarm, alarms
from gpuconsole.insight.who import counts
from gpuconsole.model.clock import MINUTE, Span, Time, format_span
from gpuconsole.model.events import Happened
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import PreemptionPolicy, StopPolicy
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot

UNPRICED = Prices()
LONG_WAIT: Span = 30 * MINUTE
GANG_WAIT: Span = MINUTE
IDLE_NODES_LISTED = 5
CHECKS_LISTED = 5
ALARMS_LISTED = 5


class Trouble(StrEnum):
    """What kind of thing needs attention, the most pressing first."""

    DEADLOCK = "deadlock"
    NODE_DOWN = "node-down"
    GPU_FAULT = "gpu-fault"
    ADMITS_NOBODY = "admits-nobody"
    THRASH = "thrash"
    GANG = "gang"
    CHECKS = "checks"
    LONG_WAIT = "long-wait"
    GPU_HOT = "gpu-hot"
    GPU_UNUSED = "gpu-unused"
    GPU_WASTED = "gpu-wasted"
    OVERSIZED = "oversized"
    MONOPOLY = "monopoly"
    IDLE_GPUS = "idle-gpus"
    RECLAIMABLE = "reclaimable"
    IDLE_NODE = "idle-node"


_RANK = {trouble: rank for rank, trouble in enumerate(Trouble)}


class Attention(Struct, frozen=True, kw_only=True):
    """One line of the list; `table` and `key` name the object to open, if there is one."""

    trouble: Trouble
    text: str
    table: str = ""
    key: str = ""
    since: Time | None = None
    gpus: int = 0


def attention(snapshot: Snapshot, history: Sequence[Happened] = ()) -> tuple[Attention, ...]:
    """Everything worth a look, the most pressing first; inside a kind the most GPUs first."""
    measured = alarms(snapshot)
    found = [
        *_gangs(snapshot),
        *_nodes(snapshot),
        *_queues(snapshot),
        *_checks(snapshot),
        *_borrowers(snapshot),
        *_measured(snapshot, measured),
        *_patterns(snapshot, measured),
        *_thrash(history),
    ]
    return tuple(sorted(found, key=lambda one: (_RANK[one.trouble], -one.gpus, one.key)))


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _gangs(snapshot: Snapshot) -> Iterator[Attention]:
    gangs = waiting_gangs(snapshot)
    if not gangs:
        return
    free = {row.node: row.counts[GpuState.IDLE] for row in gpu_rows(snapshot)}
    locked = deadlock(snapshot, free)
    if locked is not None:
        parts = "; ".join(f"{g.name} holds {g.held_gpus} and needs {g.missing_gpus} more" for g in locked.gangs[:4])
        yield Attention(
            trouble=Trouble.DEADLOCK,
            text=f"Deadlock: {len(locked.gangs)} half-placed jobs hold {locked.held_gpus} GPUs and wait: {parts}",
            table=_table(snapshot, locked.gangs[0].name),
            key=locked.gangs[0].name,
            since=locked.gangs[0].since,
            gpus=locked.held_gpus,
        )
    for gang in gangs:
        if snapshot.time - gang.since >= GANG_WAIT or gang.held_gpus:
            holds = f", and holds {_count(gang.held_gpus, 'GPU')} meanwhile" if gang.held_gpus else ""
            yield Attention(
                trouble=Trouble.GANG,
                text=f"{gang.name} waits whole: {gang.placed} of {gang.needed} pods have a node{holds}",
                table=_table(snapshot, gang.name),
                key=gang.name,
                since=gang.since,
                gpus=gang.held_gpus,
            )


def _table(snapshot: Snapshot, owner: str) -> str:
    """The table in which the owner of a gang is found; empty if nothing stands for it."""
    if owner in snapshot.workloads:
        return "workloads"
    if owner in snapshot.jobs:
        return "jobs"
    return "pod_groups" if owner in snapshot.pod_groups else ""


def _nodes(snapshot: Snapshot) -> Iterator[Attention]:
    waiting = sum(book.count.pending_gpus for book in books(snapshot).by_queue.values())
    idle = []
    for row in gpu_rows(snapshot):
        if not row.ready:
            text = f"{row.node} is not ready: {_count(row.gpus, 'GPU')} out"
            yield Attention(trouble=Trouble.NODE_DOWN, text=text, table="nodes", key=row.node, gpus=row.gpus)
        elif row.gpus and row.counts[GpuState.IDLE] == row.gpus:
            idle.append(row)
    yield from _idle(snapshot, idle, waiting)


def _idle(snapshot: Snapshot, rows: list[GpuRow], waiting: int) -> Iterator[Attention]:
    """Idle nodes by name while they are few, as one line when they are many."""
    total = sum(row.gpus for row in rows)
    if waiting and total:
        text = f"{_count(total, 'GPU')} on {_count(len(rows), 'node')} idle while {waiting} are wanted"
        yield Attention(trouble=Trouble.IDLE_GPUS, text=text, table="nodes", key=rows[0].node, gpus=total)
        return
    if len(rows) > IDLE_NODES_LISTED:
        text = f"{len(rows)} nodes with {_count(total, 'GPU')} idle"
        yield Attention(trouble=Trouble.IDLE_NODE, text=text, table="nodes", key=rows[0].node, gpus=total)
        return
    ended = _last_end(snapshot, {row.node for row in rows})
    for row in rows:
        since = ended.get(row.node)
        span = f" for {format_span(snapshot.time - since)}" if since else ""
        text = f"{row.node}: {_count(row.gpus, 'GPU')} idle{span}"
        yield Attention(trouble=Trouble.IDLE_NODE, text=text, table="nodes", key=row.node, since=since, gpus=row.gpus)


def _last_end(snapshot: Snapshot, nodes: set[str]) -> dict[str, Time]:
    """When the last pod on each of these nodes ended, as far as ended pods are still known."""
    ended: dict[str, Time] = {}
    for pod in snapshot.pods.all():
        if pod.node in nodes and pod.done:
            ended[pod.node] = max(ended.get(pod.node, 0), pod.finished)
    return ended


def _queues(snapshot: Snapshot) -> Iterator[Attention]:
    """Queues that admit nobody, or that let someone wait for long."""
    for node in _queue_nodes(quota_tree(snapshot)):
        trouble, text = _queue_trouble(node, snapshot.time)
        if trouble is not None:
            table = "cluster_queues" if node.kind is NodeKind.CLUSTER_QUEUE else "local_queues"
            yield Attention(
                trouble=trouble, text=text, table=table, key=node.name, since=node.oldest, gpus=node.pending_gpus
            )


def _queue_trouble(node: QuotaNode, now: Time) -> tuple[Trouble | None, str]:
    waits = f"; {_count(node.pending, 'workload')} waiting there" if node.pending else ""
    if node.problem:
        return Trouble.ADMITS_NOBODY, f"{node.name}: {node.problem}{waits}"
    if node.stop != StopPolicy.NONE and node.pending:
        return Trouble.ADMITS_NOBODY, f"{node.name} is stopped ({node.stop}){waits}"
    if node.oldest is not None and now - node.oldest >= LONG_WAIT:
        return (
            Trouble.LONG_WAIT,
            f"{node.name}: {node.pending} waiting, the longest for {format_span(now - node.oldest)}",
        )
    return None, ""


def _queue_nodes(roots: Sequence[QuotaNode]) -> Iterator[QuotaNode]:
    """ClusterQueues, and LocalQueues that have none."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.kind is NodeKind.COHORT:
            waiting += node.children
        else:
            yield node


def _checks(snapshot: Snapshot) -> Iterator[Attention]:
    """Who holds quota while a check is open: by name while they are few, as one line when they are many."""
    rows = checking(snapshot)
    if len(rows) > CHECKS_LISTED:
        gpus = sum(one.gpus for one in rows)
        text = f"{len(rows)} workloads hold {_count(gpus, 'GPU')} and wait for admission checks"
        yield Attention(
            trouble=Trouble.CHECKS, text=text, table="workloads", key=rows[0].workload, since=rows[0].since, gpus=gpus
        )
        return
    for one in rows:
        span = format_span(max(0, snapshot.time - one.since))
        text = f"{one.workload} holds {_count(one.gpus, 'GPU')} and waits for {one.names} since {span}"
        yield Attention(
            trouble=Trouble.CHECKS, text=text, table="workloads", key=one.workload, since=one.since, gpus=one.gpus
        )


def _borrowers(snapshot: Snapshot) -> Iterator[Attention]:
    """Workloads on borrowed quota whose lender may reclaim it; one line a queue when several borrow there."""
    charged = borrowed_gpus(snapshot)
    by_queue: dict[str, list[str]] = {}
    for key in charged:
        by_queue.setdefault(snapshot.workloads[key].cluster_queue, []).append(key)
    for root in quota_tree(snapshot):
        queues = list(_queue_nodes([root]))
        for node in queues:
            borrowers = by_queue.get(node.name, ())
            lenders = _lenders(snapshot, node, queues) if borrowers else ()
            if lenders:
                yield _reclaimable(node.name, borrowers, sum(charged[key] for key in borrowers), lenders)


def _lenders(snapshot: Snapshot, borrower: QuotaNode, queues: Sequence[QuotaNode]) -> list[str]:
    """Who lends GPUs of the flavors that a queue borrows and may take them back, the largest lender first."""
    flavors = {use.flavor for use in borrower.flavors if use.borrowed and is_gpu(use.resource)}
    lent = {
        node.name: sum(use.lent for use in node.flavors if use.flavor in flavors and is_gpu(use.resource))
        for node in queues
        if snapshot.cluster_queues[node.name].preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
    }
    return sorted((name for name, gpus in lent.items() if gpus), key=lambda name: (-lent[name], name))


def _reclaimable(queue: str, borrowers: Sequence[str], gpus: int, lenders: Sequence[str]) -> Attention:
    alone = len(borrowers) == 1
    who = borrowers[0] if alone else f"{len(borrowers)} workloads of {queue}"
    verb = "it borrows" if alone else "they borrow"
    owner = " and ".join(lenders[:2]) + (f" and {len(lenders) - 2} more" if len(lenders) > 2 else "")
    owns = "owns" if len(lenders) == 1 else "own"
    what = "GPU" if gpus == 1 else f"{gpus} GPUs"
    return Attention(
        trouble=Trouble.RECLAIMABLE,
        text=f"{who} can be reclaimed: {owner} {owns} the {what} that {verb}",
        table="workloads" if alone else "cluster_queues",
        key=borrowers[0] if alone else queue,
        gpus=gpus,
    )


_ALARMS = {
    Rule.FAULTY: (Trouble.GPU_FAULT, "are faulty by their last error"),
    Rule.HOT: (Trouble.GPU_HOT, "are hot or slowed down"),
    Rule.IDLE: (Trouble.GPU_UNUSED, "have not been used for half an hour by those who have them"),
    Rule.HOARDING: (Trouble.GPU_WASTED, "have a full memory and compute nothing"),
    Rule.EMPTY: (Trouble.GPU_WASTED, "are busy with few of their multiprocessors"),
}


def _measured(snapshot: Snapshot, measured: Iterable[Alarm]) -> Iterator[Attention]:
    """What GPUs measure of themselves: one by one while they are few, the others of a kind in one line."""
    by_rule: dict[Rule, list[Alarm]] = {}
    borrowed = borrowed_gpus(snapshot)
    for alarm in measured:
        by_rule.setdefault(alarm.rule, []).append(alarm)
    for rule, found in by_rule.items():
        trouble, words = _ALARMS[rule]
        for alarm in found[:ALARMS_LISTED]:
            known = alarm.workload in snapshot.workloads and trouble in (Trouble.GPU_UNUSED, Trouble.GPU_WASTED)
            table, key = ("workloads", alarm.workload) if known else ("nodes", alarm.node)
            text = alarm.text + _borrowed(borrowed.get(alarm.workload, 0) if rule is Rule.IDLE else 0)
            yield Attention(trouble=trouble, text=text, table=table, key=key, since=alarm.since, gpus=alarm.gpus)
        rest = sum(alarm.gpus for alarm in found[ALARMS_LISTED:])
        if rest:
            text = f"{_count(rest, 'more GPU')} {words}"
            yield Attention(trouble=trouble, text=text, table="nodes", key=found[ALARMS_LISTED].node)


def _borrowed(gpus: int) -> str:
    return f"; it borrows {_count(gpus, 'GPU')}" if gpus else ""


def _patterns(snapshot: Snapshot, measured: Iterable[Alarm]) -> Iterator[Attention]:
    """Anti-patterns that can be seen at a glance; `antipatterns.finding` has all, with what they cost."""
    idle = {alarm.workload for alarm in measured if alarm.rule is Rule.IDLE}
    found = sorted(oversized(snapshot, UNPRICED, idle), key=lambda one: -one.gpus)[:ALARMS_LISTED]
    for trouble, patterns in ((Trouble.OVERSIZED, found), (Trouble.MONOPOLY, monopoly(snapshot, UNPRICED))):
        for one in patterns:
            yield Attention(
                trouble=trouble, text=one.text, table=one.table, key=one.subject, since=one.since, gpus=round(one.gpus)
            )


def _thrash(history: Sequence[Happened]) -> Iterator[Attention]:
    for victim in counts(rows(history), lambda row: row.victim):
        if victim.thrash:
            lost = f"{victim.lost_gpu_hours:.1f} GPU-h lost"
            text = f"{victim.name} goes in circles: preempted {victim.times} times, {lost}"
            yield Attention(trouble=Trouble.THRASH, text=text, table="workloads", key=victim.name)
