"""Drills as files: those that come along, and what is wrong with one that cannot be played."""

from pathlib import Path

import pytest

from gpuconsole.errors import SourceError
from gpuconsole.services.drills import DrillFile, library, open_drill

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "drills"
CONFIGURATION = "---\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def test_the_library_has_every_drill_that_comes_along_with_what_it_shows() -> None:
    found = library()
    assert [Path(one.path) for one in found] == sorted(FOLDER.glob("*.yaml"))
    gang = "A gang of sixteen is not scheduled while only twelve GPUs are free."
    assert DrillFile("gang", gang, 2, str(FOLDER / "gang.yaml")) in found
    assert all(one.description and one.steps for one in found)


def test_a_drill_that_is_opened_tells_how_victims_are_chosen() -> None:
    scenario = open_drill(str(FOLDER / "gang.yaml"))
    assert (scenario.name, len(scenario.steps), scenario.policy.traces_preemptions) == ("gang", 2, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("steps: []\n", "it has no steps, so there is nothing to predict", id="nothing happens"),
        pytest.param("steps: [\n", "line 2: ", id="no YAML"),
        pytest.param("steps: [{delete: [nobody/]}]\n", "steps[0].delete[0]: 'nobody/' is no name", id="a wrong name"),
        pytest.param(
            f"steps: [{{}}]\n{CONFIGURATION}",
            "it has a separate Kueue Configuration; open it with gpuconsole drill play",
            id="Kueue's own file",
        ),
    ],
)
def test_a_file_that_cannot_be_played_says_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(SourceError) as found:
        open_drill(str(file))
    assert str(found.value).startswith(f"{file}: ")
    assert problem in str(found.value)


@pytest.mark.parametrize("named", ["gone.yaml", "nobody-knows", "a" * 400, "~nobody-knows/gang.yaml"])
def test_a_file_that_is_not_there_is_named(named: str) -> None:
    with pytest.raises(SourceError, match=named):
        open_drill(named)


def test_a_drill_that_comes_along_is_opened_by_its_name_unless_a_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_drill("gang").description == "A gang of sixteen is not scheduled while only twelve GPUs are free."
    (tmp_path / "gang").write_text("name: mine\nsteps: [{advanceSeconds: 60}]\n")
    assert open_drill("gang").name == "mine"


def test_a_file_below_the_home_folder_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("steps: [{advanceSeconds: 60}]\n")
    assert open_drill("~/mine.yaml").name == "mine"
