"""What a session knows beyond the objects that were applied to it, so that a saved one goes on as the original."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kueue import changes, ledgers
from gpuconsole.scheduling.kueue.afs import Ledger
from gpuconsole.scheduling.kueue.requests import Holding, Request
from gpuconsole.scheduling.kueue.state import Progress, SecondPass, State


class QueueMemory(Struct, frozen=True):
    """One ClusterQueue's: workloads by key, shapes as they are."""

    parked: tuple[str, ...] = ()
    closed: tuple[tuple[bytes, str], ...] = ()
    """Shapes that were refused, with the reason."""
    sticky: str = ""
    brought_back: tuple[str, ...] = ()
    """Workloads that are tried though their shape was refused."""


class SessionMemory(Struct, frozen=True, kw_only=True):
    """A session's; encodes with msgspec."""

    now: Time = 0
    cycles: int = 0
    idle: int = 0
    due: tuple[str, ...] = ()
    generations: Mapping[str, int] = {}
    progress: Mapping[str, Progress] = {}
    asked: tuple[str, ...] = ()
    second_passes: Mapping[str, SecondPass] = {}
    queues: Mapping[str, QueueMemory] = {}
    ledgers: Mapping[str, Ledger] = {}
    samples: Mapping[str, Time] = {}
    """LocalQueue → when it is looked at."""
    next_sample: Time | None = None
    """The next of these looks, as 0.1 wrote it."""


def remember(state: State) -> SessionMemory:
    """Everything that applying the objects again would not bring back."""
    changes.settle(state)
    state.end_passes()
    names = {record.id: record.workload.key for record in state.roster.all() if isinstance(record, Request | Holding)}
    queues = {}
    for name in state.setup.queues:
        queue = state.roster.look_at(name)
        if queue is not None:
            parked, closed, sticky = queue.memory()
            queues[name] = QueueMemory(
                parked=tuple(names[number] for number in parked),
                closed=closed,
                sticky=names.get(sticky, "") if sticky is not None else "",
                brought_back=tuple(names[number] for number in queue.brought_back),
            )
    return SessionMemory(
        now=state.now,
        cycles=state.cycles,
        idle=state.idle,
        due=tuple(state.due),
        generations=state.generations.copy(),
        progress={names[number]: progress for number, progress in state.progress.items()},
        asked=tuple(sorted(names[number] for number in state.asked)),
        second_passes={names[number]: again for number, again in state.second_passes.items()},
        queues=queues,
        ledgers=state.ledgers.copy(),
        samples=state.samples.copy(),
    )


def recall_queues(state: State, other: State) -> None:
    """Take in who is inadmissible and who preempts, of a session that was told the same objects earlier.

    Those whose backoff has ended since then wait in their queues again.
    """
    changes.settle(state)
    kept = remember(other).queues
    ended = (other.roster.records[number] for number, until in other.backoffs.items() if until <= state.now)
    active = {record.workload.key for record in ended if isinstance(record, Request)}
    for name, queue in kept.items():
        _recall_queue(state, name, replace(queue, parked=tuple(key for key in queue.parked if key not in active)))


def _recall_queue(state: State, name: str, kept: QueueMemory) -> None:
    number = state.roster.id_of
    sticky = number(kept.sticky) if kept.sticky else None
    back = map(number, kept.brought_back)
    state.roster.queue(name).recall(map(number, kept.parked), kept.closed, sticky, back)


def recall(state: State, memory: SessionMemory) -> None:
    """Take in what was remembered; the objects must have been applied before, and nothing else done."""
    state.now = max(state.now, memory.now)
    changes.settle(state)
    state.cycles, state.idle = memory.cycles, memory.idle
    state.due = dict.fromkeys(due for due in memory.due if "/" in due)
    for name in memory.due:
        if "/" not in name:  # Written by 0.1, which named ClusterQueues only.
            state.notify(name)
    state.generations = dict(memory.generations)
    number = state.roster.id_of
    state.progress = {number(key): progress for key, progress in memory.progress.items()}
    state.asked = set(map(number, memory.asked))
    state.second_passes = {number(key): again for key, again in memory.second_passes.items()}
    for name, kept in memory.queues.items():
        _recall_queue(state, name, kept)
    samples = memory.samples
    if memory.next_sample is not None and not samples:
        samples = dict.fromkeys(memory.ledgers, memory.next_sample)
    ledgers.recall(state, memory.ledgers, samples)
