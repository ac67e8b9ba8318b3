"""`drill run`: a line for each expectation; what cannot be checked is no pass."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.cli.drill import Suite, as_junit
from gpuconsole.insight.drill import ExpectationOutcome, ExpectationVerdict
from gpuconsole.model.clock import MINUTE
from tests.support.command_line import Line

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {allocatable: {cpu: 8, pods: 10}}\n"
DRILL = "files: [../nodes.yaml]\nsteps: [{expect: [{freeNodes: 1}]}]\n"


def folder(tmp_path: Path, **files: str) -> Path:
    (tmp_path / "drills").mkdir()
    (tmp_path / "nodes.yaml").write_text(NODE)
    for name, text in files.items():
        (tmp_path / "drills" / f"{name}.yaml").write_text(text)
    return tmp_path


def test_a_folder_is_searched_for_scenarios_and_its_manifests_are_none(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("drill", "run", folder(tmp_path, one=DRILL, two=DRILL))
    assert result.status == 0
    assert result.lines == [
        "ok   one step 1 at 0s: freeNodes: 1",
        "ok   two step 1 at 0s: freeNodes: 1",
        "2 expectations met, 0 failed",
    ]


def test_a_drill_that_cannot_be_read_fails_and_the_others_run(gpuconsole: Line, tmp_path: Path) -> None:
    place = folder(tmp_path, one=DRILL, broken="steps: [")
    result = gpuconsole("drill", "run", place)
    assert result.status == 1
    assert result.lines[0] == "ok   one step 1 at 0s: freeNodes: 1"
    assert result.lines[1].startswith(f"FAIL {place}/drills/broken.yaml:")
    assert result.lines[2] == "1 expectation met, 1 failed"


def test_a_drill_that_expects_nothing_fails(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("drill", "run", folder(tmp_path, one=DRILL.replace("{freeNodes: 1}", "{nodes: {}}")))
    assert result.status == 1
    assert result.lines == [
        f"FAIL {tmp_path}/drills/one.yaml:2: error: steps[0].expect[0]: nodes: it is empty and would always"
        " hold; name at least one object",
        "0 expectations met, 1 failed",
    ]


def test_a_folder_without_scenarios_fails(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("drill", "run", folder(tmp_path))
    assert result.status == 1
    assert result.lines[-1] == "0 expectations met, 1 failed"


@pytest.mark.parametrize("text", ["", "\n", "# steps: []\n", "---\n"])
def test_a_drill_that_became_empty_fails_in_its_folder_as_it_does_alone(
    gpuconsole: Line, tmp_path: Path, text: str
) -> None:
    place = folder(tmp_path, one=DRILL, two=text)
    problem = "FAIL two step 0 at 0s: no step has an expectation; a drill without expectations fails"

    alone = gpuconsole("drill", "run", place / "drills" / "two.yaml")
    assert (alone.status, alone.lines) == (1, [problem, "0 expectations met, 1 failed"])
    result = gpuconsole("drill", "run", place)
    assert result.status == 1
    assert result.lines == ["ok   one step 1 at 0s: freeNodes: 1", problem, "1 expectation met, 1 failed"]


def test_a_file_that_is_not_there_is_told_once_by_the_field_that_names_it(gpuconsole: Line, tmp_path: Path) -> None:
    place = folder(tmp_path, one="name: one\n" + DRILL.replace("[../nodes.yaml]", "[../nodes.yaml, nowhere.yaml]"))
    problem = (
        f"{place}/drills/one.yaml:2: error: files[1]: nowhere.yaml cannot be read: No such file or directory;"
        " the path is relative to the folder of the scenario"
    )
    for asked in (place / "drills", place / "drills" / "one.yaml"):
        result = gpuconsole("drill", "run", asked)
        assert (result.status, result.lines) == (1, [f"FAIL {problem}", "0 expectations met, 1 failed"])
    assert gpuconsole("validate", place / "drills").lines[0] == problem
    assert gpuconsole("lint", place / "drills").lines[:2] == [
        f"{problem} [unreadable]",
        "1 error, 0 warnings, 0 notes",
    ]
    assert gpuconsole("simulate", place / "drills" / "one.yaml").err == f"gpuconsole: {problem}\n"


@pytest.mark.parametrize(("text", "failures"), [("", 0), (NODE.replace("cpu: 8", "cpu: many"), 1)])
def test_what_is_wrong_in_a_file_that_a_drill_names_is_told_by_the_drill_alone(
    gpuconsole: Line, tmp_path: Path, text: str, failures: int
) -> None:
    place = folder(tmp_path, one=DRILL.replace("nodes.yaml]", "nodes.yaml, ../more]"))
    (place / "more").mkdir()
    (place / "more" / "odd.yaml").write_text(text)
    result = gpuconsole("drill", "run", place / "drills")
    assert (result.status, len(result.lines) - 1) == (failures, 1)
    assert result.lines[-1] == f"{1 - failures} expectation{'s' * failures} met, {failures} failed"


def test_what_cannot_be_checked_is_told_with_its_file_line_and_field(gpuconsole: Line, tmp_path: Path) -> None:
    steps = (
        "steps:\n- expect:\n  - freeNodes: 1\n"
        "  - within: 1s\n    freeNodes: one\n  - nodes: {n9: []}\n  - admited: []\n  - within: 60\n    freeNodes: 1\n"
    )
    place = folder(tmp_path, one="files: [../nodes.yaml]\n" + steps)
    file, report = place / "drills" / "one.yaml", tmp_path / "report.xml"
    problems = [
        f"{file}:6: error: steps[0].expect[1]: freeNodes: 'one' is not a number; write freeNodes: 2",
        f"{file}:7: error: steps[0].expect[2]: nodes: no node 'n9' exists; there are node-1",
        f"{file}:8: error: steps[0].expect[3]: 'admited' is not a key of expect; did you mean 'admitted'?",
        f"{file}:9: error: steps[0].expect[4]: within: '60' is not a duration; write it as 90s, 30m, 1h30m or 2d",
    ]
    result = gpuconsole("drill", "run", place / "drills", "--junit", report)
    assert result.lines == [
        "ok   one step 1 at 0s: freeNodes: 1",
        *(f"FAIL {problem}" for problem in problems),
        "1 expectation met, 4 failed",
    ]
    root = ElementTree.parse(report).getroot()
    assert [(case.get("name"), error.get("message")) for case in root[0] for error in case] == [
        (f"step 1 at {at}: expect[{position}]", problem)
        for position, (at, problem) in enumerate(zip(("0s", "0s", "0s", "0s"), problems, strict=True), start=1)
    ]


def test_what_nobody_has_to_run_to_see_is_told_by_validate_and_lint_alike(gpuconsole: Line, tmp_path: Path) -> None:
    """All but that there is no node n9: a step may make it."""
    expect = ("freeNodes: one", "nodes: {n9: []}", "pending: {a/x: qouta}", "share: {a: 50%}", "noEvictions: false")
    items = "".join(f"  - {item}\n" for item in expect)
    place = folder(tmp_path, one=f"files: [../nodes.yaml]\nsteps:\n- expect:\n{items}")
    file = place / "drills" / "one.yaml"
    problems = [
        f"{file}:4: error: steps[0].expect[0]: freeNodes: 'one' is not a number; write freeNodes: 2",
        f"{file}:6: error: steps[0].expect[2]: pending: 'qouta' is not a reason code; did you mean 'quota'?",
        f"{file}:7: error: steps[0].expect[3]: share: '50%' is not a number; write share: {{queue: 50}}",
        f"{file}:8: error: steps[0].expect[4]: noEvictions: noEvictions takes only true; use evicted to name victims",
    ]
    assert gpuconsole("validate", file).lines[:4] == problems
    assert gpuconsole("lint", file).lines[:4] == [f"{problem} [scenario]" for problem in problems]


def test_every_drill_begins_with_the_manifests_of_a_pull_request(gpuconsole: Line, tmp_path: Path) -> None:
    place = folder(tmp_path, one="steps: [{expect: [{freeNodes: 1}]}]")

    assert gpuconsole("drill", "run", place / "drills").status == 1
    result = gpuconsole("drill", "run", place / "drills", "--manifests", place / "nodes.yaml")
    assert (result.status, result.lines) == (
        0,
        ["ok   one step 1 at 0s: freeNodes: 1", "1 expectation met, 0 failed"],
    )


def test_a_report_that_has_no_folder_is_refused_before_anything_runs(gpuconsole: Line, tmp_path: Path) -> None:
    place = folder(tmp_path, one=DRILL)
    result = gpuconsole("drill", "run", place / "drills", "--junit", tmp_path / "none" / "r.xml")
    assert (result.status, result.out) == (2, "")
    assert f"folder {tmp_path / 'none'} does not exist" in result.err


def test_a_report_for_a_ci_has_a_suite_for_each_drill_and_a_case_for_each_expectation(
    gpuconsole: Line, tmp_path: Path
) -> None:
    place = folder(tmp_path, one=DRILL, two=DRILL.replace("1}", "2}"), broken="steps: [")
    report = tmp_path / "report.xml"
    assert gpuconsole("drill", "run", place / "drills", "--junit", report).status == 1
    root = ElementTree.parse(report).getroot()

    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert [(suite.get("name"), [case.get("name") for case in suite]) for suite in root] == [
        ("one", ["step 1 at 0s: freeNodes"]),
        ("two", ["step 1 at 0s: freeNodes"]),
        ("broken", ["the file"]),
    ]
    failure = root[1][0][0]
    assert (failure.tag, failure.get("message"), failure.text) == (
        "failure",
        "step 1 at 0s: freeNodes: expected 2; got 1",
        "wanted 2\ngot    1",
    )
    assert (root[2][0][0].tag, root[0][0].get("file")) == ("error", str(place / "drills" / "one.yaml"))


@given(st.text(), st.text(), st.text())
def test_a_report_is_xml_whatever_names_and_texts_hold(name: str, wanted: str, got: str) -> None:
    results = tuple(
        ExpectationOutcome(step=1, at=MINUTE, key=name, verdict=verdict, wanted=wanted, got=got)
        for verdict in ExpectationVerdict
    )
    root = ElementTree.fromstring(as_junit([Suite(name=name, file=got, results=results, problems=(wanted,))]))

    assert [[child.tag for child in case] for case in root[0]] == [[], ["failure"], ["error"], ["error"]]
