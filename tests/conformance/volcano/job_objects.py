"""Volcano Jobs and their pods from the tables: no webhook saw them, so what is absent is zero, or nothing."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod
from gpuconsole.model.documents.findings import Silence
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.volcano import volcano_job
from gpuconsole.model.volcano import VolcanoSpec
from gpuconsole.scheduling.volcano.api.task import TASK_SPEC
from tests.conformance.volcano.objects import LONG_AGO, decode

Document = Mapping[str, Any]


def job(document: Document | None) -> Job:
    """A job as it stands; `None` is an empty one."""
    found = volcano_job(Reader(dict(document or {}), Silence()), LONG_AGO)
    assert found.volcano is not None
    spec = (document or {}).get("spec") or {}
    return replace(found, volcano=_as_it_stands(found.volcano, spec))


def _as_it_stands(volcano: VolcanoSpec, spec: Document) -> VolcanoSpec:
    """Take back what the mutating webhook fills in."""
    tasks = tuple(
        replace(task, min_available=document.get("minAvailable"), max_retry=document.get("maxRetry", 0))
        for task, document in zip(volcano.tasks, spec.get("tasks") or (), strict=True)
    )
    return replace(
        volcano,
        queue=spec.get("queue", ""),
        min_available=spec.get("minAvailable", 0),
        max_retry=spec.get("maxRetry", 0),
        scheduler_name=spec.get("schedulerName", ""),
        tasks=tasks,
    )


def pod(document: Document, name: str = "", task: str = "") -> Pod:
    """A pod; in a job it goes by the name and the task under which the job knows it."""
    found = decode("Pod", document)
    assert isinstance(found, Pod)
    if name:
        found = replace(found, name=name)
    return replace(found, annotations={**found.annotations, TASK_SPEC: task}) if task else found


def pods_of(info: Document) -> list[Pod]:
    """The pods of a JobInfo, task by task."""
    tasks = info.get("Pods") or {}
    return [pod(document, name, task) for task, pods in tasks.items() for name, document in pods.items()]
