"""Commands as requests, and what becomes of them: done, refused, or nothing that a live cluster can be asked."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpuconsole.backends.kube.writes import (
    APPLY,
    JSON,
    MERGE,
    KnownObjects,
    UnsupportedCommand,
    api_requests,
    with_quota,
    with_taint,
)
from gpuconsole.model.commands import (
    Command,
    Cordon,
    Delete,
    FailNode,
    MoveToQueue,
    Scale,
    SetActive,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    Submit,
)
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.queues import StopPolicy
from gpuconsole.model.workloads import Workload
from tests.backends.kube.conftest import Sight
from tests.support import api_documents
from tests.support.api_server import ApiServer

Make = Callable[..., Sight]
OF_JOB = Workload(namespace="team", name="of-job", owner="Job/team/train")
BARE = Workload(namespace="team", name="bare")
KNOWN = KnownObjects({one.key: one for one in (OF_JOB, BARE)}.get)
KUEUE = "kueue.x-k8s.io"

CHANGES: dict[str, tuple[Command, tuple[str, str], str, dict[str, Any]]] = {
    "stop a workload": (
        SetActive("team/bare", False),
        (KUEUE, "Workload"),
        "team/bare",
        {"spec": {"active": False}},
    ),
    "suspend a job that no queue manages": (
        SetActive("Job/team/free", False),
        ("batch", "Job"),
        "team/free",
        {"spec": {"suspend": True}},
    ),
    "resume one whose policy says it": (
        SetActive("PyTorchJob/team/free", True),
        ("kubeflow.org", "PyTorchJob"),
        "team/free",
        {"spec": {"runPolicy": {"suspend": False}}},
    ),
    "stop a Workload in a namespace that is called as a kind": (
        SetActive("Job/bare", False),
        (KUEUE, "Workload"),
        "Job/bare",
        {"spec": {"active": False}},
    ),
    "change its priority": (
        SetPriority("team/bare", 7),
        (KUEUE, "Workload"),
        "team/bare",
        {"spec": {"priority": 7}},
    ),
    "move a bare one": (
        MoveToQueue("team/bare", "other"),
        (KUEUE, "Workload"),
        "team/bare",
        {"spec": {"queueName": "other"}},
    ),
    "move one of a job by its label": (
        MoveToQueue("team/of-job", "other"),
        ("batch", "Job"),
        "team/train",
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}},
    ),
    "hold a ClusterQueue": (
        SetStopPolicy("cq", StopPolicy.HOLD),
        (KUEUE, "ClusterQueue"),
        "/cq",
        {"spec": {"stopPolicy": "Hold"}},
    ),
    "drain a LocalQueue": (
        SetStopPolicy("team/lq", StopPolicy.HOLD_AND_DRAIN),
        (KUEUE, "LocalQueue"),
        "team/lq",
        {"spec": {"stopPolicy": "HoldAndDrain"}},
    ),
    "cordon a node": (Cordon("n1", True), ("", "Node"), "/n1", {"spec": {"unschedulable": True}}),
    "uncordon a node": (Cordon("n1", False), ("", "Node"), "/n1", {"spec": {"unschedulable": None}}),
    "scale a job": (Scale("Job/team/train", 3), ("batch", "Job"), "team/train", {"spec": {"parallelism": 3}}),
}


@pytest.mark.parametrize(("command", "source", "name", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_a_patch_of_that_field_alone(
    command: Command, source: tuple[str, str], name: str, change: dict[str, Any]
) -> None:
    [order] = api_requests(command, KNOWN)
    assert (order.method, order.content, order.source) == ("PATCH", MERGE, source)
    assert f"{order.namespace}/{order.name}" == name
    assert json.loads(order.body or b"") == change


@pytest.mark.parametrize(
    ("command", "quota"),
    [
        (SetQuota("cq", "h100", "gpu", 8), {"nominalQuota": "8", "borrowingLimit": "4", "lendingLimit": "2"}),
        (SetQuota("cq", "h100", "gpu", 8, borrowing_limit=None), {"nominalQuota": "8", "lendingLimit": "2"}),
        (SetQuota("cq", "h100", "gpu", 8, 1, 0), {"nominalQuota": "8", "borrowingLimit": "1", "lendingLimit": "0"}),
    ],
)
def test_a_quota_keeps_the_limits_that_are_left_out(command: SetQuota, quota: dict[str, str]) -> None:
    limits = {"name": "gpu", "nominalQuota": "16", "borrowingLimit": "4", "lendingLimit": "2"}
    groups = [{"flavors": [{"name": "h100", "resources": [limits, {"name": "cpu", "nominalQuota": "9"}]}]}]
    document = {"metadata": {"resourceVersion": "7"}, "spec": {"cohort": "org", "resourceGroups": groups}}

    resources = [{"name": "gpu", **quota}, {"name": "cpu", "nominalQuota": "9"}]
    assert with_quota(document, command) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"resourceGroups": [{"flavors": [{"name": "h100", "resources": resources}]}]},
    }


TAINTS = [{"key": "gpu", "value": "present", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]
SET: dict[str, tuple[SetTaint, list[dict[str, str]] | None]] = {
    "added": (SetTaint("n", "a", "b"), [*TAINTS, {"key": "a", "value": "b", "effect": "NoSchedule"}]),
    "added without a value": (
        SetTaint("n", "a", effect="NoExecute"),
        [*TAINTS, {"key": "a", "effect": "NoExecute"}],
    ),
    "given another value": (
        SetTaint("n", "gpu", "absent"),
        [TAINTS[1], {"key": "gpu", "value": "absent", "effect": "NoSchedule"}],
    ),
    "removed": (SetTaint("n", "gpu", removed=True), TAINTS[1:]),
}


@pytest.mark.parametrize(("command", "taints"), SET.values(), ids=SET)
def test_a_taint_is_changed_and_the_others_stay(command: SetTaint, taints: list[dict[str, str]]) -> None:
    document = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": TAINTS, "podCIDR": "10.0.0.0/24"}}
    assert with_taint(document, command) == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": taints}}


def test_the_last_taint_leaves_no_list_and_one_that_is_gone_is_said_to_be() -> None:
    document = {"metadata": {"resourceVersion": "7"}, "spec": {"taints": TAINTS[:1]}}
    assert with_taint(document, SetTaint("n", "gpu", removed=True))["spec"] == {"taints": None}
    with pytest.raises(UnsupportedCommand, match="node n no longer has taint gpu:NoExecute"):
        with_taint(document, SetTaint("n", "gpu", effect="NoExecute", removed=True))


def test_a_taint_is_sent_with_the_version_that_was_read_and_its_outcome_comes_back(api: ApiServer, sight: Make) -> None:
    api.put("nodes", api_documents.node("n1"))
    see = sight()
    see.loaded()
    see.backend.submit(SetTaint("n1", "dedicated", "ml", "NoExecute"))
    see.until(lambda _: see.lines)
    [(method, where, body)] = api.requests
    assert (method, where) == ("PATCH", "/api/v1/nodes/n1?fieldManager=gpuconsole")
    assert body["spec"] == {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoExecute"}]}
    assert body["metadata"]["resourceVersion"]
    assert [(line.what, line.node, line.message) for line in see.lines] == [
        (HistoryEventKind.COMMAND_DONE, "n1", "taints n1 dedicated=ml:NoExecute")
    ]


def test_a_bare_workloads_class_is_named_as_the_served_version_has_it() -> None:
    command = SetPriority("team/bare", 7, "urgent")
    ref = {"group": KUEUE, "kind": "WorkloadPriorityClass", "name": "urgent"}
    older = {"priorityClassName": "urgent", "priorityClassSource": f"{KUEUE}/workloadpriorityclass"}
    for version, named in (("", {"priorityClassRef": ref}), ("v1beta2", {"priorityClassRef": ref}), ("v1beta1", older)):
        [order] = api_requests(command, KnownObjects(KNOWN.workload, lambda source, version=version: version))  # type: ignore[misc]
        assert json.loads(order.body or b"") == {"spec": {"priority": 7, **named}}


DELETIONS = {
    "a workload of a job is deleted with its job": ("workloads", "team/of-job", ("batch", "Job"), "team/train"),
    "a bare workload": ("workloads", "team/bare", (KUEUE, "Workload"), "team/bare"),
    "a job by its key": ("jobs", "VolcanoJob/team/v", ("batch.volcano.sh", "Job"), "team/v"),
    "a CronJob of Volcano": ("jobs", "VolcanoCronJob/team/c", ("batch.volcano.sh", "CronJob"), "team/c"),
    "a RayCronJob": ("jobs", "RayCronJob/team/c", ("ray.io", "RayCronJob"), "team/c"),
    "a ReplicaSet": ("jobs", "ReplicaSet/team/r", ("apps", "ReplicaSet"), "team/r"),
    "a ScheduledSparkApplication": (
        *("jobs", "ScheduledSparkApplication/team/s"),
        *(("sparkoperator.k8s.io", "ScheduledSparkApplication"), "team/s"),
    ),
    "a JobFlow": ("jobs", "JobFlow/team/f", ("flow.volcano.sh", "JobFlow"), "team/f"),
    "a name that no workload has is a pod's": ("", "team/p", ("", "Pod"), "team/p"),
    "a queue": ("cluster_queues", "cq", (KUEUE, "ClusterQueue"), "/cq"),
}


@pytest.mark.parametrize(("table", "key", "source", "name"), DELETIONS.values(), ids=DELETIONS)
def test_deletions(table: str, key: str, source: tuple[str, str], name: str) -> None:
    [order] = api_requests(Delete(table, key), KNOWN)
    assert (order.method, order.source, f"{order.namespace}/{order.name}") == ("DELETE", source, name)


def test_a_manifest_is_applied_or_created_where_it_has_no_name_and_tried_first() -> None:
    named = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "team"}})
    unnamed = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "a-"}})
    found = api_requests(Submit((), (named, unnamed)), KNOWN)
    assert [(order.method, order.content, order.rehearsed) for order in found] == [
        ("PATCH", APPLY, True),
        ("POST", JSON, True),
    ]


@pytest.mark.parametrize("command", [FailNode("n1"), Submit(()), Delete("resource_claims", "x")])
def test_what_only_a_simulation_can_do_is_refused(command: Command) -> None:
    with pytest.raises(UnsupportedCommand):
        api_requests(command, KNOWN)


def test_a_manifest_is_tried_before_it_is_sent_and_the_outcome_comes_back(api: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    job = {"apiVersion": "batch/v1", "kind": "Job", **api_documents.job("mine")}
    see.backend.submit(Submit((), (json.dumps(job),)))
    see.until(lambda _: see.lines)
    path = "/apis/batch/v1/namespaces/team/jobs/mine?fieldManager=gpuconsole&fieldValidation=Strict"
    assert [(method, where) for method, where, _ in api.requests] == [
        ("PATCH", f"{path}&dryRun=All"),
        ("PATCH", path),
    ]
    assert [(line.what, line.message) for line in see.lines] == [(HistoryEventKind.COMMAND_DONE, "submits Job mine")]


def test_what_the_server_refuses_in_the_trial_is_not_sent(api: ApiServer, sight: Make) -> None:
    see = sight()
    see.loaded()
    api.moods.append(("dryRun", 409, {}))
    job = {"apiVersion": "batch/v1", "kind": "Job", **api_documents.job("mine")}
    see.backend.submit(Submit((), (json.dumps(job),)))
    see.until(lambda _: see.lines)
    assert (api.requests, see.lines[0].what) == ([], HistoryEventKind.COMMAND_REFUSED)
    assert "the object changed" in see.lines[0].message
