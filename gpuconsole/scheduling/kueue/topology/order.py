"""In which order domains are tried (Kueue 0.19 TASFlavorSnapshot.sortedDomains, sortedDomainsWithLeader).

Those that the pods like best come first; numbers stand for the values of domains, so they break ties.
"""

from collections.abc import Iterable

from gpuconsole.scheduling.kueue.topology.counts import Counts


def sort_with_leader(counts: Counts, numbers: Iterable[int], *, best_fit: bool) -> list[int]:
    """Those that take the leader first, then by room beside it: most first, or without `best_fit` least first."""
    sign = -1 if best_fit else 1
    return sorted(
        numbers,
        key=lambda n: (
            -counts.leaders[n],
            -counts.scores[n],
            sign * counts.slices_with_leader[n],
            counts.pods_with_leader[n],
            n,
        ),
    )


def sort_domains(counts: Counts, numbers: Iterable[int], *, best_fit: bool) -> list[int]:
    """By room for slices: most first, or without `best_fit` least first; then by the room left over."""
    sign = -1 if best_fit else 1
    return sorted(numbers, key=lambda n: (-counts.scores[n], sign * counts.slices[n], counts.pods[n], n))
