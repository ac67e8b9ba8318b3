"""Volcano's Job (batch.volcano.sh), and JobTemplate and JobFlow (flow.volcano.sh), by Volcano 1.15's rules.

The tasks of a Job start together; its other fields are those that Volcano's mutating webhook leaves (jobs/mutate). A
JobFlow creates Jobs from JobTemplates in the order of their dependencies.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuconsole.model.apiserver.volcano.jobs import check_job, check_job_flow
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import JOB, JOB_FLOW, fits, report
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.metadata import unique
from gpuconsole.model.documents.reader import Reader, kind_of, resources, shown
from gpuconsole.model.job import Flow, FlowRules, Job, JobPhase, TemplateRules
from gpuconsole.model.jobs.common import job, pod_set, pods, seconds
from gpuconsole.model.jobs.kubeflow import with_priority_class
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.volcano import (
    DependsOn,
    JobAction,
    JobEvent,
    JobVolume,
    LifecyclePolicy,
    NetworkTopology,
    PartitionPolicy,
    TaskSpec,
    VolcanoPhase,
    VolcanoSpec,
    VolcanoStatus,
)


def network_topology(place: Reader) -> NetworkTopology | None:
    """Read `networkTopology`; None if absent."""
    if "networkTopology" not in place:
        return None
    asked = place.mapping("networkTopology")
    return NetworkTopology(
        mode=asked.one_of("mode", "", ("hard", "soft")),
        highest_tier=asked.optional("highestTierAllowed"),
        highest_tier_name=asked.text("highestTierName"),
    )


MAX_RETRY = 3
"""Default maxRetry."""
_EVENTS = frozenset(JobEvent)
_ACTIONS = frozenset(JobAction)
_VOLCANO_PHASES = frozenset(VolcanoPhase)
_ON_SERVICE = ("tensorflow", "mpi", "pytorch", "ray")
"""Plugins that find the other pods by the names that the svc plugin gives them."""


def volcano_spec(spec: Reader, pod_sets: Sequence[PodSet]) -> VolcanoSpec:
    """Read a job's spec with the webhook's defaults; `pod_sets` are those of its tasks."""
    tasks = tuple(
        _defaulted(_task_spec(place), pods) for place, pods in zip(spec.items("tasks", 1000), pod_sets, strict=False)
    )
    needed = sum(task.min_available or 0 for task in tasks)
    return VolcanoSpec(
        queue=spec.text("queue") or "default",
        min_available=spec.number("minAvailable", 0, low=0) or needed,
        tasks=tasks,
        policies=_policies(spec),
        plugins=_with_needed(_plugins(spec)),
        max_retry=spec.number("maxRetry", 0, low=0) or MAX_RETRY,
        min_success=spec.optional("minSuccess"),
        ttl=seconds(spec, "ttlSecondsAfterFinished"),
        priority_class=spec.text("priorityClassName"),
        scheduler_name=spec.text("schedulerName") or "volcano",
        network_topology=network_topology(spec),
        volumes=tuple(_volume(place) for place in spec.items("volumes", 1000)),
    )


def _volume(place: Reader) -> JobVolume:
    asked = place.mapping("volumeClaim")
    return JobVolume(
        claim=place.text("volumeClaimName"),
        makes="volumeClaim" in place,
        storage_class=asked.text("storageClassName") if "storageClassName" in asked else None,
        storage=resources(asked.mapping("resources"), "requests").get("storage", 0),
        access_modes=asked.texts("accessModes"),
        volume=asked.text("volumeName"),
    )


def _task_spec(place: Reader) -> TaskSpec:
    return TaskSpec(
        min_available=place.optional("minAvailable", low=0),
        policies=_policies(place),
        max_retry=place.number("maxRetry", 0),
        depends_on=_depends_on(place) if "dependsOn" in place else None,
        partition=_partition(place.mapping("partitionPolicy")) if "partitionPolicy" in place else None,
        topology_policy=place.text("topologyPolicy"),
        priority_class=place.down("template", "spec").text("priorityClassName"),
    )


def _defaulted(task: TaskSpec, pods: PodSet) -> TaskSpec:
    """Default a task's minAvailable to the pods of its minPartitions, or else to all its pods."""
    least = task.min_available
    if least is None:
        parted = task.partition is not None and task.partition.least > 0
        least = task.partition.least * task.partition.size if parted and task.partition is not None else pods.count
    return replace(task, min_available=least, max_retry=task.max_retry or MAX_RETRY)


def _depends_on(place: Reader) -> DependsOn:
    wanted = place.mapping("dependsOn")
    return DependsOn(wanted.texts("name"), wanted.text("iteration") == "any")


def _partition(place: Reader) -> PartitionPolicy:
    return PartitionPolicy(
        total=place.number("totalPartitions", 0),
        size=place.number("partitionSize", 0),
        least=place.number("minPartitions", 0),
        network_topology=network_topology(place),
    )


