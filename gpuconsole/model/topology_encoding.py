"""Compact encoding of topology assignments in the API: domains in slices, common values written once.

Kueue 0.19 pkg/util/tas/tas_assignment.go. For each level, a slice has either one value for all its domains, or a
prefix, a suffix and the parts between them; the same for pod counts. With the feature gate
TASAssignmentsEncodingByHostnamePrefix hosts are first split into runs with a common prefix (`pool-a-node-`), if the
result is shorter.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.workloads import TopologyDomain

MOST_DOMAINS = 100_000
"""Most domains of one slice."""
MOST_SLICES = 1_000
Slice = dict[str, Any]


def encode(levels: Sequence[str], domains: Sequence[TopologyDomain], *, by_prefix: bool = True) -> dict[str, Any]:
    """Encode an assignment as `status.admission.podSetAssignments[].topologyAssignment`.

    `by_prefix` is Kueue's feature gate TASAssignmentsEncodingByHostnamePrefix: if False, one slice has all domains.
    """
    single = [_slice(levels, domains)] if domains else []
    if not by_prefix:
        return _document(levels, single)
    split = list(by_prefix_runs(levels, domains))
    if len(split) <= 1:
        return _document(levels, split)
    in_one = len(domains) <= MOST_DOMAINS and _size(_document(levels, single)) < _size(_document(levels, split))
    return _document(levels, single if in_one else split)


def by_prefix_runs(levels: Sequence[str], domains: Sequence[TopologyDomain]) -> Iterator[Slice]:
    """Yield a slice of the assignment for each run of hosts with a common prefix, with at most `MOST_DOMAINS` hosts."""
    keys: Sequence[str] = ()
    if len(domains) > 1 and levels and levels[-1] == HOSTNAME:
        keys = prefix_keys([domain.values[-1] for domain in domains])
    for run in runs(domains, keys):
        for start in range(0, len(run), MOST_DOMAINS):
            yield _slice(levels, run[start : start + MOST_DOMAINS])


def runs(domains: Sequence[TopologyDomain], keys: Sequence[str]) -> list[Sequence[TopologyDomain]]:
    """Split the domains into runs of adjacent ones with the same key; into one run if there are no keys."""
    if not keys:
        return [domains] if domains else []
    bounds = [0, *(at for at in range(1, len(domains)) if keys[at] != keys[at - 1]), len(domains)]
    return [domains[start:end] for start, end in itertools.pairwise(bounds)] if domains else []


def prefix_keys(hosts: Sequence[str]) -> list[str]:
    """Return for each host its longest prefix up to a `-` that another host shares.

    If that gives too many slices, prefixes of fewer parts are used; empty if those give too many, too.
    """
    ends = [[at + 1 for at, character in enumerate(host[:-1]) if character == "-"] for host in hosts]
    counts = Counter(host[:end] for host, cuts in zip(hosts, ends, strict=True) for end in cuts)
    for depth in range(max(map(len, ends), default=0), 0, -1):
        keys = [
            next((host[:end] for end in reversed(cuts[:depth]) if counts[host[:end]] > 1), "")
            for host, cuts in zip(hosts, ends, strict=True)
        ]
        if _slices_for(keys) <= MOST_SLICES:
            return keys
    return []


def _slices_for(keys: Sequence[str]) -> int:
    total = length = 0
    for at, key in enumerate(keys):
        if at and key != keys[at - 1]:
            total, length = total + chunks(length), 0
        length += 1
    return total + chunks(length)


def chunks(length: int, size: int = MOST_DOMAINS) -> int:
    """Number of slices that so many domains need, with at most `size` in each."""
    return -(-length // size)


def _document(levels: Sequence[str], slices: list[Slice]) -> dict[str, Any]:
    return {"levels": list(levels), "slices": slices}


def _size(document: dict[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")))


def _slice(levels: Sequence[str], domains: Sequence[TopologyDomain]) -> Slice:
    counts = [domain.count for domain in domains]
    same = len(set(counts)) == 1
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_values([domain.values[level] for domain in domains]) for level in range(len(levels))],
        "podCounts": {"universal": counts[0]} if same else {"individual": counts},
    }


def _values(values: Sequence[str]) -> dict[str, Any]:
    """Encode one value for all, or the parts between a common prefix and suffix."""
    first, last = min(values), max(values)
    if first == last:
        return {"universal": first}
    shortest = min(map(len, values))
    prefix = _common(first, last)
    suffix = values[0]
    for value in values:
        while suffix and not value.endswith(suffix):
            suffix = suffix[1:]
    prefix = prefix[: shortest - len(suffix)] if len(prefix) + len(suffix) > shortest else prefix
    roots = [value[len(prefix) : len(value) - len(suffix)] for value in values]
    individual: dict[str, Any] = {"roots": roots}
    if suffix:
        individual = {"suffix": suffix, **individual}
    if prefix:
        individual = {"prefix": prefix, **individual}
    return {"individual": individual}


def _common(one: str, other: str) -> str:
    """Common prefix of two texts; for the least and greatest of a set, that of all."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return one[:at]
    return min(one, other, key=len)
