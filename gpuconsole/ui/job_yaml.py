"""Manifests of jobs of every kind, Volcano Jobs (batch.volcano.sh/v1alpha1) included: metadata, spec and status."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND, format_exactly, format_time
from gpuconsole.model.job import (
    BatchRules,
    BatchStatus,
    CronRules,
    FailureRule,
    Flow,
    FlowRules,
    GroupRules,
    Job,
    JobPhase,
    LaunchRules,
    PodPatch,
    ReplicaRules,
    TemplateRules,
    TrainRules,
)
from gpuconsole.model.jobs.applications import COPIED
from gpuconsole.model.jobs.batch import MIN_PARALLELISM, count_numbers
from gpuconsole.model.jobs.kubeflow import ALL as KUBEFLOW
from gpuconsole.model.jobs.kubeflow import Replicas
from gpuconsole.model.jobs.workloads import (
    CHECKPOINT,
    DURATION,
    LWS_GROUP,
    MAX_EXECUTION,
    POD_GROUP,
    PRIORITY_CLASS,
    QUEUE,
    SUSPENDED_BY,
)
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.resources import CPU, MEMORY
from gpuconsole.model.volcano import (
    LifecyclePolicy,
    NetworkTopology,
    PartitionPolicy,
    TaskSpec,
    VolcanoSpec,
    VolcanoStatus,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.ui.pod_yaml import Fields, amounts, asked_topology, present, template_fields, toleration_fields

_COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "version")


def volcano_manifest(job: Job, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The job with its tasks, policies, plugins and status; empty fields are omitted."""
    assert job.volcano is not None
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": volcano_job_spec(job.volcano, job.pod_sets),
        **present(status=_status(job.volcano_status)),
    }


def volcano_job_spec(spec: VolcanoSpec, pod_sets: Sequence[PodSet]) -> dict[str, Any]:
    """The spec of a Volcano Job, or of the template of one."""
    tasks = [_task(pods, own) for pods, own in zip(pod_sets, spec.tasks, strict=False)]
    return {**_spec(spec), "tasks": tasks}


def _spec(spec: VolcanoSpec) -> dict[str, Any]:
    return present(
        schedulerName=spec.scheduler_name,
        queue=spec.queue,
        priorityClassName=spec.priority_class,
        minAvailable=spec.min_available,
        minSuccess=spec.min_success,
        maxRetry=spec.max_retry,
        ttlSecondsAfterFinished=None if spec.ttl is None else spec.ttl // SECOND,
        networkTopology=network_topology_fields(spec.network_topology),
        plugins={name: list(arguments) for name, arguments in spec.plugins.items()},
        policies=[_policy(policy) for policy in spec.policies],
    )


def _task(pods: PodSet, own: TaskSpec) -> dict[str, Any]:
    # The class of the job stands in the job; in our model also in each template without one.
    template = template_fields(replace(pods.template, priority_class=own.priority_class))
    wanted = own.depends_on
    depends = None
    if wanted is not None:
        depends = present(name=list(wanted.tasks), iteration="any" if wanted.any else "")
    return {
        "name": pods.name,
        "replicas": pods.count,
        **present(
            minAvailable=own.min_available,
            maxRetry=own.max_retry,
            dependsOn=depends,
            topologyPolicy=own.topology_policy,
            partitionPolicy=_partition(own.partition),
            policies=[_policy(policy) for policy in own.policies],
            template=template,
        ),
    }


def _policy(policy: LifecyclePolicy) -> dict[str, Any]:
    return present(
        action=policy.action.value,
        events=[event.value for event in policy.events],
        exitCode=policy.exit_code,
        timeout=None if policy.timeout is None else format_exactly(policy.timeout),
    )


def _partition(policy: PartitionPolicy | None) -> dict[str, Any]:
    if policy is None:
        return {}
    return present(
        totalPartitions=policy.total,
        partitionSize=policy.size,
        minPartitions=policy.least,
        networkTopology=network_topology_fields(policy.network_topology),
    )


