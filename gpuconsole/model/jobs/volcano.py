"""batch.volcano.sh Job: tasks that start together, validated by Volcano 1.15's rules."""

from msgspec.structs import replace

from gpuconsole.model.apiserver.volcano.jobs import check_job
from gpuconsole.model.apiserver.volcano.objections import report
from gpuconsole.model.apiserver.volcano.shapes import JOB, fits
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import Reader, kind_of, shown
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs.common import job, pod_set, pods
from gpuconsole.model.jobs.kubeflow import with_priority_class
from gpuconsole.model.jobs.volcano_spec import volcano_spec, volcano_status
from gpuconsole.model.pod_sets import PodSet
from gpuconsole.model.volcano_jobs import JobEvent, VolcanoPhase, VolcanoSpec

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
_PHASES = {
    VolcanoPhase.COMPLETED: JobPhase.SUCCEEDED,
    VolcanoPhase.ABORTED: JobPhase.SUSPENDED,
    **dict.fromkeys((VolcanoPhase.FAILED, VolcanoPhase.TERMINATED), JobPhase.FAILED),
    **dict.fromkeys((VolcanoPhase.RUNNING, VolcanoPhase.COMPLETING), JobPhase.RUNNING),
}


def job_phase(phase: VolcanoPhase) -> JobPhase:
    """Return the phase of a Volcano Job in terms of all jobs; an aborted one is suspended, because it can be
    resumed.
    """
    return _PHASES.get(phase, JobPhase.PENDING)


def volcano_job(reader: Reader, now: Time) -> Job:
    """Read a Volcano Job: a gang of minAvailable pods (default: those of all tasks), in a queue of Volcano, not
    Kueue.
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
    if tasks and not _minds_failures(volcano):
        problem = "no policy says what to do when a pod fails: it is not recreated, and the others wait for it"
        remedy = "add the policy {event: PodFailed, action: RestartJob}, or RestartTask or RestartPod"
        spec.report.note(spec.at("policies"), problem, remedy, "no-failure-policy")
    return with_priority_class(tasks, volcano.priority_class), volcano


def _minds_failures(volcano: VolcanoSpec) -> bool:
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
