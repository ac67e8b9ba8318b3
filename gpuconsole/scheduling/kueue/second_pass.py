"""The second pass: workloads that hold quota but still need a topology assignment, or lost a node of theirs.

Kueue 0.19 pkg/cache/queue/second_pass_queue.go and workload.NeedsSecondPass. The topology is assigned late if a
ProvisioningRequest provisions the nodes first, and again if a node failed. Failed attempts are repeated with growing
delays; the quota stays reserved.
"""

from gpuconsole.model.clock import SECOND, Span
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.requests import Holding
from gpuconsole.scheduling.kueue.state import KueueState, SecondPass
from gpuconsole.scheduling.kueue.topology_assignments import needs_second_pass

_LONGEST = 30 * SECOND


def pause(round: int) -> Span:
    """Return the delay before the `round`-th attempt: 1 s, doubled each time, at most 30 s."""
    return min(_LONGEST, SECOND << min(round - 1, 5))


def note(state: KueueState, number: int, workload: Workload, round: int = 0) -> bool:
    """Note a workload that needs a second pass; True if it was not noted before.

    After an attempt (`round`) a workload that needs none any more is dropped. Before the first attempt it stays noted,
    and `take_due` leaves it out, so that its delay does not start again (QueueSecondPassIfNeeded).
    """
    if not needs_second_pass(workload):
        if round:
            state.second_passes.pop(number, None)
        return False
    if number in state.second_passes:
        return False
    state.second_passes[number] = SecondPass(state.now + pause(round + 1), round + 1)
    return True


def has_due(state: KueueState) -> bool:
    """True if any second pass is due."""
    return any(waits.at <= state.now for waits in state.second_passes.values())


def take_due(state: KueueState) -> list[tuple[Holding, int]]:
    """Take out the workloads whose second pass is due, sorted by key, each with the number of its attempt."""
    due = [(number, waits.round) for number, waits in state.second_passes.items() if waits.at <= state.now]
    found = []
    for number, round in due:
        del state.second_passes[number]
        holding = state.workload_index.records[number]
        if not isinstance(holding, Holding) or holding.cluster_queue not in state.setup.queues:
            continue
        if needs_second_pass(holding.workload):
            found.append((holding, round))
    return sorted(found, key=lambda pair: pair[0].key)
