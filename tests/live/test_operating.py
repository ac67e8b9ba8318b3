"""What an operator does beside the plain commands, on a real API server: try, edit, read logs, forward ports, scale."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpuconsole.backends.base import PodAccess, PodOperation
from gpuconsole.backends.guard import Guard
from gpuconsole.errors import ClusterError, ReadOnlyError
from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    Drain,
    Edit,
    FailNode,
    Scale,
    SetPriority,
    SetQuota,
    SetTaint,
    Submit,
)
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.services.forwards import Forwards
from gpuconsole.ui.job_templates import BY_ID, JobTemplateRequest
from gpuconsole.ui.screens.objects import difference
from gpuconsole.ui.yaml_view import as_documents
from tests.live import stock
from tests.live.api import Api, Manifest, until
from tests.live.controlplane import ControlPlane
from tests.live.definitions import definitions
from tests.live.identities import OPERATOR
from tests.live.paths import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, PODS
from tests.live.seeing import Seeing

pytestmark = pytest.mark.live
KINDS = {
    "training": JOBS,
    "jobset": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets",
    "rayjob": "/apis/ray.io/v1/namespaces/team-a/rayjobs",
    "pytorch": "/apis/kubeflow.org/v1/namespaces/team-a/pytorchjobs",
    "volcano": "/apis/batch.volcano.sh/v1alpha1/namespaces/team-a/jobs",
}
"""Template → where its jobs are."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SELDOM = ("rayjobs.ray.io", "pytorchjobs.kubeflow.org")
"""Kinds that only these tests need."""


@pytest.fixture(scope="module")
def cluster(queued: Api) -> Iterator[Api]:
    """All kinds that there are templates of, and a queue that lets nobody in: it leads nowhere."""
    more = {name: text for name, text in definitions(("ray", "kubeflow")) if name in SELDOM}
    for text in more.values():
        queued.call("POST", DEFINITIONS, yaml.safe_load(text))
    for name in more:
        until(lambda name=name: established(queued.get(f"{DEFINITIONS}/{name}")))  # type: ignore[misc]
    for path in KINDS.values():
        # A fresh kind has no storage for a moment.
        until(lambda path=path: queued.http.get(path).status_code == 200)  # type: ignore[misc]
    queued.apply(stock.local_queue("lq-nowhere", "cq-nowhere"))
    yield queued
    queued.delete(f"{LOCAL_QUEUES}/lq-nowhere")
    for name in more:
        queued.delete(f"{DEFINITIONS}/{name}")


def established(definition: Manifest) -> bool:
    # An API server that has just been told of a kind writes null here for a moment.
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def ask(seeing: Seeing, command: Command) -> HistoryEvent:
    """Ask, and wait for what becomes of it."""
    before = len(seeing.history)
    seeing.submit(command)
    ends = (HistoryEventKind.COMMAND_DONE, HistoryEventKind.COMMAND_REFUSED)
    (told,) = until(lambda: [line for line in seeing.history[before:] if line.what in ends])
    assert isinstance(told, HistoryEvent)
    return told


def do(seeing: Seeing, command: Command) -> None:
    told = ask(seeing, command)
    assert told.what is HistoryEventKind.COMMAND_DONE, told.message


def running(cluster: Api, operator: Seeing, name: str, pods: int = 1) -> list[str]:
    """A job whose pods run, as the console sees them."""
    cluster.create(stock.job(name, "lq-a", gpus=1, pods=pods))

    def found() -> list[str]:
        seen = [pod for pod in operator.snapshot().pods.all() if pod.job == f"Job/team-a/{name}"]
        keys = [pod.key for pod in seen if pod.phase == "Running"]
        return keys if len(keys) == pods else []

    keys: list[str] = until(found)
    return keys


