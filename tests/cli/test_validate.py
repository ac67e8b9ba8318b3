"""`validate` on what is there already, with gates, and with what would be stored."""

import json
from pathlib import Path

import yaml

from tests.support.command_line import Line

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: %s}
"""
CLUSTER_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {namespaceSelector: {}}
"""


def test_what_is_there_already_is_updated(gpuconsole: Line, tmp_path: Path) -> None:
    there, change = tmp_path / "there.yaml", tmp_path / "change.yaml"
    there.write_text(CLUSTER_QUEUE + "---" + QUEUE % "old")
    change.write_text(QUEUE % "cq")
    alone = gpuconsole("validate", "--strict", change)
    assert (alone.status, alone.lines[-1]) == (0, "0 errors, 1 warning, 0 notes")
    result = gpuconsole("validate", "--strict", change, "--over", there)
    assert result.status == 1
    assert result.lines == [
        f'{change}:5: error: LocalQueue/team/lq spec.clusterQueue: Invalid value: "cq": field is immutable; '
        "leave it as it was, or create another object",
        "read: 1 LocalQueue",
        "1 error, 0 warnings, 0 notes",
    ]


def test_what_would_be_stored_is_printed_and_findings_go_elsewhere(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUE % "cq" + "---" + QUEUE % "Wrong" + "---" + CLUSTER_QUEUE)
    result = gpuconsole("validate", "--strict", "--defaults", file)
    assert result.status == 1
    assert "spec.clusterQueue in body should match" in result.err
    queue, cluster_queue = yaml.safe_load_all(result.out)
    assert queue["spec"] == {"clusterQueue": "cq", "stopPolicy": "None"}
    assert cluster_queue["spec"]["queueingStrategy"] == "BestEffortFIFO"
    whole = json.loads(gpuconsole("validate", "--defaults", "-o", "json", file).out)
    assert (whole["kind"], whole["items"]) == ("List", [queue, cluster_queue])


def test_gates_of_kueue_decide_what_is_refused(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    policy = "concurrentAdmissionPolicy: {migration: {mode: RetainFirstAdmission}}"
    file.write_text(CLUSTER_QUEUE.replace("namespaceSelector: {}", f"namespaceSelector: {{}}, {policy}"))
    assert gpuconsole("validate", "--strict", file).status == 0
    result = gpuconsole("validate", "--strict", "--feature-gates", "ConcurrentAdmission=true", file)
    assert result.status == 1
    assert "must have exactly one ResourceGroup" in result.lines[0]
    unknown = gpuconsole("validate", "--feature-gates", "Concurrent=true", file)
    assert (unknown.status, unknown.out) == (2, "")
    assert "unrecognized feature gate: Concurrent" in unknown.err
