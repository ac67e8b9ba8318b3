"""NUMA hints, and the choice among them by the kubelet's topology policy (kubelet's topologymanager)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from msgspec import Struct


class Hint(Struct, frozen=True):
    """NUMA nodes that satisfy a request; `nodes` is a bit mask, None for any nodes."""

    nodes: int | None = None
    preferred: bool = False


Hints = Mapping[str, Sequence[Hint] | None]
"""One provider's hints by resource; None is no preference, an empty list means that no nodes suffice."""


def decide(policy: str, numa: Iterable[int], providers: Iterable[Hints]) -> tuple[Hint, bool]:
    """The best hint for all resources together, and whether the policy admits the container."""
    if policy not in ("best-effort", "restricted", "single-numa-node"):
        return Hint(), True
    wishes = list(_wishes(providers))
    if policy == "single-numa-node":
        wishes = [[hint for hint in listed if _is_single(hint)] for listed in wishes]
    best = merged(numa, wishes)
    return best, policy == "best-effort" or best.preferred


def _wishes(providers: Iterable[Hints]) -> Iterable[Sequence[Hint]]:
    for hints in providers:
        if not hints:
            yield [Hint(None, True)]
        for _, listed in sorted(hints.items()):
            yield [Hint(None, True)] if listed is None else listed or [Hint(None, False)]


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def merged(numa: Iterable[int], wishes: Sequence[Sequence[Hint]]) -> Hint:
    """The best combination of one hint per request: preferred before others, then the fewest NUMA nodes.

    If no combination has common nodes, all nodes, not preferred.
    """
    every = sum(1 << number for number in numa)
    best = Hint(every, False)
    for choice in product(*wishes):
        nodes, preferred = every, True
        for hint in choice:
            nodes &= every if hint.nodes is None else hint.nodes
            preferred = preferred and hint.preferred
        found = Hint(nodes, preferred)
        if nodes and (found.preferred, _narrowness(nodes)) > (best.preferred, _narrowness(best.nodes or 0)):
            best = found
    return best


def _narrowness(nodes: int) -> tuple[int, int]:
    """Greater for fewer nodes, and among equals for lower numbers (bitmask.IsNarrowerThan)."""
    return -nodes.bit_count(), -nodes
