"""Order in which domains are tried (Kueue 0.19 TASFlavorSnapshot.sortedDomains, sortedDomainsWithLeader).

Higher affinity scores come first; domain numbers stand for their values, so they break ties.
"""

from collections.abc import Iterable

from gpuconsole.scheduling.kueue.topology.counts import Counts


def sort_with_leader(counts: Counts, numbers: Iterable[int], *, best_fit: bool) -> list[int]:
    """Sort domains that can host the leader first, then by affinity score and by slices that fit beside the leader.

    The most slices come first, or the least without `best_fit`; then the fewest pods beside the leader.
    """
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
    """Sort by affinity score, then slices that fit: most first, or least without `best_fit`; then fewest pods first."""
    sign = -1 if best_fit else 1
    return sorted(numbers, key=lambda n: (-counts.scores[n], sign * counts.slices[n], counts.pods[n], n))
