"""Queues of KAI Scheduler."""

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import metadata, spec_of
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.kai import KaiQueue, QueueResource

_FIELDS = ("displayName", "parentQueue", "resources", "priority", "preemptMinRuntime", "reclaimMinRuntime")


def queue(reader: Reader, now: Time) -> KaiQueue:
    """A Queue of scheduling.run.ai/v2. A queue without resources has no quota, and takes nothing."""
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
