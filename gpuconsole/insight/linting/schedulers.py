"""Lint rules for Volcano's and KAI's configuration and queues, names without effect, and comments.

Volcano: a configuration without plugins or actions that its jobs need. KAI: gangs that exceed the limit or quota of
their queue, or of a queue above it. Names: queues of another scheduler, and undefined priority classes. Comments: an
effect that the field does not have.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.linting.facts import VOLCANO_QUEUES, LintFacts, LintFinding, LintLevel, Work
from gpuconsole.model.cluster import SYSTEM_PRIORITIES, Pod, default_class
from gpuconsole.model.documents.findings import Path, Severity, path_text
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import PRIORITY_CLASS, QUEUE
from gpuconsole.model.kai import KaiPodGroup
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.resources import is_gpu, is_mig
from gpuconsole.scheduling.kai.api.tasks import PodInfo
from gpuconsole.scheduling.kai.cluster_info import group_priority, is_preemptible, job_of, queues_of, template_task
from gpuconsole.scheduling.kai.config import QUEUE_LABEL, KaiPolicy, SchedulerFlags
from gpuconsole.scheduling.kai.fair_share.division import QueueShares, new_queue_shares
from gpuconsole.scheduling.kai.fair_share.reclaimable import OverCapacity, find_exceeded_capacity, requested_by_tasks
from gpuconsole.scheduling.kai.messages import OVER_LIMIT
from gpuconsole.scheduling.volcano.config import EVICTING_ACTIONS, VolcanoConfiguration

WAITING_TIME = "sla-waiting-time"
_LEVELS = {Severity.ERROR: LintLevel.ERROR, Severity.WARNING: LintLevel.WARNING, Severity.NOTE: LintLevel.NOTE}
_OWN = ("never-preempts", "conflict", "binpack-without-gpus")
"""Codes of the configuration reader whose severity is decided here."""
NEVER_CANCELS = "sla never cancels a job: after the waiting time Volcano enqueues it and reserves nodes for it"


def lint_scheduler(facts: LintFacts) -> Iterator[LintFinding]:
    """Find errors in volcano-scheduler.conf, if it is known, and in Volcano Jobs."""
    read = facts.engines.volcano
    if read is not None:
        for one in read.findings:
            if one.code not in _OWN:
                yield LintFinding(
                    code=one.code,
                    level=_LEVELS[one.severity],
                    object=facts.engines.volcano_name,
                    problem=f"{one.path}: {one.problem}" if one.path else one.problem,
                    fix=one.remedy,
                    line=one.line,
                )
        lines = {one.path: one.line for one in read.findings}
        for found in _configuration(facts, read.configuration):
            yield replace(found, line=lines.get(path_text(found.path), 0) if facts.engines.own_file else 0)
    for work in facts.work:
        if isinstance(work.obj, Job):
            yield from _sla(facts, work.obj, work.object)


def _configuration(facts: LintFacts, conf: VolcanoConfiguration) -> Iterator[LintFinding]:
    name, actions = facts.engines.volcano_name, conf.actions
    plugins = {option.name: option for tier in conf.tiers for option in tier}
    said = ", ".join(actions)
    if not set(actions) & set(EVICTING_ACTIONS) and _counts_on_eviction(facts):
        yield LintFinding(
            code="volcano-never-preempts",
            level=LintLevel.WARNING,
            object=name,
            path=("actions",),
            problem="nothing is ever preempted or reclaimed: priorities and shares only order pending jobs",
            evidence={"actions": said},
            fix="add preempt (inside a queue) and reclaim (between queues) to the actions",
        )
    if {"preempt", "reclaim"} & set(actions) and {"gangpreempt", "gangreclaim"} & set(actions):
        yield LintFinding(
            code="two-ways-of-evicting",
            level=LintLevel.ERROR,
            object=name,
            path=("actions",),
            problem="preempt and reclaim evict tasks, gangpreempt and gangreclaim evict gangs: only one pair is needed",
            evidence={"actions": said},
            fix="keep preempt and reclaim, or gangpreempt and gangreclaim",
        )
    if "proportion" in plugins and "capacity" in plugins:
        yield LintFinding(
            code="proportion-and-capacity",
            level=LintLevel.ERROR,
            object=name,
            path=("tiers",),
            problem="proportion and capacity both set the deserved share of a queue: by weight, and by its spec",
            fix="keep proportion for weights, or capacity for deserved, guarantee and capability",
        )
    yield from _binpack(facts, conf)
    gangs = [work.object for work in facts.work if isinstance(work.obj, Job) and (work.obj.min_available or 0) > 1]
    if "gang" not in plugins and gangs:
        yield LintFinding(
            code="no-gang-plugin",
            level=LintLevel.WARNING,
            object=name,
            path=("tiers",),
            problem="without the gang plugin the pods of a job start one by one, and jobs may deadlock",
            evidence={"jobs": ", ".join(gangs[:5])},
            fix="enable the gang plugin in the first tier",
        )


def _binpack(facts: LintFacts, conf: VolcanoConfiguration) -> Iterator[LintFinding]:
    for number, tier in enumerate(conf.tiers):
        for place, option in enumerate(tier):
            resources = option.arguments.text("binpack.resources", "")
            if option.name == "binpack" and not any(map(_is_device, map(str.strip, resources.split(",")))):
                path: Path = ("tiers", number, "plugins", place)
                yield LintFinding(
                    code="binpack-without-gpus",
                    level=LintLevel.NOTE if facts.work and not _asks_for_gpus(facts) else LintLevel.WARNING,
                    object=facts.engines.volcano_name,
                    path=path,
                    problem="binpack scores cpu and memory only: GPUs are not packed",
                    evidence={"binpack.resources": resources or "not set"},
                    fix="set its argument binpack.resources: nvidia.com/gpu",
                )


def _is_device(resource: str) -> bool:
    return is_gpu(resource) or is_mig(resource)


def _asks_for_gpus(facts: LintFacts) -> bool:
    return any(_is_device(name) for work in facts.work for one in work.templates for name in one.requests)


def _counts_on_eviction(facts: LintFacts) -> bool:
    """True if work differs in priority or uses several queues, or if nothing is known about it."""
    if not facts.work:
        return True
    queues = {work.obj.volcano.queue for work in facts.work if isinstance(work.obj, Job) and work.obj.volcano}
    classes = {template.priority_class for work in facts.work for template in work.templates}
    own = {
        work.obj.volcano.priority_class
        for work in facts.work
        if isinstance(work.obj, Job) and work.obj.volcano is not None
    }
    return len(classes | own) > 1 or len(queues) > 1


def _sla(facts: LintFacts, job: Job, name: str) -> Iterator[LintFinding]:
    spec = job.volcano
    if spec is not None and "sla" in spec.plugins:
        yield LintFinding(
            code="sla-is-no-job-plugin",
            level=LintLevel.ERROR,
            object=name,
            path=("spec", "plugins", "sla"),
            problem=f"Volcano rejects the job: sla is a scheduler plugin, not a job plugin; and {NEVER_CANCELS}",
            fix=f"set the job's annotation {WAITING_TIME}: 30m, and enable the sla plugin of the scheduler",
        )
    read = facts.engines.volcano
    waiting = job.annotations.get(WAITING_TIME)
    if waiting is None or read is None:
        return
    if not any(option.name == "sla" for tier in read.configuration.tiers for option in tier):
        yield LintFinding(
            code="sla-without-plugin",
            level=LintLevel.WARNING,
            object=name,
            path=("metadata", "annotations", WAITING_TIME),
            problem="the scheduler has no sla plugin, so the waiting time has no effect; with the plugin, "
            f"{NEVER_CANCELS}",
            evidence={WAITING_TIME: waiting},
            fix="add the sla plugin to a tier before overcommit and gang",
        )


DEFAULTS = KaiPolicy()


def lint_kai(facts: LintFacts) -> Iterator[LintFinding]:
    """Find work that exceeds the limits of KAI's queues, or their quota for non-preemptible pods."""
    if not len(facts.snapshot.kai_queues):
        return
    queues = queues_of(facts.snapshot.kai_queues, DEFAULTS.default_queue, {})
    shares = {queue.uid: new_queue_shares(queue) for queue in queues}
    for work in facts.work:
        over = _over(facts, shares, work) if facts.placing(work) == "KAI" else None
        if over is not None:
            yield _too_much(work, over)


