"""KAI's tables of fair shares: division, reclaim, capacity, order of queues. Recorded calls are made again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.scheduling.kai.api.jobs import PodGroupInfo
from gpuconsole.scheduling.kai.config import KaiPluginArguments, SchedulerFlags
from gpuconsole.scheduling.kai.fair_share import division as q
from gpuconsole.scheduling.kai.fair_share.division import (
    QueueShares,
    ResourceShares,
    by_priority,
    set_fair_share,
    set_fair_shares,
    set_fair_shares_of_tree,
    usable_resources,
)
from gpuconsole.scheduling.kai.fair_share.reclaimable import (
    OverCapacity,
    Reclaimer,
    can_reclaim_above_fair_share,
    can_reclaim_within_quota,
    find_exceeded_capacity,
    find_exceeded_limit,
    find_exceeded_quota,
    may_reclaim,
    may_reclaim_victims,
    requested_by_tasks,
    requested_on,
    resource_over_limit,
    resource_over_quota,
)
from gpuconsole.scheduling.kai.functions import VictimJob
from gpuconsole.scheduling.kai.plugins.proportion import ComparedQueue, Proportion, victim_losses
from gpuconsole.scheduling.kai.plugins.proportion import compare_queues as compare_queues
from gpuconsole.scheduling.kai.session import KaiSession
from tests.conformance.kai import values
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

Document = Mapping[str, Any]
Call = Callable[[Document, Document, Sequence[Any]], Iterator[str]]
"""Arguments before, arguments after, results → differences."""
TINY = 1e-6


def replay(table: Table, case: Case) -> Sequence[str]:
    """Make every recorded call again and compare results and changed arguments."""
    found: list[str] = []
    calls = case.document.get("calls") or ()
    if not calls:
        raise NotModelled("no call was recorded")
    for call in calls:
        again = CALLS.get(call["fn"])
        if again is None:
            raise NotModelled(call["fn"])
        found += again(call["args"], call.get("after") or {}, call.get("results") or ())
    return found


def close(what: str, got: float, want: float) -> Iterator[str]:
    if abs(got - want) > TINY * max(1.0, abs(want)):
        yield f"{what}: got {got}, want {want}"


def _fair(queues: Mapping[str, QueueShares], want: Mapping[str, QueueShares], names: Sequence[str]) -> Iterator[str]:
    for uid, expected in want.items():
        for name in names:
            yield from close(f"{uid} {name}", queues[uid].by_resource[name].fair, expected.by_resource[name].fair)


# Division


def generated(table: Table, case: Case) -> Sequence[str]:
    queues = values.queue_map(case.input["queues"])
    set_fair_shares(values.three(case.input["totalResource"]), case.input.get("kValue", 0), queues.values())
    return [
        line
        for uid, shares in case.want["fairShare"].items()
        for name in q.RESOURCES
        for line in close(f"{uid} {name}", queues[uid].by_resource[name].fair, shares.get(name, 0))
    ]


def _divide_all(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    queues = values.queue_map(args["queues"])
    set_fair_shares(values.three(args["totalResource"]), args.get("kValue", 0), queues.values())
    yield from _fair(queues, values.queue_map(after.get("queues", args["queues"])), q.RESOURCES)


def _divide_one(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    queues = values.queue_map(args["queues"])
    name = args["resourceName"]
    rest = set_fair_share(args["totalAmount"], args.get("kValue", 0), _by_uid(queues), name)
    yield from close("rest", rest, results[0])
    yield from _fair(queues, values.queue_map(after.get("queues", args["queues"])), [name])


def _by_uid(queues: Mapping[str, QueueShares]) -> list[QueueShares]:
    return sorted(queues.values(), key=lambda queue: queue.uid)


def _bands(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    found = list(by_priority(_by_uid(values.queue_map(args["queues"]))))
    yield from compare("priorities", [band[0].priority for band in found], results[1])
    yield from compare(
        "bands",
        {str(band[0].priority): sorted(queue.uid for queue in band) for band in found},
        {priority: sorted(queues) for priority, queues in results[0].items()},
    )


def _tree(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    plugin = args["recv"]
    queues = values.queue_map(plugin["queues"])
    set_fair_shares_of_tree(values.three(plugin.get("totalResource")), plugin.get("kValue", 0), queues)
    want = (after.get("recv") or plugin)["queues"]
    yield from _fair(queues, values.queue_map(want), q.RESOURCES)


def whole_tree(table: Table, case: Case) -> Sequence[str]:
    """The recorded call, and that only the expected queues got GPUs, in the expected amounts."""
    found = list(replay(table, case))
    after = case.document["calls"][0]["after"]["recv"]["queues"]
    for uid, queue in values.queue_map(after).items():
        found += close(uid, queue.by_resource[q.GPU].fair, case.want["expectedFairShare"].get(uid, 0))
    return found


def _new(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    plugin = Proportion(KaiPluginArguments(args["arguments"] or {}))
    yield from compare("k", plugin.k_value, results[0].get("kValue", 0))
    yield from compare("multiplier", plugin.saturation_multiplier, results[0]["relcaimerSaturationMultiplier"])


def _losses(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    victim = args["victim"]
    job = values.job(victim["Job"], ())
    losses = victim_losses(
        VictimJob(job, [values.task(task) for task in victim.get("Tasks") or ()]),
        ignore_placed=args["recv"].get("allowConsolidatingReclaim", False),
    )
    got = [q.quantities_of(loss) for loss in losses]
    yield from compare("losses", got, [q.quantities_of(values.amounts(loss)) for loss in results[0] or ()])


def node_resources(table: Table, case: Case) -> Sequence[str]:
    parameters = SchedulerFlags(restrict_nodes=case.input.get("isRestrictNode", False))
    got = usable_resources(values.node(case.input["node"]), parameters)
    return list(compare("offered", got, values.three(case.want.get("want"))))


# Capacity


def _result(over: OverCapacity | None, result: Document) -> Iterator[str]:
    yield from compare("schedulable", over is None, result.get("IsSchedulable", False))
    yield from compare("reason", over.reason if over else "", result.get("Reason", ""))
    yield from compare("message", over.message if over else "", result.get("Message", ""))
    named = ((result.get("Details") or {}).get("queueDetails") or {}).get("name", "")
    yield from compare("queue", over.queue if over else "", named)


def _capacity(policy: Callable[[Mapping[str, QueueShares], PodGroupInfo, q.Quantities], OverCapacity | None]) -> Call:
    def again(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
        queues, job = values.queue_map(args["recv"]["queues"]), values.job(args["job"])
        if "requestedShare" in args:
            requested = values.three(args["requestedShare"])
        elif "task" in args:
            requested = requested_on(values.task(args["task"]), values.node(_with_memory(args["node"])))
        else:
            requested = requested_by_tasks(values.task(task) for task in args["tasksToAllocate"] or ())
        yield from _result(policy(queues, job, requested), results[0])

    return again


def _with_memory(node: Document) -> Document:
    """Nodes of these tables have no GPU memory, which asks for no GPU then."""
    return {"MemoryOfEveryGpuOnNode": 100, **node}


def limit_of_one(table: Table, case: Case) -> Sequence[str]:
    queue = _queue(allocated=case.input.get("allocated"), limit=case.input.get("maxAllowed"))
    name = resource_over_limit(queue, values.three(case.input.get("requestedQuota")))
    want = (case.want.get("isOverMaxAllowed", False), case.want.get("resourceName", ""))
    return list(compare("over", (bool(name), name), want))


def quota_of_one(table: Table, case: Case) -> Sequence[str]:
    held = case.input.get("allocatedNonPreemptible")
    queue = _queue(deserved=case.input.get("deserved"), non_preemptible=held)
    name = resource_over_quota(queue, values.three(case.input.get("requestedQuota")))
    want = (case.want.get("expectedResult", False), case.want.get("resource", ""))
    return list(compare("over", (bool(name), name), want))


def _queue(**parts: Mapping[str, float] | None) -> QueueShares:
    """A queue out of amounts of each kind."""
    cpu, memory, gpu = (
        ResourceShares(**{field: (amounts or {}).get(name, 0) for field, amounts in parts.items()})
        for name in q.RESOURCES
    )
    return QueueShares("queue", cpu=cpu, memory=memory, gpu=gpu)


# Order


def _order(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    session = KaiSession(least_gpu_memory=args.get("minNodeGPUMemory", 0))
    sides: list[ComparedQueue] = []
    for side in ("l", "r"):
        job = values.job(args[f"{side}JobInfo"]) if args.get(f"{side}JobInfo") is not None else None
        victims = [values.job(victim) for victim in args.get(f"{side}Victims") or ()]
        queue = values.queue_shares(args[f"{side}Queue"])
        sides.append(ComparedQueue(queue, q.quantities_of(session.request_to_allocate(job)), victims))
    left, right = sides
    yield from compare("order", compare_queues(left, right, values.three(args.get("totalResources"))), results[0])


# Reclaim


def _reclaimer(document: Document) -> Reclaimer:
    return Reclaimer(
        document.get("Queue", ""),
        values.amounts(document.get("RequiredResources")),
        document.get("IsPreemptable", False),
    )


def _may_reclaim(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    got = may_reclaim(values.queue_map(args["queues"]), _reclaimer(args["reclaimer"]))
    yield from compare("may reclaim", got, results[0])


def _may_take_from(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    losses = {
        uid: [values.amounts(loss) for loss in found or ()]
        for uid, found in (args.get("reclaimeeResourcesByQueue") or {}).items()
    }
    multiplier = args["recv"].get("saturationMultiplier", 0)
    got = may_reclaim_victims(values.queue_map(args["queues"]), _reclaimer(args["reclaimer"]), losses, multiplier)
    yield from compare("may take", got, results[0])


def _maintains(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    victim = values.queue_shares(args["reclaimeeQueue"])
    got = can_reclaim_above_fair_share(victim, values.three(args["reclaimeeRemainingShare"]))
    yield from compare("may take", got, results[0])


def _guarantees(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    got = can_reclaim_within_quota(
        q.quantities_of(values.amounts(args.get("reclaimerResources"))),
        values.queue_shares(args["reclaimerQueue"]),
        values.queue_shares(args["reclaimeeQueue"]),
        values.three(args["reclaimeeRemainingShare"]),
    )
    yield from compare("may take", got, results[0])


# Shares


def _of_queue(read: Callable[[QueueShares], object]) -> Call:
    def again(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
        yield from compare("share", read(values.queue_shares({"QueueResourceShare": args["recv"]})), results[0])

    return again


def _of_share(read: Callable[[ResourceShares], object]) -> Call:
    def again(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
        yield from compare("share", read(values.share(args["recv"])), results[0])

    return again


def _resource_of(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    queue = values.queue_shares({"QueueResourceShare": args["recv"]})
    got, want = queue.by_resource.get(args["resource"]), results[0]
    if got is None or want is None:
        yield from compare("resource", got, want)
    else:
        yield from _equal_shares(got, values.share(want))


def _equal_shares(got: ResourceShares, want: ResourceShares) -> Iterator[str]:
    for name in ResourceShares.__slots__:
        yield from compare(name, getattr(got, name), getattr(want, name))


def _dominant(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    queue = values.queue_shares({"QueueResourceShare": args["recv"]})
    yield from close("dominant", queue.dominant(values.three(args.get("totalResources"))), values.number(results[0]))


def _pair(read: Callable[[q.Quantities, q.Quantities], object], changes: bool) -> Call:
    def again(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
        got = read(values.three(args["recv"]), values.three(args["other"]))
        want = values.three(after.get("recv", args["recv"])) if changes else results[0]
        yield from compare("result", got, want)

    return again


def _made(args: Document, after: Document, results: Sequence[Any]) -> Iterator[str]:
    got = q.quantities(args.get("cpuQty", 0), args.get("memoryQty", 0), args.get("gpuQty", 0))
    yield from compare("quantities", got, values.three(results[0]))


def compared(table: Table, case: Case) -> Sequence[str]:
    """One amount against another, -1 being above all."""
    one, other = (q.quantities(cpu=case.input.get(name, 0)) for name in ("resource1", "resource2"))
    got = (not q.is_within(one, other)) - (not q.is_within(other, one))
    return list(compare("order", got, case.want.get("expected", 0)))


def cloned(table: Table, case: Case) -> Sequence[str]:
    variables = {local["name"]: local["value"] for local in case.document["locals"]}
    got = values.queue_shares(variables["orig"]).copy()
    want = values.queue_shares(variables["clone"])
    found = list(
        compare(
            "queue",
            (got.uid, got.name, got.parent, got.children, got.created, got.priority),
            (want.uid, want.name, want.parent, want.children, want.created, want.priority),
        )
    )
    return [
        *found,
        *(line for name in q.RESOURCES for line in _equal_shares(got.by_resource[name], want.by_resource[name])),
    ]


CALLS: Mapping[str, Call] = {
    "SetResourcesShare": _divide_all,
    "setResourceShare": _divide_one,
    "getQueuesByPriority": _bands,
    "proportionPlugin.setFairShare": _tree,
    "proportionPlugin.getVictimResources": _losses,
    "New": _new,
    "CapacityPolicy.IsJobOverQueueCapacity": _capacity(find_exceeded_capacity),
    "CapacityPolicy.IsNonPreemptibleJobOverQuota": _capacity(find_exceeded_quota),
    "CapacityPolicy.IsTaskAllocationOnNodeOverCapacity": _capacity(find_exceeded_capacity),
    "CapacityPolicy.resultsOverLimit": _capacity(find_exceeded_limit),
    "CapacityPolicy.resultsWithNonPreemptibleOverQuota": _capacity(find_exceeded_quota),
    "GetQueueOrderResult": _order,
    "Reclaimable.CanReclaimResources": _may_reclaim,
    "Reclaimable.Reclaimable": _may_take_from,
    "MaintainFairShareStrategy.Reclaimable": _maintains,
    "GuaranteeDeservedQuotaStrategy.Reclaimable": _guarantees,
    "QueueResourceShare.ResourceShare": _resource_of,
    "QueueResourceShare.GetAllocatableShare": _of_queue(lambda queue: queue.allocatable),
    "QueueResourceShare.GetDeservedShare": _of_queue(lambda queue: queue.deserved),
    "QueueResourceShare.GetFairShare": _of_queue(lambda queue: queue.fair),
    "QueueResourceShare.GetAllocatedShare": _of_queue(lambda queue: queue.allocated),
    "QueueResourceShare.GetAllocatedNonPreemptible": _of_queue(lambda queue: queue.non_preemptible),
    "QueueResourceShare.GetMaxAllowedShare": _of_queue(
        lambda queue: {name: share.limit for name, share in queue.by_resource.items()}
    ),
    "QueueResourceShare.GetRequestShare": _of_queue(lambda queue: queue.requested),
    "QueueResourceShare.GetRequestableShare": _of_queue(lambda queue: queue.requestable),
    "QueueResourceShare.GetDominantResourceShare": _dominant,
    "ResourceShare.GetRequestableShare": _of_share(lambda share: share.requestable),
    "ResourceShare.GetRequestShare": _of_share(lambda share: share.requested),
    "ResourceShare.GetAllocatableShare": _of_share(lambda share: share.allocatable),
    "NewResourceQuantities": _made,
    "EmptyResourceQuantities": _made,
    "ResourceQuantities.Add": _pair(q.add, True),
    "ResourceQuantities.Sub": _pair(q.subtract, True),
    "ResourceQuantities.Less": _pair(q.is_less, False),
    "ResourceQuantities.LessEqual": _pair(q.is_within, False),
    "ResourceQuantities.LessInAtLeastOneResource": _pair(lambda one, other: not q.is_within(other, one), False),
}
_P = "kai/scheduler_plugins_proportion"
CHECKS: dict[str, Check] = {
    "kai/generated_resource_division/SetResourcesShare": generated,
    f"{_P}/proportion__New": replay,
    f"{_P}/proportion__Set_Fair_Share_in_Proportion": replay,
    f"{_P}/proportion__Set_Fair_Share_in_Proportion_L245": whole_tree,
    f"{_P}/proportion__Set_Fair_Share_in_Proportion_L780": node_resources,
    f"{_P}/proportion__Set_fair_share_for_2_hierarchy_queues_simplified_L349": whole_tree,
    **{
        f"{_P}_capacity_policy/capacity_policy__Capacity_Policy_Check_L{line}": replay for line in (163, 318, 476, 1073)
    },
    f"{_P}_capacity_policy/max_allowed_check__Max_Allowed_Policy_Check_L197": limit_of_one,
    f"{_P}_capacity_policy/max_allowed_check__Max_Allowed_Policy_Check_L440": replay,
    f"{_P}_capacity_policy/quota_check__Quota_Policy_Check_L118": quota_of_one,
    f"{_P}_capacity_policy/quota_check__Quota_Policy_Check_L328": replay,
    f"{_P}_queue_order/TestGetQueueOrderResult": replay,
    **{
        f"{_P}_reclaimable/reclaimable__{test}": replay
        for test in (
            "Can_Reclaim_Resources_L235",
            "Can_Reclaim_Resources_L521",
            "Reclaimable_Multiple_departments",
            "Reclaimable_Multiple_hierarchy_levels",
            "Reclaimable_Single_department",
        )
    },
    **{f"{_P}_reclaimable_strategies/strategies__Reclaim_strategies_L{line}": replay for line in (181, 544, 800)},
    **{
        f"{_P}_resource_division/resource_division__{test}": replay
        for test in ("Proportion", "Proportion_L1998", "getQueuesByPriority", "two_queues_L274")
    },
    f"{_P}_resource_share/TestCompareResources": compared,
    f"{_P}_resource_share/queue_attributes__QueueAttributes": cloned,
    **{
        f"{_P}_resource_share/{test}": replay
        for test in (
            "queue_attributes__QueueAttributes_L194",
            "queue_attributes__QueueAttributes_L257",
            "queue_attributes__QueueAttributes_L321",
            "queue_resource_share_plain_calls",
            "resource_quantities_plain_calls",
            "resource_share_plain_calls",
        )
    },
}