@pytest.mark.parametrize("template", KINDS)
def test_jobs_of_all_kinds_are_tried_and_then_submitted_from_templates(
    operator: Seeing, cluster: Api, template: str
) -> None:
    wanted = BY_ID[template]
    name = f"from-{template}"
    request = JobTemplateRequest(namespace="team-a", name=name, queue="lq-nowhere", gpus=wanted.gpus, pods=wanted.pods)
    documents = as_documents(wanted.text(request))
    (answer,) = operator.backend.object_access().rehearse(documents)
    assert answer.endswith(f"team-a/{name} would be created")
    assert not cluster.exists(f"{KINDS[template]}/{name}"), "a dry run creates nothing"
    do(operator, Submit((), documents))
    managers = {one["manager"] for one in cluster.get(f"{KINDS[template]}/{name}")["metadata"]["managedFields"]}
    assert "gpuconsole" in managers
    (again,) = operator.backend.object_access().rehearse(documents)
    assert again.endswith("would be changed")
    operator.until(lambda s: any(job.name == name for job in s.jobs.all()))
    cluster.delete(f"{KINDS[template]}/{name}")


def test_a_manifest_with_a_mistake_is_refused_before_anything_is_created(operator: Seeing, cluster: Api) -> None:
    good = msgspec.json.encode(stock.job("whole", "lq-a", gpus=1)).decode()
    wrong = msgspec.json.encode({**stock.job("wrong", "lq-a", gpus=1), "sepc": {}}).decode()
    with pytest.raises(ClusterError, match="sepc"):
        operator.backend.object_access().rehearse((good, wrong))
    told = ask(operator, Submit((), (good, wrong)))
    assert told.what is HistoryEventKind.COMMAND_REFUSED
    assert not cluster.exists(f"{JOBS}/whole")


def test_a_job_is_scaled(operator: Seeing, cluster: Api) -> None:
    running(cluster, operator, "scaled")
    do(operator, Scale("Job/team-a/scaled", 2))
    assert cluster.get(f"{JOBS}/scaled")["spec"]["parallelism"] == 2


def test_a_quota_is_changed_and_nothing_beside_it(operator: Seeing, cluster: Api) -> None:
    before = cluster.get(f"{CLUSTER_QUEUES}/cq-b")["spec"]
    do(operator, SetQuota("cq-b", "h100", "nvidia.com/gpu", 12, borrowing_limit=4))
    after = cluster.get(f"{CLUSTER_QUEUES}/cq-b")["spec"]
    quota = after["resourceGroups"][0]["flavors"][0]["resources"]
    (gpu,) = (one for one in quota if one["name"] == "nvidia.com/gpu")
    assert (gpu["nominalQuota"], gpu["borrowingLimit"]) == ("12", "4")
    do(operator, SetQuota("cq-b", "h100", "nvidia.com/gpu", 8, borrowing_limit=None))
    assert cluster.get(f"{CLUSTER_QUEUES}/cq-b")["spec"] == before