def _over(facts: LintFacts, shares: Mapping[str, QueueShares], work: Work) -> OverCapacity | None:
    """Return KAI's refusal of the pods that start together, with empty queues; sub-groups are not checked."""
    group = facts.group(work)
    kai = group if isinstance(group, KaiPodGroup) else None
    if kai is not None and kai.sub_groups:
        return None
    pods, tasks = _starting(facts, work)
    if not tasks:
        return None
    job = job_of("", pods, tasks, DEFAULTS.default_queue, None)
    if kai is not None:
        priority = group_priority(kai, facts.snapshot.priority_classes)
        job.queue, job.preemptible = kai.queue, is_preemptible(kai.preemptibility, priority)
    return find_exceeded_capacity(shares, job, requested_by_tasks(tasks))


def _starting(facts: LintFacts, work: Work) -> tuple[dict[str, Pod], list[PodInfo]]:
    """Return the pods that start together: all of a gang, else a single pod."""
    scheduler = SchedulerFlags().scheduler_name
    tasks: list[PodInfo] = []
    pods: dict[str, Pod] = {}
    for pod_set in work.pod_sets:
        template = replace(pod_set.template, priority=_priority(facts, pod_set.template))
        for _ in range(work.least(pod_set) if work.gang else 1):
            task = template_task(template, len(tasks), scheduler)
            tasks.append(task)
            # KAI's pod grouper also reads the queue from the pods' owner.
            pods[task.uid] = Pod(
                name=task.name,
                template=template,
                priority=template.priority or 0,
                labels=work.obj.labels,
                annotations=work.obj.annotations,
            )
    return pods, tasks


