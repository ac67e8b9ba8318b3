"""Tree of topology domains over the nodes of a session (KAI 0.13 plugins/topology)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuconsole.scheduling.kai.api.amounts import PODS, ResourceAmounts
from gpuconsole.scheduling.kai.api.nodes import KaiNodeInfo
from gpuconsole.scheduling.kai.api.pod_sets import TopologyConstraint
from gpuconsole.scheduling.kai.api.topologies import TopologyInfo

ROOT = "root"
_NOT_THERE = 1000.0


class TopologyDomainInfo:
    """A topology domain such as a rack, or the root: its nodes, the domains below, and how much fits. Mutates."""

    def __init__(self, key: str, level: str) -> None:
        self.key, self.level = key, level
        self.children: list[TopologyDomainInfo] = []
        self.nodes: dict[str, KaiNodeInfo] = {}
        self.pods: int | None = None
        """How many of the tasks fit; None if that was not counted."""
        self.free = ResourceAmounts()

    def add_child(self, child: TopologyDomainInfo) -> None:
        """Add a domain below, unless it is there."""
        if all(known.key != child.key for known in self.children):
            self.children.append(child)

    def forget(self) -> None:
        """Delete the counted pods and free resources."""
        self.pods, self.free = None, ResourceAmounts()

    def sum_up(self) -> ResourceAmounts:
        """Add up idle and releasing resources in the domain and in those below."""
        if self.children:
            for child in self.children:
                self.free.add(child.sum_up())
        else:
            for node in self.nodes.values():
                self.free.add(node.idle)
                self.free.add(node.releasing)
        return self.free


class TopologyTree:
    """A topology's domains by level and by key: the labels' values from the widest level down, joined by dots."""

    def __init__(self, topology: TopologyInfo, nodes: Iterable[KaiNodeInfo]) -> None:
        self.topology = topology
        self.root = TopologyDomainInfo(ROOT, ROOT)
        self.levels: dict[str, dict[str, TopologyDomainInfo]] = {ROOT: {ROOT: self.root}}
        for node in nodes:
            if labelled(node.node.labels, topology.levels):
                self._add(node)

    def _add(self, node: KaiNodeInfo) -> None:
        values = [node.node.labels[level] for level in self.topology.levels]
        parent = self.root
        parent.nodes[node.name] = node
        for depth, level in enumerate(self.topology.levels, start=1):
            key = ".".join(values[:depth])
            domain = self.levels.setdefault(level, {}).setdefault(key, TopologyDomainInfo(key, level))
            domain.nodes[node.name] = node
            parent.add_child(domain)
            parent = domain

    def forget(self) -> None:
        """Delete the counts of every domain."""
        for domains in self.levels.values():
            for domain in domains.values():
                domain.forget()


def labelled(labels: Mapping[str, str], levels: Sequence[str]) -> bool:
    """True if a node has the label of every level."""
    return all(level in labels for level in levels)


def common_domain(
    nodes: Sequence[KaiNodeInfo], levels: Sequence[str], constraint: TopologyConstraint
) -> tuple[str, str, dict[str, KaiNodeInfo]]:
    """Key and level of the narrowest domain that contains all nodes, and the nodes that have the labels of all levels.

    The domain is no narrower than the preferred level.
    """
    valid = {node.name: node for node in nodes if labelled(node.node.labels, levels)}
    parts: list[str] = []
    for level in levels:
        values = {node.node.labels[level] for node in valid.values()}
        if len(values) != 1 or "" in values:
            break
        parts += values
        if constraint.preferred == level:
            break
    if not parts:
        return ROOT, ROOT, valid
    return ".".join(parts), levels[len(parts) - 1], valid


def sort_tree(needs: ResourceAmounts, domain: TopologyDomainInfo, deepest: str) -> None:
    """Put the domains with the least free resources first, down to a level."""
    if not deepest:
        return
    domain.children.sort(key=lambda child: (-ratio(needs, child), child.key))
    if domain.level != deepest:
        for child in domain.children:
            sort_tree(needs, child, deepest)


def ratio(needs: ResourceAmounts, domain: TopologyDomainInfo) -> float:
    """The largest ratio of needs to free amounts over all resources but pods.

    1000 for a resource of which nothing is free, infinite for GPUs.
    """
    if needs.within(ResourceAmounts()):
        return 0.0
    free = domain.free
    most = 0.0
    if needs.gpus > 0:
        most = needs.gpus / free.gpus if free.gpus else math.inf
    asked = {"cpu": needs.cpu, **needs.scalars}
    for name, amount in asked.items():
        if name != PODS:
            most = max(most, _part(math.ceil(amount / 1000), math.ceil(free.get(name) / 1000)))
    return max(most, _part(int(needs.memory), int(free.memory)))


def _part(asked: int, free: int) -> float:
    if asked == 0:
        return 0.0
    return asked / free if free else _NOT_THERE


def narrow_first(root: TopologyDomainInfo) -> list[TopologyDomainInfo]:
    """All domains, level by level from the narrowest up, in the order of the tree."""
    levels = [[root]]
    while below := [child for domain in levels[-1] for child in domain.children]:
        levels.append(below)
    return [domain for level in reversed(levels) for domain in level]


def of_level(domain: TopologyDomainInfo, level: str) -> Iterator[TopologyDomainInfo]:
    """The domains of a level below, in the order of the tree."""
    if domain.level == level:
        yield domain
        return
    for child in domain.children:
        yield from of_level(child, level)
