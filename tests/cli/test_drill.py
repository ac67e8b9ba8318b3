"""Drills on the command line: a line for each expectation, and what a failure looks like."""

from pathlib import Path

import pytest

from tests.cli.line import Line

FORM = """
name: one-job
objects:
- {{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {{name: a100}}}}
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: ClusterQueue
  metadata: {{name: cq}}
  spec:
    namespaceSelector: {{}}
    resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{{name: a100, resources: [{{name: nvidia.com/gpu, nominalQuota: 8}}]}}]
- apiVersion: kueue.x-k8s.io/v1beta2
  kind: LocalQueue
  metadata: {{name: lq, namespace: team}}
  spec: {{clusterQueue: cq}}
steps:
- advanceSeconds: 60
  create:
  - apiVersion: batch/v1
    kind: Job
    metadata: {{name: train, namespace: team, labels: {{kueue.x-k8s.io/queue-name: lq}}}}
    spec:
      suspend: true
      template:
        spec:
          restartPolicy: Never
          containers:
          - {{name: main, resources: {{requests: {{nvidia.com/gpu: 8}}, limits: {{nvidia.com/gpu: 8}}}}}}
  expect: {expect}
"""
MET = FORM.format(expect="[{usage: {cq: {a100: {nvidia.com/gpu: 8}}}}, {noEvictions: true}]")
UNMET = FORM.format(expect="[{usage: {cq: {a100: {nvidia.com/gpu: 7}}}}]")
SILENT = FORM.format(expect="[]")
WRONG = FORM.format(expect="[{useage: {}}]")
BROKEN = "name: broken\nstepps: []\nsteps: []\n"


@pytest.fixture
def drills(tmp_path: Path) -> Path:
    folder = tmp_path / "drills"
    folder.mkdir()
    return folder


def test_a_drill_that_is_met(gpuconsole: Line, drills: Path) -> None:
    (drills / "good.yaml").write_text(MET)
    result = gpuconsole("drill", "run", drills / "good.yaml")
    assert (result.status, result.lines[-1]) == (0, "2 expectations met, 0 not")
    assert [line.partition(":")[0] for line in result.lines[:-1]] == ["ok   good step 1 at 1m"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(UNMET, "7", id="an expectation that is not met"),
        pytest.param(SILENT, "checks nothing does not pass", id="a drill that expects nothing"),
        pytest.param(WRONG, "useage", id="an unknown key of an expectation"),
        pytest.param(BROKEN, "stepps", id="an unknown key of the scenario"),
    ],
)
def test_a_failure_has_its_line_and_does_not_keep_the_others_from_running(
    gpuconsole: Line, drills: Path, text: str, said: str
) -> None:
    (drills / "bad.yaml").write_text(text)
    (drills / "good.yaml").write_text(MET)
    result = gpuconsole("drill", "run", drills)
    failed = [line for line in result.lines if line.startswith("FAIL ")]
    assert (result.status, len(failed)) == (1, 1)
    assert said in failed[0]
    assert result.lines[-1] == "2 expectations met, 1 not"


def test_an_empty_folder_is_no_success(gpuconsole: Line, drills: Path) -> None:
    result = gpuconsole("drill", "run", drills)
    assert (result.status, result.lines) == (1, ["0 expectations met, 0 not"])
