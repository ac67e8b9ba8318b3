"""What may not be read of a cluster is unknown in every answer, never missing and never zero."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.cli.whatif import OF_NODES
from gpuconsole.insight.data_gaps import in_sentences, latency_assumption
from gpuconsole.model.snapshot import QueueAssumptions, Visibility, VisibilityGap, decode, encode, only_namespaces_text
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.run_times import DEFAULT_LATENCIES
from tests.support import api_documents
from tests.support.api_server import ApiServer
from tests.support.command_line import Line

ASSUMED = "Kueue's Configuration is assumed to be the default: ConfigMap kueue-system/c may not be read"


def without(file: Path, table: str, resource: str, namespaces: tuple[str, ...] | None = None) -> str:
    """Take a kind out of a saved cluster, or all but what is in some namespaces; returns why it is not seen."""
    saved = decode(file.read_bytes())
    snapshot = ClusterState.from_file(saved).freeze()
    why = only_namespaces_text(namespaces) if namespaces is not None else f"cannot list {resource} at the cluster scope"
    left = getattr(snapshot, table).all() if table != "recent" else ()
    gone = {id(thing) for thing in left if getattr(thing, "namespace", "") not in (namespaces or ())}
    gap = VisibilityGap(table=table, resource=resource, why=why, namespaces=namespaces or ())
    kept = tuple(thing for thing in snapshot.objects() if id(thing) not in gone)
    seen = Visibility(gaps=(*saved.seen.gaps, gap), assumed=saved.seen.assumed)
    recent = saved.recent if table != "recent" else ()
    state = ClusterState.from_file(replace(saved, objects=kept, recent=recent, seen=seen))
    file.write_bytes(encode(state.freeze(), saved.policy, saved.seed))
    return why


def answer(gpuconsole: Line, *words: str | Path) -> tuple[int, Any]:
    """Exit status and document of a question."""
    result = gpuconsole(*words, "-o", "json")
    return result.status, json.loads(result.out)


def test_what_was_not_seen_of_a_live_cluster_is_said_of_its_file_too(gpuconsole: Line, tmp_path: Path) -> None:
    api, file = ApiServer(tmp_path), tmp_path / "live.json"
    try:
        api.put("nodes", api_documents.node("n1"))
        api.put("clusterqueues", api_documents.cluster_queue("cq"))
        api.forbidden = lambda verb, plural, namespace: plural == "nodes"
        live = answer(gpuconsole, "shares", "--live", "--kubeconfig", api.kubeconfig)[1]["assumed"]
        gpuconsole("snapshot", "save", file, "--live", "--kubeconfig", api.kubeconfig)
    finally:
        api.close()
    assert "cannot list nodes at the cluster scope" in live
    for question in ("slots", "shares", "forecast"):
        assert answer(gpuconsole, question, "--snapshot", file)[1]["assumed"] == live
    said = gpuconsole("shares", "--snapshot", file).err.splitlines()
    assert said[: len(live)] == [f"gpuconsole: {text}" for text in live]


def test_what_was_not_seen_is_said_again_when_a_saved_cluster_is_run_on_and_saved(
    gpuconsole: Line, tmp_path: Path
) -> None:
    file, later = tmp_path / "saved.json", tmp_path / "later.json"
    gpuconsole("snapshot", "save", file, "three-nodes")
    why = without(file, "pods", "pods", ("team",))
    result = gpuconsole("snapshot", "save", later, "--snapshot", file, "--until", "10m")
    assert (result.status, result.err) == (0, f"not saved: {why}\n")
    assert decode(later.read_bytes()).seen == decode(file.read_bytes()).seen


def test_an_assumed_configuration_is_told_unless_another_is_named(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    gpuconsole("snapshot", "save", file, "org-cohort")
    saved = decode(file.read_bytes())
    state = ClusterState.from_file(replace(saved, seen=Visibility(assumed=(ASSUMED,))))
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


WORKLOADS, QUEUES, FLAVORS, DOORS, NODES, PODS = (
    ("workloads", "workloads.kueue.x-k8s.io"),
    ("cluster_queues", "clusterqueues.kueue.x-k8s.io"),
    ("flavors", "resourceflavors.kueue.x-k8s.io"),
    ("local_queues", "localqueues.kueue.x-k8s.io"),
    ("nodes", "nodes"),
    ("pods", "pods"),
)
RUNS = ("--runs", "1", "--horizon", "2m")
RESTS: dict[tuple[str, ...], tuple[tuple[str, str], ...]] = {
    ("ledger",): (WORKLOADS, QUEUES),
    ("shares",): (WORKLOADS, QUEUES, DOORS),
    ("slots",): (NODES, PODS),
    ("cost",): (NODES, PODS),
    ("risk", *RUNS): (WORKLOADS, QUEUES, FLAVORS, DOORS, NODES, PODS),
    ("forecast",): (WORKLOADS, QUEUES, FLAVORS, DOORS),
    ("whatif", "-f", "change.yaml"): (WORKLOADS, QUEUES, FLAVORS, DOORS),
    ("plan", "-f", "wanted.yaml"): (WORKLOADS, QUEUES, FLAVORS, DOORS, NODES, PODS),
}


WANTED = """
apiVersion: batch/v1
kind: Job
metadata: {name: wanted, namespace: a, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


HALF = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: closed}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: open}
spec: {namespaceSelector: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: a}
spec: {clusterQueue: open}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: unknown-class
  namespace: b
  labels: {kueue.x-k8s.io/priority-class: high, kueue.x-k8s.io/queue-name: none}
