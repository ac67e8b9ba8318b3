"""volcano/scheduler_plugins_network-topology-aware: scores of nodes and domains, and which domains suit."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.scheduling.volcano.api.hyper_nodes import HyperNodeDomains, HyperNodeInfo
from gpuconsole.scheduling.volcano.api.job import JobInfo, SubJobInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo, TaskStatus
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from gpuconsole.scheduling.volcano.plugins.network_topology_aware import NetworkTopologyAwarePlugin
from gpuconsole.scheduling.volcano.session import VolcanoSession
from gpuconsole.scheduling.volcano.session_plugins import Purpose
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common, objects
from tests.conformance.volcano.scoring import session_of

Document = Mapping[str, Any]
NAME = NetworkTopologyAwarePlugin.name
ABOUT = 0.1
"""How far scores may be off, where the table rounds them."""


def _waiting(session: VolcanoSession) -> TaskInfo:
    """The job's only task that waits; it knows the domain that the PodGroup's annotation names."""
    (job,) = session.jobs.values()
    (task,) = job.tasks_with_status(TaskStatus.PENDING).values()
    assert job.pod_group is not None
    task.hyper_node = job.pod_group.annotations.get("volcano.sh/job-allocated-hypernode", "")
    return task


def _close(what: str, got: Mapping[str, float], wanted: Mapping[str, float], by: float) -> list[str]:
    lines = []
    for name, score in wanted.items():
        if abs(got.get(name, 0.0) - score) > by:
            lines.append(f"{what} of {name}: got {got.get(name)}, want {score}")
    return lines


def _node_scores(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    task = _waiting(session)
    nodes = [session.nodes[listed["Name"]] for listed in case.input["scoreNodes"]]
    got = session.functions.batch_node_order[NAME](task, nodes)
    return _close("score", got, case.want["expected"], ABOUT)


def _batch(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    got = session.functions.batch_node_order[NAME](_waiting(session), session.node_list)
    wanted = case.want["expectedScores"]
    return [*compare("number", len(got), len(wanted)), *_close("score", got, wanted, ABOUT)]


def _domains(table: Table, case: Case) -> Sequence[str]:
    session = session_of(case)
    unit = next(sub_job for job in session.jobs.values() for sub_job in job.sub_jobs.values())
    got = session.functions.hyper_node_order[NAME](unit, session.real_node_list)
    return _close("score", got, case.want["expectedScores"], ABOUT)


def _new(table: Table, case: Case) -> Sequence[str]:
    plugin = NetworkTopologyAwarePlugin(VolcanoArguments(case.input["arguments"]))
    wanted = case.want["expectedPlugin"]
    weight, normal = wanted["weight"], wanted.get("normalPodConfig") or {}
    weights = {
        CPU: weight.get("HyperNodeBinPackingCPU", 0),
        MEMORY: weight.get("HyperNodeBinPackingMemory", 0),
        **(weight.get("HyperNodeBinPackingResources") or {}),
    }
    return [
        *compare("weight", plugin.weight, weight.get("GlobalWeight", 0)),
        *compare("weights", plugin.weights, weights),
        *compare("packs", plugin.packs_normal_pods, normal.get("hyperNodeBinPackingEnable", False)),
        *compare("fading", plugin.tier_weight_factor, float(normal.get("hyperNodeBinPackingFading", 0))),
    ]


def _gradient(table: Table, case: Case) -> Sequence[str]:
    """A tree of two tiers; whether its first domain is among those with room for the unit."""
    session = _tree(table.fixtures)
    plugin = next(plugin for plugin in session.plugins if isinstance(plugin, NetworkTopologyAwarePlugin))
    first = "hn-1-0"
    room = plugin.domain_resources[first]
    room.idle = objects.resource(case.input.get("idleResource"))
    room.future_idle = objects.resource(case.input.get("futureIdleResource"))
    asked = objects.resource(case.input.get("minResource"))
    unit = _Sub(asked) if case.input["isSubJob"] else _Job(asked)
    unit.network_topology = objects.topology({"mode": "hard", "highestTierAllowed": case.input["highestAllowedTier"]})
    unit.allocated_hyper_node = case.input.get("allocatedHyperNode") or ""
    purpose = Purpose.EVICT if case.input["purpose"] else Purpose.ALLOCATE
    top = session.hyper_nodes["hn-2-0"]
    if isinstance(unit, SubJobInfo):
        groups = session.functions.sub_job_gradients[NAME](unit, top, purpose)
    else:
        groups = session.functions.job_gradients[NAME](unit, top, purpose)
    names = {info.name for group in groups for info in group}
    return [*compare("selected", first in names, case.want["expectTier1Selected"])]


class _Job(JobInfo):
    """A job that asks for an amount."""

    __slots__ = ("_asked",)

    def __init__(self, asked: Resource) -> None:
        super().__init__("ns/job")
        self._asked = asked

    def min_resources(self) -> Resource:
        return self._asked


class _Sub(SubJobInfo):
    """A sub-job that asks for an amount."""

    __slots__ = ("_asked",)

    def __init__(self, asked: Resource) -> None:
        super().__init__("g", "s", "ns/job")
        self._asked = asked

    def min_resources(self) -> Resource:
        return self._asked


def _tree(fixtures: Document) -> VolcanoSession:
    """Equal nodes in domains of equal size, all of them in one domain above."""
    size = {
        "cpu": f"{fixtures['nodeCPU']}m",
        "memory": str(fixtures["nodeMemory"]),
        "pods": "100",
    }
    names = [f"node-{number}" for number in range(fixtures["nodeCount"])]
    nodes = [{"metadata": {"name": name}, "status": {"allocatable": size, "capacity": size}} for name in names]
    made = common.cluster({"Nodes": nodes})
    each = fixtures["nodesPerTier1HN"]
    leaves = [f"hn-1-{number}" for number in range(fixtures["tier1HNCount"])]
    infos = {leaf: HyperNodeInfo(leaf, 1, parent="hn-2-0") for leaf in leaves}
    infos["hn-2-0"] = HyperNodeInfo("hn-2-0", 2, children=set(leaves))
    inside = {
        leaf: [f"node-{number}" for number in range(position * each, (position + 1) * each)]
        for position, leaf in enumerate(leaves)
    }
    inside["hn-2-0"] = names
    made.domains = HyperNodeDomains(infos, inside, by_tier={1: leaves, 2: ["hn-2-0"]})
    # Domains are asked for before they are cut to those that are looked at for victims.
    every = {"hypernode.gradient.evict.max-hypernodes": len(infos)}
    said = {"tiers": [{"plugins": [{"name": NAME, "enabledHyperNodeGradient": True, "arguments": every}]}]}
    return VolcanoSession(common.configuration(said), made, plugins={NAME: NetworkTopologyAwarePlugin})


AMOUNTS = {"cpu": "100", "memory": "8000", "example.com/foo": "10", "pods": "100"}
HALF = {"cpu": "50", "memory": "4000", "example.com/foo": "5"}


def _large(case: Case) -> VolcanoSession:
    """Nodes that are half full, spread in turn over the domains of each tier; nothing lies above all of them.

    The scarce resource has whole units here, a thousand times what the test has: only shares count.
    """
    names = [f"node-{number}" for number in range(case.input["nodeNumber"])]
    made = common.cluster(
        {
            "Nodes": [{"metadata": {"name": name}, "status": {"allocatable": AMOUNTS}} for name in names],
            "Pods": [
                {
                    "metadata": {"name": f"on-{name}", "namespace": "ns"},
                    "spec": {"nodeName": name, "containers": [{"name": "main", "resources": {"requests": HALF}}]},
                    "status": {"phase": "Running"},
                }
                for name in names
            ],
        }
    )
    tiers = {
        tier: [f"hypernode-tier-{tier}-index-{number}" for number in range(count)]
        for tier, count in enumerate(case.input["hyperNodeNumbers"], start=1)
    }
    inside = {
        domain: names[number :: len(domains)] for domains in tiers.values() for number, domain in enumerate(domains)
    }
    infos = {domain: HyperNodeInfo(domain, tier) for tier, domains in tiers.items() for domain in domains}
    made.domains = HyperNodeDomains(infos, inside, by_tier=tiers)
    said = {"tiers": [{"plugins": [{"name": NAME, "enableNodeOrder": True, "arguments": case.input["arguments"]}]}]}
    session = VolcanoSession(common.configuration(said), made, plugins={NAME: NetworkTopologyAwarePlugin})
    session.hyper_node_tiers = sorted(tiers)
    return session


def _sums(table: Table, case: Case) -> Sequence[str]:
    """A domain has as many times a node's amounts as it has nodes."""
    session = _large(case)
    (plugin,) = (one for one in session.plugins if isinstance(one, NetworkTopologyAwarePlugin))
    differences: list[str] = []
    for tier, count in enumerate(case.input["hyperNodeNumbers"], start=1):
        each = case.input["nodeNumber"] // count
        for number in range(count):
            room = plugin.domain_resources[f"hypernode-tier-{tier}-index-{number}"]
            got = [(room.allocatable.get(name), room.used.get(name)) for name in HALF]
            differences += compare("room", got, [(each * most, each * most / 2) for most in (100_000, 8000, 10_000)])
    return differences


