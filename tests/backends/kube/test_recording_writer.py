"""A saved recording is replayed as it was followed, and tells nobody's names."""

import io
import json
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from gpuconsole.backends.kube.decode import ObjectGone
from gpuconsole.backends.kube.recording import ClusterRecording, RecordedChange
from gpuconsole.backends.kube.recording_writer import RecordingWriter
from gpuconsole.insight.forecast.agreement import ShadowReport
from gpuconsole.insight.forecast.shadow import Shadow
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig, Transformation
from tests.cli.test_shadow import BEGIN, CONTAINER, GPU, kueue, recording
from tests.support.shared_material import CONFORMANCE

LIVE = (CONFORMANCE or Path()) / "live"


def saved(source: Path, target: Path, most_bytes: int = 10**9, kueue: KueueConfig | None = None) -> RecordingWriter:
    """The recording of a recording, with this configuration of Kueue."""
    with target.open("wb", buffering=0) as file:
        writer = RecordingWriter(file, most_bytes)
        read = ClusterRecording(source, writer.take)
        read.objects()
        writer.begin(read.begin, kueue or KueueConfig(wait_for_pods_ready=None))
        list(read.changes())
    return writer


def replayed(source: Path, seconds: int = 0, save: BinaryIO | None = None) -> ShadowReport:
    """What a shadow finds in a recording until this second (0: its end), which is saved at the same time."""
    writer = RecordingWriter(save) if save is not None else None
    read = ClusterRecording(source, writer.take if writer is not None else None)
    config = read.kueue or KueueConfig(fair_sharing=read.has_fair_sharing, wait_for_pods_ready=None)
    shadow = Shadow(config, read.objects(), read.begin)
    if writer is not None:
        writer.begin(read.begin, config)
    for change in read.changes():
        if seconds and change.time > read.begin + seconds * 1_000_000:
            break
        shadow.follow(change.event, change.time)
    return shadow.report


def summary(report: ShadowReport) -> object:
    """All that a report has, but the names."""
    found = [(one.time, one.kind, one.cause) for one in report.disagreements]
    return report.since, report.counts, report.kinds, report.states, report.causes, found


