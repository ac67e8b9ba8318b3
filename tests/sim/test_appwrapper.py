"""AppWrappers (workload.codeflare.dev): the pod sets of what they wrap, what webhooks refuse, and how they run."""

from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.manifests.loading import load_text
from tests.support import job_manifests
from tests.support.sim_cluster import START, key_of, start, submit, two_teams


def wrapper(*components: dict[str, Any], queue: str = "lq") -> dict[str, Any]:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": job_manifests.meta("aw", queue=queue),
        "spec": {"components": list(components)},
    }


def inner(kind: str, api: str, spec: dict[str, Any], **notes: str) -> dict[str, Any]:
    meta = {"name": "inner", "annotations": {f"gpuconsole.io/{key}": value for key, value in notes.items()}}
    return {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}


POD = job_manifests.pod(restart="Never")
PYTORCH = inner(
    "PyTorchJob",
    "kubeflow.org/v1",
    {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": POD}, "Worker": {"replicas": 2, "template": POD}}},
    duration="10m",
)
CASES = [
    (inner("Job", "batch/v1", {"parallelism": 3, "completions": 2, "template": POD}), [2]),
    (
        inner(
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            {
                "replicatedJobs": [
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": POD}}}
                ]
            },
        ),
        [6],
    ),
    (PYTORCH, [1, 2]),
    (
        inner(
            "RayCluster",
            "ray.io/v1",
            {
                "headGroupSpec": {"template": POD},
                "workerGroupSpecs": [{"groupName": "g", "replicas": 3, "template": POD}],
            },
        ),
        [1, 3],
    ),
    (inner("Deployment", "apps/v1", {"replicas": 4, "template": POD}), [4]),
    ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD["spec"]}, [1]),
]


@pytest.mark.parametrize(("template", "counts"), CASES, ids=[template["kind"] for template, _ in CASES])
def test_pod_sets_of_known_kinds_are_inferred(template: dict[str, Any], counts: list[int]) -> None:
    (job,) = job_manifests.read(wrapper({"template": template}))
    assert isinstance(job, Job)
    assert [(part.name, part.count, part.template.requests) for part in job.pod_sets] == [
        (f"aw-{number}", count, {"nvidia.com/gpu": 1}) for number, count in enumerate(counts)
    ]


def test_pod_sets_of_other_kinds_are_declared_by_their_paths() -> None:
    other = {"apiVersion": "x.io/v1", "kind": "Crew", "metadata": {"name": "c"}, "spec": {"groups": [{"pods": POD}]}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}
    sets = [{"replicas": 3, "path": "template.spec.groups[0].pods"}]
    (job,) = job_manifests.read(wrapper({"template": service}, {"template": other, "podSets": sets}))
    assert isinstance(job, Job)
    assert [(part.name, part.count) for part in job.pod_sets] == [("aw-0", 3)]


SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
NESTED = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "n"}}
ELSEWHERE = {**PYTORCH, "metadata": {"name": "i", "namespace": "other"}}


@pytest.mark.parametrize(
    ("components", "problems"),
    [
        ([{"template": SERVICE}], ["spec.components: Invalid value: components contains no podspecs"]),
        (
            [{"template": PYTORCH}, {"template": NESTED}],
            ["spec.components[1].template: Forbidden: Nested AppWrappers are forbidden"],
        ),
        (
            [{"template": ELSEWHERE}],
            [
                "spec.components[0].template.metadata.namespace: Forbidden: AppWrappers cannot create objects in other"
                " namespaces"
            ],
        ),
        (
            [{"template": PYTORCH, "podSets": [{"path": "template.spec.pytorchReplicaSpecs.Master.template"}]}],
            ["spec.components[0].podSets: Invalid value: DeclaredPodSet count 1 differs from inferred count 2"],
        ),
        (
            [{"template": SERVICE, "podSets": [{"path": "template.spec.nothing"}]}],
            [
                'spec.components[0].podSets[0].path: Invalid value: "template.spec.nothing": path does not refer to a'
                " v1.PodSpecTemplate: at path position 'template.' missing field 'spec'"
            ],
        ),
        (
            [{"template": PYTORCH}] * 5,
            ["spec.components: Invalid value: components contains 10 podspecs; at most 8 are allowed"],
        ),
    ],
)
def test_what_the_webhook_refuses(components: list[dict[str, Any]], problems: list[str]) -> None:
    findings = load_text(job_manifests.dumps(wrapper(*components, queue="")), "a.yaml", strict=True).findings
    assert [f"{finding.path}: {finding.problem}" for finding in findings] == problems


def test_an_app_wrapper_is_admitted_as_a_whole_and_lasts_as_long_as_what_it_wraps() -> None:
    simulation = start(two_teams())
    submit(simulation, *job_manifests.read(wrapper({"template": PYTORCH})))
    workload = simulation.snapshot().workloads[key_of(simulation, "red/aw")]
    assert (workload.gpus, workload.admitted, workload.name.partition("-")[0]) == (3, True, "appwrapper")
    assert len(simulation.snapshot().pods) == 3
    simulation.advance(START + 9 * MINUTE)
    assert simulation.snapshot().jobs["AppWrapper/red/aw"].phase is JobPhase.RUNNING
    simulation.advance(START + 11 * MINUTE)
    assert simulation.snapshot().jobs["AppWrapper/red/aw"].phase is JobPhase.SUCCEEDED


def test_a_wrapped_service_serves_until_it_is_deleted() -> None:
    simulation = start(two_teams())
    submit(simulation, *job_manifests.read(wrapper({"template": CASES[4][0]})))
    simulation.advance(START + 3000 * MINUTE)
    assert simulation.snapshot().jobs["AppWrapper/red/aw"].phase is JobPhase.RUNNING
