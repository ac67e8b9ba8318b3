"""Lint rules for Volcano: a scheduler configuration without plugins or actions that its jobs need."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.insight.linting.facts import LintFacts
from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.model.documents.findings import Path, Severity, path_text
from gpuconsole.model.job import Job
from gpuconsole.model.resources import is_gpu, is_mig
from gpuconsole.scheduling.volcano.config import VolcanoConfiguration
from gpuconsole.scheduling.volcano.scheduler_conf import EVICTING

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
    if not set(actions) & set(EVICTING) and _counts_on_eviction(facts):
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
