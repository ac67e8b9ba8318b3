"""A scenario and the files that it names are checked together, and its documents are read as files are."""

import json
from pathlib import Path
from typing import Any

from gpuconsole.model.job import Job
from gpuconsole.model.manifests import UnreadDocument, decode_objects, load

FLAVOR = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: a100}\n"
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
"""
LOCAL = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "lq", "namespace": "team"},
    "spec": {"clusterQueue": "cq"},
}


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_what_a_scenario_names_may_stand_in_its_files(tmp_path: Path) -> None:
    write(tmp_path, cluster=f"{FLAVOR}---{QUEUE}", scenario=json.dumps({"files": ["cluster.yaml"], "objects": [LOCAL]}))
    loaded = load([tmp_path / "scenario.yaml"])
    assert loaded.findings == ()
    assert loaded.objects == (), "the scenario brings them when it runs"
    assert loaded.origins == (str(tmp_path / "scenario.yaml"),)


def test_the_files_of_a_scenario_are_validated_with_it(tmp_path: Path) -> None:
    write(tmp_path, cluster=QUEUE, scenario=json.dumps({"files": ["cluster.yaml", "gone.yaml"]}))
    findings = load([tmp_path / "scenario.yaml"]).findings
    assert [(Path(f.file).name, f.path, f.code) for f in findings] == [
        ("scenario.yaml", "files[1]", "unreadable"),
        ("cluster.yaml", "spec.resourceGroups[0].flavors[0].name", "undefined-resourceflavor"),
    ]


def test_a_file_that_is_given_beside_its_scenario_comes_once(tmp_path: Path) -> None:
    write(tmp_path, cluster=FLAVOR, scenario=json.dumps({"files": ["cluster.yaml"]}))
    loaded = load([tmp_path])
    assert (loaded.objects, loaded.findings) == ((), ())


def test_a_scenario_in_the_files_of_a_scenario_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, inner=json.dumps({"objects": [LOCAL]}), outer=json.dumps({"files": ["inner.yaml", "outer.yaml"]}))
    loaded = load([tmp_path / "outer.yaml"])
    assert [(Path(f.file).name, f.code) for f in loaded.findings] == [
        ("outer.yaml", "nested-scenario"),
        ("inner.yaml", "nested-scenario"),
    ]
    assert loaded.scenario == ({"files": ["inner.yaml", "outer.yaml"]},)


def test_scenarios_know_nothing_of_each_other(tmp_path: Path) -> None:
    again = json.dumps({"files": ["cluster.yaml"], "objects": [LOCAL]})
    write(tmp_path, cluster=f"{FLAVOR}---{QUEUE}", one=again, two=again, three=json.dumps({"objects": [LOCAL]}))
    findings = load([tmp_path]).findings
    assert [(Path(f.file).name, f.code) for f in findings] == [("three.yaml", "undefined-clusterqueue")]


def test_a_step_may_create_again_what_an_earlier_one_deleted(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 1}}}
    steps = [{"create": [node]}, {"delete": ["Node/n"]}, {"create": [node]}]
    write(tmp_path, scenario=json.dumps({"steps": steps}))
    assert load([tmp_path]).findings == ()


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        },
        "spec": {"containers": [{"name": "c"}]},
    }


def test_documents_of_a_scenario_are_read_as_files_are() -> None:
    pair = [pod(name, queue_name="lq", pod_group_name="crew") for name in ("a", "b")]
    things, unread = decode_objects(
        [
            {"apiVersion": "v1", "kind": "List", "items": pair},
            pod("alone", queue_name="lq"),
            pod("plain"),
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}},
            {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "d"}},
        ]
    )
    assert [thing.key for thing in things] == ["PodGroup/default/crew", "Pod/default/alone", "default/plain"]
    assert [isinstance(thing, Job) for thing in things] == [True, True, False]
    assert unread == ()


def test_documents_that_give_no_object_are_named() -> None:
    nameless = {"apiVersion": "v1", "kind": "Node", "metadata": {}}
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    half = pod("a", queue_name="lq", pod_group_name="crew")
    things, unread = decode_objects([nameless, widget, {}, half])
    assert things == ()
    assert unread == (
        UnreadDocument(0, "the Node has no name"),
        UnreadDocument(1, "Widget is not simulated"),
        UnreadDocument(2, "an object without kind is not simulated"),
        UnreadDocument(3, "the pod group crew lacks pods"),
    )
