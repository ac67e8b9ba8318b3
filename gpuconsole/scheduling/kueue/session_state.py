"""The state of a session beyond its objects, so that a restored session continues like the original."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue import afs_charges, config_events
from gpuconsole.scheduling.kueue.afs_usage import LocalQueueUsage
from gpuconsole.scheduling.kueue.requests import Holding, WorkloadRequest
from gpuconsole.scheduling.kueue.state import FlavorScanProgress, KueueState, SecondPass


class ClusterQueueState(Struct, frozen=True):
    """State of one ClusterQueue: workloads by key, scheduling hashes as they are."""

    inadmissible: tuple[str, ...] = field(default=(), name="parked")
    closed: tuple[tuple[bytes, str], ...] = ()
    """Scheduling hashes of inadmissible classes, with the granular reason."""
    sticky: str = ""
    brought_back: tuple[str, ...] = ()
    """Workloads that are tried although their class is inadmissible."""


class SessionState(Struct, frozen=True, kw_only=True):
    """State of a session; encodes with msgspec."""

    now: Time = 0
    cycles: int = 0
    idle: int = 0
    due: tuple[str, ...] = ()
    generations: Mapping[str, int] = {}
    progress: Mapping[str, FlavorScanProgress] = {}
    asked: tuple[str, ...] = ()
    """Victims whose evictions were not applied yet."""
    second_passes: Mapping[str, SecondPass] = {}
    queues: Mapping[str, ClusterQueueState] = {}
    ledgers: Mapping[str, LocalQueueUsage] = {}
    samples: Mapping[str, Time] = {}
    """LocalQueue → time of its next usage sample."""
    next_sample: Time | None = None
    """Next sample of all LocalQueues, in states that version 0.1 wrote."""


def dump(state: KueueState) -> SessionState:
    """Return the state that applying the objects again would not restore."""
    config_events.recompile(state)
    state.end_batches()
    names = {
        record.id: record.workload.key
        for record in state.workload_index.all()
        if isinstance(record, WorkloadRequest | Holding)
    }
    queues = {}
    for name in state.setup.queues:
        queue = state.workload_index.peek(name)
        if queue is not None:
            inadmissible, closed, sticky = queue.dump()
            queues[name] = ClusterQueueState(
                inadmissible=tuple(names[number] for number in inadmissible),
                closed=closed,
                sticky=names.get(sticky, "") if sticky is not None else "",
                brought_back=tuple(names[number] for number in queue.requeued_from_local_queue),
            )
    return SessionState(
        now=state.now,
        cycles=state.cycles,
        idle=state.idle,
        due=tuple(state.due),
        generations=state.generations.copy(),
        progress={names[number]: progress for number, progress in state.progress.items()},
        asked=tuple(sorted(names[number] for number in state.evictions_in_flight)),
        second_passes={names[number]: again for number, again in state.second_passes.items()},
        queues=queues,
        ledgers=state.local_queue_usage.copy(),
        samples=state.samples.copy(),
    )


def load_queues(state: KueueState, other: KueueState) -> None:
    """Copy the inadmissible workloads and preemptors of a session that got the same objects earlier.

    Workloads whose backoff has ended since then are admissible.
    """
    config_events.recompile(state)
    kept = dump(other).queues
    ended = (other.workload_index.records[number] for number, until in other.backoffs.items() if until <= state.now)
    active = {record.workload.key for record in ended if isinstance(record, WorkloadRequest)}
    for name, queue in kept.items():
        _load_queue(
            state, name, replace(queue, inadmissible=tuple(key for key in queue.inadmissible if key not in active))
        )


def _load_queue(state: KueueState, name: str, kept: ClusterQueueState) -> None:
    number = state.workload_index.id_of
    sticky = number(kept.sticky) if kept.sticky else None
    back = map(number, kept.brought_back)
    state.workload_index.queue(name).load(map(number, kept.inadmissible), kept.closed, sticky, back)


def load(state: KueueState, memory: SessionState) -> None:
    """Restore a saved state; the objects must have been applied before, and nothing else done."""
    state.now = max(state.now, memory.now)
    config_events.recompile(state)
    state.cycles, state.idle = memory.cycles, memory.idle
    state.due = dict.fromkeys(due for due in memory.due if "/" in due)
    for name in memory.due:
        if "/" not in name:  # Written by 0.1, which named ClusterQueues only.
            state.notify(name)
    state.generations = dict(memory.generations)
    number = state.workload_index.id_of
    state.progress = {number(key): progress for key, progress in memory.progress.items()}
    state.evictions_in_flight = set(map(number, memory.asked))
    state.second_passes = {number(key): again for key, again in memory.second_passes.items()}
    for name, kept in memory.queues.items():
        _load_queue(state, name, kept)
    samples = memory.samples
    if memory.next_sample is not None and not samples:
        samples = dict.fromkeys(memory.ledgers, memory.next_sample)
    afs_charges.restore(state, memory.ledgers, samples)
