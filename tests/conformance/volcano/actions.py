"""Volcano's tables of actions: whole sessions, from objects to binds, evictions, reservations and phases."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.heap import Heap
from gpuconsole.scheduling.volcano.actions.allocate import DomainSearch, TaskPlacement, pending_tasks
from gpuconsole.scheduling.volcano.actions.gang_eviction import MAX_DOMAINS, GangOptions
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME, HyperNodeDomains
from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.node import NodeInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments, VolcanoConfiguration
from gpuconsole.scheduling.volcano.session import ClusterInfo, VolcanoPlugin, VolcanoSession, VolcanoStatement
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common, objects

Document = Mapping[str, Any]


def _nominated(table: Table, case: Case) -> Sequence[str]:
    """The pinned domain is used up: nothing is nominated afterwards."""
    session = common.opened(common.settings(table, case), case.input)
    for job in session.jobs.values():
        job.sub_jobs[job.uid].nominated_hyper_node = ROOT_NAME
    common.act(session)
    left = [sub.nominated_hyper_node for job in session.jobs.values() for sub in job.sub_jobs.values()]
    return [*common.differences(table, session, case), *compare("nominated", set(left), {""})]


def _not_nominated(table: Table, case: Case) -> Sequence[str]:
    """A task whose nominated node is missing, elsewhere or too small has no place there."""
    given = case.input
    leaf = NodeInfo(Node(name=given["leafNodeName"]))
    leaf.idle = Resource(given["leafIdleMilliCPU"])
    queue = QueueInfo(objects.queue({"metadata": {"name": "q1"}}))
    status = {"phase": "Pending", "nominatedNodeName": given["taskNominatedNodeName"]}
    metadata = {"name": "t1", "namespace": "ns", "annotations": {"scheduling.k8s.io/group-name": "job-vn"}}
    task = TaskInfo(objects.pod({"metadata": metadata, "spec": {"containers": []}, "status": status}))
    task.init_request = Resource(given["taskResMilliCPU"])
    job = JobInfo(task.job, [task])
    job.queue = queue.uid
    cluster = ClusterInfo(
        jobs={job.uid: job}, nodes={leaf.name: leaf}, queues={queue.uid: queue}, domains=HyperNodeDomains()
    )
    session = VolcanoSession(VolcanoConfiguration(tiers=()), cluster, plugins={})
    search = DomainSearch(session, TaskPlacement(session, remembers=True))
    plan = search.nominated_nodes(job.sub_jobs[job.uid], Heap(session.task_precedes, [task]), {leaf.name})
    return list(compare("plan", plan, None))


class _Fake:
    """Names all tasks of one priority as victims."""

    name: ClassVar[str] = "fake"
    priority: ClassVar[int] = 0

    def __init__(self, arguments: VolcanoArguments) -> None:
        pass

    def on_session_open(self, session: VolcanoSession) -> None:
        def victims(tasks: list[TaskInfo]) -> list[TaskInfo]:
            return [task for task in tasks if task.priority == self.priority]

        session.functions.victim_tasks[self.name] = [victims]

    def on_session_close(self, session: VolcanoSession) -> None:
        pass


def _shuffled(table: Table, case: Case) -> Sequence[str]:
    fake: type[VolcanoPlugin] = type("Fake", (_Fake,), {"priority": table.fixtures["lowPriority"]})
    session = common.run(common.settings(table, case), case.input, {"fake": fake})
    return common.differences(table, session, case)


def _picked(table: Table, case: Case) -> Sequence[str]:
    """Which best-effort tasks backfill takes up, in order; those that wait for a node are among them."""
    given = case.input
    made = {
        "Pods": [*given["pendingPods"], *given["pipelinedPods"]],
        "PodGroups": given["podGroups"],
        "Queues": given["queues"],
        "PriClass": list(given["PriorityClasses"].values()),
        "Nodes": [{"metadata": {"name": "node1"}}],
    }
    session = common.opened(common.settings(table, case), made)
    waiting = {objects.pod(document).key for document in given["pipelinedPods"]}
    statement = VolcanoStatement(session)
    for task in [task for job in session.jobs.values() for task in job.tasks.values() if task.key in waiting]:
        statement.pipeline(task, "node1", eviction_occurred=False)
    return list(compare("tasks", [task.name for task in pending_tasks(session)], case.want["expectedResult"]))


def _domains_by_default(table: Table, case: Case) -> Sequence[str]:
    options = GangOptions.from_arguments(VolcanoArguments({"maxDomains": case.input["value"]}))
    return list(compare("domains", options.max_domains, MAX_DOMAINS))


AREAS = {
    "actions_allocate": (
        "TestAllocate",
        "TestAllocateWithDRA",
        "TestAllocateWithNetWorkTopologies",
        "TestAllocateWithPVC",
        "TestAllocateWithPartitionPolicyNetworkTopology",
        "TestAllocateWithShard",
        "TestFareShareAllocate",
        "TestHyperNodeBinpackWithNetWorkTopologies",
        "TestNodeLevelScoreWithNetWorkTopologies",
    ),
    "actions_backfill": ("TestBackfillWithShard",),
    "actions_enqueue": ("TestEnqueue",),
    "actions_preempt": ("TestPreempt", "TestPreemptWithShard", "TestTopologyAwarePreempt"),
    "actions_reclaim": ("TestReclaim", "TestReclaimWithShard"),
    "plugins_capacity": (
        "TestCapacityPluginDRA",
        "TestEnqueueAndAllocatable",
        "Test_buildHierarchicalQueueAttrs_nilSafety",
        "Test_capacityPlugin_AncestorReclaimScenarios",
        "Test_capacityPlugin_OnSessionOpenWithHierarchy",
        "Test_capacityPlugin_OnSessionOpenWithoutHierarchy",
    ),
    "plugins_priority": ("TestPreempt",),
    "plugins_proportion": ("TestAllocate", "TestEnqueueAndAllocable"),
}
PREFIX = "volcano/scheduler_actions"
INVALID = "TestParseArguments_InvalidMaxDomainsFallsBackToDefault"
CHECKS: dict[str, Check] = {
    **{f"volcano/scheduler_{area}/{name}": common.check for area, names in AREAS.items() for name in names},
    f"{PREFIX}_allocate/TestAllocate_FlatPathHonorsAndClearsNomination": _nominated,
    f"{PREFIX}_allocate/TestValidateNomination_MissBranches": _not_nominated,
    f"{PREFIX}_shuffle/TestShuffle": _shuffled,
    f"{PREFIX}_backfill/TestPickUpPendingTasks": _picked,
    f"{PREFIX}_gangpreempt/{INVALID}": _domains_by_default,
    f"{PREFIX}_gangreclaim/{INVALID}": _domains_by_default,
}
