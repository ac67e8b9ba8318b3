"""volcano/scheduler_plugins_*: what plugins say of nodes, jobs and victims, in a session without actions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gpuconsole.model.clock import SECOND, Time, parse_time
from gpuconsole.model.cluster import ResourceQuota
from gpuconsole.model.manifests import decode_object
from gpuconsole.scheduling.volcano.api.job import FitError, JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo, NodeUsage
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, parse_duration
from gpuconsole.scheduling.volcano.plugins.eviction_protection import cooldown_time
from gpuconsole.scheduling.volcano.plugins.nodeorder import (
    SCORE_WEIGHT_ARGUMENTS,
    NodeorderPlugin,
    ResourceScoringStrategy,
    ResourceStrategyFitPlugin,
    SpareProportion,
    least_requested,
    most_requested,
    proportion_refusal,
    resource_fit_score,
    strategy_of,
)
from gpuconsole.scheduling.volcano.plugins.predicates import parse_zone_hours
from gpuconsole.scheduling.volcano.plugins.task_topology import TaskTopology, topology_of
from gpuconsole.scheduling.volcano.session import BudgetAllowance, VolcanoSession
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common, objects

Document = Mapping[str, Any]
NOON: Time = 12 * 60 * 60 * SECOND
NEARLY = 1e-8
"""By how much less than this scores may be off."""


def session_of(case: Case, now: Time = NOON) -> VolcanoSession:
    """The session of a case; zones of the first minute of a day are closed at its time, those of the whole day open."""
    said = case.document["session"]
    said = said[-1] if isinstance(said, list) else said
    made = common.cluster(case.input)
    made.now = now
    made.quotas = _quotas(case.input.get("ResourceQuotas") or ())
    made.budgets = [_budget(document) for document in case.input.get("pdbs") or ()]
    session = VolcanoSession(common.configuration(_plain(said)), made, plugins=common.known_plugins(said))
    for name, listed in (case.input.get("nodesUsageMap") or {}).items():
        if name in session.nodes:
            session.nodes[name].usage = NodeUsage(
                parse_time(listed["MetricsTime"][:26]) if listed.get("MetricsTime") else 0,
                listed.get("CPUUsageAvg") or {},
                listed.get("MEMUsageAvg") or {},
            )
    return session


def _plain(value: Any) -> Any:
    """Maps whose keys are no texts in Go are written as lists of keys and values."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, Mapping) and set(one) == {"key", "value"} for one in value)
    ):
        return {one["key"]: one["value"] for one in value}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _quotas(documents: Iterable[Document]) -> dict[str, list[ResourceQuota]]:
    quotas: dict[str, list[ResourceQuota]] = {}
    for document in documents:
        made = objects.decode("ResourceQuota", document)
        assert isinstance(made, ResourceQuota)
        quotas.setdefault(made.namespace, []).append(made)
    return quotas


def _budget(document: Document) -> BudgetAllowance:
    budget = decode_object(document)
    status = document.get("status") or {}
    return BudgetAllowance(
        namespace=document["metadata"]["namespace"],
        selector=getattr(budget, "selector", None),
        allowed=status.get("disruptionsAllowed", 0),
        disrupted=frozenset(status.get("disruptedPods") or ()),
    )


def _tasks(session: VolcanoSession) -> dict[str, TaskInfo]:
    return {task.key: task for job in session.jobs.values() for task in job.tasks.values()}


def _differing(what: str, got: Mapping[str, float], wanted: Mapping[str, float]) -> list[str]:
    """Scores that are off by more than they may be."""
    if got.keys() == wanted.keys() and all(abs(got[name] - score) < NEARLY for name, score in wanted.items()):
        return []
    return [*compare(what, dict(got), dict(wanted))]


