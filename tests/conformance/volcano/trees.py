"""volcano/scheduler_api: the tree of hyper nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuconsole.scheduling.volcano.api.hyper_nodes import (
    HyperNodeInfo,
    HyperNodes,
    ancestors,
    leaves_with_selectors,
    lowest_common_ancestor,
    selected_nodes,
    selects_node,
)
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano.objects import hyper_node, node

Document = Mapping[str, Any]


def build(documents: Iterable[Document]) -> HyperNodes:
    result = HyperNodes()
    for document in documents:
        result.apply(hyper_node(document))
    return result


def _described(tree: Mapping[str, HyperNodeInfo]) -> dict[str, str]:
    return {
        name: f"Name: {name}, Tier: {info.tier}, TierName: {info.tier_name}, Parent: {info.parent}"
        for name, info in tree.items()
    }


def _update(table: Table, case: Case) -> Sequence[str]:
    """Hyper nodes come one by one; where that goes wrong a correct one follows."""
    result = HyperNodes()
    problems = []
    for document in case.input["initialHyperNodes"]:
        result.apply(hyper_node(document))
        problems.append(result.problem)
    found = compare("problem", any(problems), case.want.get("expectError", False))
    if case.input.get("correctHyperNode"):
        result.apply(hyper_node(case.input["correctHyperNode"]))
    nodes = {name: sorted(names) for name, names in result.real_nodes.items()}
    tiers = {str(tier): sorted(names) for tier, names in result.by_tier.items()}
    return [
        *found,
        *compare("problem in the end", result.problem, ""),
        *compare("tree", _described(result.tree), case.want["expectedHyperNodesInfo"]),
        *compare("nodes", nodes, case.want["expectedRealNodesSet"]),
        *compare("tiers", tiers, case.want.get("expectedHyperNodesListByTier", tiers)),
    ]


def _ancestors(table: Table, case: Case) -> Sequence[str]:
    tree = build(case.input["initialHyperNodes"]).tree
    return [*compare("ancestors", ancestors(tree, case.input["hyperNodeName"]), case.want["expectedAncestors"])]


def _choosing(table: Table, case: Case) -> Sequence[str]:
    tree = build(case.input["hyperNods"]).tree
    return [*compare("leaves", sorted(leaves_with_selectors(tree)), case.want["want"])]


def _lowest(table: Table, case: Case) -> Sequence[str]:
    tree = {
        name: HyperNodeInfo(
            name, listed.get("tier", 0), parent=listed.get("Parent", ""), hyper_node=hyper_node(listed["HyperNode"])
        )
        for name, listed in table.fixtures["hnim"].items()
    }
    got = lowest_common_ancestor(tree, case.input["hypernode"], case.input["jobHyperNode"])
    return [*compare("lowest", got, case.want["expectedLCA"])]


def _members(table: Table, case: Case) -> Sequence[str]:
    made = hyper_node({"spec": {"members": [{"type": "Node", "selector": case.input.get("selector") or {}}]}})
    got = selected_nodes(made.members[0], [node(document) for document in case.input.get("nodes") or ()])
    return [*compare("members", sorted(got), case.want["expected"])]


def _chooses(table: Table, case: Case) -> Sequence[str]:
    tree = build(table.fixtures["initialHyperNodes"]).tree
    known = {document["metadata"]["name"]: document for document in _nodes(table)}
    info = tree.get(case.input["hyperNodeName"])
    name = case.input["nodeName"]
    got = info is not None and selects_node(info, node(known.get(name, {"metadata": {"name": name}})))
    return [
        *compare("match", got, case.want["expectedMatch"]),
        *compare("unknown", info is None, case.want["expectedErr"]),
    ]


def _nodes(table: Table) -> list[Document]:
    """The nodes that the test's lister knows."""
    return [
        document
        for value in table.fixtures.values()
        for document in (value if isinstance(value, list) else [value])
        if isinstance(document, Mapping) and document.get("kind") == "Node"
    ]


def _built(table: Table, case: Case) -> Sequence[str]:
    """A HyperNode of the members that the test lists is read as the object that it means."""
    made = hyper_node(case.want["want"])
    got = (made.name, made.tier, [(member.type, member.exact or member.pattern or "") for member in made.members])
    asked = case.input["members"]
    wanted = (case.input["hyperNodeName"], case.input["tier"], [(member["Type"], member["Name"]) for member in asked])
    return [*compare("hyper node", got, wanted)]


_A = "volcano/scheduler_api/"

CHECKS: dict[str, Check] = {
    _A + "TestHyperNodesInfo_UpdateHyperNode_Normal": _update,
    _A + "TestHyperNodesInfo_UpdateHyperNode_MultipleParents": _update,
    _A + "TestHyperNodesInfo_UpdateHyperNode_WithCycle": _update,
    _A + "TestHyperNodesInfo_GetAncestors": _ancestors,
    _A + "TestHyperNodesInfo_GetRegexSelectorLeafHyperNodes": _choosing,
    _A + "TestHyperNodesInfo_NodeRegexOrLabelMatchHyperNode": _chooses,
    _A + "TestGetLCAHyperNode": _lowest,
    _A + "TestGetMembers": _members,
    _A + "TestBuildHyperNode": _built,
}
