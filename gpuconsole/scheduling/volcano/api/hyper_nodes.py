"""Hyper nodes (domains of the network topology): the tree of all of them, and the domains of one session.

`HyperNodes` builds the tree from objects, with the nodes and ancestors of each hyper node. `HyperNodeDomains` is a
session's view: the tree with one root, topology constraints as tiers, and each job's current domain.

Volcano 1.15 framework/session.go. Opening replaces known tier names by tiers, and a soft constraint by a hard one whose
tier is that of the root, which every domain satisfies (for a sub-job that of its job, if it has one).
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.cluster import Node
from gpuconsole.model.volcano import HyperNode, HyperNodeMember, NetworkTopology
from gpuconsole.scheduling.volcano.api.job import JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.task import ALLOCATED_STATUSES

HYPER_NODE = "HyperNode"


class HyperNodeInfo(Struct, eq=False):
    """A hyper node with its parent and children in the tree. Mutates only while the tree is built."""

    name: str
    tier: int = 0
    tier_name: str = ""
    parent: str = ""
    children: set[str] = field(default_factory=set)
    hyper_node: HyperNode | None = None

    @classmethod
    def from_object(cls, hyper_node: HyperNode) -> "HyperNodeInfo":
        """The entry of a hyper node, without parent and children."""
        return cls(hyper_node.name, hyper_node.tier, hyper_node.tier_name, hyper_node=hyper_node)

    @property
    def members(self) -> tuple[HyperNodeMember, ...]:
        return self.hyper_node.members if self.hyper_node is not None else ()


Tree = Mapping[str, HyperNodeInfo]


def member_hyper_nodes(info: HyperNodeInfo) -> list[str]:
    """Names of the hyper nodes that a hyper node lists as members; only exact names count."""
    return [member.exact for member in info.members if member.type == HYPER_NODE and member.exact]


def ancestors(tree: Tree, name: str) -> list[str]:
    """The hyper node itself and its ancestors, up to the root."""
    found = [name]
    parent = _parent_of(tree, name)
    while parent and parent not in found:
        found.append(parent)
        parent = _parent_of(tree, parent)
    return found


def _parent_of(tree: Tree, name: str) -> str:
    """Its parent: the one that it names, else the first of a higher tier that lists it as a member."""
    info = tree.get(name)
    if info is not None and info.parent:
        return info.parent
    tier = info.tier if info is not None else -1
    return next(
        (other.name for _, other in sorted(tree.items()) if other.tier > tier and name in member_hyper_nodes(other)), ""
    )


def lowest_common_ancestor(tree: Tree, first: str, second: str) -> str:
    """The lowest common ancestor of two hyper nodes; an empty name is ignored. Empty if there is none."""
    if not first or not second:
        return first or second
    above = set(ancestors(tree, first))
    return next((name for name in ancestors(tree, second) if name in above), "")


def leaves_with_selectors(tree: Tree) -> set[str]:
    """The leaves that select nodes by pattern or labels, so that their members change with the nodes."""
    return {
        name
        for name, info in tree.items()
        if not any(member.type == HYPER_NODE for member in info.members)
        and any(member.pattern is not None or member.selector is not None for member in info.members)
    }


def selects_node(info: HyperNodeInfo, node: Node) -> bool:
    """True if a member of the hyper node selects the node by pattern or labels, not by name."""
    return any(
        node.name in selected_nodes(HyperNodeMember("Node", None, member.pattern, member.selector), (node,))
        for member in info.members
        if member.type != HYPER_NODE
    )


def selected_nodes(member: HyperNodeMember, nodes: Iterable[Node]) -> set[str]:
    """Names of the nodes that a member selects (GetMembers).

    A name counts even if no such node exists. An invalid regular expression and an empty label selector select nothing.
    """
    found = {member.exact} if member.exact else set()
    if member.exact == "":
        return found
    if member.pattern is not None:
        try:
            pattern = re.compile(member.pattern)
        except re.error:
            return set()
        found |= {node.name for node in nodes if pattern.search(node.name)}
    selector = member.selector
    if selector is not None and (selector.match_labels or selector.match_expressions):
        found |= {node.name for node in nodes if selector.matches(node.labels)}
    return found


class HyperNodes:
    """All hyper nodes and the tree that they form (api.HyperNodesInfo). Mutates; the tree is built on access.

    While `problem` is not empty, jobs with a network topology are not scheduled: a hyper node has two parents or is its
    own ancestor.
    """

    def __init__(self) -> None:
        self._objects: dict[str, HyperNode] = {}
        self._nodes: dict[str, Node] = {}
        self._is_built = True
        self._tree: dict[str, HyperNodeInfo] = {}
        self._real_nodes: dict[str, frozenset[str]] = {}
        self._problem = ""

    def apply(self, hyper_node: HyperNode) -> None:
        """Add or replace a hyper node."""
        self._objects[hyper_node.name] = hyper_node
        self._is_built = False

    def delete(self, name: str) -> None:
        """Remove a hyper node."""
        self._objects.pop(name, None)
        self._is_built = False

    def set_node(self, node: Node) -> None:
        """Apply a node that appeared or changed; the tree is rebuilt if a pattern or labels select the node, or did."""
        before, self._nodes[node.name] = self._nodes.get(node.name), node
        if before is not None and before.labels == node.labels:
            return
        self._invalidate_if_selected((node,) if before is None else (before, node))

    def delete_node(self, name: str) -> None:
        """Remove a node."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self._invalidate_if_selected((node,))

    def _invalidate_if_selected(self, nodes: Iterable[Node]) -> None:
        if self._objects and self._is_built:
            choosing = [self._tree[name] for name in leaves_with_selectors(self._tree)]
            self._is_built = not any(selects_node(info, node) for info in choosing for node in nodes)

    @property
    def tree(self) -> Tree:
        """Hyper node by name, with its parent and children."""
        self._ensure_built()
        return self._tree

    @property
    def real_nodes(self) -> Mapping[str, frozenset[str]]:
        """Names of the nodes in each hyper node, directly or through those below it."""
        self._ensure_built()
        return self._real_nodes

    @property
    def problem(self) -> str:
        """Why the hyper nodes form no tree; empty if they do."""
        self._ensure_built()
        return self._problem

    @property
    def by_tier(self) -> Mapping[int, set[str]]:
        """Names of the hyper nodes of each tier."""
        tiers: dict[int, set[str]] = {}
        for hyper_node in self._objects.values():
            tiers.setdefault(hyper_node.tier, set()).add(hyper_node.name)
        return tiers

    def fork(self) -> "HyperNodes":
        """An independent copy; what is already built is shared."""
        copied = HyperNodes()
        copied._objects, copied._nodes = dict(self._objects), dict(self._nodes)
        copied._is_built, copied._tree, copied._real_nodes, copied._problem = (
            self._is_built,
            self._tree,
            self._real_nodes,
            self._problem,
        )
        return copied

    def _ensure_built(self) -> None:
        if self._is_built:
            return
        self._is_built, self._problem = True, ""
        self._tree = {name: HyperNodeInfo.from_object(obj) for name, obj in sorted(self._objects.items())}
        self._real_nodes = {}
        nodes = tuple(self._nodes.values())
        for info in sorted(self._tree.values(), key=lambda info: (info.tier, info.name)):
            self._set_real_nodes(info, (), nodes)

    def _set_real_nodes(self, info: HyperNodeInfo, ancestor_names: tuple[str, ...], nodes: tuple[Node, ...]) -> None:
        if info.name in ancestor_names:
            listed = " ".join(sorted(ancestor_names))
            self._problem = (
                f"cyclic dependency detected: HyperNode {info.name} is already in the ancestor chain [{listed}]"
            )
        if self._problem or info.name in self._real_nodes:
            return
        held: set[str] | None = None
        for member in info.members:
            if member.type != HYPER_NODE:
                held = (held or set()) | selected_nodes(member, nodes)
                continue
            child = self._tree.get(member.exact or "")
            if child is None:
                continue
            if not self._set_parent(info, child):
                return
            self._set_real_nodes(child, (*ancestor_names, info.name), nodes)
            held = (held or set()) | self._real_nodes.get(child.name, frozenset())
        if held is not None and not self._problem:
            self._real_nodes[info.name] = frozenset(held)

    def _set_parent(self, parent: HyperNodeInfo, child: HyperNodeInfo) -> bool:
        if child.parent not in ("", parent.name):
            rest = f"has a parent {child.parent}, and cannot set another parent {parent.name}"
            self._problem = f"HyperNode {child.name} already {rest}"
            return False
        child.parent = parent.name
        parent.children.add(child.name)
        return True


