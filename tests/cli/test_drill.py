"""`drill run`: a line for each expectation; what cannot be checked is no pass."""

from pathlib import Path

from tests.cli.line import Line

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
        "2 expectations met, 0 not",
    ]


def test_a_drill_that_cannot_be_read_fails_and_the_others_run(gpuconsole: Line, tmp_path: Path) -> None:
    place = folder(tmp_path, one=DRILL, broken="steps: [")
    result = gpuconsole("drill", "run", place)
    assert result.status == 1
    assert result.lines[0] == "ok   one step 1 at 0s: freeNodes: 1"
    assert result.lines[1].startswith(f"FAIL {place}/drills/broken.yaml:")
    assert result.lines[2] == "1 expectation met, 1 not"


def test_a_drill_that_expects_nothing_fails(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("drill", "run", folder(tmp_path, one=DRILL.replace("{freeNodes: 1}", "{nodes: {}}")))
    assert result.status == 1
    assert result.lines == [
        "FAIL one step 1 at 0s: expect: nodes: it names nothing, so it would always come true; name what has to be so",
        "0 expectations met, 1 not",
    ]


def test_a_folder_without_scenarios_fails(gpuconsole: Line, tmp_path: Path) -> None:
    result = gpuconsole("drill", "run", folder(tmp_path))
    assert result.status == 1
    assert result.lines[-1] == "0 expectations met, 1 not"
