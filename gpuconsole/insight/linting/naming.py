"""Lint rules for names without effect: queues of another scheduler, and undefined priority classes."""

from collections.abc import Iterator, Mapping

from gpuconsole.insight.linting.facts import VOLCANO_QUEUES, LintFacts, Work
from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.model.cluster import SYSTEM_PRIORITIES
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import PRIORITY_CLASS, QUEUE
from gpuconsole.scheduling.kai.config import QUEUE_LABEL


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
    """Return the finding of an undefined class: a note if the manifests define none, as the cluster may have it."""
    return LintFinding(
        code="missing-priority-class",
        level=LintLevel.ERROR if others else LintLevel.WARNING,
        object=work.object,
        path=path,
        problem=f"{kind} {name} is not defined: {why}",
        evidence={kind: name},
        fix=f"define {kind} {name}, or use one that exists",
    )
