"""controller_jobs_*: the pods that jobs ask for, what they give back, and the names of their Workloads."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.jobs.batch import clean_labels, count_numbers
from gpuconsole.model.jobs.workloads import without_topology, workload_name
from gpuconsole.model.manifests import Severity, load_text
from gpuconsole.model.manifests.kinds import decode_object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.controllers.work import reclaimable_pods
from tests.conformance.tables import Case, Check, Table, compare


def check_pod_sets(version: str, given: str, want: str = "wantPodSets") -> Check:
    """The pod sets of a job, read as those of a Workload are."""

    def check(table: Table, case: Case) -> list[str]:
        document = case.input[given]
        job = _job({**(document.get("pod") or document), "apiVersion": version})
        if not case.gates.get("TopologyAwareScheduling", True):
            job = replace(job, pod_sets=without_topology(job.pod_sets))
        wanted = case.want.get(want)
        if not isinstance(wanted, list):
            wanted = case.variables["gotPodSets"]
        return list(compare(want, job.pod_sets, _pod_sets(wanted)))

    return check


def check_cluster_pods(table: Table, case: Case) -> list[str]:
    """The pod sets of a cluster of Ray."""
    meta = {"name": "x", "annotations": case.input.get("annotations") or {}}
    document = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": case.input["rayClusterSpec"]}
    if case.want.get("wantErr"):
        found = load_text(json.dumps(document)).findings
        return [] if any(finding.severity is Severity.ERROR for finding in found) else ["no error is found"]
    return list(compare("wantPodSets", _job(document).pod_sets, _pod_sets(case.want["wantPodSets"])))


def _pod_sets(wanted: list[Mapping[str, Any]]) -> tuple[PodSet, ...]:
    document = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "x"},
        "spec": {"podSets": wanted},
    }
    workload = decode_object(document)
    assert isinstance(workload, Workload)
    return workload.pod_sets


def _job(document: Mapping[str, Any]) -> Job:
    job = decode_object(document)
    assert isinstance(job, Job)
    return job


def check_terminal(table: Table, case: Case) -> list[str]:
    """How many indexes of an Indexed Job never run again."""
    texts = (case.input.get("completedIndexes", ""), case.input.get("failedIndexes", ""))
    return list(compare("want", count_numbers(texts, case.input["completions"]), case.want["want"]))


def check_reclaimable(table: Table, case: Case) -> list[str]:
    """What a Job gives back of its quota."""
    job = _job({**case.input["job"], "apiVersion": "batch/v1"})
    assert isinstance(job.rules, BatchRules)
    spare = reclaimable_pods(job, job.rules)
    found = [{"name": job.pod_sets[0].name, "count": spare}] if spare else []
    return list(compare("want", found, case.want.get("want") or []))


def check_labels(table: Table, case: Case) -> list[str]:
    """What a Workload does not take over of a Job's pods."""
    return list(compare("wantLabels", clean_labels(case.input["labels"]), case.want["wantLabels"]))


def check_names(table: Table, case: Case) -> list[str]:
    """Whether two StatefulSets lead to the same name."""
    names = [workload_name("StatefulSet", case.input[f"name{n}"], case.input[f"uid{n}"]) for n in (1, 2)]
    return list(compare("wantEqual", names[0] == names[1], case.want["wantEqual"]))


def check_generations(table: Table, case: Case) -> list[str]:
    """Whether two generations of a job lead to the same name."""
    names = [
        workload_name("Job", case.input[f"ownerName{n}"], case.input[f"uid{n}"], case.input[f"generation{n}"])
        for n in (1, 2)
    ]
    return list(compare("wantEqual", names[0] == names[1], case.want["wantEqual"]))


CHECKS: dict[str, Check] = {
    "controller_jobs_job/TestPodSets": check_pod_sets("batch/v1", "job"),
    "controller_jobs_job/TestTerminalIndexesCount": check_terminal,
    "controller_jobs_job/TestReclaimablePods": check_reclaimable,
    "controller_jobs_job/TestCleanLabels": check_labels,
    "controller_jobs_jobset/TestPodSets": check_pod_sets("jobset.x-k8s.io/v1alpha2", "jobSet"),
    "controller_jobs_kubeflow_jobs_pytorchjob/TestPodSets": check_pod_sets("kubeflow.org/v1", "job"),
    "controller_jobs_raycluster/TestPodSets": check_pod_sets("ray.io/v1", "rayCluster"),
    "controller_jobs_raycluster/TestBuildPodSets": check_cluster_pods,
    "controller_jobs_statefulset/TestGetWorkloadName": check_names,
    "controller_jobframework/TestGenerateWorkloadNameWithGeneration": check_generations,
}