def network_topology_fields(asked: NetworkTopology | None) -> dict[str, Any]:
    """Return the networkTopology field of a job, a partition or a PodGroup; empty if none is requested."""
    if asked is None:
        return {}
    return present(mode=asked.mode, highestTierAllowed=asked.highest_tier, highestTierName=asked.highest_tier_name)


def _status(status: VolcanoStatus) -> dict[str, Any]:
    since = format_time(status.transition) if status.transition else ""
    return present(
        state=present(phase=status.phase.value, lastTransitionTime=since),
        **{name: getattr(status, name) or None for name in _COUNTS},
        retryCount=status.retry_count or None,
        minAvailable=status.min_available or None,
        taskStatusCount={name: {"phase": dict(phases)} for name, phases in status.tasks.items()},
        conditions=[
            {"status": phase.value, "lastTransitionTime": format_time(time)} for phase, time in status.conditions
        ],
    )


_KUBEFLOW: Mapping[str, Replicas] = {kind.kind: kind for kind in KUBEFLOW}
_NO_CONTROLLER = ("StatefulSet", "LeaderWorkerSet")
"""Kinds that own their Workloads without controlling them."""


def owner_references(workload: Workload, versions: Mapping[str, str]) -> list[Fields]:
    """Return the owner references of a Workload; empty for a pod group, whose owners are its pods."""
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