def _node_order(table: Table, case: Case) -> Sequence[str]:
    """The sum of the scores of each task on each node."""
    session = session_of(case, _now(table))
    found = _tasks(session)
    return [
        difference
        for key, wanted in _expected(case).items()
        for difference in _differing(key, session.node_scores(found[key], session.node_list), wanted)
    ]


def _expected(case: Case) -> Mapping[str, Any]:
    wanted = case.want.get("expected") or {}
    inner = wanted.get("nodeOrder", wanted)
    assert isinstance(inner, Mapping)
    return inner


def _now(table: Table) -> Time:
    known = table.fixtures.get("timeNow")
    return parse_time(known[:26]) if isinstance(known, str) else NOON


def _usage(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case, _now(table))
    wanted = case.want["expected"]
    statuses = [status for status in wanted.get("predicateStatus") or () if status.get("Code")]
    differences: list[str] = []
    for task in _tasks(session).values():
        for node in session.node_list:
            error = session.predicate(task, node)
            got = [(int(status.code), status.reason) for status in error.statuses] if error is not None else []
            differences += compare("statuses", got, [(status["Code"], status.get("Reason", "")) for status in statuses])
            text = f"plugin usage predicates failed, because of {', '.join(error.reasons)}" if error else None
            differences += compare("error", text, (wanted.get("err") or {}).get("$error"))
    return differences


