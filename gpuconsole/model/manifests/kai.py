"""Queues and pod groups of KAI Scheduler."""

from gpuconsole.model.apiserver.kai.groups import check_pod_group, check_queue
from gpuconsole.model.apiserver.volcano.objections import report
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.kai import KaiCondition, KaiPodGroup, KaiQueue, KaiSubGroup, KaiTopology, QueueResource

_FIELDS = ("displayName", "parentQueue", "resources", "priority", "preemptMinRuntime", "reclaimMinRuntime")
_GROUP_FIELDS = (
    *("backoffLimit", "completions", "markUnschedulable", "minMember", "parallelism", "preemptibility"),
    *("priorityClassName", "queue", "schedulingBackoff", "subGroups", "topologyConstraint"),
)
_LEVELS = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")


def queue(reader: Reader, now: Time) -> KaiQueue:
    """A Queue of scheduling.run.ai/v2. A queue without resources has no quota, and takes nothing."""
    report(reader.report, reader.path, check_queue(reader.value))
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, *_FIELDS)
    resources = spec.mapping("resources")
    resources.only("gpu", "cpu", "memory")
    return KaiQueue(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        display_name=spec.text("displayName"),
        parent=spec.text("parentQueue"),
        gpu=_resource(resources.mapping("gpu")),
        cpu=_resource(resources.mapping("cpu")),
        memory=_resource(resources.mapping("memory")),
        priority=spec.number("priority", 100),
        preempt_min_runtime=spec.span("preemptMinRuntime"),
        reclaim_min_runtime=spec.span("reclaimMinRuntime"),
    )


def _resource(place: Reader) -> QueueResource:
    place.only("quota", "overQuotaWeight", "limit")
    return QueueResource(
        quota=_number(place, "quota"),
        over_quota_weight=_number(place, "overQuotaWeight"),
        limit=_number(place, "limit"),
    )


def _number(place: Reader, key: str) -> float:
    """A number, maybe with a fraction; 0 where there is none, -1 is without bound."""
    value = place.raw(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        place.wrong_type(key, value, "a number")
        return 0.0
    if value < 0 and value != -1:
        place.report.refused(
            place.at(key), f"{value:g} is negative", "write -1 for no bound, else 0 or more", "bad-queue"
        )
    return float(max(-1, value))


def pod_group(reader: Reader, now: Time) -> KaiPodGroup:
    """A PodGroup of scheduling.run.ai/v2alpha2."""
    meta = metadata(reader, now)
    spec = spec_of(reader, *_GROUP_FIELDS)
    report(reader.report, reader.path, check_pod_group(reader.value))
    return KaiPodGroup(
        **meta.facts,
        min_member=spec.number("minMember", 1, low=1),
        queue=spec.text("queue"),
        priority_class=spec.text("priorityClassName"),
        preemptibility=spec.one_of("preemptibility", "", ("preemptible", "non-preemptible")),
        constraint=_constraint(spec),
        sub_groups=tuple(_sub_group(place) for place in spec.items("subGroups")),
        mark_unschedulable=spec.flag("markUnschedulable", True) if "markUnschedulable" in spec else None,
        backoff=spec.optional("schedulingBackoff"),
        conditions=tuple(_condition(place) for place in reader.mapping("status").items("schedulingConditions")),
    )


def _sub_group(place: Reader) -> KaiSubGroup:
    place.only("name", "parent", "minMember", "topologyConstraint")
    return KaiSubGroup(
        name=place.required("name"),
        parent=place.text("parent"),
        min_member=place.number("minMember", 1, low=1),
        constraint=_constraint(place),
    )


def _constraint(place: Reader) -> KaiTopology | None:
    if "topologyConstraint" not in place:
        return None
    said = place.mapping("topologyConstraint")
    said.only(*_LEVELS)
    topology, required, preferred = (said.text(name) for name in _LEVELS)
    return KaiTopology(topology=topology, required=required, preferred=preferred)


def _condition(place: Reader) -> KaiCondition:
    return KaiCondition(
        type=place.text("type"),
        reason=place.text("reason"),
        message=place.text("message", limit=4096),
        since=place.moment("lastTransitionTime") or 0,
    )