ROOT_NAME = "<cluster-top-hypernode>"
"""The root of all hyper nodes, which contains every node."""


class HyperNodeDomains:
    """One session's view of the hyper nodes: a tree with one root, and jobs' domains. Mutates once, by `open`."""

    def __init__(
        self,
        hyper_nodes: Mapping[str, HyperNodeInfo] | None = None,
        real_nodes: Mapping[str, Iterable[str]] | None = None,
        tier_names: Mapping[str, int] | None = None,
        *,
        by_tier: Mapping[int, Iterable[str]] | None = None,
        ready: bool = True,
    ) -> None:
        self.hyper_nodes = {
            name: replace(info, children=set(info.children)) for name, info in (hyper_nodes or {}).items()
        }
        self.real_nodes = {name: set(nodes) for name, nodes in (real_nodes or {}).items()}
        """Names of the nodes in each hyper node."""
        self.tier_names = dict(tier_names or {})
        self.by_tier = {tier: set(names) for tier, names in (by_tier or {}).items()}
        self.tiers: list[int] = []
        """All tiers, the lowest first."""
        self.ready = ready
        """False if the hyper nodes form no tree: jobs with a network topology are not scheduled then."""

    def open(self, jobs: Iterable[JobInfo], nodes: Mapping[str, NodeInfo]) -> None:
        """Add the root, and normalize the jobs' topology constraints and domains."""
        self.real_nodes = {name: names & nodes.keys() for name, names in self.real_nodes.items()}
        self._add_root(nodes)
        self.tiers = sorted(self.by_tier)
        for job in jobs:
            if job.contains_network_topology:
                resolve_tier_names(job, self.tier_names)
                convert_soft_to_hard(job, self.hyper_nodes[ROOT_NAME].tier)
            if self.ready:
                self._clear_stale_domains(job)
                self._infer_domains(job)

    def lowest_common(self, left: str, right: str) -> str:
        """The lowest common ancestor of two hyper nodes; an empty name is ignored. Empty if there is none."""
        return lowest_common_ancestor(self.hyper_nodes, left, right)

    def lowest_domain_of(self, node: str) -> str:
        """The hyper node of the lowest tier that contains a node; empty if there is none."""
        names = sorted(self.by_tier.get(self.tiers[0], ())) if self.tiers else ()
        return next((name for name in names if node in self.real_nodes.get(name, ())), "")

    def _add_root(self, nodes: Iterable[str]) -> None:
        tier = max((1, *(tier + 1 for tier in self.by_tier)))
        root_tier = HyperNodeInfo(ROOT_NAME, tier)
        for name, info in self.hyper_nodes.items():
            if not info.parent:
                info.parent = ROOT_NAME
                root_tier.children.add(name)
        self.hyper_nodes[ROOT_NAME] = root_tier
        self.by_tier[root_tier.tier] = {ROOT_NAME}
        self.real_nodes[ROOT_NAME] = set(nodes)

    def _clear_stale_domains(self, job: JobInfo) -> None:
        """Clear domains that no longer exist or have no tasks."""
        units: list[JobInfo | SubJobInfo] = [job, *job.sub_jobs.values()]
        for unit in units:
            lost = unit.allocated_hyper_node not in self.hyper_nodes
            if unit.allocated_hyper_node and (lost or not unit.count_with_status(ALLOCATED_STATUSES)):
                unit.allocated_hyper_node = ""

    def _infer_domains(self, job: JobInfo) -> None:
        """Infer an unknown domain: the lowest that contains all nodes with the job's tasks."""
        if not job.contains_network_topology:
            return
        changed = False
        for sub_job in job.sub_jobs.values():
            if sub_job.network_topology is not None and not sub_job.allocated_hyper_node:
                sub_job.allocated_hyper_node = self._domain_of(sub_job)
                changed = changed or bool(sub_job.allocated_hyper_node)
        if job.allocated_hyper_node and not changed:
            return
        place = ""
        for _, sub_job in sorted(job.sub_jobs.items()):
            if sub_job.allocated_hyper_node:
                place = self.lowest_common(place, sub_job.allocated_hyper_node)
                if not place:
                    break
        job.allocated_hyper_node = place

    def _domain_of(self, sub_job: SubJobInfo) -> str:
        held: set[str] | None = None
        for task in (task for status in ALLOCATED_STATUSES for task in sub_job.tasks_with_status(status).values()):
            if task.node_name:
                names = self.hyper_nodes.keys() if held is None else held
                held = {name for name in names if task.node_name in self.real_nodes.get(name, ())}
        return min(held, key=lambda name: (self.hyper_nodes[name].tier, name)) if held else ""


def resolve_tier_names(job: JobInfo, tier_names: Mapping[str, int]) -> None:
    """Replace tier names in a job's topology constraints by tier numbers; unknown names stay."""
    units: list[JobInfo | SubJobInfo] = [job, *job.sub_jobs.values()]
    for unit in units:
        demand = unit.network_topology
        if demand is not None and demand.highest_tier is None and demand.highest_tier_name in tier_names:
            tier = tier_names[demand.highest_tier_name]
            unit.network_topology = replace(demand, highest_tier=tier, highest_tier_name="")


def convert_soft_to_hard(job: JobInfo, root_tier: int) -> None:
    """Turn soft topology constraints into hard ones that every domain satisfies, with `root_tier`, the root's tier.

    A sub-job's gets the highest tier of its job's, if it has one.
    """
    if job.is_soft:
        job.network_topology = NetworkTopology("hard", root_tier)
    allowed = None if job.network_topology is None else job.network_topology.highest_tier
    for sub_job in job.sub_jobs.values():
        sub_job.convert_to_hard(root_tier if allowed is None else allowed)