def _node_group(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    found = _tasks(session)
    differences: list[str] = []
    # A task whose job's queue does not exist is in no session, so nobody asks about it.
    for key, wanted in ((key, wanted) for key, wanted in case.want["expected"].items() if key in found):
        got = {node.name: session.functions.node_order["nodegroup"](found[key], node) for node in session.node_list}
        differences += compare(f"scores of {key}", got, wanted)
    for key, wanted in ((key, wanted) for key, wanted in case.want["expectedStatus"].items() if key in found):
        fits = {node.name: _code(session.predicate(found[key], node)) for node in session.node_list}
        differences += compare(f"codes of {key}", fits, wanted)
    return differences


def _code(error: FitError | None) -> int:
    return int(error.statuses[0].code) if error is not None else 0


def _tdm(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    differences: list[str] = []
    for key, task in _tasks(session).items():
        fitting = [node for node in session.node_list if session.predicate(task, node) is None]
        wanted = case.want.get("predicatedExpected") or {}
        differences += compare(f"nodes of {key}", {node.name: True for node in fitting}, wanted)
        scores = (case.want.get("scoreExpected") or {}).get(key)
        if scores is not None:
            got = {name: score for name, score in session.node_scores(task, fitting).items() if name in scores}
            differences += _differing(f"scores of {key}", got, scores)
    return differences


def _tdm_victims(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    candidates = [*_tasks(session).values()]
    return [*compare("victims", len(session.victim_tasks(candidates)), case.want["want"])]


def _zone(table: Table, case: Case) -> Sequence[str]:
    found = parse_zone_hours(case.input["rz"])
    delta = (found[1] - found[0]) // SECOND if found is not None else 0
    return [*compare("span", (delta, found is None), (case.want["delta"], case.want["err"]))]


def _sla(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case, NOON)
    first, second = _job(table.fixtures["job1"]), _job(table.fixtures["job2"])
    got = (session.job_precedes(first, second), session.job_enqueueable(first))
    return [*compare("order, enqueueable", got, (case.want["expectedOrder"], case.want["expectedEnqueueAble"]))]


def _job(document: Document) -> JobInfo:
    job = JobInfo(document.get("UID") or f"{document['Namespace']}/{document['Name']}")
    if document.get("PodGroup"):
        job.set_pod_group(objects.pod_group(document["PodGroup"]))
    waits = document.get("WaitingTime")
    job.waiting_time = parse_duration(waits) if waits else None
    job.created = objects.LONG_AGO
    return job


def _cooldown(table: Table, case: Case) -> Sequence[str]:
    got = cooldown_time(objects.pod(case.input["args"]["pod"]))
    wanted = parse_duration(case.want["wantValue"]) if case.want["wantEnabled"] else None
    return [*compare("cooldown", got, wanted)]


def _enqueueable(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    got = [session.job_enqueueable(job) for job in session.jobs.values()]
    return [*compare("enqueueable", set(got), {case.want["expectedEnqueueAble"]})]


def _disruption(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    candidates = [objects.task(document) for document in case.input.get("preemptees") or ()]
    preemptor = candidates[0]
    wanted = [f"{one['Namespace']}/{one['Name']}" for one in case.want.get("expectVictims") or ()]
    listed = case.want.get("expectVictimsMap") or ()
    names = {f"{one['key']['Namespace']}/{one['key']['Name']}" for one in listed}
    asked = (session.preemptable, session.reclaimable)
    return [
        *(
            difference
            for ask in asked
            for difference in compare("victims", [task.key for task in ask(preemptor, candidates) or ()], wanted)
        ),
        *compare("victim tasks", {task.key for task in session.victim_tasks(candidates)}, names),
    ]


# resource-strategy-fit: its parts.


def _strategies(listed: Document | None) -> dict[str, ResourceScoringStrategy]:
    return {name: ResourceScoringStrategy(one["type"], one["weight"]) for name, one in (listed or {}).items()}


def _weights(table: Table, case: Case) -> Sequence[str]:
    plugin = ResourceStrategyFitPlugin(VolcanoArguments(_plain(case.input["args"].get("args") or {})))
    wanted = case.want["want"]
    got = (plugin.weight, plugin.strategies)
    return [*compare("weights", got, (wanted["resourceStrategyFitWeight"], _strategies(wanted.get("resources"))))]


def _prefix(table: Table, case: Case) -> Sequence[str]:
    asked = case.input["args"]
    got = strategy_of(asked["resourceName"], _strategies(asked.get("resources")))
    listed = case.want["wantConfig"]
    wanted = ResourceScoringStrategy(listed["type"], listed["weight"]) if case.want["wantFound"] else None
    return [*compare("strategy", got, wanted)]


def _formula(measure: Callable[[float, float, float, int], float | None]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        asked = case.input.get("args") or {}
        got = measure(*(asked.get(name, 0) for name in ("requested", "used", "capacity", "weight")))
        wanted = None if case.want["wantErr"] else float(case.want["want"])
        return [*compare("score", got, wanted)]

    return check


def _fit_score(table: Table, case: Case) -> Sequence[str]:
    asked = case.input["args"]
    weight = asked.get("weight") or {}
    listed = _strategies(weight.get("resources"))
    task, node = objects.task(asked["task"]), _node(asked["node"])
    got = resource_fit_score(task, node, listed, weight.get("resourceStrategyFitWeight", 0))
    return _differing("score", {"node": got}, {"node": case.want["want"]})


def _node(document: Document) -> NodeInfo:
    node = NodeInfo()
    node.used, node.allocatable = objects.resource(document.get("Used")), objects.resource(document.get("Allocatable"))
    node.idle = objects.resource(document.get("Idle"))
    return node


def _proportional(table: Table, case: Case) -> Sequence[str]:
    asked = case.input["args"]
    shares = {
        name: SpareProportion(one.get("CPU", 0), one.get("Memory", 0))
        for name, one in (asked.get("proportional") or {}).items()
    }
    got = proportion_refusal(objects.task(asked["task"]), _node(asked["node"]), shares)
    return [*compare("code", (_code(got), got is not None), (case.want["want"], case.want["wantErr"]))]


def _opens(table: Table, case: Case) -> Sequence[str]:
    """Without any argument the plugin scores by its defaults and filters nothing."""
    session = VolcanoSession(
        common.configuration({"tiers": [{"plugins": [{"name": ResourceStrategyFitPlugin.name}]}]}),
        common.cluster({}),
        plugins={ResourceStrategyFitPlugin.name: ResourceStrategyFitPlugin},
    )
    got = (sorted(session.functions.node_order), sorted(session.functions.predicates))
    return [*compare("registered", got, ([ResourceStrategyFitPlugin.name], []))]


def _scores_in_force(table: Table, case: Case) -> Sequence[str]:
    """Which scores count, by their weights; Go keeps the one that needs no look at other nodes apart."""
    given = case.input.get("weight") or {}
    keys = {"leastReq": "leastrequested", "mostReq": "mostrequested"}
    names = (name for name, _ in SCORE_WEIGHT_ARGUMENTS.values())
    weights = {name: 0 for name in names}
    for key, weight in given.items():
        short = key.removesuffix("Weight")
        weights[keys.get(short, short.lower())] = weight
    plugin = NodeorderPlugin(VolcanoArguments({f"{name}.weight": weight for name, weight in weights.items()}))
    wanted = {*case.want["expectNodeOrderKeys"], *case.want["expectScorePlugins"]}
    return [*compare("scores", set(plugin.weights), wanted)]


def _task_topology(table: Table, case: Case) -> Sequence[str]:
    listed = case.input["job"]
    job = JobInfo(f"{listed['Namespace']}/{listed['Name']}")
    for uid, document in listed["Tasks"].items():
        job.add_task(objects.task({**document, "UID": uid}))
    group = listed["PodGroup"]
    job.set_pod_group(objects.pod_group({**group, "metadata": {**group["metadata"], "name": "job1"}}))
    job.namespace, job.name = listed["Namespace"], listed["Name"]
    got = topology_of(job)
    wanted: object = (case.want.get("err") or {}).get("$error")
    if wanted is None and case.want.get("topology"):
        said = case.want["topology"]
        near, far = (tuple(tuple(group) for group in said.get(key) or ()) for key in ("affinity", "antiAffinity"))
        wanted = TaskTopology(near, far, tuple(said.get("taskOrder") or ()))
    return [*compare("topology", got, wanted)]


_P = "volcano/scheduler_plugins_"
_F = _P + "resource-strategy-fit/"

CHECKS: dict[str, Check] = {
    _P + "binpack/TestNode": _node_order,
    _P + "usage/TestUsage_nodeOrderFn": _node_order,
    _P + "usage/TestUsage_predicateFn": _usage,
    _P + "nodegroup/TestNodeGroup": _node_group,
    _P + "tdm/Test_TDM": _tdm,
    _P + "tdm/Test_TDM_victimsFn": _tdm_victims,
    _P + "tdm/Test_parseRevocableZone": _zone,
    _P + "sla/TestSlaPlugin": _sla,
    _P + "task-topology/Test_readTopologyFromPgAnnotations": _task_topology,
    _P + "cdp/Test_CooldownTimePlugin_podPreemptStableTime": _cooldown,
    _P + "resourcequota/TestResourceQuotaPlugin": _enqueueable,
    _P + "pdb/TestPreemptableAndReclaimableFn": _disruption,
    _F + "TestNode": _node_order,
    _F + "TestResourceStrategyFitPlugin": _node_order,
    _F + "TestResourceStrategyFitPlugin_OnSessionOpen": _opens,
    _F + "Test_calculateWeight": _weights,
    _F + "Test_findResourceConfigWithPrefix": _prefix,
    _F + "Test_leastRequestedScore": _formula(least_requested),
    _F + "Test_mostRequestedScore": _formula(most_requested),
    _F + "TestScore": _fit_score,
    _F + "Test_checkNodeResourceIsProportional": _proportional,
    _F + "TestAllocate": common.check,
    _P + "nodeorder/TestNodeOrderPlugin": common.check,
    _P + "nodeorder/TestInitPlugin": _scores_in_force,
    _P + "predicates/TestEventHandler": common.check,
    _P + "predicates/TestNodeNum": common.check,
    _P + "predicates/TestPodAntiAffinity": common.check,
}
