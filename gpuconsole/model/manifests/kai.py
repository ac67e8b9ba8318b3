"""Manifests of KAI Scheduler: queues, pod groups, scheduling shards."""

from gpuconsole.model.apiserver.kai_webhooks import check_pod_group, check_queue
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import report
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import is_label_value, metadata, spec_of
from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.kai import (
    BINPACK,
    SPREAD,
    KaiCondition,
    KaiPodGroup,
    KaiQueue,
    KaiSubGroup,
    KaiTopology,
    QueueResource,
    SchedulingShard,
    ShardSetting,
)

_FIELDS = ("displayName", "parentQueue", "resources", "priority", "preemptMinRuntime", "reclaimMinRuntime")
_GROUP_FIELDS = (
    *("backoffLimit", "completions", "markUnschedulable", "minMember", "parallelism", "preemptibility"),
    *("priorityClassName", "queue", "schedulingBackoff", "subGroups", "topologyConstraint"),
)
ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
_SHARD_FIELDS = (
    *("actions", "args", "goMemLimit", "goMemLimitRatio", "kValue", "minRuntime", "partitionLabelValue"),
    *("placementStrategy", "plugins", "queueDepthPerAction", "scenarioSearchBudgets", "usageDBConfig"),
)
_WITHOUT_EFFECT = ("goMemLimit", "goMemLimitRatio", "scenarioSearchBudgets", "usageDBConfig")
_LEAST = ("preemptMinRuntime", "reclaimMinRuntime")
_LEVELS = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")


def queue(reader: Reader, now: Time) -> KaiQueue:
    """Read a Queue of scheduling.run.ai/v2; missing quotas and limits are 0."""
    report(reader.report, reader.path, check_queue(reader.value))
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, *_FIELDS)
    resources = spec.mapping("resources")
    resources.only("gpu", "cpu", "memory")
    return KaiQueue(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        labels=meta.labels,
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
    """Read a number; 0 if it is missing or invalid. -1 means no limit."""
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


def scheduling_shard(reader: Reader, now: Time) -> SchedulingShard:
    """Read a SchedulingShard of kai.scheduler/v1 (pkg/apis/kai/v1 types)."""
    meta = metadata(reader, now, namespaced=False)
    spec = spec_of(reader, *_SHARD_FIELDS)
    partition = spec.text("partitionLabelValue")
    if not is_label_value(partition):
        path, remedy = spec.at("partitionLabelValue"), "use at most 63 letters, digits, '-', '_' and '.'"
        spec.report.refused(path, f"{shown(partition)} is not a valid label value", remedy, "bad-label")
    strategy, least = spec.mapping("placementStrategy"), spec.mapping("minRuntime")
    strategy.only("cpu", "gpu")
    least.only(*_LEAST)
    for name in _LEAST:
        least.span(name)
    depths = spec.mapping("queueDepthPerAction")
    shard = SchedulingShard(
        name=meta.name,
        uid=meta.uid,
        created=meta.created,
        partition=partition,
        gpu_strategy=strategy.one_of("gpu", BINPACK, (BINPACK, SPREAD)),
        cpu_strategy=strategy.one_of("cpu", BINPACK, (BINPACK, SPREAD)),
        queue_depth={str(action): depths.number(str(action), 0, low=0) for action in depths.value},
        k_value=_number(spec, "kValue") if "kValue" in spec else None,
        preempt_min_runtime=least.text(_LEAST[0]),
        reclaim_min_runtime=least.text(_LEAST[1]),
        plugin_settings=_settings(spec.mapping("plugins"), "arguments"),
        action_settings=_settings(spec.mapping("actions")),
        args=_texts(spec, "args"),
    )
    _remark(spec, shard)
    return shard


def _settings(place: Reader, *more: str) -> dict[str, ShardSetting]:
    found = {}
    for name in map(str, place.value):
        one = place.mapping(name)
        one.only("enabled", "priority", *more)
        found[name] = ShardSetting(
            enabled=one.flag("enabled") if "enabled" in one else None,
            priority=one.optional("priority", low=-INT32 - 1),
            arguments=_texts(one, "arguments") if more and "arguments" in one else None,
        )
    return found


def _texts(place: Reader, key: str) -> dict[str, str]:
    inner = place.mapping(key)
    return {str(name): inner.text(str(name), limit=4096) for name in inner.value}


def _remark(spec: Reader, shard: SchedulingShard) -> None:
    """Note fields that are not simulated; report a queueDepthPerAction for an action that does not run."""
    for name in _WITHOUT_EFFECT:
        if name in spec:
            spec.report.note(spec.at(name), f"{name} is not simulated", "nothing to do", "not-simulated")
    off = {name for name, setting in shard.action_settings.items() if setting.enabled is False}
    spreads = SPREAD in (shard.gpu_strategy, shard.cpu_strategy)
    consolidates = shard.action_settings.get("consolidation", ShardSetting()).enabled
    if not (consolidates if consolidates is not None else not spreads):
        off.add("consolidation")
    running = ({*ACTIONS, *shard.action_settings}) - off
    for action in shard.queue_depth:
        if action not in running:
            problem = f"{action} does not run in this shard: KAI's operator refuses the queueDepthPerAction"
            remedy = f"use {', '.join(name for name in ACTIONS if name in running)}"
            spec.report.warning(spec.at("queueDepthPerAction", action), problem, remedy, "bad-action")


def pod_group(reader: Reader, now: Time) -> KaiPodGroup:
    """Read a PodGroup of scheduling.run.ai/v2alpha2."""
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
