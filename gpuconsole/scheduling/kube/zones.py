"""Zone-interleaved order in which kube-scheduler searches nodes (its node tree)."""

from collections.abc import Sequence
from itertools import zip_longest

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.profile import REGION, ZONE

OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"


def zone_of(node: Node) -> tuple[str, str]:
    """Region and zone; both empty where the node has neither label (GetZoneKey)."""
    labels = node.labels
    return labels.get(REGION) or labels.get(OLD_REGION, ""), labels.get(ZONE) or labels.get(OLD_ZONE, "")


def interleaved(states: Sequence[NodeState], numbers: Sequence[int]) -> tuple[int, ...]:
    """Take one node from each zone in turn (round robin), the oldest first; zones are ordered by their oldest node."""
    zones: dict[tuple[str, str], list[int]] = {}
    for _, number in sorted((_born(states[number]), number) for number in numbers):
        node = states[number].node
        assert node is not None
        zones.setdefault(zone_of(node), []).append(number)
    return tuple(number for turn in zip_longest(*zones.values()) for number in turn if number is not None)


def _born(state: NodeState) -> tuple[int, str]:
    assert state.node is not None
    return state.node.created, state.name