def job_metadata(job: Job) -> Fields:
    """Return a job's labels and annotations, those for queue, priority class, time limit and duration included."""
    limit = "" if job.max_execution_time is None else str(job.max_execution_time // SECOND)
    labels = {QUEUE: job.queue, PRIORITY_CLASS: job.workload_priority_class, MAX_EXECUTION: limit}
    least = [pods.min_count for pods in job.pod_sets if pods.min_count is not None]
    notes = {
        DURATION: "" if job.duration is None else format_exactly(job.duration),
        CHECKPOINT: "" if job.checkpoint_interval is None else format_exactly(job.checkpoint_interval),
        MIN_PARALLELISM: str(least[0]) if least and job.kind == "Job" else "",
    }
    if job.endless:
        del notes[DURATION]
    if isinstance(job.rules, CronRules) and job.rules.makes != "SparkApplication":
        # They stand in its jobTemplate: it is the Jobs that it makes which take so long.
        notes = {}
    return present(
        labels={**{key: text for key, text in labels.items() if text}, **job.labels},
        annotations={**{key: text for key, text in notes.items() if text}, **job.annotations},
    )


def job_spec(job: Job) -> Fields:
    """The spec of a job in its kind's form. A kind without a known manifest shows its pod sets."""
    match job.kind:
        case "Job":
            rules = job.rules if isinstance(job.rules, BatchRules) else BatchRules(completions=_pods(job))
            return {**_suspended(job), **_backoff(job, 6), **_batch(job, rules), **_main(job, "Never")}
        case "CronJob" if isinstance(job.rules, CronRules):
            return {**_suspended(job), **_cron(job, job.rules)}
        case "RayCronJob" if isinstance(job.rules, CronRules):
            return {**_suspended(job), **_times(job.rules), "jobTemplate": _ray_job(replace(job, suspended=False))}
        case "VolcanoCronJob" if isinstance(job.rules, CronRules) and job.rules.volcano is not None:
            spec = volcano_job_spec(job.rules.volcano, job.pod_sets)
            return {
                **_suspended(job),
                **_times(job.rules),
                **_history(job.rules),
                "jobTemplate": _template(job.rules, spec),
            }
        case "ScheduledSparkApplication" if isinstance(job.rules, CronRules) and len(job.pod_sets) == 2:
            return {
                **_suspended(job),
                **_times(job.rules),
                "concurrencyPolicy": job.rules.concurrency.value,
                "successfulRunHistoryLimit": job.rules.keep_succeeded,
                "failedRunHistoryLimit": job.rules.keep_failed,
                "template": _spark(replace(job, suspended=False)),
            }
        case "JobTemplate" if isinstance(job.rules, TemplateRules):
            return volcano_job_spec(job.rules.volcano, job.pod_sets)
        case "JobFlow" if isinstance(job.rules, FlowRules):
            retain = {"jobRetainPolicy": "delete"} if job.rules.deletes else {}
            return {"flows": [_flow(flow) for flow in job.rules.flows], **retain}
        case "JobSet":
            restarts = present(failurePolicy=present(maxRestarts=job.backoff_limit or None))
            return {**_suspended(job), **restarts, "replicatedJobs": [_replicated(pods) for pods in job.pod_sets]}
        case kind if kind in _KUBEFLOW:
            return _kubeflow(job, _KUBEFLOW[kind])
        case "RayJob":
            return _ray_job(job)
        case "RayCluster":
            return {**_suspended(job), **_ray_cluster(job.pod_sets)}
        case "RayService":
            return {"rayClusterConfig": {**({"suspend": True} if job.suspended else {}), **_ray_cluster(job.pod_sets)}}
        case "Deployment" | "ReplicaSet" | "StatefulSet":
            return _replicas(job)
        case "LeaderWorkerSet" if isinstance(job.rules, GroupRules):
            return _groups(job, job.rules)
        case "SparkApplication" if len(job.pod_sets) == 2:
            return _spark(job)
        case "AppWrapper":
            return {**_suspended(job), "components": _components(job)}
        case "TrainJob" if isinstance(job.rules, TrainRules):
            return {**_suspended(job), **_train(job.rules)}
        case _:
            return present(podSets=[{"name": pods.name, "count": pods.count, **_pod(pods)} for pods in job.pod_sets])


def _pods(job: Job) -> int:
    return job.pod_sets[0].count if job.pod_sets else 0


def _suspended(job: Job) -> Fields:
    return {"suspend": True} if job.suspended and SUSPENDED_BY.get(job.kind) == ("suspend",) else {}


def _backoff(job: Job, default: int) -> Fields:
    return present(backoffLimit=None if job.backoff_limit == default else job.backoff_limit)


def _pod(pods: PodSet, restart: str = "", labels: Mapping[str, str] | None = None) -> Fields:
    """The template of a pod set, with the annotations that make its topology request."""
    written = template_fields(pods.template, restart=restart, labels=labels)
    if asked := asked_topology(pods):
        meta = written.get("metadata", {})
        written = {"metadata": {**meta, "annotations": {**meta.get("annotations", {}), **asked}}, **_spec_of(written)}
    return {"template": written}


def _spec_of(written: Fields) -> Fields:
    return {"spec": written["spec"]}


def _main(job: Job, restart: str) -> Fields:
    return _pod(job.pod_sets[0] if job.pod_sets else PodSet(), restart)


def _spark(job: Job) -> Fields:
    """A SparkApplication; fields that Kueue does not count are unknown."""
    driver, executor = job.pod_sets
    retries = {"type": "OnFailure", "onFailureRetries": job.backoff_limit} if job.backoff_limit else {"type": "Never"}
    return {
        **_suspended(job),
        "type": "Scala",
        "mode": "cluster",
        "restartPolicy": retries,
        "driver": _spark_role(driver),
        "executor": {"instances": executor.count, **_spark_role(executor)},
    }


def _spark_role(pods: PodSet) -> Fields:
    """A driver or an executor: the requests of its container, and other fields of its pods."""
    written = template_fields(pods.template)
    spec, (main, *sidecars) = written["spec"], written["spec"]["containers"]
    resources = main.get("resources", {})
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    gpu = next((name for name in limits if name not in (CPU, MEMORY)), "")
    return present(
        coreRequest=requests.get(CPU),
        coreLimit=limits.get(CPU),
        memory=requests.get(MEMORY),
        memoryLimit=limits.get(MEMORY),
        gpu={"name": gpu, "quantity": int(limits[gpu])} if gpu else {},
        sidecars=sidecars,
        labels=dict(pods.template.labels),
        annotations={**pods.template.annotations, **asked_topology(pods)},
        **{key: spec[key] for key in COPIED if key in spec},
    )


def _components(job: Job) -> list[Fields]:
    """Components that make the pods of an AppWrapper: a JobSet, or Deployments for what serves."""
    if isinstance(job.rules, ReplicaRules):
        return [
            {"template": _inner("apps/v1", "Deployment", pods.name, {"replicas": pods.count, **_pod(pods)})}
            for pods in job.pod_sets
        ]
    spec = {"replicatedJobs": [_replicated(pods) for pods in job.pod_sets]}
    return [{"template": _inner("jobset.x-k8s.io/v1alpha2", "JobSet", job.name, spec)}]


def _inner(version: str, kind: str, name: str, spec: Fields) -> Fields:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _replicated(pods: PodSet) -> Fields:
    """A replicated job: as many Jobs as its pods have subgroups, a part of the pods each."""
    replicas = (pods.topology.subgroup_count if pods.topology is not None else None) or 1
    if pods.count % replicas:
        replicas = 1
    each = pods.count // replicas
    inner = {"parallelism": each, "completions": each, **_pod(pods, "OnFailure")}
    return {"name": pods.name, "replicas": replicas, "template": {"spec": inner}}


def _kubeflow(job: Job, kind: Replicas) -> Fields:
    rules = job.rules if isinstance(job.rules, LaunchRules) else LaunchRules()
    policy = {
        **({"suspend": True} if job.suspended else {}),
        **_backoff(job, 6),
        **_seconds(ttlSecondsAfterFinished=rules.ttl, activeDeadlineSeconds=rules.deadline),
        **present(schedulingPolicy=present(minAvailable=job.min_available)),
    }
    types = {type.lower(): type for type in kind.types}
    parts = {types.get(pods.name, pods.name.title()): {"replicas": pods.count, **_pod(pods)} for pods in job.pod_sets}
    return {**present(runPolicy=policy), kind.field: parts}


def _ray_job(job: Job) -> Fields:
    parts = {pods.name: pods for pods in job.pod_sets}
    submitter = parts.pop("submitter", None)
    submission = {"submitterPodTemplate": _pod(submitter, "Never")["template"]} if submitter is not None else {}
    if not parts:
        # One that uses an existing cluster has no pods but those of its submitter.
        return {**_suspended(job), "clusterSelector": {}, **submission}
    return {
        **_suspended(job),
        "shutdownAfterJobFinishes": True,
        **_backoff(job, 0),
        **(submission or {"submissionMode": "HTTPMode"}),
        "rayClusterSpec": _ray_cluster(tuple(parts.values())),
    }


def _ray_cluster(parts: Sequence[PodSet]) -> Fields:
    head = next((pods for pods in parts if pods.name == "head"), None)
    groups = [
        {
            "groupName": pods.name,
            "replicas": pods.count,
            "minReplicas": pods.count,
            "maxReplicas": pods.count,
            **_pod(pods),
        }
        for pods in parts
        if pods is not head
    ]
    return present(headGroupSpec=None if head is None else _pod(head), workerGroupSpecs=groups)


def _replicas(job: Job) -> Fields:
    """Replicas with a selector for the labels of their template; without labels, the job's name is one."""
    pods = job.pod_sets[0] if job.pod_sets else PodSet()
    labels = dict(pods.template.labels) or {"app": job.name}
    parallel = isinstance(job.rules, ReplicaRules) and not job.rules.ordered and job.kind == "StatefulSet"
    return {
        "replicas": sum(part.count for part in job.pod_sets),
        **({"podManagementPolicy": "Parallel"} if parallel else {}),
        "selector": {"matchLabels": labels},
        **_pod(pods, labels=labels),
    }


def _groups(job: Job, rules: GroupRules) -> Fields:
    *leaders, worker = job.pod_sets or (PodSet(),)
    group = {
        "size": sum(pods.count for pods in job.pod_sets),
        "restartPolicy": "RecreateGroupOnPodRestart" if rules.recreate else "None",
        **({"leaderTemplate": _pod(leaders[0])["template"]} if leaders else {}),
        "workerTemplate": _pod(worker)["template"],
    }
    return {"replicas": rules.replicas, "leaderWorkerTemplate": group}


def _train(rules: TrainRules) -> Fields:
    needs = None if rules.requests is None else present(requests=amounts(rules.requests), limits=amounts(rules.limits))
    return {
        "runtimeRef": {"kind": rules.kind, "name": rules.runtime},
        **_seconds(activeDeadlineSeconds=rules.deadline),
        **present(
            trainer=present(numNodes=rules.nodes, image=rules.image, resourcesPerNode=needs),
            podTemplateOverrides=[_patch(patch) for patch in rules.patches],
        ),
    }


def _patch(patch: PodPatch) -> Fields:
    spec = present(
        nodeSelector=dict(patch.node_selector), tolerations=[toleration_fields(one) for one in patch.tolerations]
    )
    meta = present(labels=dict(patch.labels), annotations=dict(patch.annotations))
    return {"targetJobs": [{"name": name} for name in patch.jobs], **present(metadata=meta, spec=spec)}


def job_status(job: Job) -> Fields:
    """The status of a job: start, end, and the last Job of a CronJob."""
    if isinstance(job.rules, CronRules):
        last = job.rules.last
        return {} if last is None else {"lastScheduleTime": format_time(last)}
    counted = job.kind == "Job"
    return {
        **present(startTime=format_time(job.started) if job.started else None),
        **present(completionTime=format_time(job.finished) if counted and job.phase is JobPhase.SUCCEEDED else None),
        **(_progress(job.batch, indexed=isinstance(job.rules, BatchRules) and job.rules.indexed) if counted else {}),
        **present(failed=job.failures if counted and job.failures else None, conditions=_ended(job)),
    }


def _ended(job: Job) -> list[Fields]:
    if not job.ended:
        return []
    done = {"Job": "Complete", "JobSet": "Completed"}.get(job.kind, "Succeeded")
    type = done if job.phase is JobPhase.SUCCEEDED else "Failed"
    return [{"type": type, "status": "True", **present(lastTransitionTime=format_time(job.finished))}]


def _progress(status: BatchStatus, *, indexed: bool) -> Fields:
    done = count_numbers((status.completed,), 2**31)
    indexes = present(completedIndexes=status.completed, failedIndexes=status.failed) if indexed else {}
    return {**present(succeeded=done or None), **indexes}


def _batch(job: Job, rules: BatchRules) -> Fields:
    return {
        "parallelism": _pods(job),
        **present(completions=rules.completions, completionMode="Indexed" if rules.indexed else None),
        **present(backoffLimitPerIndex=rules.limit_per_index, maxFailedIndexes=rules.most_failed),
        **_seconds(activeDeadlineSeconds=rules.deadline, ttlSecondsAfterFinished=rules.ttl),
        **present(
            podFailurePolicy=present(rules=[_failure_rule(rule) for rule in rules.failure_rules]),
            successPolicy=present(
                rules=[
                    present(succeededIndexes=rule.indexes, succeededCount=rule.count) for rule in rules.success_rules
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
    spec = {**_backoff(job, 6), **_batch(job, rules.batch), **_main(job, "Never")}
    return {**_times(rules), **_history(rules), "jobTemplate": _template(rules, spec)}


def _flow(flow: Flow) -> Fields:
    return {"name": flow.template, **present(dependsOn=present(targets=list(flow.targets)))}


def _times(rules: CronRules) -> Fields:
    return {"schedule": rules.schedule, **present(timeZone=rules.time_zone)}


def _history(rules: CronRules) -> Fields:
    return {
        "concurrencyPolicy": rules.concurrency.value,
        **_seconds(startingDeadlineSeconds=rules.starting_deadline),
        "successfulJobsHistoryLimit": rules.keep_succeeded,
        "failedJobsHistoryLimit": rules.keep_failed,
    }


def _template(rules: CronRules, spec: Fields) -> Fields:
    """The template of the Jobs of a CronJob."""
    metadata = present(labels=_made(rules), annotations=dict(rules.annotations))
    return {**present(metadata=metadata), "spec": spec}


def _made(rules: CronRules) -> Fields:
    """Labels of the Jobs that a CronJob creates."""
    limit = "" if rules.max_execution_time is None else str(rules.max_execution_time // SECOND)
    said = {QUEUE: rules.queue, PRIORITY_CLASS: rules.priority_class, MAX_EXECUTION: limit}
    return {**{key: text for key, text in said.items() if text}, **rules.labels}


def _seconds(**spans: int | None) -> Fields:
    return {name: span // SECOND for name, span in spans.items() if span is not None}