def test_a_priority_class_is_the_label_of_the_job(operator: Seeing, cluster: Api) -> None:
    cluster.create(stock.job("ranked", "lq-b", gpus=8, pods=4))
    found = operator.until(lambda s: any(w.owner == "Job/team-a/ranked" for w in s.workloads.all()))
    (key,) = (w.key for w in found.workloads.all() if w.owner == "Job/team-a/ranked")
    do(operator, SetPriority(key, 1000, "high"))
    assert cluster.get(f"{JOBS}/ranked")["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"


def edited(operator: Seeing, change: Any) -> Edit:
    """An edit of cq-b as the editor would leave it."""
    found = operator.backend.object_access().manifest("cluster_queues", "cq-b")
    after = msgspec.json.decode(msgspec.json.encode(found.document))
    change(after)
    patch = msgspec.json.encode(difference(found.document, after)).decode()
    return Edit("cluster_queues", "cq-b", found.version, patch)


def test_an_edit_changes_what_was_edited(operator: Seeing, cluster: Api) -> None:
    def label(document: dict[str, Any]) -> None:
        document["metadata"].setdefault("labels", {})["edited"] = "yes"

    do(operator, edited(operator, label))
    assert cluster.get(f"{CLUSTER_QUEUES}/cq-b")["metadata"]["labels"]["edited"] == "yes"

    def unlabel(document: dict[str, Any]) -> None:
        del document["metadata"]["labels"]["edited"]

    do(operator, edited(operator, unlabel))
    assert "edited" not in cluster.get(f"{CLUSTER_QUEUES}/cq-b")["metadata"].get("labels", {})


def test_an_edit_of_what_somebody_else_changed_meanwhile_is_refused(operator: Seeing, cluster: Api) -> None:
    def hold(document: dict[str, Any]) -> None:
        document["spec"]["stopPolicy"] = "Hold"

    edit = edited(operator, hold)
    cluster.patch(f"{CLUSTER_QUEUES}/cq-b", {"metadata": {"annotations": {"by": "somebody-else"}}})
    told = ask(operator, edit)
    assert told.what is HistoryEventKind.COMMAND_REFUSED
    assert "the object changed" in told.message
    assert cluster.get(f"{CLUSTER_QUEUES}/cq-b")["spec"].get("stopPolicy", "None") == "None"


def test_a_field_of_another_manager_is_a_conflict_and_is_not_taken(operator: Seeing, cluster: Api) -> None:
    path = f"{LOCAL_QUEUES}/owned"
    theirs = stock.local_queue("owned", "cq-a", namespace="team-a")
    body = {**theirs, "spec": {**theirs["spec"], "stopPolicy": "Hold"}}
    cluster.call("PATCH", f"{path}?fieldManager=somebody-else", body, "application/apply-patch+yaml")
    ours = msgspec.json.encode({**body, "spec": {**body["spec"], "stopPolicy": "None"}}).decode()
    told = ask(operator, Submit((), (ours,)))
    assert told.what is HistoryEventKind.COMMAND_REFUSED
    assert cluster.get(path)["spec"]["stopPolicy"] == "Hold"
    cluster.delete(path)


def test_logs_of_a_gang_come_line_by_line_and_end_when_they_are_left(operator: Seeing, cluster: Api) -> None:
    pods = running(cluster, operator, "talks", pods=2)
    logs = operator.backend.object_access().logs(pods, previous=False)
    try:
        until(lambda: {line.pod.split()[0] for line in logs.lines if line.text == "step 19"} == set(pods))
        assert any(line.text == "step 0" for line in logs.lines)
    finally:
        logs.close()
    assert logs.closed


def test_events_of_an_object_are_those_of_its_job_as_well(operator: Seeing, cluster: Api) -> None:
    running(cluster, operator, "eventful")
    said = operator.backend.object_access().events("jobs", "Job/team-a/eventful")
    assert "SuccessfulCreate" in {one.reason for one in said}


def test_what_a_reader_may_not_do_is_known_before_it_is_tried(operator: Seeing, reader: Seeing) -> None:
    asked = (
        Cordon("h100-0004", True),
        SetTaint("h100-0004", "spare"),
        Drain("h100-0004"),
        Delete("workloads", "team-a/x"),
        Edit("cluster_queues", "cq-b", "", "{}"),
        PodAccess(PodOperation.SHELL, "team-a"),
        PodAccess(PodOperation.FORWARD, "team-a"),
    )
    for one in asked:
        until(lambda one=one: reader.backend.object_access().refusal(one))  # type: ignore[misc]
        operator.backend.object_access().refusal(one)
    assert reader.backend.object_access().refusal(asked[0]) == "you cannot patch nodes at the cluster scope"
    assert "pods/exec in namespace team-a" in reader.backend.object_access().refusal(asked[5])
    time.sleep(1.0)
    assert [operator.backend.object_access().refusal(one) for one in asked] == [""] * len(asked)
    assert reader.backend.object_access().refusal(PodAccess(PodOperation.LOGS, "team-a")) == ""
    assert "is not supported on a live cluster" in operator.backend.object_access().refusal(FailNode("h100-0004"))


def test_a_protected_context_refuses_everything_and_sends_nothing(plane: ControlPlane, operator: Seeing) -> None:
    log = plane.audit.skip()
    guard = Guard(operator.backend, protected="Context operator is protected")
    for command in (Cordon("h100-0004", True), Delete("cluster_queues", "cq-b"), Scale("Job/team-a/scaled", 3)):
        with pytest.raises(ReadOnlyError, match="protected"):
            guard.submit(command, operator.backend.now)
    with pytest.raises(ReadOnlyError):
        guard.permit("shell in team-a/x", operator.backend.now)
    time.sleep(0.5)
    assert log.writes(OPERATOR.user) == []


def test_pods_that_nobody_would_make_again_are_spared_by_a_drain(operator: Seeing, cluster: Api) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "team-a"}}
    cluster.create({**pod, "spec": {**stock.pod_template(0)["spec"], "nodeName": "h100-0005"}})
    until(lambda: cluster.get(f"{PODS}/bare")["status"].get("phase") == "Running")
    told = ask(operator, Drain("h100-0005", sparing=True))
    assert "unmanaged pods skipped: 1" in told.message
    assert cluster.exists(f"{PODS}/bare")
    do(operator, Drain("h100-0005", forced=True, grace=0))
    until(lambda: not cluster.exists(f"{PODS}/bare"))
    do(operator, Cordon("h100-0005", False))


