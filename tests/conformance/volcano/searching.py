"""volcano/scheduler_util: which nodes are looked at, which of them is best, and where tasks are."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME, HyperNodeDomains, HyperNodeInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.config import Sampling
from gpuconsole.scheduling.volcano.node_search import highest_scored_name, nodes_by_score
from gpuconsole.scheduling.volcano.plugins.network_topology_aware import count_tasks_within
from gpuconsole.scheduling.volcano.session import ClusterInfo, Sharding, VolcanoSession
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common, objects

Document = Mapping[str, Any]


def _named(documents: Any) -> list[str]:
    return [document["Name"] if isinstance(document, Mapping) else document for document in documents or ()]


def _node(name: str) -> NodeInfo:
    return NodeInfo(objects.node({"metadata": {"name": name}}))


def _scores(groups: Any) -> dict[str, float]:
    return {name: float(group["key"]) for group in groups or () for name in _named(group["value"])}


def _best(scores: str, nodes: str, score: str) -> Check:
    """Any of the expected ones, by the highest score; ours is the first of them by name."""

    def check(table: Table, case: Case) -> Sequence[str]:
        known = _scores(case.input[scores])
        got = highest_scored_name(known)
        wanted = [one for one in case.want[nodes] if one is not None]
        allowed = sorted(_named(wanted))[:1] or [""]
        return [*compare("best", (got, known.get(got, 0.0)), (allowed[0], float(case.want[score])))]

    return check


def _first(table: Table, case: Case) -> Sequence[str]:
    known = _scores(case.input["nodeScores"])
    got = [node.name for node in nodes_by_score(known, map(_node, sorted(known)))]
    return [*compare("best", got[: case.input["count"]], _named(case.want["expected"]))]


def _enough(table: Table, case: Case) -> Sequence[str]:
    got = Sampling(percentage=case.input["percentageOfNodesToScore"]).nodes_to_find(case.input["numAllNodes"])
    return [*compare("nodes", got, case.want["wantNumNodes"])]


def _domains(case: Case) -> HyperNodeDomains:
    inside = {name: _named(nodes) for name, nodes in (case.input.get("hyperNodes") or {}).items()}
    tiers = {int(tier): names for tier, names in (case.input.get("hyperNodesSetByTier") or {}).items()}
    infos = {name: HyperNodeInfo(name, tier) for tier, names in tiers.items() for name in names}
    return HyperNodeDomains(infos, inside, by_tier=tiers)


def _domain_of(table: Table, case: Case) -> Sequence[str]:
    domains = _domains(case)
    domains.tiers = case.input.get("hyperNodesTiers") or []
    return [*compare("domain", domains.lowest_domain_of(case.input["nodeName"]), case.want["expectedRes"])]


def _inside(table: Table, case: Case) -> Sequence[str]:
    members = [
        objects.task({"UID": uid, "Name": uid, "NodeName": node, "Status": "Running"})
        for uid, node in case.input["tasks"].items()
    ]
    known = {name: _named(nodes) for name, nodes in case.input["hyperNodes"].items()}
    return [
        *compare("tasks", count_tasks_within(case.input["hyperNodeName"], members, known), case.want["expectedRes"])
    ]


def _lists(table: Table, case: Case) -> Sequence[str]:
    """The nodes of each domain, as a session has them."""
    nodes = {name: _node(name) for name in case.input.get("allNodes") or {}}
    session = VolcanoSession(common.configuration({}), ClusterInfo(nodes=nodes, domains=_domains(case)), plugins={})
    got = {name: [node.name for node in listed] for name, listed in session.real_node_list.items() if name != ROOT_NAME}
    return [*compare("nodes", got, case.want["expected"])]


def _shards(table: Table, case: Case) -> Sequence[str]:
    session = VolcanoSession(common.configuration({}), ClusterInfo(), plugins={})
    mode = case.input["shardingMode"]
    # Without a word about the shard's nodes there is nothing to split by.
    if case.input.get("nodesInShard") is not None and mode != "none":
        session.sharding = Sharding(mode)
        session.nodes_in_shard = frozenset(case.input["nodesInShard"])
    own, others = session.split_by_shard([_node(name) for name in _named(case.input["predicateNodes"])])
    got = ([node.name for node in own], [node.name for node in others])
    return [
        *compare("shards", got, (case.want.get("expectedInShard") or [], case.want.get("expectedInOtherShard") or []))
    ]


_A = "volcano/scheduler_util/"

CHECKS: dict[str, Check] = {
    _A + "TestSelectBestNode": _best("NodeScores", "ExpectedNodes", "ExpectedScore"),
    _A + "TestSelectBestHyperNodeAndScore": _best("hyperNodeScores", "expectedNodes", "expectedScore"),
    _A + "TestSelectBestNodes": _first,
    _A + "TestNumFeasibleNodesToFind": _enough,
    _A + "TestFindHyperNodeForNode": _domain_of,
    _A + "TestFindJobTaskNumOfHyperNode": _inside,
    _A + "TestGetHyperNodeList": _lists,
    _A + "TestGetPredicatedNodeByShard": _shards,
}