spec: {template: {spec: {containers: [{name: main, image: x}]}}}
"""


@pytest.fixture
def file(gpuconsole: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved cluster in which somebody borrows and somebody waits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "change.yaml").write_text("steps: [{commands: [{type: cordon, node: h100-1, cordoned: true}]}]\n")
    (tmp_path / "wanted.yaml").write_text(WANTED)
    gpuconsole("snapshot", "save", tmp_path / "whole.json", "three-teams", "--until", "1h")
    return tmp_path / "whole.json"


@pytest.mark.parametrize(
    ("words", "kind"),
    [(words, kind) for words, kinds in RESTS.items() for kind in kinds],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_answer_says_nothing_that_rests_on_what_may_not_be_listed(
    gpuconsole: Line, file: Path, words: tuple[str, ...], kind: tuple[str, str]
) -> None:
    why = without(file, *kind)
    status, document = answer(gpuconsole, *words, "--snapshot", file)
    assert (status, document["answer"], document["unknown"], document["assumed"]) == (2, None, [why], [why])
    said = gpuconsole(*words, "--snapshot", file)
    assert (said.status, said.lines) == (2, ["not enough data for an answer", f"unknown: {why}"])


@pytest.mark.parametrize("words", RESTS, ids=lambda words: words[0])
def test_it_says_nothing_either_where_others_are_only_in_other_namespaces(
    gpuconsole: Line, file: Path, words: tuple[str, ...]
) -> None:
    for kind in (WORKLOADS, DOORS, PODS):
        why = without(file, *kind, namespaces=("a",))
    status, document = answer(gpuconsole, *words, "--snapshot", file)
    assert (status, document["answer"], document["unknown"]) == (2, None, [why])


def test_of_what_is_seen_wholly_everything_is_said(gpuconsole: Line, file: Path) -> None:
    for words in RESTS:
        status, document = answer(gpuconsole, *words, "--snapshot", file)
        # The fields of `cost` stand beside those about the data.
        said = document.get("answer", document.get("items"))
        assert (status in (0, 1), said is not None, document["unknown"]) == (True, True, [])


def test_where_a_workload_stands_is_said_and_when_it_starts_is_not(gpuconsole: Line, file: Path) -> None:
    for kind, place in ((NODES, 1), (FLAVORS, 1), (WORKLOADS, None)):
        why = without(file, *kind, namespaces=("a",) if kind is WORKLOADS else None)
        status, document = answer(gpuconsole, "eta", "a/a-32", *RUNS, "--snapshot", file)
        found = document["answer"]
        assert (status, found["estimate"], found["gpus"]) == (0, None, 32)
        assert (found["position"] and found["position"]["in_cluster_queue"]) == place
        assert document["unknown"][-1] == f"ETA: {why}"
    said = gpuconsole("eta", "a/a-32", *RUNS, "--snapshot", file).lines
    assert said[0] == "a/a-32  32 GPUs  pending  in team-a"
    assert "not pending" not in "".join(said)


def test_a_workload_that_nobody_judged_is_not_said_to_get_in(gpuconsole: Line, file: Path) -> None:
    """Kueue's words on a-32 are told; of a job whose Workload may not be seen there are none."""
    why = without(file, *FLAVORS)
    status, document = answer(gpuconsole, "why", "a/a-32", "--snapshot", file)
    found = document["answer"]
    assert (status, found["code"], found["considered"], found["would_unblock"]) == (0, "quota", [], None)
    assert document["unknown"] == [f"the engine's decision: {why}"]
    why = without(file, *WORKLOADS)
    _, document = answer(gpuconsole, "why", "a/a-32", "--snapshot", file)
    assert (document["answer"]["code"], document["answer"]["headline"]) == (
        "unseen",
        f"Pending; the reason is unknown: {why}.",
    )


