"""Shares of Volcano's and KAI's queues: usage relative to the deserved amount, and the order of service."""

from msgspec import Struct

from gpuconsole.insight.engine_queues import queues
from gpuconsole.insight.quota_node import NodeKind, QuotaNode, every
from gpuconsole.model.device_units import WHOLE_GPU
from gpuconsole.model.snapshot import Snapshot

ENGINES = {NodeKind.VOLCANO_QUEUE: "Volcano", NodeKind.KAI_QUEUE: "KAI"}
RULES = {
    "Volcano": "the queue with the lowest share of its deserved amount; queues at that amount get no more",
    "KAI": "the queue with the lowest share of its quota; beyond quota, by over-quota weight",
}


class QueueShare(Struct, frozen=True, kw_only=True):
    """Share of one queue and all queues below it."""

    engine: str
    name: str
    depth: int
    unit: str = WHOLE_GPU.noun
    """Unit of the amounts: `GPU`, `MIG 1g.10gb instance`; `device` if there are several units."""
    deserved: int
    """Set by its manifest, or by its weight."""
    used: int
    waiting: int
    """Requests of unscheduled pods."""
    share: float | None
    """used / deserved (Volcano: of the dominant unit); None if nothing is deserved."""
    words: str
    """Weight and other rules."""
    turn: int | None
    """Rank among the leaf queues with pending pods: 1 is served next. None = nothing pending."""


def engine_shares(snapshot: Snapshot) -> tuple[QueueShare, ...]:
    """All queues of Volcano and KAI, depth first from each root; empty if there are none."""
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
