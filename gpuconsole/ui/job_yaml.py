"""What kinds of jobs say beyond their pods, and whom Workloads belong to, as their manifests write it."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.clock import SECOND, format_time
from gpuconsole.model.intervals import count
from gpuconsole.model.job import Job
from gpuconsole.model.job_rules import (
    BatchRules,
    BatchStatus,
    CronRules,
    FailureRule,
    GroupRules,
    LaunchRules,
    MemberRules,
    ReplicaRules,
    TrainRules,
)
from gpuconsole.model.jobs.naming import LWS_GROUP, POD_GROUP
from gpuconsole.model.workloads import Workload

Fields = dict[str, Any]
_NO_CONTROLLER = ("StatefulSet", "LeaderWorkerSet")
"""Kinds that own their Workloads without controlling them."""


def owner_references(workload: Workload, versions: Mapping[str, str]) -> list[Fields]:
    """The owner of a Workload; a pod group has none by name, as its pods are the owners."""
    kind, _, rest = workload.owner.partition("/")
    name = rest.rpartition("/")[2]
    if not kind or kind == POD_GROUP:
        return []
    if kind == LWS_GROUP:
        kind, name = "LeaderWorkerSet", name.rpartition("-")[0]
    owner = {"apiVersion": versions.get(kind, "v1"), "kind": kind, "name": name}
    if kind == "VolcanoJob":
        owner |= {"kind": "Job"}
    control = {} if kind in _NO_CONTROLLER else {"controller": True, "blockOwnerDeletion": True}
    return [{**owner, **({"uid": workload.job_uid} if workload.job_uid else {}), **control}]


def own_spec(job: Job) -> Fields:
    """The fields of a job's spec that its kind alone has."""
    match job.rules:
        case BatchRules() as rules:
            return _batch(job, rules)
        case ReplicaRules(ordered=ordered) if job.kind in ("Deployment", "StatefulSet"):
            parallel = {"podManagementPolicy": "Parallel"} if job.kind == "StatefulSet" and not ordered else {}
            return {"replicas": sum(part.count for part in job.pod_sets), **parallel}
        case GroupRules(replicas=replicas, recreate=recreate):
            policy = "RecreateGroupOnPodRestart" if recreate else "None"
            return {"replicas": replicas, "restartPolicy": policy}
        case CronRules() as rules:
            return _cron(job, rules)
        case LaunchRules(ttl=ttl, deadline=deadline):
            return _seconds(ttlSecondsAfterFinished=ttl, activeDeadlineSeconds=deadline)
        case TrainRules(kind=kind, runtime=runtime, nodes=nodes):
            return {"runtimeRef": {"kind": kind, "name": runtime}, **_present(trainer=_present(numNodes=nodes))}
        case MemberRules() | ReplicaRules() | None:
            return {}


def own_status(job: Job) -> Fields:
    """How far a Job is, and when a CronJob made one last."""
    if isinstance(job.rules, CronRules):
        last = job.rules.last
        return {} if last is None else {"lastScheduleTime": format_time(last)}
    return _progress(job.batch, indexed=isinstance(job.rules, BatchRules) and job.rules.indexed)


def _progress(status: BatchStatus, *, indexed: bool) -> Fields:
    done = count((status.completed,), 2**31)
    indexes = _present(completedIndexes=status.completed, failedIndexes=status.failed) if indexed else {}
    return {**_present(succeeded=done or None), **indexes}


def _batch(job: Job, rules: BatchRules) -> Fields:
    return {
        "parallelism": job.pod_sets[0].count if job.pod_sets else 0,
        **_present(completions=rules.completions, completionMode="Indexed" if rules.indexed else None),
        **_present(backoffLimitPerIndex=rules.limit_per_index, maxFailedIndexes=rules.most_failed),
        **_seconds(activeDeadlineSeconds=rules.deadline, ttlSecondsAfterFinished=rules.ttl),
        **_present(
            podFailurePolicy=_present(rules=[_failure_rule(rule) for rule in rules.failure_rules]),
            successPolicy=_present(
                rules=[
                    _present(succeededIndexes=rule.indexes, succeededCount=rule.count) for rule in rules.success_rules
                ]
            ),
        ),
    }


def _failure_rule(rule: FailureRule) -> Fields:
    if rule.conditions:
        return {"action": rule.action, "onPodConditions": [{"type": type} for type in rule.conditions]}
    operator = "NotIn" if rule.excluded else "In"
    return {"action": rule.action, "onExitCodes": {"operator": operator, "values": list(rule.exit_codes)}}


def _cron(job: Job, rules: CronRules) -> Fields:
    return {
        "schedule": rules.schedule,
        **_present(timeZone=rules.time_zone),
        "concurrencyPolicy": rules.concurrency.value,
        **_seconds(startingDeadlineSeconds=rules.starting_deadline),
        "successfulJobsHistoryLimit": rules.keep_succeeded,
        "failedJobsHistoryLimit": rules.keep_failed,
        "jobTemplate": {
            **_present(metadata=_present(labels=dict(rules.labels), annotations=dict(rules.annotations))),
            "spec": _batch(job, rules.batch),
        },
    }


def _seconds(**spans: int | None) -> Fields:
    return {name: span // SECOND for name, span in spans.items() if span is not None}


def _present(**values: Any) -> Fields:
    return {name: value for name, value in values.items() if value not in (None, "", {}, [], ())}