def test_a_what_if_without_nodes_has_no_numbers_of_them(gpuconsole: Line, file: Path) -> None:
    Path("change.yaml").write_text(WANTED)
    why = without(file, *NODES)
    words = ("whatif", "-f", "change.yaml", "--snapshot", file)
    status, document = answer(gpuconsole, *words)
    found = document["answer"]
    assert (status, document["version"], document["unknown"]) == (0, 6, [f"GPUs, nodes and node cost: {why}"])
    assert {name for name, value in found.items() if value is None} >= set(OF_NODES)
    assert (found["queues"][0]["queue"], found["queues"][0]["used"]) == ("team-a", 8)
    rows = [line.split() for line in gpuconsole(*words).lines]
    for label in ("GPUs in use", "GPUs in the cluster", "mean utilization", "node cost per hour"):
        assert [*label.split(), "–", "–", "–"] in rows


def test_futures_of_what_others_run_say_which_run_times_they_assume(gpuconsole: Line, file: Path) -> None:
    long = "a workload without a known duration runs 1h, twice that if it already ran longer"
    told, latencies = f"run times are not estimated from history: {long}", latency_assumption(DEFAULT_LATENCIES)
    [queues] = in_sentences(QueueAssumptions(inadmissible=2))
    for words in (("whatif", "-f", "change.yaml"), ("plan", "-f", "wanted.yaml")):
        assert answer(gpuconsole, *words, "--snapshot", file)[1]["assumed"] == [told, queues, latencies]
        assert f"gpuconsole: {told}" in gpuconsole(*words, "--snapshot", file).err.splitlines()
        assert answer(gpuconsole, *words, "three-teams")[1]["assumed"] == [latencies]


def test_what_may_be_there_all_the_same_is_no_anti_pattern(gpuconsole: Line, tmp_path: Path) -> None:
    file, manifests = tmp_path / "saved.json", tmp_path / "cluster.yaml"
    manifests.write_text(HALF)
    gpuconsole("snapshot", "save", file, manifests)

    def codes() -> list[str]:
        return [one["code"] for one in answer(gpuconsole, "antipatterns", "--snapshot", file)[1]["answer"]["patterns"]]

    assert codes() == ["unreachable-quota", "missing-priority-class"]
    doors = without(file, *DOORS, namespaces=("a",))
    assert codes() == ["missing-priority-class"]
    classes = without(file, "workload_priority_classes", "workloadpriorityclasses.kueue.x-k8s.io")
    assert gpuconsole("antipatterns", "--snapshot", file).lines[2:] == [
        "no findings",
        f"unknown: never-fits, unreachable-quota: {doors}",
        f"unknown: missing-priority-class: {classes}",
    ]


def test_who_was_preempted_is_not_nobody_where_neither_events_nor_workloads_may_be_read(
    gpuconsole: Line, file: Path
) -> None:
    events = without(file, "recent", "events")
    status, document = answer(gpuconsole, "preemptions", "--snapshot", file)
    assert (status, document["unknown"]) == (0, [f"other preemptions: {events}"])
    assert document["answer"] is not None
    workloads = without(file, *WORKLOADS)
    status, document = answer(gpuconsole, "preemptions", "--snapshot", file)
    assert (status, document["answer"], set(document["unknown"])) == (2, None, {events, workloads})


def test_a_comparison_with_what_kueue_did_names_what_the_forecasts_could_not_see(gpuconsole: Line, file: Path) -> None:
    why = without(file, *FLAVORS)
    _, document = answer(gpuconsole, "forecast", "--check", "--snapshot", file, "--against", file)
    assert (document["answer"] is None, document["unknown"]) == (False, [why])
