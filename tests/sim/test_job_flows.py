"""Volcano's JobFlows make the Jobs of their JobTemplates, each when those that it depends on are completed."""

import json
from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.manifests import load_text
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.ui.yaml_view import as_manifest
from tests.support.sample_manifests import errors_and_warnings

Manifest = dict[str, Any]
FLOW = "flow.volcano.sh/v1alpha1"
NODE: Manifest = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}},
}


def template(name: str, gpus: int = 1, minutes: int = 10, **spec: Any) -> Manifest:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    task = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    minded = [{"event": "PodFailed", "action": "RestartJob"}]
    whole = {"minAvailable": 1, "tasks": [task], "policies": minded, **spec}
    meta = {"name": name, "annotations": {"gpuconsole.io/duration": f"{minutes}m"}}
    return {"apiVersion": FLOW, "kind": "JobTemplate", "metadata": meta, "spec": whole}


def flow(retain: str = "retain", **needs: str) -> Manifest:
    """A flow of templates; each names those that it waits for, one letter each."""
    flows = [
        {"name": name, **({"dependsOn": {"targets": list(targets)}} if targets else {})}
        for name, targets in needs.items()
    ]
    spec = {"flows": flows, "jobRetainPolicy": retain}
    return {"apiVersion": FLOW, "kind": "JobFlow", "metadata": {"name": "f"}, "spec": spec}


def start(*documents: Manifest, steps: tuple[Manifest, ...] = ()) -> tuple[Simulation, int]:
    engines = {"admission": "none", "placement": {"engine": "Volcano"}}
    scenario = load_scenario([{"engine": engines, "objects": [NODE, *documents], "steps": list(steps)}])
    return build_simulation(scenario), scenario.start


def made(simulation: Simulation) -> dict[str, str]:
    """Name → phase of the Volcano Jobs."""
    jobs = sorted(simulation.snapshot().jobs.values(), key=lambda job: job.name)
    return {job.name: job.phase.value for job in jobs if job.kind == "VolcanoJob"}


DIAMOND = {"a": "", "b": "a", "c": "a", "d": "bc"}
TEMPLATES = [template(name) for name in "abcd"]


def test_jobs_are_made_when_those_that_they_depend_on_are_completed() -> None:
    simulation, begun = start(flow(**DIAMOND), *TEMPLATES)
    seen = []
    for minute in (5, 15, 25, 35):
        simulation.advance(begun + minute * MINUTE)
        seen.append(made(simulation))
    first, second = {"f-a": "Running"}, {"f-a": "Succeeded", "f-b": "Running", "f-c": "Running"}
    done = dict.fromkeys(("f-a", "f-b", "f-c"), "Succeeded")
    assert seen == [first, second, {**done, "f-d": "Running"}, {**done, "f-d": "Succeeded"}]
    snapshot = simulation.snapshot()
    assert snapshot.jobs["JobFlow/default/f"].phase is JobPhase.SUCCEEDED
    job = snapshot.jobs["VolcanoJob/default/f-d"]
    assert (job.owner, dict(job.labels)) == (
        "JobFlow/default/f",
        {"volcano.sh/createdByJobTemplate": "default.d", "volcano.sh/createdByJobFlow": "default.f"},
    )


def test_a_flow_may_delete_its_jobs_once_all_are_completed() -> None:
    simulation, begun = start(flow("delete", a="", b="a"), *TEMPLATES)
    simulation.advance(begun + 15 * MINUTE)
    assert made(simulation) == {"f-a": "Succeeded", "f-b": "Running"}
    simulation.advance(begun + 30 * MINUTE)
    assert made(simulation) == {}
    assert simulation.snapshot().jobs["JobFlow/default/f"].phase is JobPhase.SUCCEEDED


def test_a_flow_waits_for_a_template_that_comes_later() -> None:
    later = {"advanceSeconds": 600, "create": [template("a")]}
    simulation, begun = start(flow(a=""), steps=(later,))
    simulation.advance(begun + 5 * MINUTE)
    assert made(simulation) == {}
    simulation.advance(begun + 12 * MINUTE)
    assert made(simulation) == {"f-a": "Running"}


def test_a_template_alone_runs_nothing() -> None:
    simulation, begun = start(template("a"))
    simulation.advance(begun + 5 * MINUTE)
    assert (made(simulation), len(simulation.snapshot().pods)) == ({}, 0)


EACH = {"a JobTemplate": template("a", queue="q"), "a JobFlow": flow("delete", **DIAMOND)}


@pytest.mark.parametrize("document", EACH.values(), ids=EACH)
def test_each_is_shown_as_a_manifest_that_says_the_same(document: Manifest) -> None:
    (thing,) = load_text(json.dumps(document)).objects
    shown = as_manifest(thing)
    assert (shown["apiVersion"], shown["kind"]) == (FLOW, document["kind"])
    (again,) = load_text(json.dumps(shown)).objects
    assert isinstance(thing, Job)
    assert isinstance(again, Job)
    assert (again.rules, again.pod_sets, again.key) == (thing.rules, thing.pod_sets, thing.key)


REFUSED = {
    "a circle": ([flow(a="b", b="a"), *TEMPLATES[:2]], ("spec.flows", "bad-dependencies")),
    "a target that is none": ([flow(a="x"), TEMPLATES[0]], ("spec.flows", "bad-dependencies")),
    "a template that nobody defines": (
        [flow(a="", z=""), TEMPLATES[0]],
        ("spec.flows[1].name", "undefined-jobtemplate"),
    ),
    "a policy that is none": ([flow("keep", a=""), TEMPLATES[0]], ("spec.jobRetainPolicy", "bad-value")),
    "a field that Jobs lack": ([template("a", shape=1)], ("spec.shape", "unknown-field")),
}


@pytest.mark.parametrize(("documents", "wanted"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_told_at_its_field(documents: list[Manifest], wanted: tuple[str, str]) -> None:
    text = "\n---\n".join(map(json.dumps, documents))
    assert wanted in [(path, code) for _, path, code in errors_and_warnings(text)]


def test_a_flow_with_its_templates_is_right() -> None:
    documents = [flow(**DIAMOND), *(template(name, queue="default") for name in "abcd")]
    assert errors_and_warnings("\n---\n".join(map(json.dumps, documents))) == []
