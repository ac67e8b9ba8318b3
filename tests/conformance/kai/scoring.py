"""KAI's tables of plugins that give scores and orders: nodes, GPUs, jobs, tasks, pod sets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.cluster import Node
from gpuconsole.scheduling.kai.api.jobs import PodSetInfo
from gpuconsole.scheduling.kai.api.nodes import GPU_COUNT_LABEL, KaiNodeInfo
from gpuconsole.scheduling.kai.api.tasks import CPU, GPU, KaiPodStatus, PodInfo, ResourceAmounts, new_request
from gpuconsole.scheduling.kai.config import InvalidArgument, KaiPluginArguments
from gpuconsole.scheduling.kai.plugins import node_scores as gpu_placement
from gpuconsole.scheduling.kai.plugins import node_scores as nodeavailability
from gpuconsole.scheduling.kai.plugins import node_scores as nodeplacement
from gpuconsole.scheduling.kai.plugins import node_scores as nominatednode
from gpuconsole.scheduling.kai.plugins import node_scores as podaffinity
from gpuconsole.scheduling.kai.plugins import node_scores as resourcetype
from gpuconsole.scheduling.kai.plugins import ordering as elastic
from gpuconsole.scheduling.kai.plugins import ordering as subgrouporder
from gpuconsole.scheduling.kai.plugins import ordering as taskorder
from gpuconsole.scheduling.kai.plugins.ordering import Kubeflow, Ray
from gpuconsole.scheduling.kai.session import KaiPlugin, KaiSession, value_range
from tests.conformance.kai import values
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

Document = Mapping[str, Any]


def sign(order: int) -> int:
    return (order > 0) - (order < 0)


# Orders


def job_order(table: Table, case: Case) -> Sequence[str]:
    args = case.input["args"]
    left, right = (
        values.job(args[side], [values.task(pod) for pod in args.get(f"{side}Pods") or ()]) for side in ("l", "r")
    )
    return list(compare("order", sign(elastic.compare_elasticity(left, right)), case.want.get("want", 0)))


def role_order(plugin: Callable[[KaiPluginArguments], KaiPlugin]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        session = KaiSession()
        plugin(KaiPluginArguments()).open(session)
        (order,) = session.functions.task_order
        args = case.input["args"]
        got = order(values.task(args["l"]), values.task(args["r"]))
        return list(compare("order", sign(got), case.want.get("want", 0)))

    return check


def pod_set_order(table: Table, case: Case) -> Sequence[str]:
    sides = []
    for side in ("l", "r"):
        pod_set = PodSetInfo(side, case.input.get(f"{side}MinAvailable", 0))
        for number in range(case.input.get(f"{side}Allocated", 0)):
            pod_set.add_task(PodInfo(f"{side}-pod-{number}", pod_set=side, status=KaiPodStatus.RUNNING))
        sides.append(pod_set)
    return list(compare("order", sign(subgrouporder.compare_sub_groups(*sides)), case.want.get("want", 0)))


def task_orders(table: Table, case: Case) -> Sequence[str]:
    return [
        line
        for call in case.document["calls"]
        for line in compare(
            "order",
            taskorder.compare_task_labels(values.task(call["args"]["l"]), values.task(call["args"]["r"])),
            call["results"][0],
        )
    ]


# Scores


def gpu_score(score: Callable[[PodInfo, KaiNodeInfo, str], float]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        node = KaiNodeInfo(Node(name="node"), ResourceAmounts(), gpu_memory=case.input.get("totalMem", 0))
        node.shared.used = {case.input.get("gpuIdx", ""): case.input.get("usedMem", 0)}
        got: object
        try:
            got = (score(PodInfo("task"), node, case.input.get("gpuIdx", "")), "")
        except ValueError as problem:
            got = (0, str(problem))
        error = (case.want.get("expectedErr") or {}).get("$error", "")
        return list(compare("score", got, (case.want.get("expectedScore", 0), error)))

    return check


def _node(
    name: str, allocatable: ResourceAmounts, idle: ResourceAmounts, labels: Mapping[str, str] | None = None
) -> KaiNodeInfo:
    node = KaiNodeInfo(Node(name=name, labels=labels or {}), allocatable)
    node.idle = idle
    return node


def packed(table: Table, case: Case) -> Sequence[str]:
    nodes = {
        name: (_node(name, ResourceAmounts(gpus=_whole(found, "nodeAllocatableGPUs")), _idle(found)), found)
        for name, found in case.input["testNodeMetadataMap"].items()
    }
    task, plugin = PodInfo("task", request=new_request(1)), nodeplacement.NodePlacement(KaiPluginArguments())
    free = {name: plugin.measure(task, node) for name, (node, _) in nodes.items()}
    least, most = value_range([value for value in free.values() if value is not None])
    return [
        line
        for name, (_, found) in nodes.items()
        for line in compare(name, plugin.score(free[name], least, most), found.get("nodeExpectedScore", 0))
    ]


def _whole(found: Document, key: str) -> float:
    return float(found.get(key) or 0)


def _idle(found: Document) -> ResourceAmounts:
    return ResourceAmounts(gpus=_whole(found, "nodeIdleGPUs"))


def spread(table: Table, case: Case) -> Sequence[str]:
    count, free = case.input.get("gpuCount", 0), case.input.get("nonAllocated", 0)
    by_gpu = _node("gpu", ResourceAmounts(gpus=count), ResourceAmounts(gpus=free), {GPU_COUNT_LABEL: str(count)})
    by_cpu = _node("cpu", ResourceAmounts(cpu=count), ResourceAmounts(cpu=free))
    want = case.want.get("expected", 0)
    return [
        *compare("GPUs", nodeplacement.node_spread_score(by_gpu, GPU), want),
        *compare("CPUs", nodeplacement.node_spread_score(by_cpu, CPU), want),
    ]


def nominated(table: Table, case: Case) -> Sequence[str]:
    got = nominatednode.nominated_node_score(values.task(case.input["task"]), values.node(case.input["node"]))
    return list(compare("score", got, case.want.get("expectedScore", 0)))


def availability(table: Table, case: Case) -> Sequence[str]:
    return [
        line
        for call in case.document["calls"]
        for line in compare(
            "score",
            nodeavailability.availability_score(values.task(call["args"]["task"]), values.node(call["args"]["node"])),
            call["results"][0],
        )
    ]


def resource_type(table: Table, case: Case) -> Sequence[str]:
    found = {local["name"]: local["value"] for local in case.document["locals"]}
    if not {"task", "node", "score"} <= found.keys():
        raise NotModelled("the case tells no node")
    # The test gives the task its request after the variable was dumped; what stands in the table is what it began with.
    got = resourcetype.resource_type_score(values.task(found["task"]), values.node(found["node"]))
    return list(compare("score", got, found["score"]))


def liked(table: Table, case: Case) -> Sequence[str]:
    nodes = {}
    for document in case.input["nodes"]:
        metadata = document["metadata"]
        nodes[metadata["name"]] = _node(metadata["name"], ResourceAmounts(), ResourceAmounts(), metadata.get("labels"))
    for pod in case.input.get("pods") or ():
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        place = {"Name": metadata["name"], "Namespace": metadata.get("namespace", ""), "Status": "Running"}
        found = values.task({**place, "NodeName": spec["nodeName"], "Pod": pod})
        nodes[found.node].tasks[found.uid] = found
    session, task = KaiSession(nodes=nodes.values()), values.task(case.input["task"])
    podaffinity.PodAffinityPlugin(KaiPluginArguments()).open(session)
    got = sum(scorer.score(task, node) for scorer in session.functions.node_order for node in session.all_nodes)
    return list(compare("score", got, case.want.get("expectedScore", 0)))


# Arguments


def argument(read: Callable[[KaiPluginArguments, str, Any], object]) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        arguments = KaiPluginArguments(case.input.get("args") or case.input.get("pluginArguments") or {})
        base = case.input.get("defaultValue", case.input.get("defaultVal"))
        key = case.input.get("key", "")
        failed = False
        try:
            got = read(arguments, key, base)
        except InvalidArgument:
            got, failed = base, True
        return [line for line in _argument(got, failed, case.want)]

    return check


def _argument(got: object, failed: bool, want: Document) -> Iterator[str]:
    for name in ("expected", "want", "expectedValue", "expectedVal"):
        if name in want:
            yield from compare("value", got, want[name])
    for name in ("expectError", "wantErr", "expectedErr", "expectedError", "expectErr"):
        if name in want:
            yield from compare("fails", failed, bool(want[name]))


_P = "kai/scheduler_plugins"
CHECKS: dict[str, Check] = {
    f"{_P}_elastic/TestJobOrderFn": job_order,
    f"{_P}_kubeflow/TestTaskOrderFn": role_order(Kubeflow),
    f"{_P}_ray/TestTaskOrderFn": role_order(Ray),
    f"{_P}_subgrouporder/TestSubGroupOrderFn": pod_set_order,
    f"{_P}_taskorder/task_order_plain_calls": task_orders,
    f"{_P}_gpupack/gpupack__GpuPack_scoring_L79": gpu_score(gpu_placement.gpu_pack_score),
    f"{_P}_gpuspread/gpuspread__GpuSpread_scoring_L79": gpu_score(gpu_placement.gpu_spread_score),
    f"{_P}_nodeplacement/TestNodePack": packed,
    f"{_P}_nodeplacement/nodespread__loop_L68": spread,
    f"{_P}_nominatednode/nominatednode__NominatedNode_Scoring_tests_L72": nominated,
    f"{_P}_nodeavailability/nodeavailability__NodeAvailability": availability,
    f"{_P}_podaffinity/podaffinity__Preferred_Pod_Affinity_L161": liked,
    f"{_P}_resourcetype/resourcetype__resourceType": resource_type,
    "kai/scheduler_framework/TestPluginArguments_GetBool": argument(lambda found, key, base: found.flag(key, base)),
    "kai/scheduler_framework/TestPluginArguments_GetFloat64": argument(
        lambda found, key, base: found.number(key, base)
    ),
    "kai/scheduler_framework/TestPluginArguments_GetInt": argument(lambda found, key, base: found.integer(key, base)),
    "kai/scheduler_framework/TestPluginArguments_GetString": argument(lambda found, key, base: found.text(key, base)),
}
