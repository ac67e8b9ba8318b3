"""A little recorded past: two nodes, a workload that is submitted, admitted and preempted, a node that goes."""

from gpuconsole.model.clock import SECOND
from gpuconsole.model.cluster import Node
from gpuconsole.model.events import Applied, Deleted, Event, HistoryEvent, HistoryEventKind
from gpuconsole.model.workloads import Workload

START = 1_767_600_000 * SECOND
NODE_1 = Node(name="node-1", allocatable={"nvidia.com/gpu": 8})
NODE_2 = Node(name="node-2", allocatable={"nvidia.com/gpu": 8})
RLHF = Workload(namespace="research", name="rlhf", queue="lq", created=START + 10 * SECOND)

SUBMITTED = HistoryEvent(time=START + 10 * SECOND, what=HistoryEventKind.SUBMITTED, workload="research/rlhf", gpus=6)
ADMITTED = HistoryEvent(time=START + 11 * SECOND, what=HistoryEventKind.ADMITTED, workload="research/rlhf", gpus=6)
PREEMPTED = HistoryEvent(
    time=START + 60 * SECOND, what=HistoryEventKind.PREEMPTED, workload="research/rlhf", by="prod/serve", gpus=6
)

PAST: tuple[Event, ...] = (
    Applied(START, NODE_1),
    Applied(START, NODE_2),
    Applied(START + 10 * SECOND, RLHF),
    SUBMITTED,
    ADMITTED,
    PREEMPTED,
    Deleted(START + 90 * SECOND, "nodes", "node-2"),
)
