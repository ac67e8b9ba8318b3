"""Fields common to all job kinds: queue, priority, time limits, durations, pod sets, and topology requests.

Topology annotations of a pod template are read as in Kueue 0.19's jobframework; its webhooks
(`apiserver.jobs.framework`) validate them.
"""

import json
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.documents.metadata import TOP, metadata
from gpuconsole.model.documents.pods_and_selectors import pod_template
from gpuconsole.model.documents.reader import INT32, Reader, shown
from gpuconsole.model.job import BatchRules, Job, JobPhase
from gpuconsole.model.jobs.workloads import (
    CHECKPOINT,
    DURATION,
    MAX_EXECUTION,
    ON_NOTICE,
    OWNER_KINDS,
    PRIORITY_CLASS,
    QUEUE,
)
from gpuconsole.model.pod_template import PodSet, TopologyRequest
from gpuconsole.model.text import clean

PREFIX = "kueue.x-k8s.io/"
REQUIRED = PREFIX + "podset-required-topology"
PREFERRED = PREFIX + "podset-preferred-topology"
UNCONSTRAINED = PREFIX + "podset-unconstrained-topology"
SLICE_REQUIRED = PREFIX + "podset-slice-required-topology"
SLICE_SIZE = PREFIX + "podset-slice-size"
SLICE_CONSTRAINTS = PREFIX + "podset-slice-required-topology-constraints"
GROUP = PREFIX + "podset-group-name"

MOST_LAYERS = 3
"""Most slice layers of a topology request."""
TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""Strings that Go parses as true."""


def topology_request(
    template: Reader, count: int, *, index: str = "", subgroup: str = "", subgroups: int | None = None
) -> TopologyRequest | None:
    """Return the topology request in a template's annotations; None if there is none and the pods have no order.

    `count` is the number of pods. The pods have an order if they have an `index` label; `subgroup` is the label of
    their subgroup, of which there are `subgroups`. The order also counts in a queue where every flavor has a topology
    (Kueue 0.19 jobframework/tas.go Build).
    """
    place = template.down("metadata", "annotations")
    asked = any(key in place for key in (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_CONSTRAINTS))
    if not (asked or index or subgroup or (SLICE_REQUIRED in place and SLICE_SIZE in place)):
        return None
    size = _slice_size(place, count)
    required, preferred = place.text(REQUIRED, limit=400), place.text(PREFERRED, limit=400)
    return TopologyRequest(
        required=required,
        preferred="" if required else preferred,
        unconstrained=not required and not preferred and place.text(UNCONSTRAINED) in TRUE,
        slice_required=place.text(SLICE_REQUIRED, limit=400) if size is not None else "",
        slice_size=size,
        slice_constraints=_constraints(place),
        group=place.text(GROUP) if required or preferred else "",
        index_label=index,
        subgroup_index_label=subgroup,
        subgroup_count=subgroups,
    )


def _slice_size(place: Reader, count: int) -> int | None:
    text = place.text(SLICE_SIZE)
    if SLICE_REQUIRED not in place or not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    return int(text) if 1 <= int(text) <= min(count, INT32) else None


def whole(place: Reader, key: str, low: int, high: int, above: str) -> int | None:
    """Read an integer from a label or annotation; None if invalid. `above` is the error reported above `high`."""
    text = place.text(key)
    if len(text) > 10 or not text.isascii() or not text.isdigit():
        place.report.refused(
            place.at(key), f"{shown(text)}: must be a numeric value", 'write a whole number, such as "4"', "bad-number"
        )
        return None
    number = int(text)
    if number < low or number > min(high, INT32):
        problem = f"must be greater than or equal to {low}" if number < low else above
        place.report.refused(place.at(key), f"{number}: {problem}", f"write {low} to {high}", "bad-number")
        return None
    return number


def seconds(place: Reader, key: str) -> Span | None:
    """Read a number of seconds, at least 0, as a duration; None if the key is missing."""
    count = place.optional(key, low=0)
    return None if count is None else count * SECOND


def _constraints(place: Reader) -> tuple[tuple[str, int], ...]:
    found = _parse_constraints(place.raw(SLICE_CONSTRAINTS)) if SLICE_CONSTRAINTS in place else ()
    return found if len(found) <= MOST_LAYERS else ()


def _parse_constraints(value: Any) -> tuple[tuple[str, int], ...]:
    try:
        entries = json.loads(value) if isinstance(value, str) and len(value) < 4096 else []
        return tuple((clean(str(e["topology"])), max(1, min(INT32, int(e["size"])))) for e in entries)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


MOST_PODS = 100_000
"""Most pods of a pod set that can be simulated."""
MOST_POD_SETS = 18
"""Most pod sets of a Workload."""


def job(reader: Reader, now: Time, kind: str, pod_sets: tuple[PodSet, ...], **own: Any) -> Job:
    """Build a Job of any kind from its metadata and pod sets; `own` are the other fields that its kind sets."""
    reader.only(*TOP)
    place = reader.mapping("metadata")
    labels, notes = place.mapping("labels"), place.mapping("annotations")
    meta = metadata(reader, now)
    if len(pod_sets) > MOST_POD_SETS and QUEUE in labels:
        problem = f"it has {len(pod_sets)} pod sets; a Workload holds {MOST_POD_SETS}"
        reader.report.refused(reader.at("spec"), problem, "use fewer groups of pods", "too-many")
    facts = {"queue": labels.text(QUEUE), **own}
    said = isinstance(own.get("rules"), BatchRules)
    if DURATION not in notes and not said and any(DURATION in pods.template.annotations for pods in pod_sets):
        problem = f"{DURATION} stands in the pod template, where nothing reads it"
        remedy = "write it in the annotations of the job itself: it is how long the whole job takes"
        notes.report.warning(notes.at(DURATION), problem, remedy, "misplaced-annotation")
    positive_span(notes, ON_NOTICE)
    usual: dict[str, Any] = {
        "workload_priority_class": labels.text(PRIORITY_CLASS),
        "duration": positive_span(notes, DURATION),
        "checkpoint_interval": positive_span(notes, CHECKPOINT),
        "max_execution_time": max_execution(labels),
    }
    usual["owner"] = _maker(place, meta.namespace)
    return Job(**meta.facts, kind=kind, pod_sets=pod_sets, **{**usual, **facts})


def _maker(place: Reader, namespace: str) -> str:
    """Return the key of the job that owns this one; empty if there is none."""
    for reference in place.items("ownerReferences"):
        if reference.flag("controller"):
            group, kind = reference.text("apiVersion").rpartition("/")[0], reference.text("kind")
            return f"{OWNER_KINDS.get((group, kind), kind)}/{namespace}/{reference.text('name')}"
    return ""


def check_spans(reader: Reader) -> None:
    """Report invalid durations in the annotations of an object."""
    if not reader.report.is_recorded:
        return
    notes = reader.down("metadata", "annotations")
    for key in (DURATION, CHECKPOINT, ON_NOTICE):
        positive_span(notes, key)


def positive_span(notes: Reader, key: str) -> Span | None:
    """Read a duration in an annotation; zero or less is reported and ignored."""
    span = notes.span(key)
    if span is not None and span <= 0:
        notes.report.error(notes.at(key), f"{key} is not positive", "write it as 90s, 30m or 1h30m", "bad-span")
        return None
    return span


def max_execution(labels: Reader) -> Span | None:
    """Return Kueue's maximum execution time for a job with these labels."""
    if MAX_EXECUTION not in labels:
        return None
    seconds = whole(labels, MAX_EXECUTION, 1, INT32, "is too large")
    return None if seconds is None else seconds * SECOND


