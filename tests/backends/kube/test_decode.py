"""From bytes to structs: by the rules for files, with only the needed fields, and with whose a pod is."""

import json

import msgspec
import pytest

from gpuconsole.backends.kube.decode import CoreEvent, Decoder, WatchEvent
from gpuconsole.backends.kube.discovery import Served, choose
from gpuconsole.model.clock import SECOND, parse_time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.findings import DocumentFindings, Silence
from gpuconsole.model.documents.pods_and_selectors import pod_template
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import BatchRules, BatchStatus, CronRules, FailureRule, Job, SuccessRule
from gpuconsole.model.jobs.workloads import QUEUE
from gpuconsole.model.pod_template import HostPort
from gpuconsole.model.queues import ClusterQueue, Quota
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, RequeueState, Workload
from tests.support import api_documents
from tests.support.api_documents import GPU, SINCE, Document

NOW = parse_time("2026-01-05T09:00:00Z")
THEN = parse_time(SINCE)


def served(group: str, version: str, kind: str, plural: str) -> Served:
    return Served(group=group, version=version, kind=kind, plural=plural, namespaced=True)


KUEUE = "kueue.x-k8s.io"
PODS = served("", "v1", "Pod", "pods")
NODES = served("", "v1", "Node", "nodes")
JOBS = served("batch", "v1", "Job", "jobs")
CRON_JOBS = served("batch", "v1", "CronJob", "cronjobs")
EVENTS = served("", "v1", "Event", "events")
WORKLOADS = served(KUEUE, "v1beta2", "Workload", "workloads")
QUEUES = served(KUEUE, "v1beta2", "ClusterQueue", "clusterqueues")


def read(kind: Served, document: Document, known: tuple[str, ...] = ()) -> object:
    return Decoder(kind, known).item(json.dumps(document).encode(), NOW).obj


def test_workloads_that_ask_for_the_same_hold_the_same() -> None:
    one, other = (read(WORKLOADS, api_documents.workload(name)) for name in ("one", "two"))
    assert isinstance(one, Workload)
    assert isinstance(other, Workload)
    assert one.pod_sets[0] is other.pod_sets[0]


def test_a_workload_with_all_that_kueue_writes_into_its_status() -> None:
    document = api_documents.workload(
        "wl",
        api_documents.condition("QuotaReserved", reason="QuotaReserved", message="Quota reserved in ClusterQueue cq"),
        job="train",
        admission=api_documents.admission("cq"),
        requeueState={"count": 2, "requeueAt": "2026-01-05T10:00:00Z"},
        reclaimablePods=[{"name": "main", "count": 1}],
    )
    found = read(WORKLOADS, document)
    assert isinstance(found, Workload)
    assert (found.key, found.owner, found.queue, found.gpus) == ("team/wl", "Job/team/train", "lq", 2)
    reserved = Condition("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue cq", THEN)
    assert found.conditions == (reserved,)
    given = PodSetAssignment(name="main", flavors={GPU: "a100"}, usage={GPU: 2})
    assert found.admission == Admission(cluster_queue="cq", pod_sets=(given,))
    assert found.requeue == RequeueState(2, parse_time("2026-01-05T10:00:00Z"))
    assert found.reclaimable == {"main": 1}


