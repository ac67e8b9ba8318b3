"""batch.volcano.sh Job: tasks that start together, validated by Volcano 1.15's rules."""

from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import Reader, kind_of, shown
from gpuconsole.model.jobs.common import job, pod_set, pods
from gpuconsole.model.jobs.kubeflow import with_priority_class
from gpuconsole.model.jobs.volcano_spec import volcano_spec, volcano_status
from gpuconsole.model.volcano_jobs import VolcanoPhase
from gpuconsole.model.workloads import Job, JobPhase, PodSet

PLUGINS = ("ssh", "svc", "env", "pytorch", "tensorflow", "mpi", "ray", "hcclrank")
EVENTS = (
    *("*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed"),
    *("OutOfSync", "CommandIssued", "JobUpdated"),
)
ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob"),
    *("ResumeJob", "SyncJob"),
)
_FIELDS = (
    *("maxRetry", "minAvailable", "minSuccess", "networkTopology", "plugins", "policies", "priorityClassName"),
    *("queue", "runningEstimate", "schedulerName", "tasks", "ttlSecondsAfterFinished", "volumes"),
)
_TASK_FIELDS = (
    *("dependsOn", "maxRetry", "minAvailable", "name", "partitionPolicy", "policies", "replicas", "template"),
    "topologyPolicy",
)
_PHASES = {
    VolcanoPhase.COMPLETED: JobPhase.SUCCEEDED,
    VolcanoPhase.ABORTED: JobPhase.SUSPENDED,
    **dict.fromkeys((VolcanoPhase.FAILED, VolcanoPhase.TERMINATED), JobPhase.FAILED),
    **dict.fromkeys((VolcanoPhase.RUNNING, VolcanoPhase.COMPLETING), JobPhase.RUNNING),
}


def job_phase(phase: VolcanoPhase) -> JobPhase:
    """What a phase of a Volcano Job is in the words for all jobs; an aborted one can be resumed."""
    return _PHASES.get(phase, JobPhase.PENDING)


def volcano_job(reader: Reader, now: Time) -> Job:
    """A Volcano Job: a gang of minAvailable pods (default: all). Kueue does not manage it; its queue is Volcano's."""
    spec = reader.mapping("spec")
    spec.only(*_FIELDS)
    tasks = _tasks(spec)
    total = sum(task.count for task in tasks)
    least = spec.number("minAvailable", total, low=0)
    if least > total:
        spec.report.refused(
            spec.at("minAvailable"),
            f"minAvailable {least}: job 'minAvailable' should not be greater than total replicas in tasks ({total})",
            f"write {total} or less",
            "bad-min-available",
        )
    _check_plugins(spec)
    _policies(spec)
    volcano = volcano_spec(spec, tasks)
    status = volcano_status(reader.mapping("status"))
    return job(
        reader,
        now,
        "VolcanoJob",
        with_priority_class(tasks, volcano.priority_class),
        queue="",
        gang=True,
        min_available=volcano.min_available,
        backoff_limit=volcano.max_retry,
        phase=job_phase(status.phase),
        volcano=volcano,
        volcano_status=status,
    )


def _tasks(spec: Reader) -> tuple[PodSet, ...]:
    tasks = []
    scheduler = spec.text("schedulerName") or "volcano"
    for position, place in enumerate(spec.items("tasks", 1000)):
        place.only(*_TASK_FIELDS)
        name = place.text("name") or f"default{position}"
        tasks.append(_task(place, name, scheduler))
    unique(spec, "tasks", [task.name for task in tasks], "name", fatal=True)
    if not tasks:
        spec.report.refused(spec.at("tasks"), "No task specified in job spec", "add a task", "required")
    return tuple(tasks)


def _task(place: Reader, name: str, scheduler: str) -> PodSet:
    count = pods(place, "replicas", 0)
    least = place.optional("minAvailable", low=0)
    if least is not None and least > count:
        problem = f"'minAvailable' is greater than 'replicas' in task: {name}"
        place.report.refused(place.at("minAvailable"), problem, f"write {count} or less", "bad-min-available")
    _policies(place)
    task = pod_set(place, name, count)
    if "schedulerName" in place.down("template", "spec"):
        return task
    return replace(task, template=replace(task.template, scheduler_name=scheduler))


def _policies(place: Reader) -> None:
    """Check life-cycle policies: events, actions, and a timeout with a unit."""
    for policy in place.items("policies", 1000):
        policy.only("action", "event", "events", "exitCode", "timeout")
        policy.one_of("action", "", ACTIONS)
        policy.one_of("event", "", EVENTS)
        for position, event in enumerate(policy.texts("events")):
            if event not in EVENTS:
                problem = f"{event!r:.60} is no event"
                policy.report.refused(policy.at("events", position), problem, _listed(EVENTS), "bad-value")
        policy.span("timeout")
        if "exitCode" in policy and ("event" in policy or "events" in policy):
            problem = "must not specify event and exitCode simultaneously"
            policy.report.refused(policy.at("exitCode"), problem, "keep one of them", "bad-policy")


def _listed(words: tuple[str, ...]) -> str:
    return f"it takes {', '.join(words)}"


def _check_plugins(spec: Reader) -> None:
    plugins = spec.mapping("plugins")
    for name, arguments in plugins.value.items():
        if name not in PLUGINS:
            plugins.report.refused(
                plugins.at(name),
                f"unable to find job plugin: {shown(name)}",
                _sla(name) or f"Volcano has the job plugins {', '.join(PLUGINS)}",
                "unknown-plugin",
            )
        if not isinstance(arguments, list):
            plugins.report.refused(
                plugins.at(name), f"{kind_of(arguments)} stands where a list belongs", "write []", "plugin-arguments"
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


def _sla(name: str) -> str:
    if name != "sla":
        return ""
    return "sla is a plugin of Volcano's scheduler: give the job the annotation sla-waiting-time, such as 30m"