@pytest.mark.skipif(not LIVE.is_dir(), reason="no recordings beside the project: they were not saved again")
@pytest.mark.parametrize(("name", "seconds"), [("classical.jsonl.gz", 150), ("fair.jsonl.gz", 70)])
def test_a_saved_recording_has_the_counts_and_disagreements_of_the_shadow_that_saved_it(
    name: str, seconds: int, tmp_path: Path
) -> None:
    file = tmp_path / "saved.jsonl"
    with file.open("wb", buffering=0) as save:
        followed = replayed(LIVE / name, seconds, save)
    assert summary(replayed(file, seconds)) == summary(followed)
    assert followed.counts.decisions >= 50
    text = file.read_text()
    for private in ("prod-", "res-", "h100", "q0001", "cloud.example", "registry.example"):
        assert private not in text


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A recording whose every name has `acme` in it."""
    container = {**CONTAINER, "image": "acme.io/acme", "command": ["acme"], "env": [{"name": "acme", "value": "acme"}]}
    selector = {"nodeSelector": {"acme.io/pool": "acme-pool", "topology.kubernetes.io/zone": "us-east-1a"}}
    template = {
        "metadata": {"labels": {"owner": "acme"}, "annotations": {"acme.io/mail": "ann@acme.io"}},
        "spec": {"containers": [container], "restartPolicy": "Never", **selector},
    }
    meta = {
        "name": "acme-train",
        "namespace": "acme-team",
        "uid": "5b87f5e9-5959-41aa-9e71-c231d0ac19cd",
        "resourceVersion": "9",
        "creationTimestamp": BEGIN,
        "labels": {"acme": "acme", "kueue.x-k8s.io/queue-name": "acme-lq"},
        "annotations": {"acme.io/note": "acme"},
        "ownerReferences": [{"apiVersion": "acme.io/v1", "kind": "Job", "name": "acme-train", "uid": "u"}],
    }
    conditions = [
        {
            "type": "QuotaReserved",
            "status": "False",
            "reason": "Pending",
            "message": "couldn't assign flavors to pod set acme: flavor acme-h100 doesn't match node affinity",
            "lastTransitionTime": BEGIN,
        }
    ]
    checks = [{"name": "acme-check", "state": "Pending", "message": "no capacity for ann", "lastTransitionTime": BEGIN}]
    spec = {"queueName": "acme-lq", "podSets": [{"name": "acme", "count": 1, "template": template}]}
    made = {
        **kueue("Workload", "", spec),
        "metadata": meta,
        "status": {"conditions": conditions, "admissionChecks": checks},
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1.acme.io",
            "labels": {"acme.io/pool": "acme-pool", "topology.kubernetes.io/zone": "us-east-1a"},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "message": "acme is ready"}],
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
            "nodeInfo": {"systemUUID": "5b87f5e9-5959-41aa-9e71-c231d0ac19ce"},
            "note": "/客户甲/data",
        },
    }
    lists = {
        "Node": [node],
        "ResourceFlavor": [kueue("ResourceFlavor", "acme-h100", {"nodeLabels": {"acme.io/pool": "acme-pool"}})],
        "Workload": [],
    }
    lines: list[dict[str, Any]] = [{"list": kind, "items": items} for kind, items in lists.items()]
    lines.append({"t": 1.0, "kind": "Workload", "type": "ADDED", "object": made})
    file = tmp_path / "private.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def test_names_are_replaced_and_what_no_rule_reads_is_left_out(private: Path, tmp_path: Path) -> None:
    target = tmp_path / "saved.jsonl"
    settings = KueueConfig(transformations={"acme.io/gpu": Transformation(input="acme.io/gpu", outputs={GPU: "1"})})
    saved(private, target, kueue=settings)
    text = target.read_text()
    assert "acme" not in text.replace("uid-acme-h100", "")
    assert not any(private in text for private in ("10.1.2.3", "c231d0ac19ce", "客户甲", "\\u5ba2", "for ann"))
    read = ClusterRecording(target).kueue
    assert read is not None
    [(resource, transformation)] = read.transformations.items()
    assert transformation == Transformation(input=resource, outputs={GPU: "1"})
    lines = [json.loads(line) for line in text.splitlines()]
    listed = {line["list"]: line["items"] for line in lines if "list" in line}
    assert "Pod" not in listed, "without topologies no decision depends on pods"
    [node], [flavor], made = listed["Node"], listed["ResourceFlavor"], lines[-1]["object"]
    [pod_set] = made["spec"]["podSets"]
    [container] = pod_set["template"]["spec"]["containers"]
    assert container == {"name": "c", "resources": {"requests": {GPU: "8"}}}
    [(key, value)] = flavor["spec"]["nodeLabels"].items()
    zone = {"topology.kubernetes.io/zone": "us-east-1a"}
    assert pod_set["template"]["spec"]["nodeSelector"] == node["metadata"]["labels"] == {key: value, **zone}
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": made["spec"]["queueName"]}
    assert made["metadata"]["annotations"] == pod_set["template"]["metadata"]["labels"] == {}
    assert made["metadata"]["uid"] == "5b87f5e9-5959-41aa-9e71-c231d0ac19cd"
    name, flavor_name = pod_set["name"], flavor["metadata"]["name"]
    assert made["status"]["conditions"][0]["message"] == (
        f"couldn't assign flavors to pod set {name}: flavor {flavor_name} doesn't match node affinity"
    )
    assert node["status"]["conditions"][0]["message"] == ""


def changes(file: Path) -> list[RecordedChange]:
    read = ClusterRecording(file)
    read.objects()
    return list(read.changes())


def test_a_recorder_that_is_killed_loses_at_most_the_line_at_work(tmp_path: Path) -> None:
    target = tmp_path / "saved.jsonl"
    saved(recording(tmp_path, "a100"), target)
    whole = target.read_bytes()
    assert len(changes(target)) == 2
    target.write_bytes(whole[:-40])
    assert len(changes(target)) == 1


def test_a_recording_ends_at_its_size_and_says_so(tmp_path: Path) -> None:
    target = tmp_path / "saved.jsonl"
    most = 3_000
    writer = saved(recording(tmp_path, "a100"), target, most)
    assert writer.problem == "the recording ended early: it has reached 3,000 bytes"
    assert 0 < target.stat().st_size <= most


def test_an_object_that_vanished_while_the_watch_was_interrupted_ends_the_recording() -> None:
    file = io.BytesIO()
    writer = RecordingWriter(file)
    writer.begin(0, KueueConfig())
    writer.take(ObjectGone(2_000_000, Workload, "team/train"))
    assert file.getvalue().splitlines()[-1] == b'{"t":2.0,"lost":"Workload"}'
    assert writer.problem == "the recording ended early: the watch of Workload was interrupted"


def test_a_full_disk_ends_the_recording_and_not_the_shadow() -> None:
    with open("/dev/full", "wb", buffering=0) as file:
        writer = RecordingWriter(file)
        writer.begin(0, KueueConfig())
    assert writer.problem == "the recording ended early: No space left on device"
