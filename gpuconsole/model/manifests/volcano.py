"""Manifests of Volcano: queues, PodGroups, HyperNodes, NUMA topologies; and PodGroups of the Coscheduling plugin."""

from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import (
    GROUP,
    HYPER_NODE,
    QUEUE_SHAPE,
    check_group,
    check_hyper_node,
    check_queue,
    fits,
    report,
)
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.pods_and_selectors import selector
from gpuconsole.model.documents.reader import INT32, Reader, resources
from gpuconsole.model.jobs.volcano import network_topology
from gpuconsole.model.volcano import (
    CpuPlace,
    GroupAffinity,
    GroupCondition,
    HyperNode,
    HyperNodeMember,
    Numatopology,
    PodGroup,
    SubGroupPolicy,
    VolcanoQueue,
)

_QUEUE_FIELDS = (
    *("affinity", "capability", "dequeueStrategy", "deserved", "extendClusters", "guarantee", "parent", "priority"),
    *("reclaimable", "type", "weight"),
)
_GROUP_FIELDS = (
    *("minMember", "minResources", "minTaskMember", "networkTopology", "priorityClassName", "queue"),
    "subGroupPolicy",
)
_COSCHEDULING_FIELDS = ("minMember", "minResources", "scheduleTimeoutSeconds")
HEAVIEST = 65535


def volcano_queue(reader: Reader, now: Time) -> VolcanoQueue:
    """Read and validate a Volcano Queue."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, *_QUEUE_FIELDS)
    queue = VolcanoQueue(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        annotations=meta.annotations,
        weight=spec.number("weight", 1, low=1, high=HEAVIEST),
        parent=spec.text("parent"),
        capability=resources(spec, "capability"),
        deserved=resources(spec, "deserved"),
        guarantee=resources(spec.mapping("guarantee"), "resource"),
        reclaimable=spec.flag("reclaimable", True),
        priority=spec.number("priority", 0, low=0),
        dequeue_strategy=spec.one_of("dequeueStrategy", "", ("fifo", "traverse")),
        state=reader.mapping("status").text("state", "Open"),
        affinity=_affinity(spec) if "affinity" in spec else None,
    )
    if fits(reader.value, QUEUE_SHAPE):
        report(reader.report, reader.path, check_queue(reader.value, {}))
    return queue


def _affinity(spec: Reader) -> GroupAffinity:
    near = spec.down("affinity", "nodeGroupAffinity")
    far = spec.down("affinity", "nodeGroupAntiAffinity")
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    return GroupAffinity(near.texts(required), near.texts(preferred), far.texts(required), far.texts(preferred))


def hyper_node(reader: Reader, now: Time) -> HyperNode:
    """Read a HyperNode: its members are nodes by name, pattern or labels, or HyperNodes of a lower tier by name."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "tier", "tierName", "members")
    if fits(reader.value, HYPER_NODE):
        report(reader.report, reader.path, check_hyper_node(reader.value))
    return HyperNode(
        name=meta.name,
        created=meta.created,
        tier=spec.number("tier", 0, low=0),
        tier_name=spec.text("tierName"),
        members=tuple(_member(place) for place in spec.items("members")),
    )


def _member(place: Reader) -> HyperNodeMember:
    choice = place.mapping("selector")
    return HyperNodeMember(
        type=place.one_of("type", "Node", ("Node", "HyperNode")),
        exact=choice.mapping("exactMatch").text("name") if "exactMatch" in choice else None,
        pattern=choice.mapping("regexMatch").text("pattern", limit=1024) if "regexMatch" in choice else None,
        selector=selector(choice, "labelMatch") if "labelMatch" in choice else None,
    )


def numatopology(reader: Reader, now: Time) -> Numatopology:
    """Read a Numatopology: the kubelet's policies, and NUMA node, socket and core of each CPU."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, "policies", "resReserved", "numares", "cpuDetail")
    policies, detail = spec.mapping("policies"), spec.mapping("cpuDetail")
    places = {number: detail.mapping(number) for number in detail.value if str(number).isdecimal()}
    return Numatopology(
        name=meta.name,
        created=meta.created,
        cpu_policy=policies.text("CPUManagerPolicy"),
        topology_policy=policies.text("TopologyManagerPolicy"),
        reserved_cpu=resources(spec, "resReserved").get("cpu", 0),
        cpus={
            int(number): CpuPlace(*(place.number(key, 0, low=0) for key in ("numa", "socket", "core")))
            for number, place in places.items()
        },
        free=_numbers(spec.down("numares", "cpu").text("allocatable", limit=MOST_CPUS)),
    )


MOST_CPUS = 8192
"""Most CPUs of a node, and most characters in a list of them."""


def _numbers(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs such as `0-3,8`; invalid parts are left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(last or first) < MOST_CPUS:
            found |= {*range(int(first), int(last or first) + 1)}
    return tuple(sorted(found))


def pod_group(reader: Reader, now: Time) -> PodGroup:
    """Read a PodGroup of Volcano."""
    if fits(reader.value, GROUP):
        report(reader.report, reader.path, check_group(reader.value))
    return _group(reader, now, _GROUP_FIELDS)


def coscheduling_group(reader: Reader, now: Time) -> PodGroup:
    """Read a PodGroup of the Coscheduling plugin (scheduling.x-k8s.io)."""
    return _group(reader, now, _COSCHEDULING_FIELDS)


def _group(reader: Reader, now: Time, fields: tuple[str, ...]) -> PodGroup:
    meta = metadata(reader, now)
    spec = reader.mapping("spec")
    spec.only(*fields)
    members = spec.mapping("minTaskMember")
    return PodGroup(
        **meta.facts,
        min_member=spec.number("minMember", 1, low=0, high=INT32),
        queue=spec.text("queue"),
        priority_class=spec.text("priorityClassName"),
        min_resources=resources(spec, "minResources") if "minResources" in spec else None,
        min_task_member={name: members.number(name, 0, low=0) for name in members.value},
        network_topology=network_topology(spec),
        sub_groups=tuple(_sub_group(place) for place in spec.items("subGroupPolicy")),
        phase=reader.mapping("status").text("phase"),
        conditions=tuple(_condition(place) for place in reader.mapping("status").items("conditions")),
    )


def _condition(place: Reader) -> GroupCondition:
    return GroupCondition(
        type=place.text("type"),
        status=place.text("status") == "True",
        reason=place.text("reason"),
        message=place.text("message", limit=4096),
        since=place.moment("lastTransitionTime") or 0,
    )


def _sub_group(place: Reader) -> SubGroupPolicy:
    return SubGroupPolicy(
        name=place.text("name"),
        size=place.optional("subGroupSize"),
        least=place.optional("minSubGroups"),
        network_topology=network_topology(place),
        selector=selector(place, "labelSelector"),
        match_label_keys=place.texts("matchLabelKeys"),
    )
