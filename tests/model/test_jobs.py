"""Each kind of job becomes the pod sets that Kueue counts, and a Workload with Kueue's name."""

import json
from typing import Any

import pytest

from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.jobs import pod_name, workload_name, workload_of
from gpuconsole.model.manifests import decode_object, load_text
from gpuconsole.model.pod_template import PodSet, TopologyRequest
from gpuconsole.model.workloads import Workload
from tests.support.sample_manifests import DOCUMENTS, edited

GPU = "nvidia.com/gpu"
MIB = 1024 * 1024


def job(document: dict[str, Any]) -> Job:
    thing = decode_object(document)
    assert isinstance(thing, Job)
    return thing


def counts(found: Job) -> list[tuple[str, int, dict[str, int]]]:
    """Name, number of pods and requests of one pod, for each pod set."""
    return [(pods.name, pods.count, pods.template.requests) for pods in found.pod_sets]


POD_SETS = {
    "a Job runs no more pods at once than it has completions": ("Job train", [("main", 4, {"cpu": 1000, GPU: 1})]),
    "a JobSet has a pod set for each replicated job": (
        "JobSet set",
        [("driver", 1, {}), ("workers", 6, {GPU: 1})],
    ),
    "a RayJob has a head, its worker groups times their hosts, and a submitter": (
        "RayJob ray",
        [("head", 1, {"cpu": 2000}), ("gpu", 4, {GPU: 8}), ("submitter", 1, {"cpu": 500, "memory": 200 * MIB})],
    ),
    "a PyTorchJob has a master and workers": ("PyTorchJob torch", [("master", 1, {GPU: 1}), ("worker", 3, {GPU: 8})]),
    "a Volcano Job has its tasks": ("Job volcano", [("master", 1, {GPU: 1}), ("worker", 3, {GPU: 8})]),
}


@pytest.mark.parametrize(("sample", "want"), POD_SETS.values(), ids=POD_SETS.keys())
def test_pod_sets_are_counted_as_kueue_counts_them(sample: str, want: list[tuple[str, int, dict[str, int]]]) -> None:
    assert counts(job(DOCUMENTS[sample])) == want


PARALLEL = {
    "parallelism alone": ({"parallelism": 3}, 3),
    "fewer completions than parallelism": ({"parallelism": 3, "completions": 2}, 2),
    "more completions than parallelism": ({"parallelism": 3, "completions": 9}, 3),
    "neither": ({}, 1),
    "none at all": ({"parallelism": 0}, 0),
}


@pytest.mark.parametrize(("spec", "want"), PARALLEL.values(), ids=PARALLEL.keys())
def test_a_job_starts_with_its_parallelism_or_fewer_completions(spec: dict[str, int], want: int) -> None:
    template = DOCUMENTS["Job train"]["spec"]["template"]
    document = edited("Job train", ("spec",), {"template": template, **spec})
    assert [pods.count for pods in job(document).pod_sets] == [want]