def _priority(facts: LintFacts, template: PodTemplate) -> int:
    """Return the priority that the admission plugin Priority sets; an undefined class is another finding."""
    classes = facts.snapshot.priority_classes
    if template.priority is not None:
        return template.priority
    named = classes.get(template.priority_class)
    return named.value if named is not None else 0 if template.priority_class else default_class(classes.all())[0]


def _too_much(work: Work, over: OverCapacity) -> LintFinding:
    what = "the limit" if over.reason == OVER_LIMIT else "the quota for non-preemptible pods"
    return LintFinding(
        code="never-fits-quota",
        level=LintLevel.ERROR,
        object=work.object,
        path=work.template_path,
        problem=f"its pods form a gang and exceed {what} of KAI queue {over.queue}: it is never scheduled",
        evidence={"on an empty cluster": over.message},
        fix="request less, raise the queue's limit, or make it preemptible if the quota is exceeded",
    )


def lint_names(facts: LintFacts) -> Iterator[LintFinding]:
    """Find queue names and priority classes without effect."""
    for work in facts.work:
        yield from _queues(facts, work)
        yield from _priorities(facts, work)


def _queues(facts: LintFacts, work: Work) -> Iterator[LintFinding]:
    marks = _marks(work)
    scheduler = next((template.scheduler_name for template in work.templates), "default-scheduler")
    placing = facts.placing(work)
    evidence = {"engine": placing} if facts.engines.placement else {"schedulerName": scheduler}
    if QUEUE_LABEL in marks and placing != "KAI":
        yield _foreign(work, QUEUE_LABEL, "KAI", "kai-scheduler", {QUEUE_LABEL: marks[QUEUE_LABEL], **evidence})
    volcano = next((mark for mark in VOLCANO_QUEUES if mark in marks), "")
    if volcano and placing != "Volcano":
        yield _foreign(work, volcano, "Volcano", "volcano", {volcano: marks[volcano], **evidence})
    job = work.obj
    if isinstance(job, Job) and job.kind == "VolcanoJob" and placing != "Volcano":
        path: Path = ("spec", "schedulerName")
        yield _foreign(
            work, "", "Volcano", "volcano", {"queue": job.volcano.queue if job.volcano else "", **evidence}, path
        )
    if QUEUE in marks and (facts.engines.unqueued or (isinstance(job, Job) and job.kind == "VolcanoJob")):
        why = "Kueue is not installed" if facts.engines.unqueued else "Kueue does not manage Volcano Jobs"
        yield LintFinding(
            code="queue-of-another-scheduler",
            level=LintLevel.WARNING,
            object=work.object,
            path=("metadata", "labels", QUEUE),
            problem=f"it names a Kueue queue, but {why}: its pods start without quota",
            evidence={QUEUE: marks[QUEUE]},
            fix="use a kind of job that Kueue manages, or remove the label",
        )


def _foreign(
    work: Work, mark: str, engine: str, scheduler: str, evidence: Mapping[str, str], path: Path = ()
) -> LintFinding:
    what = f"it names a {engine} queue" if mark else f"it is a {engine} job"
    return LintFinding(
        code="queue-of-another-scheduler",
        level=LintLevel.WARNING,
        object=work.object,
        path=path or ("metadata", "annotations" if mark == VOLCANO_QUEUES[0] else "labels", mark),
        problem=f"{what}, but another scheduler places its pods: queue shares and gang scheduling do not apply to them",
        evidence=evidence,
        fix=f"set schedulerName: {scheduler} in the pod spec, or remove the queue name",
    )