def test_both_versions_of_kueues_api_give_the_same_workload() -> None:
    new = api_documents.workload("wl")
    new["spec"] |= {"priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "high"}}
    old = api_documents.workload("wl")
    old["spec"] |= {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    older = served(KUEUE, "v1beta1", "Workload", "workloads")
    assert read(WORKLOADS, new) == read(older, old)


def test_a_cluster_queue_keeps_its_quotas() -> None:
    found = read(QUEUES, api_documents.cluster_queue("cq", 16))
    assert isinstance(found, ClusterQueue)
    assert found.quotas() == {("a100", GPU): Quota(16)}


def test_a_node_without_its_images_and_a_pod_without_its_environment() -> None:
    node = read(NODES, api_documents.node("n1"))
    assert isinstance(node, Node)
    assert (node.gpus, node.ready, node.images, node.labels) == (8, True, {}, {"type": "a100"})
    pod = read(PODS, api_documents.pod("p", job="train", node="n1"))
    assert isinstance(pod, Pod)
    assert (pod.job, pod.node, pod.template.requests) == ("Job/team/train", "n1", {GPU: 2})


def test_why_a_pod_waits_is_its_condition() -> None:
    document = api_documents.pod("p")
    said = api_documents.condition(
        "PodScheduled", False, "Unschedulable", "0/8 nodes are available: 8 Insufficient gpu."
    )
    document["status"]["conditions"] = [said]
    pod = read(PODS, document)
    assert isinstance(pod, Pod)
    assert (pod.reason, pod.message) == ("Unschedulable", "0/8 nodes are available: 8 Insufficient gpu.")


def test_the_deletion_of_a_pod_was_asked_for_a_grace_period_before_its_deletion_timestamp() -> None:
    """The API server sets `deletionTimestamp` to the end of the grace period."""
    document = api_documents.pod("p")
    document["metadata"] |= {"deletionTimestamp": "2026-01-05T09:00:30Z", "deletionGracePeriodSeconds": 30}
    pod = read(PODS, document)
    assert isinstance(pod, Pod)
    assert pod.deleted == NOW


WANTED = {
    "one with GPUs": (api_documents.pod("p"), True),
    "one without": (api_documents.pod("p", 0), False),
    "one without, of a job that is known": (api_documents.pod("p", 0, job="known"), True),
    "one without, that is queued": (api_documents.pod("p", 0, labels={"kueue.x-k8s.io/queue-name": "lq"}), True),
    "one with a MIG slice": (
        {
            "metadata": {"name": "p", "namespace": "team"},
            "spec": {"initContainers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]},
            "status": {},
        },
        True,
    ),
    "one with a device claim": (
        {
            "metadata": {"name": "p", "namespace": "team"},
            "spec": {"containers": [{"name": "x"}], "resourceClaims": [{"name": "gpu"}]},
            "status": {},
        },
        True,
    ),
}


@pytest.mark.parametrize(("document", "wanted"), WANTED.values(), ids=WANTED)
def test_which_pods_are_kept(document: Document, wanted: bool) -> None:
    assert (read(PODS, document, ("Job/team/known",)) is not None) == wanted


OWNERS = {
    "of a JobSet, by its label": ({"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}}, "JobSet/team/js"),
    "of a JobSet in an AppWrapper": (
        {"labels": {"jobset.sigs.k8s.io/jobset-name": "js", "workload.codeflare.dev/appwrapper": "aw"}},
        "AppWrapper/team/aw",
    ),
    "an executor of Spark": ({"labels": {"sparkoperator.k8s.io/app-name": "pi"}}, "SparkApplication/team/pi"),
    "of a RayJob, by what KubeRay notes": (
        {"labels": {"ray.io/originated-from-cr-name": "r", "ray.io/originated-from-crd": "RayJob"}},
        "RayJob/team/r",
    ),
    "of a Volcano Job, which is no Job of Kubernetes": (
        {"ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "v"}]},
        "VolcanoJob/team/v",
    ),
    "of a Deployment, by its ReplicaSet": (
        {
            "labels": {"pod-template-hash": "5d9f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9f"}],
        },
        "Deployment/team/web",
    ),
    "of nobody": ({}, ""),
}


@pytest.mark.parametrize(("meta", "owner"), OWNERS.values(), ids=OWNERS)
def test_whose_a_pod_is(meta: Document, owner: str) -> None:
    document = api_documents.pod("p")
    document["metadata"] |= {"ownerReferences": [], **meta}
    pod = read(PODS, document)
    assert isinstance(pod, Pod)
    assert pod.job == owner


def test_a_pod_of_a_group_belongs_to_the_groups_workload() -> None:
    pod = read(PODS, api_documents.pod("p", labels={"kueue.x-k8s.io/pod-group-name": "g"}))
    assert isinstance(pod, Pod)
    assert pod.workload == "team/g"


def test_jobs_that_are_queued_or_want_gpus_are_kept_and_those_that_others_made_are_not() -> None:
    owner = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "controller": True}]
    kept = [
        read(JOBS, api_documents.job("queued", 0)),
        read(JOBS, api_documents.job("gpus", labels={})),
        read(JOBS, api_documents.job("neither", 0, labels={})),
        read(JOBS, api_documents.job("made", ownerReferences=owner)),
    ]
    assert [isinstance(job, Job) for job in kept] == [True, True, False, False]


@pytest.mark.parametrize(
    ("gpus", "labels", "kept"),
    [(1, {}, True), (0, {"kueue.x-k8s.io/queue-name": "lq"}, True), (0, {}, False)],
    ids=["its Jobs want GPUs", "its Jobs are queued", "neither"],
)
def test_a_cron_job_is_kept_for_the_jobs_that_it_makes(gpus: int, labels: dict[str, str], kept: bool) -> None:
    template = {"metadata": {"labels": labels}, "spec": api_documents.job("", gpus)["spec"]}
    spec = {"schedule": "30 3 * * *", "jobTemplate": template}
    status = {"lastScheduleTime": api_documents.SINCE}
    found = read(CRON_JOBS, {"metadata": {"name": "nightly", "namespace": "team"}, "spec": spec, "status": status})
    assert (found is not None) is kept
    if found is not None:
        assert isinstance(found, Job)
        assert isinstance(found.rules, CronRules)
        assert (found.rules.schedule, found.rules.queue, found.rules.last) == (
            "30 3 * * *",
            labels.get(QUEUE, ""),
            THEN,
        )


def test_hostile_text_is_cleaned_and_large_annotations_are_left_out() -> None:
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 9000, "evil": "A\x1b]0;pwned\x1b\\B"}
    pod = read(PODS, api_documents.pod("p", annotations=notes))
    assert isinstance(pod, Pod)
    assert pod.annotations == {"evil": "A\ufffd]0;pwned\ufffd\\B"}


def test_an_event_says_who_what_and_when() -> None:
    found = read(EVENTS, api_documents.event("e", "wl", "Preempted", "made room"))
    want = CoreEvent(kind="Workload", key="team/wl", reason="Preempted", message="made room", time=THEN)
    assert found == want


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"{}", b'{"metadata": {"name": 3}, "spec": []}', b'{"metadata": 1}'])
def test_what_cannot_be_read_is_told_and_never_raised(raw: bytes) -> None:
    read = Decoder(PODS).item(raw, NOW)
    assert (read.obj, read.unread) == (None, True)