def test_a_job_carries_its_queue_its_times_and_its_limits() -> None:
    document = edited("Job train", ("metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds"), "60")
    document["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "2"
    found = job(document)
    assert (found.key, found.queue, found.workload_priority_class) == ("Job/team/train", "lq", "urgent")
    assert (found.duration, found.checkpoint_interval) == (90 * MINUTE, 10 * MINUTE)
    assert (found.max_execution_time, found.backoff_limit) == (60 * SECOND, 2)
    assert found.pod_sets[0].min_count == 2
    assert (found.solo, found.min_available, found.suspended, found.phase) == (True, None, False, JobPhase.PENDING)


def test_a_volcano_job_is_a_gang_with_its_own_queue_and_scheduler() -> None:
    found = job(DOCUMENTS["Job volcano"])
    assert (found.key, found.queue, found.solo, found.min_available) == ("VolcanoJob/team/volcano", "", False, 3)
    assert found.volcano is not None
    assert found.volcano.queue == "ml"
    assert {(p.template.scheduler_name, p.template.priority_class) for p in found.pod_sets} == {("volcano", "training")}
    whole = job(edited("Job volcano", ("spec", "minAvailable"), None))
    assert whole.min_available == 4


def test_a_pytorch_job_with_a_scheduling_policy_is_a_gang() -> None:
    found = job(DOCUMENTS["PyTorchJob torch"])
    assert (found.solo, found.min_available, found.suspended, found.phase) == (False, 4, True, JobPhase.SUSPENDED)
    assert {pods.template.priority_class for pods in found.pod_sets} == {"training"}


RAY_MODES = {
    "http": ("HTTPMode", ["head", "gpu"], {"cpu": 2000}),
    "sidecar": ("SidecarMode", ["head", "gpu"], {"cpu": 2500, "memory": 200 * MIB}),
}


@pytest.mark.parametrize(("mode", "names", "head"), RAY_MODES.values(), ids=RAY_MODES.keys())
def test_a_ray_job_has_a_submitter_pod_in_k8s_job_mode_only(mode: str, names: list[str], head: dict[str, int]) -> None:
    found = job(edited("RayJob ray", ("spec", "submissionMode"), mode))
    assert [pods.name for pods in found.pod_sets] == names
    assert found.pod_sets[0].template.requests == head


def test_ray_autoscaling_adds_a_container_to_the_head() -> None:
    found = job(edited("RayJob ray", ("spec", "rayClusterSpec", "enableInTreeAutoscaling"), True))
    assert found.pod_sets[0].template.requests == {"cpu": 2500, "memory": 512 * MIB}


def test_a_submitter_may_bring_its_own_template() -> None:
    template = {"spec": {"containers": [{"name": "s", "resources": {"limits": {"cpu": 3}}}]}}
    found = job(edited("RayJob ray", ("spec", "submitterPodTemplate"), template))
    assert counts(found)[-1] == ("submitter", 1, {"cpu": 3000})


def test_a_ray_job_on_an_existing_cluster_is_not_queued() -> None:
    found = job(edited("RayJob ray", ("spec", "clusterSelector"), {"ray.io/cluster": "c"}))
    assert (found.queue, [pods.name for pods in found.pod_sets]) == ("", ["submitter"])


PREFIX = "kueue.x-k8s.io/podset-"
INDEX = "batch.kubernetes.io/job-completion-index"
TOPOLOGIES: dict[str, tuple[dict[str, str], TopologyRequest | None]] = {
    "nothing asked, but pods have an order": ({}, TopologyRequest(index_label=INDEX)),
    "a size of slices of nothing": ({"slice-size": "2"}, TopologyRequest(index_label=INDEX)),
    "required": ({"required-topology": "rack"}, TopologyRequest(required="rack", index_label=INDEX)),
    "preferred": ({"preferred-topology": "rack"}, TopologyRequest(preferred="rack", index_label=INDEX)),
    "unconstrained": ({"unconstrained-topology": "true"}, TopologyRequest(unconstrained=True, index_label=INDEX)),
    "slices": (
        {"slice-required-topology": "rack", "slice-size": "2"},
        TopologyRequest(slice_required="rack", slice_size=2, index_label=INDEX),
    ),
    "layers of slices": (
        {"slice-required-topology-constraints": '[{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]'},
        TopologyRequest(slice_constraints=(("block", 4), ("rack", 2)), index_label=INDEX),
    ),
    "a group of pod sets": (
        {"required-topology": "rack", "group-name": "g"},
        TopologyRequest(required="rack", group="g", index_label=INDEX),
    ),
}


@pytest.mark.parametrize(("notes", "want"), TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
def test_annotations_ask_for_a_topology(notes: dict[str, str], want: TopologyRequest | None) -> None:
    annotations = {PREFIX + key: value for key, value in notes.items()}
    found = job(edited("Job train", ("spec", "template", "metadata"), {"annotations": annotations}))
    assert found.pod_sets[0].topology == want


def test_pods_without_an_order_ask_for_nothing_unless_they_say_so() -> None:
    assert {pods.topology for pods in job(edited("RayJob ray", ("spec", "suspend"), True)).pod_sets} == {None}


def test_an_order_alone_is_no_request_for_a_place() -> None:
    assert [TopologyRequest(index_label=INDEX).explicit, TopologyRequest(slice_size=2).explicit] == [False, True]


def test_a_workload_holds_what_its_job_asks_for() -> None:
    found = job(edited("Job train", ("metadata", "uid"), "u-7"))
    assert workload_of(found, now=5, priority=10000, priority_class="urgent") == Workload(
        namespace="team",
        name=workload_name("Job", "train", "u-7"),
        created=5,
        labels={"kueue.x-k8s.io/job-uid": "u-7"},
        owner="Job/team/train",
        job_uid="u-7",
        queue="lq",
        priority=10000,
        priority_class="urgent",
        priority_kind="WorkloadPriorityClass",
        pod_sets=found.pod_sets,
    )


def test_names_are_those_that_kueue_gives() -> None:
    # Both from Kueue's own tests of its names; the second name is cut to 253 characters.
    assert workload_name("Job", "name", "uid") == "job-name-ef3a1"
    long = (
        "marketing-campaign-autumn-2024-region-north-america-department-digital-strategy-sub-department-social-media-"
        "engagement-tracker-and-analytics-dashboard-v2-final-revision-by-engineering-team-lead-senior-architect-"
        "validation-checked-approved-by-legal-and-ops-dept"
    )
    assert workload_name("Job", long, "uid") == f"job-{long}"[:247] + "-218b8"


def test_pods_have_stable_names() -> None:
    single = Job(name="dev", pod_sets=(PodSet(count=2),))
    assert [pod_name(single, "main", n) for n in range(2)] == ["dev-0", "dev-1"]
    assert pod_name(Job(kind="PyTorchJob", name="torch"), "worker", 3) == "torch-worker-3"
    assert pod_name(Job(kind="Pod", name="alone"), "main", 0) == "alone"


def member(name: str, gpus: int = 1, *, total: str = "3", fast: bool = False) -> dict[str, Any]:
    annotations = {"kueue.x-k8s.io/pod-group-total-count": total, "gpuconsole.io/duration": "1h"}
    if fast:
        annotations["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/pod-group-name": "crew"},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: gpus}}}]},
    }


