"""`gpuconsole snapshot save`: what is saved is what is opened again, with names or without."""

import json
from pathlib import Path

from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node
from gpuconsole.model.job import Job
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.snapshot import decode
from gpuconsole.sim.engine import policy_of_snapshot
from tests.cli.test_commands import LOW, NODE, QUEUES
from tests.support import api_documents
from tests.support.api_server import ApiServer
from tests.support.command_line import Line


def saved(folder: Path, gpuconsole: Line, *options: str) -> tuple[str, bytes]:
    """What was said, and the file."""
    manifests = folder / "acme.yaml"
    manifests.write_text((QUEUES + LOW + "---" + NODE).replace("namespace: team", "namespace: acme-team"))
    result = gpuconsole("snapshot", "save", folder / "saved.json", manifests, *options)
    assert result.status == 0, result.err
    return result.out, (folder / "saved.json").read_bytes()


def test_what_was_saved_is_opened_again(gpuconsole: Line, tmp_path: Path) -> None:
    said, data = saved(tmp_path, gpuconsole)
    assert said == f"{tmp_path / 'saved.json'}: 1 nodes, 1 workloads, 1 pods\n"
    kinds = [type(thing) for thing in decode(data).objects]
    assert (kinds.count(Node), kinds.count(ClusterQueue), kinds.count(Job)) == (1, 1, 1)
    result = gpuconsole("simulate", "--snapshot", tmp_path / "saved.json", "--until", "3h")
    assert result.status == 0
    assert [line.split()[0] for line in result.lines[:2]] == ["QUEUE", "cq"]


def test_a_simulation_is_saved_as_it_is_after_a_while(gpuconsole: Line, tmp_path: Path) -> None:
    for until in ("0s", "1h"):
        assert gpuconsole("snapshot", "save", tmp_path / until, "org-cohort", "--until", until).status == 0
    began, later = (decode((tmp_path / until).read_bytes()) for until in ("0s", "1h"))
    assert later.time - began.time == HOUR
    assert (
        gpuconsole("why", "prod/serve", "--quick", "--snapshot", tmp_path / "1h")
        .lines[0]
        .startswith("prod/serve  not pending")
    )
    both = gpuconsole("snapshot", "save", tmp_path / "x", "--live", "--until", "1h")
    assert (both.status, both.err) == (
        2,
        "gpuconsole: --until is for simulations, --live saves the current state; remove one of them\n",
    )


def test_redacted_it_names_nobody_and_can_be_opened_all_the_same(gpuconsole: Line, tmp_path: Path) -> None:
    _, data = saved(tmp_path, gpuconsole, "--redact")
    assert b"acme" not in data
    assert b"nvidia.com/gpu" in data
    assert gpuconsole("simulate", "--snapshot", tmp_path / "saved.json", "--until", "3h").status == 0


def test_a_live_cluster_is_saved_with_what_was_left_out(gpuconsole: Line, tmp_path: Path) -> None:
    api = ApiServer(tmp_path)
    try:
        api.put("nodes", api_documents.node("acme-1"))
        api.put("clusterqueues", api_documents.cluster_queue("cq"))
        api.forbidden = lambda verb, plural, namespace: plural == "clusterqueues"
        result = gpuconsole("snapshot", "save", tmp_path / "live.json", "--live", "--kubeconfig", api.kubeconfig)
    finally:
        api.close()
    assert (result.status, result.err) == (
        0,
        "not saved: cannot list clusterqueues.kueue.x-k8s.io at the cluster scope\n",
    )
    saved = decode((tmp_path / "live.json").read_bytes())
    assert [thing.name for thing in saved.objects if isinstance(thing, Node)] == ["acme-1"]


def test_a_live_cluster_goes_on_by_its_own_configuration(gpuconsole: Line, tmp_path: Path) -> None:
    api, file = ApiServer(tmp_path), tmp_path / "live.json"
    try:
        api.put("clusterqueues", api_documents.cluster_queue("cq"))
        options = ("--live", "--kubeconfig", api.kubeconfig, "--feature-gates", "PartialAdmission=false", "--redact")
        assert gpuconsole("snapshot", "save", file, *options).status == 0
    finally:
        api.close()
    policy = policy_of_snapshot(decode(file.read_bytes()))
    assert policy is not None
    assert policy.kueue is not None
    assert not policy.kueue.enabled("PartialAdmission")


def test_a_file_that_cannot_be_written_is_a_line(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("snapshot", "save", tmp_path / "no" / "such" / "folder.json")
    assert result.status != 0
    assert result.err.startswith("gpuconsole: ")
    assert len(result.err.splitlines()) == 1


def test_a_file_that_is_not_utf_8_is_an_error_with_its_place(gpuconsole: Line, tmp_path: Path) -> None:
    _, data = saved(tmp_path, gpuconsole)
    file = tmp_path / "bad.json"
    at = data.index(b"acme-team")
    file.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    line = data.count(b"\n", 0, at) + 1
    for command in (["shares"], ["simulate"], ["why", "team/job"], ["forecast"]):
        result = gpuconsole(*command, "--snapshot", file)
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith(f"gpuconsole: {file}:{line}: not valid UTF-8: byte 0xff at position {at}; ")


def test_a_policy_that_is_not_utf_8_is_an_error(gpuconsole: Line, tmp_path: Path) -> None:
    _, data = saved(tmp_path, gpuconsole)
    file = tmp_path / "bad.json"
    at = data.index(b"binpack")
    file.write_bytes(data[:at] + b"\xa7" + data[at + 1 :])
    result = gpuconsole("shares", "--snapshot", file)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"gpuconsole: {file}")


def test_a_wrong_value_before_broken_json_is_an_error(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text("9999999\n]")
    result = gpuconsole("risk", "--snapshot", file)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"gpuconsole: {file}: not a snapshot")


def test_more_volcano_tasks_than_pod_sets_are_an_error(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    assert gpuconsole("snapshot", "save", file, "policies-volcano", "--until", "1m").status == 0
    document = json.loads(file.read_bytes())
    [job, *_] = [thing for thing in document["objects"] if thing.get("volcano")]
    job["volcano"].setdefault("tasks", []).extend([{}] * 5)
    file.write_text(json.dumps(document))
    result = gpuconsole("shares", "--snapshot", file)
    assert (result.status, result.out) == (2, "")
    assert f"{job['name']} volcano.tasks: " in result.err
