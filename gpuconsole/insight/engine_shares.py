"""The shares of Volcano's and KAI's queues: what each has of what it deserves, and which is served next."""

from msgspec import Struct

from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, every
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.snapshot import Snapshot

ENGINES = {NodeKind.VOLCANO_QUEUE: "Volcano", NodeKind.KAI_QUEUE: "KAI"}
RULES = {
    "Volcano": "the queue that has the smaller part of what it deserves; one that has all of it is served no more",
    "KAI": "the queue that has the smaller part of its quota; beyond it, by over-quota weight",
}


class QueueShare(Struct, frozen=True, kw_only=True):
    """One queue, with all below it."""

    engine: str
    name: str
    depth: int
    unit: str = WHOLE_GPU.noun
    """What the amounts count: `GPU`, `MIG 1g.10gb instance`; `device` where there are several units."""
    deserved: int
    """By its manifest, or by its weight."""
    used: int
    waiting: int
    """What pods without a node request."""
    share: float | None
    """used / deserved, in Volcano of the unit of which it has the largest part; None where it deserves nothing."""
    words: str
    """Weight and other rules."""
    turn: int | None
    """Among the queues of its engine that wait, without queues below them: 1 is served next. None = nothing waits."""


def engine_shares(snapshot: Snapshot) -> tuple[QueueShare, ...]:
    """The queues of these engines, from each root down; nothing where there are none."""
    nodes = list(every(root for root in queues(snapshot) if root.kind in ENGINES))
    turns: dict[tuple[NodeKind, str], int] = {}
    for kind in ENGINES:
        waiting = [node for node, _ in nodes if node.kind is kind and not node.children and node.pending_gpus]
        for place, node in enumerate(sorted(waiting, key=lambda node: (*_rank(node), node.name)), start=1):
            turns[kind, node.name] = place
    return tuple(_queue(node, depth, turns.get((node.kind, node.name))) for node, depth in nodes)


def _rank(node: QuotaNode) -> tuple[bool, float]:
    part = _part(node)
    return part is None, part or 0.0


def _part(node: QuotaNode) -> float | None:
    uses = node.flavors if node.kind is NodeKind.VOLCANO_QUEUE else (node.gpus,)
    return max((use.used / use.nominal for use in uses if use.nominal), default=None)


def _queue(node: QuotaNode, depth: int, turn: int | None) -> QueueShare:
    return QueueShare(
        engine=ENGINES[node.kind],
        name=node.name,
        depth=depth,
        unit=node.unit,
        deserved=node.gpus.nominal,
        used=node.gpus.used,
        waiting=node.pending_gpus,
        share=_part(node),
        words=node.policy,
        turn=turn,
    )