def groups(*pods: dict[str, Any]) -> tuple[list[tuple[str, list[tuple[int, int]]]], list[str]]:
    """Key and (pods, GPUs of a pod) of each job that the pods make, and the codes of the findings."""
    loaded = load_text("\n---\n".join(json.dumps(pod) for pod in pods), "pods.yaml")
    jobs = [thing for thing in loaded.objects if isinstance(thing, Job)]
    found = [(j.key, sorted((p.count, p.template.requests[GPU]) for p in j.pod_sets)) for j in jobs]
    return found, [f.code for f in loaded.findings if f.code != "undefined-localqueue"]


def test_plain_pods_with_a_group_are_one_job_with_a_pod_set_for_each_role() -> None:
    found, codes = groups(member("a"), member("b", 8), member("c"))
    assert (found, codes) == ([("PodGroup/team/crew", [(1, 8), (2, 1)])], [])


def test_pods_of_a_group_keep_their_names() -> None:
    loaded = load_text(
        "\n---\n".join(json.dumps(pod) for pod in (member("a"), member("b", 8), member("c"))), "pods.yaml"
    )
    (group,) = (thing for thing in loaded.objects if isinstance(thing, Job))
    names = {role.count: [pod_name(group, role.name, n) for n in range(role.count)] for role in group.pod_sets}
    assert names == {1: ["b"], 2: ["a", "c"]}


def test_a_group_that_lacks_pods_waits_and_is_left_out() -> None:
    assert groups(member("a"), member("b")) == ([], ["incomplete-pod-group"])


def test_fast_admission_takes_the_first_pod_for_all() -> None:
    assert groups(member("a", 2, fast=True)) == ([("PodGroup/team/crew", [(3, 2)])], [])


def test_pods_beyond_the_total_are_left_out() -> None:
    found, codes = groups(member("a"), member("b"), member("c"), member("d", 8))
    assert (found, codes) == ([("PodGroup/team/crew", [(3, 1)])], ["excess-pods"])


def test_a_single_pod_with_a_queue_is_a_job_of_its_own() -> None:
    pod = member("alone")
    del pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
    assert groups(pod) == ([("Pod/team/alone", [(1, 1)])], [])


def test_a_pod_that_runs_already_stays_a_pod() -> None:
    pod = member("running")
    pod["spec"]["nodeName"] = "node-0"
    assert groups(pod) == ([], [])


def test_a_volcano_job_that_does_not_mind_failures_is_noted() -> None:
    def codes(policies: object) -> list[str]:
        text = json.dumps(edited("Job volcano", ("spec", "policies"), policies))
        return [f.code for f in load_text(text, "job.json").findings if f.code == "no-failure-policy"]

    assert codes([{"event": "PodEvicted", "action": "RestartJob"}]) == ["no-failure-policy"]
    for minds in ({"event": "*"}, {"events": ["PodEvicted", "PodFailed"]}, {"exitCode": 1}):
        assert codes([{"action": "RestartJob", **minds}]) == []
