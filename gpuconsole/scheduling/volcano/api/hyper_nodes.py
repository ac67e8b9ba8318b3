"""Tree of hyper nodes: their nodes, ancestors, and lowest common ancestors."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gpuconsole.model.cluster import Node
from gpuconsole.model.volcano import HyperNode, HyperNodeMember

HYPER_NODE = "HyperNode"


class HyperNodeInfo(Struct, eq=False):
    """A hyper node in the tree. Mutates only while the tree is built."""

    name: str
    tier: int = 0
    tier_name: str = ""
    parent: str = ""
    children: set[str] = field(default_factory=set)
    hyper_node: HyperNode | None = None

    @classmethod
    def of(cls, hyper_node: HyperNode) -> "HyperNodeInfo":
        """The entry of a hyper node, without parent and children."""
        return cls(hyper_node.name, hyper_node.tier, hyper_node.tier_name, hyper_node=hyper_node)

    @property
    def members(self) -> tuple[HyperNodeMember, ...]:
        return self.hyper_node.members if self.hyper_node is not None else ()


Tree = Mapping[str, HyperNodeInfo]


def below(info: HyperNodeInfo) -> list[str]:
    """Names of the hyper nodes that it lists as members; only exact names can be hyper nodes."""
    return [member.exact for member in info.members if member.type == HYPER_NODE and member.exact]


def ancestors(tree: Tree, name: str) -> list[str]:
    """The hyper node itself and its ancestors, up to the root."""
    found = [name]
    parent = _parent(tree, name)
    while parent and parent not in found:
        found.append(parent)
        parent = _parent(tree, parent)
    return found


def _parent(tree: Tree, name: str) -> str:
    """Its parent: the one that it names, else the first of a higher tier that lists it as a member."""
    info = tree.get(name)
    if info is not None and info.parent:
        return info.parent
    tier = info.tier if info is not None else -1
    return next((other.name for _, other in sorted(tree.items()) if other.tier > tier and name in below(other)), "")


def lowest_common(tree: Tree, first: str, second: str) -> str:
    """The lowest common ancestor; an empty name is ignored. Empty if there is none."""
    if not first or not second:
        return first or second
    above = set(ancestors(tree, first))
    return next((name for name in ancestors(tree, second) if name in above), "")


def leaves(tree: Tree, name: str) -> set[str]:
    """The hyper nodes at or below it whose members are no hyper nodes."""
    found, seen, waiting = set(), set(), [name]
    while waiting:
        info = tree.get(waiting.pop())
        if info is None or info.name in seen:
            continue
        seen.add(info.name)
        if any(member.type == HYPER_NODE for member in info.members):
            waiting += below(info)
        else:
            found.add(info.name)
    return found


def choosing_leaves(tree: Tree) -> set[str]:
    """Leaves that select nodes by pattern or labels: their members change with the nodes."""
    return {
        name
        for name, info in tree.items()
        if not any(member.type == HYPER_NODE for member in info.members)
        and any(member.pattern is not None or member.selector is not None for member in info.members)
    }


def chooses(info: HyperNodeInfo, node: Node) -> bool:
    """True if one of its members selects the node by pattern or labels, not by name."""
    return any(
        node.name in chosen(HyperNodeMember("Node", None, member.pattern, member.selector), (node,))
        for member in info.members
        if member.type != HYPER_NODE
    )


def chosen(member: HyperNodeMember, nodes: Iterable[Node]) -> set[str]:
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

    `problem` says so if a hyper node has two parents or is its own ancestor: jobs with a network topology are not
    scheduled then.
    """

    def __init__(self) -> None:
        self._objects: dict[str, HyperNode] = {}
        self._nodes: dict[str, Node] = {}
        self._built = True
        self._tree: dict[str, HyperNodeInfo] = {}
        self._real: dict[str, frozenset[str]] = {}
        self._problem = ""

    def apply(self, hyper_node: HyperNode) -> None:
        """Add or replace a hyper node."""
        self._objects[hyper_node.name] = hyper_node
        self._built = False

    def delete(self, name: str) -> None:
        """Remove a hyper node."""
        self._objects.pop(name, None)
        self._built = False

    def set_node(self, node: Node) -> None:
        """Apply a node; the tree is rebuilt only if a pattern or labels select the node, or did."""
        before, self._nodes[node.name] = self._nodes.get(node.name), node
        if before is not None and before.labels == node.labels:
            return
        self._stir((node,) if before is None else (before, node))

    def delete_node(self, name: str) -> None:
        """Remove a node."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self._stir((node,))

    def _stir(self, nodes: Iterable[Node]) -> None:
        if self._objects and self._built:
            choosing = [self._tree[name] for name in choosing_leaves(self._tree)]
            self._built = not any(chooses(info, node) for info in choosing for node in nodes)

    @property
    def tree(self) -> Tree:
        """Hyper node by name, with its parent and children."""
        self._build()
        return self._tree

    @property
    def real_nodes(self) -> Mapping[str, frozenset[str]]:
        """Names of the nodes in each hyper node, directly or through those below it."""
        self._build()
        return self._real

    @property
    def problem(self) -> str:
        """Why the hyper nodes form no tree; empty if they do."""
        self._build()
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
        twin = HyperNodes()
        twin._objects, twin._nodes = dict(self._objects), dict(self._nodes)
        twin._built, twin._tree, twin._real, twin._problem = self._built, self._tree, self._real, self._problem
        return twin

    def _build(self) -> None:
        if self._built:
            return
        self._built, self._problem = True, ""
        self._tree = {name: HyperNodeInfo.of(obj) for name, obj in sorted(self._objects.items())}
        self._real = {}
        nodes = tuple(self._nodes.values())
        for info in sorted(self._tree.values(), key=lambda info: (info.tier, info.name)):
            self._fill(info, (), nodes)

    def _fill(self, info: HyperNodeInfo, chain: tuple[str, ...], nodes: tuple[Node, ...]) -> None:
        if info.name in chain:
            listed = " ".join(sorted(chain))
            self._problem = (
                f"cyclic dependency detected: HyperNode {info.name} is already in the ancestor chain [{listed}]"
            )
        if self._problem or info.name in self._real:
            return
        held: set[str] | None = None
        for member in info.members:
            if member.type != HYPER_NODE:
                held = (held or set()) | chosen(member, nodes)
                continue
            child = self._tree.get(member.exact or "")
            if child is None:
                continue
            if not self._join(info, child):
                return
            self._fill(child, (*chain, info.name), nodes)
            held = (held or set()) | self._real.get(child.name, frozenset())
        if held is not None and not self._problem:
            self._real[info.name] = frozenset(held)

    def _join(self, parent: HyperNodeInfo, child: HyperNodeInfo) -> bool:
        if child.parent not in ("", parent.name):
            rest = f"has a parent {child.parent}, and cannot set another parent {parent.name}"
            self._problem = f"HyperNode {child.name} already {rest}"
            return False
        child.parent = parent.name
        parent.children.add(child.name)
        return True
