"""What is printed beside an answer: of which cluster it is, and as of when."""

import json
from pathlib import Path

import pytest

from gpuconsole.model.snapshot import encode
from tests.support.command_line import Line
from tests.support.console_clusters import org_cohort, snapshot_of


def test_words_go_to_stdout_and_of_what_they_are_to_stderr(gpuconsole: Line) -> None:
    result = gpuconsole("slots", "default", "--until", "10m")
    assert result.err == "gpuconsole: simulated default as of 2026-01-05T08:10:00Z\n"
    assert "as of" not in result.out


def test_an_answer_about_a_saved_cluster_says_how_old_it_is(gpuconsole: Line, tmp_path: Path) -> None:
    saved = tmp_path / "s.json"
    saved.write_bytes(encode(snapshot_of(org_cohort())))
    err = gpuconsole("slots", "--snapshot", saved).err
    said = "gpuconsole: saved s.json as of 2026-01-05T09:14:20Z, "
    assert (err[: len(said)], err[-5:]) == (said, " ago\n")


@pytest.mark.parametrize("more", [(), ("--redact",)], ids=str)
def test_a_simulation_that_was_saved_has_no_age_by_the_clock_on_the_wall(
    gpuconsole: Line, tmp_path: Path, more: tuple[str, ...]
) -> None:
    saved, again = tmp_path / "s.json", tmp_path / "again.json"
    gpuconsole("snapshot", "save", saved, "default", "--until", "10m", *more)
    gpuconsole("snapshot", "save", again, "--snapshot", saved)
    for file in (saved, again):
        asked = ("slots", "--snapshot", file)
        assert gpuconsole(*asked).err.endswith(f"gpuconsole: saved {file.name} as of 2026-01-05T08:10:00Z\n")
        document = json.loads(gpuconsole(*asked, "-o", "json").out)
        assert (document["mode"], document["age_seconds"]) == ("saved", None)


def test_what_a_run_ends_with_has_no_age_either(gpuconsole: Line, tmp_path: Path) -> None:
    saved = tmp_path / "s.json"
    gpuconsole("simulate", "--until", "10m", "--save", saved)
    assert gpuconsole("slots", "--snapshot", saved).err.endswith(
        "gpuconsole: saved s.json as of 2026-01-05T08:10:00Z\n"
    )


def test_a_cluster_that_is_saved_once_more_keeps_its_age(gpuconsole: Line, tmp_path: Path) -> None:
    saved, again = tmp_path / "s.json", tmp_path / "again.json"
    saved.write_bytes(encode(snapshot_of(org_cohort())))
    gpuconsole("snapshot", "save", again, "--snapshot", saved)
    assert gpuconsole("slots", "--snapshot", again).err.endswith(" ago\n")


def test_what_a_saved_cluster_comes_to_is_simulated_and_has_no_age(gpuconsole: Line, tmp_path: Path) -> None:
    saved = tmp_path / "s.json"
    gpuconsole("snapshot", "save", saved, "default")
    asked = ("slots", "--snapshot", saved, "--until", "1h")
    assert gpuconsole(*asked).err == "gpuconsole: simulated s.json as of 2026-01-05T09:00:00Z\n"
    document = json.loads(gpuconsole(*asked, "-o", "json").out)
    assert (document["mode"], document["time"], document["age_seconds"]) == (
        "simulated",
        "2026-01-05T09:00:00Z",
        None,
    )


def test_a_document_says_it_itself(gpuconsole: Line) -> None:
    assert gpuconsole("slots", "default", "-o", "json").err == ""
