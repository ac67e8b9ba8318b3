"""`lint` on files: its lines, its JSON, its exit status; and that it is right about every bundled drill."""

import json
from pathlib import Path

import pytest

from gpuconsole.scheduling.volcano.config import HELM_CONF
from tests.support.command_line import Line

ROOT = Path(__file__).resolve().parents[2] / "fixtures"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "seeds"
QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: a}
spec:
  parentName: b
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: b}
spec:
  parentName: a
"""
STUCK = {"never-fits-cluster"}
HELM = {"binpack-without-gpus"}
DRILLS = {
    "binpack-volcano-without": HELM,
    "gpu-only": {"never-fits-node"},
    "kueue-volcano": HELM,
    "policies-volcano": HELM,
    "proportion-volcano": {"volcano-never-preempts"},
    "six-of-eight": STUCK,
    "six-of-eight-without": STUCK,
    "three-nodes-volcano": HELM,
    "three-nodes-volcano-by-score": HELM,
    "three-teams": {"never-fits-quota"},
    "two-of-four": STUCK,
    "two-of-four-without": STUCK,
}
"""Drills about something that is not right, and what that is; nothing is found in any other."""


@pytest.mark.parametrize("file", sorted((ROOT / "drills").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_drill_has_the_faults_that_it_is_about_and_no_other(gpuconsole: Line, file: Path) -> None:
    result = gpuconsole("lint", file, "-o", "json")
    codes = {finding["code"] for finding in json.loads(result.out)["findings"]}
    assert codes == DRILLS.get(file.stem, set())


@pytest.mark.parametrize("name", ["default", "campus"])
def test_nothing_is_wrong_with_what_the_console_opens(gpuconsole: Line, name: str) -> None:
    result = gpuconsole("lint", name)
    assert (result.status, result.lines) == (0, ["0 errors, 0 warnings, 0 notes"])


def test_a_finding_is_a_line_with_its_place(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "cohorts.yaml"
    file.write_text(QUEUE)
    result = gpuconsole("lint", file)
    assert result.status == 1
    assert result.lines == [
        f"{file}:5: error: Cohort/a spec.parentName: the cohort is its own ancestor: no workload in it or below it "
        "is admitted (cycle: a → b → a); remove parentName from one cohort of the cycle [cohort-cycle]",
        "1 error, 0 warnings, 0 notes",
    ]


def test_the_configuration_of_a_scheduler_is_a_file_too(gpuconsole: Line, tmp_path: Path) -> None:
    file, wrapped = tmp_path / "volcano-scheduler.conf", tmp_path / "configmap.yaml"
    file.write_text(HELM_CONF)
    inner = "".join(f"    {line}\n" for line in HELM_CONF.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: volcano-scheduler-configmap}\n"
    wrapped.write_text(f"{head}data:\n  volcano-scheduler.conf: |\n{inner}")
    for path in (file, wrapped):
        result = gpuconsole("lint", path)
        assert result.status == 0
        assert [line.rpartition("[")[2] for line in result.lines[:-1]] == [
            "binpack-without-gpus]",
            "volcano-never-preempts]",
        ]
        line = {file: 15, wrapped: 20}[path]
        assert result.lines[0].startswith(f"{path}:{line}: warning: tiers[1].plugins[5]: binpack scores cpu")


def test_json_has_a_version_and_counts(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(
        HELM_CONF.replace("allocate,", "allocate, preempt, gangreclaim,").replace("  - name: binpack\n", "")
    )
    result = gpuconsole("lint", file, "-o", "json")
    assert result.status == 1
    assert json.loads(result.out) == {
        "version": 1,
        "findings": [
            {
                "code": "two-ways-of-evicting",
                "level": "error",
                "file": str(file),
                "line": 1,
                "object": "",
                "field": "actions",
                "problem": "preempt and reclaim evict tasks, gangpreempt and gangreclaim evict gangs: "
                "only one pair is needed",
                "evidence": {"actions": "enqueue, allocate, preempt, gangreclaim, backfill"},
                "fix": "keep preempt and reclaim, or gangpreempt and gangreclaim",
            }
        ],
        "errors": 1,
        "warnings": 0,
        "notes": 0,
    }


def test_what_cannot_be_read_is_an_error(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("steps: []\nengine: {placement: {engine: Nobody}}\n")
    result = gpuconsole("lint", file)
    assert result.status == 1
    assert result.lines[0].startswith(f"{file}:2: error: engine.placement.engine: ")


@pytest.mark.skipif(not SHARED.exists(), reason="the seeds are not here")
def test_of_the_seeds_lint_says_what_is_wrong(gpuconsole: Line) -> None:
    result = gpuconsole("lint", SHARED, "-o", "json")
    found = [(f["level"], f["code"], f["line"]) for f in json.loads(result.out)["findings"]]
    assert found == [
        ("error", "sla-is-no-job-plugin", 176),
        ("warning", "unreachable-quota", 93),
        ("warning", "missing-priority-class", 136),
        ("warning", "timeout-misread", 174),
        ("warning", "sla-misread", 177),
        ("warning", "never-misread", 249),
    ]
