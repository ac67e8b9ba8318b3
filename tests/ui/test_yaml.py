"""The YAML of an object is a manifest of its kind: the API server's rules accept it, and it reads back as the same."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from gpuconsole.cli.options import DEFAULT, OpenRequest, fixtures
from gpuconsole.cli.sources import open_simulation
from gpuconsole.model.autoscaling import NodeGroup
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.cluster import Node, Pod, QuotaScope, ResourceQuota, SchedulingWorkload
from gpuconsole.model.documents.findings import Finding, Severity
from gpuconsole.model.job import Job
from gpuconsole.model.labels import LabelSelector, Taint
from gpuconsole.model.manifests import load, load_text
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import CheckRule, ClusterQueue
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.model.workloads import PreemptionGate, Workload
from gpuconsole.ui.job_templates import TEMPLATES, JobTemplate
from gpuconsole.ui.job_templates import JobTemplateRequest as Wanted
from gpuconsole.ui.yaml_view import as_manifest, as_yaml

OURS = (NodeTelemetry, NodeGroup)
"""What no API server has: measurements, and the machines that an autoscaler of the simulation bought."""
EACH = 5
"""So many objects of each kind, in each cluster, are looked at one by one."""


def refusals(text: str) -> list[tuple[str, str]]:
    """Path and problem of everything that `gpuconsole validate --strict` refuses."""
    findings: Iterable[Finding] = load_text(text, strict=True).findings
    return [(finding.path, finding.problem) for finding in findings if finding.severity is Severity.ERROR]


def cluster(name: str) -> Snapshot:
    """A bundled fixture after ten minutes."""
    simulation = open_simulation(OpenRequest(files=(name,))).simulation
    simulation.advance(simulation.now + 10 * MINUTE)
    return simulation.snapshot()


def some_of(snapshot: Snapshot) -> Iterator[Object]:
    seen: Counter[str] = Counter()
    for kind, table in TABLES.items():
        for thing in getattr(snapshot, table).all():
            name = thing.kind if isinstance(thing, Job) else kind.__name__
            phase = str(getattr(thing, "phase", ""))
            seen[name + phase] += 1
            if kind not in OURS and seen[name + phase] <= EACH:
                yield thing


@pytest.mark.parametrize("name", fixtures())
def test_what_y_shows_is_accepted_by_strict_validation(name: str) -> None:
    snapshot = cluster(name)
    # Volcano's webhook looks the queue of a job up.
    queues = [as_yaml(queue) for queue in snapshot.volcano_queues.all()]
    wrong = {}
    for thing in some_of(snapshot):
        known = [] if isinstance(thing, VolcanoQueue) else queues
        if found := refusals("---\n".join([*known, as_yaml(thing)])):
            wrong[f"{type(thing).__name__} {thing.key}"] = found
    assert wrong == {}


def test_the_default_fixture_after_an_hour_is_accepted_as_one_file() -> None:
    simulation = open_simulation(OpenRequest(files=(DEFAULT,))).simulation
    simulation.advance(simulation.now + HOUR)
    snapshot = simulation.snapshot()
    things = [thing for table in TABLES.values() for thing in getattr(snapshot, table).all()]
    text = "---\n".join(as_yaml(thing) for thing in things if not isinstance(thing, OURS))
    assert refusals(text) == []
    assert {Workload, Job, Pod, Node, ClusterQueue} <= {type(thing) for thing in load_text(text).objects}


def test_a_workload_says_its_containers_and_what_they_request() -> None:
    snapshot = cluster(DEFAULT)
    for workload in snapshot.workloads.all():
        spec = yaml.safe_load(as_yaml(workload))["spec"]
        for pods, said in zip(workload.pod_sets, spec["podSets"], strict=True):
            containers = said["template"]["spec"]["containers"]
            asked = [one["resources"]["requests"] for one in containers]
            assert said["count"] == pods.count
            assert [set(one) for one in asked] == [set(one.requests) for one in pods.template.containers]


@pytest.mark.parametrize("queue", ["", "main"], ids=["no queue", "queued"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
def test_a_job_of_every_kind_reads_back_as_the_same(template: JobTemplate, queue: str) -> None:
    wanted = Wanted(
        namespace="a", name="b", queue=queue, gpus=2, pods=3, priority_class="high", duration=HOUR, checkpoint=MINUTE
    )
    (job,) = load_text(template.text(wanted)).objects
    shown = load_text(as_yaml(job), strict=True)
    assert shown.objects == (job,)


def test_what_the_files_of_the_default_fixture_say_reads_back_as_the_same() -> None:
    for thing in load([str(fixtures()[DEFAULT])]).objects:
        assert load_text(as_yaml(thing)).objects == (thing,)


INNER = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "resources": {"limits": {GPU: "1"}}}]}}
ODD: list[Object] = [
    Node(
        name="n",
        taints=(Taint("a", "b", "NoExecute"), Taint("c")),
        capacity={"cpu": 8000},
        allocatable={"cpu": 8000},
        unschedulable=True,
        ready=False,
        not_ready_since=MINUTE,
        conditions={"DiskPressure": True},
        images={"registry/a:1": 5},
    ),
    ClusterQueue(
        name="q",
        namespace_selector=LabelSelector(),
        checks=(CheckRule("all"), CheckRule("some", ("a100",))),
        admission_mode="UsageBasedAdmissionFairSharing",
    ),
    Workload(
        name="w",
        pod_sets=(PodSet(template=PodTemplate(containers=(Container(requests={GPU: 2}, limits={GPU: 2}),))),),
        preemption_gates=(PreemptionGate(name="a"), PreemptionGate(name="b", open=True, since=MINUTE)),
    ),
    Pod(name="p", template=PodTemplate(containers=(Container(limits={GPU: 1}),)), deleted=MINUTE, node="n"),
    ResourceQuota(
        name="q",
        hard={"requests.cpu": 1500, "limits.memory": 2**30, f"requests.{GPU}": 4},
        used={f"requests.{GPU}": 1},
        scopes=(QuotaScope("BestEffort"), QuotaScope("PriorityClass", "In", ("high",))),
    ),
    SchedulingWorkload(name="w", groups={"workers": 4, "driver": 1}),
    *(
        Pod(
            name="p",
            template=PodTemplate(
                containers=(Container(limits={GPU: 1}),), scheduling_group=group, scheduling_workload=of
            ),
            gang=group,
        )
        for group, of in (("g", ""), ("w-g", "w/g"), ("w-g-0", "w/g"))
    ),
]
WRAPPED = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": INNER}}}]},
}
APPLICATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "SparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        {
            "driver": {"coreRequest": "1", "memory": "1g"},
            "executor": {"instances": 2, "memory": "2g", "coreLimit": "2", "gpu": {"name": GPU, "quantity": 1}},
            "restartPolicy": {"type": "OnFailure", "onFailureRetries": 3},
        },
    ),
    "AppWrapper": ("workload.codeflare.dev/v1beta2", {"components": [{"template": WRAPPED}]}),
}


@pytest.mark.parametrize("kind", APPLICATIONS)
def test_applications_read_back_as_the_same(kind: str) -> None:
    version, spec = APPLICATIONS[kind]
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    (job,) = load_text(json.dumps(document), strict=True).objects
    shown = load_text(as_yaml(job), strict=True)
    assert (shown.objects, shown.findings) == ((job,), ())


@pytest.mark.parametrize("thing", ODD, ids=lambda thing: type(thing).__name__)
def test_what_is_seldom_set_reads_back_as_the_same(thing: Object) -> None:
    shown = load_text(as_yaml(thing), strict=True)
    assert shown.objects == (thing,)
    assert "status" not in as_manifest(thing) or isinstance(as_manifest(thing)["status"], dict)