def test_a_taint_is_added_changed_and_removed_and_others_stay(operator: Seeing, cluster: Api) -> None:
    path = "/api/v1/nodes/h100-0006"
    before = cluster.get(path)["spec"].get("taints") or []
    assert ask(operator, SetTaint("h100-0006", "dedicated", "ml")).message == "taints h100-0006 dedicated=ml:NoSchedule"
    do(operator, SetTaint("h100-0006", "dedicated", "rl"))
    taint = {"key": "dedicated", "value": "rl", "effect": "NoSchedule"}
    assert cluster.get(path)["spec"]["taints"] == [*before, taint]
    until(lambda: operator.snapshot().nodes["h100-0006"].taints[-1].value == "rl")
    do(operator, SetTaint("h100-0006", "dedicated", "rl", removed=True))
    assert (cluster.get(path)["spec"].get("taints") or []) == before
    told = ask(operator, SetTaint("h100-0006", "a b"))
    assert (told.what, "Invalid value" in told.message) == (HistoryEventKind.COMMAND_REFUSED, True)


def test_kubectl_is_asked_for_the_same_cluster_as_the_same_user(operator: Seeing, plane: ControlPlane) -> None:
    command = operator.backend.object_access().kubectl("get", "pods", "-n", "team-a")
    assert command == ["kubectl", "--kubeconfig", str(plane.kubeconfig(OPERATOR)), *command[3:]]
    assert command[3:] == ["--context", "operator", "get", "pods", "-n", "team-a"]


def test_a_port_forward_that_cannot_be_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """What is started, listed and stopped here is a server that stands for kubectl."""
    served = tmp_path / "served.py"
    served.write_text(
        "import http.server\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "print(f'Forwarding from 127.0.0.1:{server.server_port} -> 80', flush=True)\n"
        "server.serve_forever()\n"
    )
    forwards = Forwards()
    forwards.start("team-a/talks-0", 0, 80, [sys.executable, str(served)])
    port = until(lambda: forwards.all()[0].local)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
        assert answer.status == 200
    forwards.start("team-a/gone", 0, 80, ["sh", "-c", "echo 'error: pods \"gone\" not found'; exit 1"])
    until(lambda: not forwards.all()[1].open)
    assert forwards.all()[1].state == 'ended: error: pods "gone" not found'
    forwards.close()
    assert forwards.all() == ()
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(served) not in found
