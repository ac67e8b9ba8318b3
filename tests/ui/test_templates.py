"""Every template of the submit form makes a manifest that the console itself accepts."""

import pytest

from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.job import CronRules, Job
from gpuconsole.model.manifests import load_text
from gpuconsole.model.resources import GPU, gpus
from gpuconsole.ui.job_templates import BY_ID, TEMPLATES, JobTemplate, JobTemplateRequest


def request(template: JobTemplate, **changes: object) -> JobTemplateRequest:
    values: dict[str, object] = {
        "namespace": "research",
        "name": "try-1",
        "queue": "lq-research",
        "priority_class": "research-default",
        "gpus": template.gpus,
        "pods": template.pods,
        "duration": template.duration,
        "checkpoint": template.checkpoint,
    }
    return JobTemplateRequest(**{**values, **changes})  # type: ignore[arg-type]


def submitted(template: JobTemplate, **changes: object) -> Job:
    loaded = load_text(template.text(request(template, **changes)))
    assert [f.problem for f in loaded.findings if f.severity == "error"] == []
    (job,) = (thing for thing in loaded.objects if isinstance(thing, Job))
    return job


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
def test_a_template_becomes_a_job_with_the_gpus_and_times_that_were_asked_for(template: JobTemplate) -> None:
    job = submitted(template)
    assert job.namespace == "research"
    assert job.name == "try-1"
    stands = job.rules if isinstance(job.rules, CronRules) else None
    if job.kind != "VolcanoJob":  # Kueue does not manage it.
        assert (stands.queue if stands else job.queue) == "lq-research"
        assert (stands.priority_class if stands else job.workload_priority_class) == "research-default"
    assert sum(gpus(pod_set.requests) for pod_set in job.pod_sets) == template.gpus * template.pods
    assert (job.duration, job.checkpoint_interval) == (template.duration, template.checkpoint)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
def test_a_template_without_a_queue_uses_the_pods_priority_class(template: JobTemplate) -> None:
    job = submitted(template, queue="", priority_class="high")
    assert (job.queue, job.workload_priority_class) == ("", "")
    # What pods of a TrainJob are is up to its runtime.
    wanted = "" if template.id == "trainjob" else "high"
    assert {pod_set.template.priority_class for pod_set in job.pod_sets if gpus(pod_set.requests)} == {wanted}


def test_cpu_and_memory_are_asked_for_only_where_the_queue_has_quota_for_them() -> None:
    training = BY_ID["training"]
    covered = frozenset({"cpu", "memory", GPU})
    (bare,) = submitted(training).pod_sets
    (full,) = submitted(training, covered=covered).pod_sets
    assert bare.requests == {GPU: 8}
    assert full.requests == {GPU: 8, "cpu": 64_000, "memory": 512 * 2**30}


def test_a_distributed_job_counts_its_master_among_the_pods() -> None:
    job = submitted(BY_ID["pytorch"], pods=4)
    assert sorted((pod_set.name.lower(), pod_set.count) for pod_set in job.pod_sets) == [("master", 1), ("worker", 3)]


def test_durations_are_written_as_people_write_them() -> None:
    text = BY_ID["notebook"].text(request(BY_ID["notebook"], duration=HOUR + 30 * MINUTE))
    assert "gpuconsole.io/duration: 1h30m" in text


def test_what_never_ends_starts_without_a_duration() -> None:
    assert {template.id for template in TEMPLATES if template.duration is None} == {
        *("deployment", "statefulset", "workerset", "raycluster"),
    }