def _marks(work: Work) -> dict[str, str]:
    """Return the labels and annotations of the object and of its pods."""
    found = {**work.obj.labels, **work.obj.annotations}
    for template in work.templates:
        found = {**template.labels, **template.annotations, **found}
    return found


def _priorities(facts: LintFacts, work: Work) -> Iterator[LintFinding]:
    known = facts.snapshot.priority_classes
    own = [template.priority_class for template in work.templates]
    if isinstance(work.obj, Job) and work.obj.volcano is not None:
        own.append(work.obj.volcano.priority_class)
    for name in dict.fromkeys(own):
        if name and name not in known and name not in SYSTEM_PRIORITIES:
            yield _undefined(work, "PriorityClass", name, bool(len(known)), "the API server refuses its pods")
    name = work.obj.workload_priority_class if isinstance(work.obj, Job) else ""
    classes = facts.snapshot.workload_priority_classes
    if name and not facts.engines.unqueued and name not in classes:
        path: Path = ("metadata", "labels", PRIORITY_CLASS)
        why = "Kueue creates no Workload for it"
        yield _undefined(work, "WorkloadPriorityClass", name, bool(len(classes)), why, path)


def _undefined(work: Work, kind: str, name: str, others: bool, why: str, path: Path = ("spec",)) -> LintFinding:
    """Return the finding of an undefined class: a warning if the manifests define none, as the cluster may have it."""
    return LintFinding(
        code="missing-priority-class",
        level=LintLevel.ERROR if others else LintLevel.WARNING,
        object=work.object,
        path=path,
        problem=f"{kind} {name} is not defined: {why}",
        evidence={kind: name},
        fix=f"define {kind} {name}, or use one that exists",
    )


class _Misreading(Struct, frozen=True, kw_only=True):
    """A common misunderstanding of a field, recognized by its comment."""

    code: str
    field: re.Pattern[str]
    """Matches the line up to its comment."""
    promise: re.Pattern[str]
    """Matches the comment."""
    denied: re.Pattern[str] | None = None
    """Matches a negation before the promise: `never cancelled`."""
    problem: str
    fix: str


_MISREADINGS = (
    _Misreading(
        code="sla-misread",
        field=re.compile(r"\b(sla-waiting-time|jobWaitingTime|sla)\b"),
        promise=re.compile(r"\b(cancel|abort|kill|delet|terminat|fail)\w*", re.IGNORECASE),
        denied=re.compile(r"\b(not|never|no|nothing|nobody|without)\b", re.IGNORECASE),
        problem=NEVER_CANCELS,
        fix="correct the YAML comment; to cancel the job, set activeDeadlineSeconds or delete it",
    ),
    _Misreading(
        code="never-misread",
        field=re.compile(r"\bpreemptionPolicy:\s*[\"']?Never\b"),
        promise=re.compile(r"\b(never|not|cannot|can't|won't)\b[^.;]*\b(preempted|evicted|killed)\b", re.IGNORECASE),
        problem="preemptionPolicy: Never keeps its pods from preempting others, but does not protect its pods",
        fix="correct the YAML comment; to protect its pods, give its class a higher value than preemptors have",
    ),
    _Misreading(
        code="timeout-misread",
        field=re.compile(r"^\s*(- )?timeout:\s*\S"),
        promise=re.compile(r"\b(fail|evict|restart)\w*\b[^.;]*\bwithin\b", re.IGNORECASE),
        problem="a policy's timeout is how long Volcano waits after the event before it acts",
        fix="correct the YAML comment, and write the timeout as a duration (5m)",
    ),
)
_YAML = re.compile(r"^\s*(- )?[\w./\"'-]+:")
_LONGEST = 2000


def lint_comments(text: str, name: str) -> Iterator[LintFinding]:
    """Find lines of a configuration text whose comment states an effect that the field does not have."""
    for number, line in enumerate(text.splitlines(), start=1):
        code, mark, comment = line[:_LONGEST].partition("#")
        if not mark or not _YAML.match(code):
            continue
        for one in _MISREADINGS:
            promise = one.promise.search(comment)
            if promise is None or not one.field.search(code):
                continue
            if one.denied is None or not one.denied.search(comment[: promise.start()]):
                yield LintFinding(
                    code=one.code,
                    level=LintLevel.WARNING,
                    object=name,
                    problem=one.problem,
                    evidence={"comment": comment.strip()},
                    fix=one.fix,
                    line=number,
                )
