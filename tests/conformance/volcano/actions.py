"""Volcano's tables of actions: whole sessions, from objects to binds, evictions, reservations and phases."""

from collections.abc import Iterator, Sequence

from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common


def _generated(table: Table, case: Case) -> Sequence[str]:
    """The outcome of each job; its tasks' nodes only where Volcano's own runs agreed."""
    session = common.run(common.settings(table, case), case.input)
    return list(_jobs(session, case))


def _jobs(session: common.Session, case: Case) -> Iterator[str]:
    for uid, want in (case.want.get("jobs") or {}).items():
        job = session.jobs[uid]
        yield from compare(f"queue of {uid}", job.queue, want["queue"])
        yield from compare(f"phase of {uid}", job.phase, want.get("phase", ""))
        counts = {status.label: len(tasks) for status, tasks in job.task_status_index.items()}
        yield from compare(f"tasks of {uid}", counts, want.get("taskStatusNums") or {})
        if "tasks" in want:
            tasks = {task.key: f"{task.status.label} {task.node_name}".strip() for task in job.tasks.values()}
            yield from compare(f"where {uid} is", tasks, want["tasks"])


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
        "Test_capacityPlugin_OnSessionOpenWithHierarchy",
        "Test_capacityPlugin_OnSessionOpenWithoutHierarchy",
    ),
    "plugins_priority": ("TestPreempt",),
    "plugins_proportion": ("TestAllocate", "TestEnqueueAndAllocable"),
}
GENERATED = ("CapacityHierarchyAllocate", "CapacityHierarchyReclaim", "ProportionAllocate", "ProportionReclaimPreempt")

CHECKS: dict[str, Check] = {
    **{f"volcano/scheduler_{area}/{name}": common.check for area, names in AREAS.items() for name in names},
    **{f"volcano/scheduler_generated/{name}": _generated for name in GENERATED},
}