def test_pages_and_lines() -> None:
    decoder = Decoder(NODES)
    body = {"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [api_documents.node("a")]}
    page = decoder.page(json.dumps(body).encode(), NOW)
    assert (page.version, page.more, [item.name for item in page.items]) == ("7", "next", ["/a"])
    meta = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    mark = json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode()
    assert decoder.line(mark, NOW) == WatchEvent("BOOKMARK", version="9", end=True)
    error = b'{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}'
    assert decoder.line(error, NOW) == WatchEvent("ERROR", code=410, reason="Expired", message="too old")
    with pytest.raises(msgspec.DecodeError):
        decoder.line(b'{"type":"ADDED","obj', NOW)


def test_pods_that_say_the_same_share_what_was_read_and_keep_what_is_their_own() -> None:
    first, second, other = (api_documents.pod(name, node=f"n-{name}") for name in ("p-0", "p-1", "p-2"))
    first["spec"]["hostname"], second["spec"]["hostname"] = "p-0", "p-1"
    other["spec"]["containers"][0]["resources"]["limits"][GPU] = "4"
    found = [read(PODS, document) for document in (first, second, other)]
    pods = [pod for pod in found if isinstance(pod, Pod)]
    assert [(pod.node, pod.template.hostname, pod.template.containers[0].limits) for pod in pods] == [
        ("n-p-0", "p-0", {GPU: 2}),
        ("n-p-1", "p-1", {GPU: 2}),
        ("n-p-2", "", {GPU: 4}),
    ]
    assert pods[0].template.containers is pods[1].template.containers


def test_ports_of_the_node_are_the_pods_own_and_those_of_its_network() -> None:
    own, shared = api_documents.pod("own"), api_documents.pod("shared")
    own["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 443}]
    shared["spec"]["hostNetwork"] = True
    shared["spec"]["containers"][0]["ports"] = [{"containerPort": 443, "protocol": "UDP"}]
    found = [read(PODS, document) for document in (own, shared)]
    assert [pod.template.containers[0].ports for pod in found if isinstance(pod, Pod)] == [
        (HostPort(8080, "TCP", "0.0.0.0"),),
        (HostPort(443, "UDP", "0.0.0.0"),),
    ]


def test_how_far_a_job_is_and_when_it_gives_up() -> None:
    """Fields that the wire leaves out would be rules that a fork of the cluster does not know."""
    document = api_documents.job("train")
    document["spec"] |= {"completions": 4, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 3}
    document["spec"] |= {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5, "maxFailedIndexes": 2}
    document["spec"] |= {"backoffLimitPerIndex": 1, "successPolicy": {"rules": [{"succeededCount": 3}]}}
    document["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "Gone"}]}]}
    document["status"] = {"failed": 2, "succeeded": 1, "completedIndexes": "0", "failedIndexes": "2"}
    document["status"]["startTime"] = "2026-01-05T08:00:00Z"
    job = read(JOBS, document)
    assert isinstance(job, Job)
    since = parse_time("2026-01-05T08:00:00Z")
    assert (job.failures, job.backoff_limit) == (2, 3)
    assert job.batch == BatchStatus(completed="0", failed="2", since=since)
    assert job.rules == BatchRules(
        completions=4,
        indexed=True,
        deadline=60 * SECOND,
        ttl=5 * SECOND,
        limit_per_index=1,
        most_failed=2,
        failure_rules=(FailureRule(action="Ignore", conditions=("Gone",)),),
        success_rules=(SuccessRule(count=3),),
        replaces_failed=True,
    )


ODD = {
    "a quantity that is none": {"requests": {GPU: "many", "cpu": "1"}},
    "half a GPU": {"requests": {GPU: "500m"}},
    "a negative amount": {"requests": {GPU: "-1"}},
    "more than can be held": {"requests": {GPU: "1e30"}},
    "a number": {"requests": {GPU: 2, "cpu": 0.5}},
    "a list": {"requests": ["2"]},
}


@pytest.mark.parametrize("case", ODD)
def test_what_nobody_hears_of_is_read_as_what_is_reported(case: str) -> None:
    document = api_documents.pod("p")
    document["spec"]["containers"][0]["resources"] = ODD[case]
    told, silent = (pod_template(Reader(document, report)) for report in (DocumentFindings(), Silence()))
    assert silent == told


POD = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}
VOLCANO_JOB: Document = {"minAvailable": 1, "tasks": [{"name": "w", "replicas": 1, "template": POD}]}
RAY: Document = {"rayClusterSpec": {"headGroupSpec": {"template": POD}}, "submissionMode": "HTTPMode"}
MORE: dict[str, tuple[str, str, str, Document, str]] = {
    "a ReplicaSet": ("apps", "v1", "ReplicaSet", {"replicas": 2, "template": POD}, "ReplicaSet/team/a"),
    "KubeRay's RayCronJob": (
        *("ray.io", "v1", "RayCronJob"),
        {"schedule": "0 1 * * *", "jobTemplate": RAY},
        "RayCronJob/team/a",
    ),
    "Volcano's CronJob": (
        *("batch.volcano.sh", "v1alpha1", "CronJob"),
        {"schedule": "0 1 * * *", "jobTemplate": {"spec": VOLCANO_JOB}},
        "VolcanoCronJob/team/a",
    ),
    "a JobTemplate": ("flow.volcano.sh", "v1alpha1", "JobTemplate", VOLCANO_JOB, "JobTemplate/team/a"),
    "a JobFlow": ("flow.volcano.sh", "v1alpha1", "JobFlow", {"flows": [{"name": "t"}]}, "JobFlow/team/a"),
}


@pytest.mark.parametrize(("group", "version", "kind", "spec", "key"), MORE.values(), ids=MORE)
def test_what_makes_jobs_is_watched_where_it_is_served(
    group: str, version: str, kind: str, spec: Document, key: str
) -> None:
    plural = f"{kind.lower()}s"
    offered = served(group, version, kind, plural)
    whole = msgspec.structs.replace(offered, verbs=frozenset({"list", "watch"}))
    assert choose([whole]) == (whole,)
    found = read(offered, {"metadata": {"name": "a", "namespace": "team"}, "spec": spec})
    assert isinstance(found, Job)
    assert found.key == key


def test_a_replica_set_that_a_deployment_made_is_not_shown_beside_it() -> None:
    offered = served("apps", "v1", "ReplicaSet", "replicasets")
    owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}]
    meta = {"name": "web-5d9f", "namespace": "team", "ownerReferences": owner}
    assert read(offered, {"metadata": meta, "spec": {"replicas": 2, "template": POD}}) is None


def test_a_job_of_volcanos_cron_job_knows_its_maker() -> None:
    offered = served("batch.volcano.sh", "v1alpha1", "Job", "jobs")
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "name": "nightly", "controller": True}
    meta = {"name": "nightly-1", "namespace": "team", "ownerReferences": [owner]}
    found = read(offered, {"metadata": meta, "spec": VOLCANO_JOB})
    assert isinstance(found, Job)
    assert found.owner == "VolcanoCronJob/team/nightly"


@pytest.mark.parametrize(("said", "phase"), [("Succeed", "Succeeded"), ("Failed", "Failed"), ("Running", "Running")])
def test_a_job_flow_is_as_far_as_its_status_says(said: str, phase: str) -> None:
    offered = served("flow.volcano.sh", "v1alpha1", "JobFlow", "jobflows")
    document = {"metadata": {"name": "a", "namespace": "team"}, "spec": {"flows": [{"name": "t"}]}}
    found = read(offered, {**document, "status": {"state": {"phase": said}}})
    assert isinstance(found, Job)
    assert found.phase == phase