def pod_set(
    place: Reader,
    name: str,
    count: int,
    *,
    restarts: bool = False,
    default_restart_policy: str = "",
    min_count: int | None = None,
    index: str = "",
    subgroup: str = "",
    subgroups: int | None = None,
    key: str = "template",
) -> PodSet:
    """Read a pod set from the template under `key`; `restarts` adds the rule that restartPolicy is required.

    `default_restart_policy` is the one that a webhook writes into a template without one. `index`, `subgroup` and
    `subgroups` are as in `topology_request`.
    """
    template = place.mapping(key)
    if restarts:
        _check_restart_policy(template.mapping("spec"), default_restart_policy)
    read = pod_template(template)
    return PodSet(
        name=name.lower() or "main",
        count=count,
        min_count=min_count,
        template=read if read.restart_policy else replace(read, restart_policy=default_restart_policy),
        topology=topology_request(template, count, index=index, subgroup=subgroup, subgroups=subgroups),
    )


def _check_restart_policy(spec: Reader, default: str) -> None:
    policy = spec.raw("restartPolicy") or default or None
    if policy in ("OnFailure", "Never"):
        return
    problem = "has no restartPolicy" if policy is None else f"has restartPolicy {policy!r:.60}"
    spec.report.refused(
        spec.at("restartPolicy"),
        f'the pod template {problem}: a Job needs one of "OnFailure", "Never"',
        "write restartPolicy: Never (a new pod after a failure) or OnFailure (the same pod starts again)",
        "no-restart-policy",
    )


def pods(place: Reader, key: str, default: int = 1) -> int:
    """Read a number of pods. More than the simulator supports is an error, and clamped."""
    count = place.number(key, default, low=0)
    if count > MOST_PODS:
        place.report.error(
            place.at(key),
            f"{count} pods are more than can be simulated",
            f"ask for at most {MOST_PODS}",
            "too-many-pods",
        )
    return min(count, MOST_PODS)


def phase(reader: Reader, suspended: bool) -> JobPhase:
    """Return the phase in a job's status; a manifest without status is pending or suspended."""
    status = reader.mapping("status")
    for condition in status.items("conditions"):
        if condition.text("status") == "True":
            match condition.text("type"):
                case "Complete" | "Completed" | "Succeeded":
                    return JobPhase.SUCCEEDED
                case "Failed":
                    return JobPhase.FAILED
    if suspended:
        return JobPhase.SUSPENDED
    return JobPhase.RUNNING if "startTime" in status else JobPhase.PENDING
