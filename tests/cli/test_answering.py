"""What is printed beside an answer: of which cluster it is, and as of when."""

import json
from pathlib import Path

from tests.cli.line import Line


def test_words_go_to_stdout_and_of_what_they_are_to_stderr(gpuconsole: Line) -> None:
    result = gpuconsole("slots", "default", "--until", "10m")
    assert result.err == "gpuconsole: simulated default as of 2026-01-05T08:10:00Z\n"
    assert "as of" not in result.out


def test_an_answer_about_a_saved_cluster_says_how_old_it_is(gpuconsole: Line, tmp_path: Path) -> None:
    saved = tmp_path / "s.json"
    gpuconsole("snapshot", "save", saved, "default")
    err = gpuconsole("slots", "--snapshot", saved).err
    said = "gpuconsole: saved s.json as of 2026-01-05T08:00:00Z, "
    assert (err[: len(said)], err[-5:]) == (said, " ago\n")


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
