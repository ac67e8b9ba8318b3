"""Messages for pods that cannot be placed, as Kueue 0.19 writes them (notFitMessage, multiLayerNotFitMessage)."""

from gpuconsole.scheduling.kueue.topology.counts import Counts, PlacementShape
from gpuconsole.scheduling.kueue.topology.demand import Slices
from gpuconsole.scheduling.kueue.topology.domains import TopologyDomainTree
from gpuconsole.scheduling.kueue.topology.layout import DoesNotFit


def not_fit(
    domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, refusal: DoesNotFit, slices: Slices
) -> str:
    """Return the message of a failed placement, with the number of nodes excluded for each reason."""
    if refusal.fitting is None:
        return f"no topology domains at level: {domains.levels[refusal.level]}"
    if shape.inner_sizes:
        return _by_layer(domains, counts, shape, refusal.level, slices) + _excluded(counts)
    unit = "pod(s)" if shape.slice_size == 1 else "slice(s)"
    wanted = shape.count // shape.slice_size
    if refusal.fitting:
        text = f'topology "{domains.name}" allows to fit only {refusal.fitting} out of {wanted} {unit}'
    else:
        text = f'topology "{domains.name}" doesn\'t allow to fit any of {wanted} {unit}'
    return text + _excluded(counts)


def _excluded(counts: Counts) -> str:
    parts = sorted(f"{why}: {number}" for why, number in counts.excluded.items())
    return f". Total nodes: {counts.total_nodes}; excluded: {', '.join(parts)}" if parts else ""


def _by_layer(domains: TopologyDomainTree, counts: Counts, shape: PlacementShape, level: int, slices: Slices) -> str:
    """How many slices of each layer the best domain could take."""
    best = min(domains.by_level[level], key=lambda number: (-counts.slices[number], number))
    text = f'topology "{domains.name}" doesn\'t allow to fit'
    for key, size in slices:
        fitting = sum(counts.pods[number] // size for number in _below(domains, best, domains.levels.index(key)))
        text += f"; {fitting}/{shape.count // size} slice(s) fit on level {key}"
    return text


def _below(domains: TopologyDomainTree, number: int, level: int) -> list[int]:
    """The domains of a lower level in the subtree of a domain."""
    current = [number]
    for _ in range(level - len(domains.values[number]) + 1):
        current = [child for domain in current for child in domains.children[domain]]
    return current
