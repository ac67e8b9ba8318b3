"""What may not be read of a cluster is unknown in every answer, never missing and never zero."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gpuconsole.model.seen import Seen, Unseen, only
from gpuconsole.model.snapshot import decode, encode
from gpuconsole.model.state import ClusterState
from tests.backends.kube import documents
from tests.backends.kube.apiserver import ApiServer
from tests.cli.line import Line

ASSUMED = "Kueue's Configuration is assumed to be the default: ConfigMap kueue-system/c may not be read"


def without(file: Path, table: str, resource: str, namespaces: tuple[str, ...] | None = None) -> str:
    """Take a kind out of a saved cluster, or all but what is in some namespaces; returns why it is not seen."""
    saved = decode(file.read_bytes())
    snapshot = ClusterState.from_file(saved).freeze()
    why = only(namespaces) if namespaces is not None else f"may not list {resource} in the whole cluster"
    left = getattr(snapshot, table).all()
    gone = {id(thing) for thing in left if getattr(thing, "namespace", "") not in (namespaces or ())}
    gap = Unseen(table=table, resource=resource, why=why, namespaces=namespaces or ())
    kept = tuple(thing for thing in snapshot.objects() if id(thing) not in gone)
    seen = Seen(gaps=(*saved.seen.gaps, gap), assumed=saved.seen.assumed)
    state = ClusterState.from_file(replace(saved, objects=kept, seen=seen))
    file.write_bytes(encode(state.freeze(), saved.policy, saved.seed))
    return why


def answer(gpuconsole: Line, *words: object) -> tuple[int, Any]:
    """Exit status and document of a question."""
    result = gpuconsole(*words, "-o", "json")
    return result.status, json.loads(result.out)


def test_what_was_not_seen_of_a_live_cluster_is_said_of_its_file_too(gpuconsole: Line, tmp_path: Path) -> None:
    api, file = ApiServer(tmp_path), tmp_path / "live.json"
    try:
        api.put("nodes", documents.node("n1"))
        api.put("clusterqueues", documents.cluster_queue("cq"))
        api.forbidden = lambda verb, plural, namespace: plural == "nodes"
        live = answer(gpuconsole, "shares", "--live", "--kubeconfig", api.kubeconfig)[1]["assumed"]
        gpuconsole("snapshot", "save", file, "--live", "--kubeconfig", api.kubeconfig)
    finally:
        api.close()
    assert "may not list nodes in the whole cluster" in live
    for question in ("slots", "shares", "forecast"):
        assert answer(gpuconsole, question, "--snapshot", file)[1]["assumed"] == live
    said = gpuconsole("shares", "--snapshot", file).err.splitlines()
    assert said[: len(live)] == [f"gpuconsole: {text}" for text in live]


def test_an_assumed_configuration_is_told_unless_another_is_named(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    gpuconsole("snapshot", "save", file, "org-cohort")
    saved = decode(file.read_bytes())
    state = ClusterState.from_file(replace(saved, seen=Seen(assumed=(ASSUMED,))))
    file.write_bytes(encode(state.freeze(), saved.policy, saved.seed))
    for question in ("shares", "forecast"):
        assert answer(gpuconsole, question, "--snapshot", file)[1]["assumed"] == [ASSUMED]
        named = (question, "--snapshot", file, "--feature-gates", "PartialAdmission=false")
        assert answer(gpuconsole, *named)[1]["assumed"] == []


def test_a_file_of_another_format_is_refused_with_its_number(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    file.write_text('{"format": 99, "time": 1}')
    for question in ("slots", "forecast"):
        result = gpuconsole(question, "--snapshot", file)
        assert (result.status, result.err) == (
            2,
            f"gpuconsole: {file}: format 99 is not known; this version reads format 1\n",
        )