def _policies(place: Reader) -> tuple[LifecyclePolicy, ...]:
    return tuple(_policy(policy) for policy in place.items("policies", 1000))


def _policy(place: Reader) -> LifecyclePolicy:
    """Read a policy; unknown events are left out, and an unknown action becomes SyncJob."""
    events = (*place.texts("events"), place.text("event"))
    action = place.text("action")
    return LifecyclePolicy(
        action=JobAction(action) if action in _ACTIONS else JobAction.SYNC_JOB,
        events=tuple(dict.fromkeys(JobEvent(event) for event in events if event in _EVENTS)),
        exit_code=place.optional("exitCode"),
        timeout=place.span("timeout"),
    )


def _plugins(spec: Reader) -> dict[str, tuple[str, ...]]:
    """Return plugins with their arguments; arguments that are not strings are left out."""
    return {
        name: tuple(argument for argument in arguments if isinstance(argument, str))
        for name, arguments in spec.mapping("plugins").value.items()
        if isinstance(arguments, list)
    }


def _with_needed(plugins: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Add the plugins on which the given ones depend."""
    needed = dict(plugins)
    if any(name in plugins for name in _ON_SERVICE):
        needed.setdefault("svc", ())
    if "mpi" in plugins:
        needed.setdefault("ssh", ())
    return needed


def volcano_status(status: Reader) -> VolcanoStatus:
    """Read a job's status."""
    state = status.mapping("state")
    phase = state.text("phase")
    conditions = tuple(
        (VolcanoPhase(condition.text("status")), condition.moment("lastTransitionTime") or 0)
        for condition in status.items("conditions")
        if condition.text("status") in _VOLCANO_PHASES
    )
    return VolcanoStatus(
        phase=VolcanoPhase(phase) if phase in _VOLCANO_PHASES else VolcanoPhase.NEW,
        transition=state.moment("lastTransitionTime") or 0,
        conditions=conditions,
        tasks=_counts(status.mapping("taskStatusCount")),
        retry_count=status.number("retryCount", 0),
        version=status.number("version", 0),
        min_available=status.number("minAvailable", 0),
        **{name: status.number(name, 0) for name in ("pending", "running", "succeeded", "failed", "terminating")},
    )


def _counts(place: Reader) -> dict[str, dict[str, int]]:
    found = {}
    for name in place.value:
        phases = place.mapping(name).mapping("phase")
        found[name] = {phase: phases.number(phase, 0) for phase in phases.value}
    return found


_REPORTED_BY_READER = ("duplicate", "bad-resources")
"""Codes of errors that reading the tasks and their pods reports in more detail."""
_FAILURES = frozenset((JobEvent.ANY, JobEvent.POD_FAILED))
_FIELDS = (
    *("maxRetry", "minAvailable", "minSuccess", "networkTopology", "plugins", "policies", "priorityClassName"),
    *("queue", "runningEstimate", "schedulerName", "tasks", "ttlSecondsAfterFinished", "volumes"),
)
_TASK_FIELDS = (
    *("dependsOn", "maxRetry", "minAvailable", "name", "partitionPolicy", "policies", "replicas", "template"),
    "topologyPolicy",
)
_JOB_PHASES = {
    VolcanoPhase.COMPLETED: JobPhase.SUCCEEDED,
    VolcanoPhase.ABORTED: JobPhase.SUSPENDED,
    **dict.fromkeys((VolcanoPhase.FAILED, VolcanoPhase.TERMINATED), JobPhase.FAILED),
    **dict.fromkeys((VolcanoPhase.RUNNING, VolcanoPhase.COMPLETING), JobPhase.RUNNING),
}


def job_phase(phase: VolcanoPhase) -> JobPhase:
    """Return the phase of a Volcano Job as one of all job kinds; an aborted one is suspended, as it can be resumed."""
    return _JOB_PHASES.get(phase, JobPhase.PENDING)


def volcano_job(reader: Reader, now: Time) -> Job:
    """Read a Volcano Job: a gang of minAvailable pods, in a queue of Volcano, not Kueue.

    By default minAvailable is the sum of that of its tasks.
    """
    tasks, volcano = job_parts(reader)
    status = volcano_status(reader.mapping("status"))
    return job(
        reader,
        now,
        "VolcanoJob",
        tasks,
        queue="",
        min_available=volcano.min_available,
        backoff_limit=volcano.max_retry,
        phase=job_phase(status.phase),
        volcano=volcano,
        volcano_status=status,
    )


def job_parts(place: Reader, name: str = "") -> tuple[tuple[PodSet, ...], VolcanoSpec]:
    """Read the tasks of a Volcano Job, or of a template of one, and its other fields.

    `name` is the name of a Job that is created from a template.
    """
    spec = place.mapping("spec")
    spec.only(*_FIELDS)
    tasks = _tasks(spec)
    _check_fields(spec)
    value = {**place.value, "metadata": {**place.mapping("metadata").value, "name": name}} if name else place.value
    if fits(value, JOB):
        own = (objection for objection in check_job(value) if objection.code not in _REPORTED_BY_READER)
        report(place.report, place.path, own)
    volcano = volcano_spec(spec, tasks)
    if tasks and not _handles_failures(volcano):
        problem = "no policy says what to do when a pod fails: it is not recreated, and the others wait for it"
        remedy = "add the policy {event: PodFailed, action: RestartJob}, or RestartTask or RestartPod"
        spec.report.note(spec.at("policies"), problem, remedy, "no-failure-policy")
    return with_priority_class(tasks, volcano.priority_class), volcano


def _handles_failures(volcano: VolcanoSpec) -> bool:
    policies = [*volcano.policies, *(policy for task in volcano.tasks for policy in task.policies)]
    return any(_FAILURES.intersection(policy.events) or policy.exit_code is not None for policy in policies)


def _tasks(spec: Reader) -> tuple[PodSet, ...]:
    tasks = []
    scheduler = spec.text("schedulerName") or "volcano"
    for position, place in enumerate(spec.items("tasks", 1000)):
        place.only(*_TASK_FIELDS)
        name = place.text("name") or f"default{position}"
        tasks.append(_task(place, name, scheduler))
    unique(spec, "tasks", [task.name for task in tasks], "name", fatal=True)
    return tuple(tasks)


def _task(place: Reader, name: str, scheduler: str) -> PodSet:
    count = pods(place, "replicas", 0)
    _check_policy_fields(place)
    task = pod_set(place, name, count)
    if "schedulerName" in place.down("template", "spec"):
        return task
    return replace(task, template=replace(task.template, scheduler_name=scheduler))


def _check_policy_fields(place: Reader) -> None:
    for policy in place.items("policies", 1000):
        policy.only("action", "event", "events", "exitCode", "timeout")
        policy.span("timeout")


def _check_fields(spec: Reader) -> None:
    """Check the types in policies and plugins."""
    _check_policy_fields(spec)
    plugins = spec.mapping("plugins")
    for name, arguments in plugins.value.items():
        if not isinstance(arguments, list):
            plugins.report.refused(
                plugins.at(name), f"expected a list, found {kind_of(arguments)}", "write []", "plugin-arguments"
            )
            continue
        wrong = [position for position, argument in enumerate(arguments) if not isinstance(argument, str)]
        if wrong:
            plugins.report.refused(
                plugins.at(name, wrong[0]),
                f"the arguments of plugin {shown(name)} are {_what(arguments, wrong)}, not a list of texts",
                'write arguments as texts, such as ["--port=2222"]',
                "plugin-arguments",
            )


def _what(arguments: list[object], wrong: list[int]) -> str:
    maps = all(isinstance(arguments[position], dict) for position in wrong)
    return "a list of maps" if maps else f"a list with {kind_of(arguments[wrong[0]])}"


MOST_FLOWS = 1000
RETAIN = ("retain", "delete")
"""Values of jobRetainPolicy: the Jobs are kept, or deleted once all of them are completed."""
_FLOW_PHASES = {"Succeed": JobPhase.SUCCEEDED, "Failed": JobPhase.FAILED, "Running": JobPhase.RUNNING}
"""Phase in its status (flow.volcano.sh/v1alpha1 Phase) → phase of the job."""


def job_template(reader: Reader, now: Time) -> Job:
    """Read a JobTemplate: the spec of a Volcano Job, which only JobFlows run."""
    tasks, volcano = job_parts(reader)
    rules = TemplateRules(volcano=volcano)
    return job(reader, now, "JobTemplate", tasks, queue="", rules=rules, backoff_limit=volcano.max_retry)


def job_flow(reader: Reader, now: Time) -> Job:
    """Read a JobFlow: JobTemplates of its namespace, and their dependencies."""
    spec = reader.mapping("spec")
    spec.only("flows", "jobRetainPolicy")
    flows = tuple(_flow(place) for place in spec.items("flows", MOST_FLOWS))
    unique(spec, "flows", [flow.template for flow in flows], "name")
    if fits(reader.value, JOB_FLOW):
        report(reader.report, reader.path, check_job_flow(reader.value))
    rules = FlowRules(flows=flows, deletes=spec.one_of("jobRetainPolicy", "retain", RETAIN) == "delete")
    state = _FLOW_PHASES.get(reader.mapping("status").mapping("state").text("phase"), JobPhase.PENDING)
    return job(reader, now, "JobFlow", (), queue="", rules=rules, phase=state)


def _flow(place: Reader) -> Flow:
    place.only("name", "dependsOn", "patch")
    needs = place.mapping("dependsOn")
    needs.only("targets", "probe")
    return Flow(place.required("name"), needs.texts("targets", MOST_FLOWS))
