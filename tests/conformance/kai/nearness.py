"""KAI's tables of topologies and of minimum runtimes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.scheduling.kai.api.jobs import TopologyInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments
from gpuconsole.scheduling.kai.fair_share.division import QueueState
from gpuconsole.scheduling.kai.functions import NoSuitableNodes, VictimJob
from gpuconsole.scheduling.kai.plugins.ordering import (
    MinRuntime,
    preempt_min_runtime,
    queue_path,
    reclaim_min_runtime,
)
from gpuconsole.scheduling.kai.plugins.topology import (
    TopologyDomainInfo,
    common_domain,
    domains_narrowest_first,
    domains_of_level,
    eligible_levels,
    has_all_levels,
    node_scores,
)
from gpuconsole.scheduling.kai.session import KaiSession
from tests.conformance.kai import values
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

Document = Mapping[str, Any]
ZONES = ("zone", "rack")
"""The levels that the tables of nodes have."""
SECOND = 1_000_000


def domain(document: Document) -> TopologyDomainInfo:
    found = TopologyDomainInfo(document.get("ID", ""), document.get("Level", ""))
    found.children = [domain(child) for child in document.get("Children") or ()]
    found.nodes = {name: values.node(node) for name, node in (document.get("Nodes") or {}).items()}
    return found


def scores(table: Table, case: Case) -> Sequence[str]:
    got = node_scores(domain(case.input["domain"]), case.input["preferredLevel"])
    want = case.want.get("expectedScores") or {}
    return [
        *compare("nodes", sorted(got), sorted(want)),
        *(f"{name}: {got[name]} {score}" for name, score in want.items() if abs(got.get(name, -1) - score) > 0.001),
    ]


def level_domains(table: Table, case: Case) -> Sequence[str]:
    got = [found.key for found in domains_of_level(domain(case.input["root"]), case.input["level"])]
    return [
        *compare("domains", got, case.want.get("expectedIDs") or []),
        *compare("count", len(got), case.want.get("expectedCount", 0)),
    ]


def is_part(table: Table, case: Case) -> Sequence[str]:
    return list(
        compare("part", has_all_levels(case.input.get("labels") or {}, ZONES), case.want.get("expected", False))
    )


def lowest(table: Table, case: Case) -> Sequence[str]:
    nodes = [values.node(node) for node in case.input.get("nodes") or ()]
    constraint = values.constraint(case.input.get("topologyConstraint") or {})
    assert constraint is not None
    key, level, valid = common_domain(nodes, ZONES, constraint)
    want = (case.want.get("expectedID", ""), case.want.get("expectedLevel", ""))
    return [
        *compare("domain", (key, level), want),
        *compare("valid", sorted(valid), sorted(case.want.get("expectedValid") or ())),
    ]


def level_order(table: Table, case: Case) -> Sequence[str]:
    root = case.input.get("root")
    got = [found.key for found in domains_narrowest_first(domain(root))] if root else []
    return list(compare("order", got, case.want.get("expected") or []))


def levels(table: Table, case: Case) -> Sequence[str]:
    group, tree = case.input["subGroupSet"], case.input["topologyTree"]
    described = ((tree.get("TopologyResource") or {}).get("spec") or {}).get("levels") or ()
    topology = TopologyInfo(tree.get("Name", ""), tuple(level["nodeLabel"] for level in described))
    constraint = values.constraint(group.get("topologyConstraint") or {})
    assert constraint is not None
    got, error = [], ""
    try:
        got = eligible_levels(constraint, group.get("name", ""), topology)
    except NoSuitableNodes as problem:
        error = str(problem)
    return [
        *compare("levels", got, case.want.get("expectedLevels") or []),
        *compare("error", error, case.want.get("expectedError", "")),
    ]


# Minimum runtimes


def _span(document: Document | None) -> int | None:
    return None if document is None else round(document["$seconds"] * SECOND)


def _queues(documents: Mapping[str, Document] | None) -> dict[str, QueueState]:
    return {uid: _queue(document) for uid, document in (documents or {}).items()}


def _queue(document: Document) -> QueueState:
    return QueueState(
        uid=document["UID"],
        parent=document.get("ParentQueue", ""),
        children=tuple(document.get("ChildQueues") or ()),
        preempt_min_runtime=_span(document.get("PreemptMinRuntime")),
        reclaim_min_runtime=_span(document.get("ReclaimMinRuntime")),
    )


def _seconds(result: Document) -> int:
    return _span(result) or 0


def _plugin(call: Document) -> tuple[MinRuntime, KaiSession]:
    recv = call["args"]["recv"]
    plugin = MinRuntime(KaiPluginArguments())
    plugin.reclaim = _span(recv.get("defaultReclaimMinRuntime")) or 0
    plugin.preempt = _span(recv.get("defaultPreemptMinRuntime")) or 0
    plugin.method = recv.get("reclaimResolveMethod") or "lca"
    session = KaiSession(
        queues=_queues(recv.get("queues")).values(), now=values.microseconds(call["at"]) if call.get("at") else 0
    )
    plugin.open(session)
    return plugin, session


def _reclaim_filter(call: Document) -> object:
    _, session = _plugin(call)
    args = call["args"]
    return session.is_reclaim_victim(values.job(args["pendingJob"]), values.job(args["victim"]))


def _preempt_filter(call: Document) -> object:
    _, session = _plugin(call)
    args = call["args"]
    return session.is_preempt_victim(values.job(args["pendingJob"]), values.job(args["victim"]))


class _Scenario:
    """A scenario as it was dumped."""

    def __init__(self, document: Document) -> None:
        self.preemptor = values.job(document.get("preemptor"))
        self._victims = {
            uid: VictimJob(values.job(victim["Job"]), [values.task(task) for task in victim.get("Tasks") or ()])
            for uid, victim in (document.get("victims") or {}).items()
        }

    def victims(self) -> Mapping[str, VictimJob]:
        return self._victims


def _scenario(call: Document) -> _Scenario:
    document = call["args"]["scenario"]
    if "$skipped" in document or "victims" not in document:
        raise NotModelled("the scenario is not told")
    return _Scenario(document)


def _preempt_scenario(call: Document) -> object:
    return _plugin(call)[1].is_preempt_allowed(_scenario(call))


def _reclaim_scenario(call: Document) -> object:
    return _plugin(call)[1].is_reclaim_allowed(_scenario(call))


def _parsed(call: Document) -> object:
    args = call["args"]
    return KaiPluginArguments(args.get("arguments") or {}).duration(args["minRuntimeConfig"])


def _preempt_resolved(call: Document) -> object:
    recv, queue = call["args"]["recv"], call["args"].get("queue")
    base = _span(recv.get("defaultPreemptMinRuntime")) or 0
    return base if queue is None else preempt_min_runtime(_queues(recv["queues"]), _queue(queue), base)


def _reclaim_resolved(call: Document) -> object:
    args = call["args"]
    recv, mine, theirs = args["recv"], args.get("preemptorQueue"), args.get("preempteeQueue")
    base = _span(recv.get("defaultReclaimMinRuntime")) or 0
    if mine is None or theirs is None:
        return base
    return reclaim_min_runtime(_queues(recv["queues"]), _queue(mine), _queue(theirs), args["resolveMethod"], base)


def _path(call: Document) -> object:
    recv, queue = call["args"]["recv"], call["args"].get("queue")
    return [found.uid for found in queue_path(_queues(recv["queues"]), _queue(queue))] if queue else []


CALLS: Mapping[str, tuple[Callable[[Document], object], Callable[[Any], object]]] = {
    "minruntimePlugin.reclaimFilterFn": (_reclaim_filter, bool),
    "minruntimePlugin.preemptFilterFn": (_preempt_filter, bool),
    "minruntimePlugin.preemptScenarioValidatorFn": (_preempt_scenario, bool),
    "minruntimePlugin.reclaimScenarioValidatorFn": (_reclaim_scenario, bool),
    "parseMinRuntime": (_parsed, _seconds),
    "resolver.getPreemptMinRuntime": (_preempt_resolved, _seconds),
    "resolver.getReclaimMinRuntime": (_reclaim_resolved, _seconds),
    "resolver.resolveReclaimMinRuntimeLCA": (_reclaim_resolved, _seconds),
    "resolver.getQueueHierarchyPath": (_path, lambda result: [queue["UID"] for queue in result or ()]),
}


def replay(table: Table, case: Case) -> Sequence[str]:
    calls = case.document.get("calls") or ()
    if not calls:
        raise NotModelled("no call was recorded")
    return [line for call in calls for line in _again(call)]


def _again(call: Document) -> Iterator[str]:
    if call["fn"] not in CALLS:
        raise NotModelled(call["fn"])
    make, read = CALLS[call["fn"]]
    yield from compare(call["fn"], make(call), read(call["results"][0]))


_T = "kai/scheduler_plugins_topology"
CHECKS: dict[str, Check] = {
    f"{_T}/TestCalculateNodeScores": scores,
    f"{_T}/TestGetLevelDomains": level_domains,
    f"{_T}/TestIsNodePartOfTopology": is_part,
    f"{_T}/TestLowestCommonDomainID": lowest,
    f"{_T}/TestReverseLevelOrder": level_order,
    f"{_T}/TestTopologyPlugin_calculateRelevantDomainLevels": levels,
    "kai/scheduler_plugins_minruntime/minruntime__MinRuntime_Plugin": replay,
    "kai/scheduler_plugins_minruntime/resolver__MinRuntime_Resolver": replay,
}