def _normal(table: Table, case: Case) -> Sequence[str]:
    session = _large(case)
    task = objects.task(
        {
            "UID": "t",
            "Name": "t",
            "Resreq": {"MilliCPU": 50000, "Memory": 4000, "ScalarResources": {"example.com/foo": 5000}},
        }
    )
    task.job = "ns/job"
    session.jobs[task.job] = JobInfo(task.job)
    got = session.functions.batch_node_order[NAME](task, session.node_list)
    wanted = dict.fromkeys((node.name for node in session.node_list), EVERYWHERE)
    return [*compare("number", len(got), len(wanted)), *_close("score", got, wanted, 1e-9)]


EVERYWHERE = 0.515375
"""What the test has in code for each node."""

_P = f"volcano/scheduler_plugins_{NAME}/"

CHECKS: dict[str, Check] = {
    _P + "TestNetworkTopologyAwareNodeScore_Hard": _node_scores,
    _P + "TestNetworkTopologyAwareNodeScore_Soft": _node_scores,
    _P + "TestBatchNodeOrderFn": _batch,
    _P + "TestHyperNodeOrderFn": _domains,
    _P + "TestNew": _new,
    _P + "Test_initHyperNodeResourceCache": _sums,
    _P + "Test_batchNodeOrderFnForNormalPods": _normal,
    _P + "TestHyperNodeGradientPreFiltering": _gradient,
}
