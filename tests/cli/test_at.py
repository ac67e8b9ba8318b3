"""`gpuconsole at`: what a command says about an earlier time is what it would have said then."""

import json
from pathlib import Path

import msgspec
import pytest

from gpuconsole.cli.at import QUESTIONS
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.model.clock import HOUR, MINUTE
from gpuconsole.model.snapshot import Snapshot, decode, encode
from tests.support.command_line import Line
from tests.support.recorded_histories import record


class Past:
    """A recorded hour of the drill org-cohort, and its Snapshot after half an hour as a file."""

    def __init__(self, folder: Path) -> None:
        self.history = folder / "history.db"
        simulation = open_simulation(OpenRequest(files=("org-cohort",))).simulation
        self.snapshots: list[Snapshot] = record(self.history, simulation, HOUR, source="org-cohort")
        self.then = self.snapshots[30]
        self.saved = folder / "then.json"
        self.saved.write_bytes(
            encode(self.then, msgspec.Raw(msgspec.json.encode(simulation.policy)), seed=0, staged=True)
        )


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"))


@pytest.mark.parametrize(
    "question",
    [
        ("why", "research/rlhf"),
        ("why", "prod/serve", "--quick"),
        ("eta", "research/rlhf", "--runs", "3"),
        ("ledger",),
        ("shares",),
        ("slots",),
        ("antipatterns",),
        ("mig", "--config", "all-balanced"),
        ("ledger", "--until", "10m"),
    ],
    ids=" ".join,
)
def test_the_answer_is_the_one_of_a_snapshot_that_was_saved_then(
    gpuconsole: Line, past: Past, question: tuple[str, ...]
) -> None:
    at = gpuconsole("at", "2026-01-05T08:30Z", *question, "-o", "json", "--history", past.history)
    saved = gpuconsole(*question, "-o", "json", "--snapshot", past.saved)
    assert (at.status, at.err) == (saved.status, saved.err)
    got, want = json.loads(at.out), json.loads(saved.out)
    assert got.pop("source") == "org-cohort"
    assert got.pop("mode") == ("simulated" if "--until" in question else "recorded")
    assert want.pop("source") == "then.json"
    assert want.pop("mode") == ("simulated" if "--until" in question else "saved")
    assert got == want


def test_the_text_names_the_source_and_the_time(gpuconsole: Line, past: Past) -> None:
    result = gpuconsole("at", "2026-01-05T08:30Z", "ledger", "--history", past.history)
    assert result.lines[0] == "4 GPUs borrowed in 1 loan"
    assert result.err == "gpuconsole: recorded org-cohort as of 2026-01-05T08:30:00Z\n"


def test_cost_has_the_rates_of_that_time_and_says_where_the_cost_over_time_is(gpuconsole: Line, past: Past) -> None:
    rates = ("at", "2026-01-05T08:30Z", "cost", "--history", past.history)
    result = gpuconsole(*rates)
    assert result.lines[0] == "Cost by team, per hour at 2026-01-05T08:30:00Z"
    assert result.lines[-1] == "Rates at that time. The cost over time is that of `gpuconsole cost --since TIME`."
    refused = gpuconsole(*rates, "--month", "2026-01")
    assert (refused.status, "omit `at TIME`" in refused.err) == (2, True)


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_time_may_count_from_the_end_of_the_recording(gpuconsole: Line, past: Past, where: str) -> None:
    history = ("--history", past.history)
    arguments = (*history, "-30m", "ledger") if where == "first" else ("-30m", "ledger", *history)
    assert gpuconsole("at", *arguments).err == "gpuconsole: recorded org-cohort as of 2026-01-05T08:30:00Z\n"


def test_a_recorded_cluster_is_saved_as_it_was(gpuconsole: Line, past: Past, tmp_path: Path) -> None:
    target = tmp_path / "saved.json"
    result = gpuconsole("at", "-30m", "snapshot", "save", target, "--history", past.history)
    assert (result.status, result.err) == (0, "")
    assert decode(target.read_bytes()) == decode(past.saved.read_bytes())


def test_of_several_recordings_the_newest_one_that_covers_the_time_answers(
    gpuconsole: Line, past: Past, tmp_path: Path
) -> None:
    history = tmp_path / "history.db"
    history.write_bytes(past.history.read_bytes())
    record(history, open_simulation(OpenRequest(files=("three-nodes",))).simulation, 10 * MINUTE, source="three-nodes")
    sources = [
        gpuconsole("at", *arguments, "slots", "--history", history).err.split()[2]
        for arguments in (
            ("2026-01-05T08:10Z",),
            ("2026-01-05T08:40Z",),
            ("2026-01-05T08:10Z", "--recording", "1"),
            ("-1m",),
            ("-1m", "--recording", "1"),
        )
    ]
    assert sources == ["three-nodes", "org-cohort", "org-cohort", "three-nodes", "org-cohort"]


RANGE = "2026-01-05T08:00:00Z to 2026-01-05T09:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("2026-01-05T10:00Z", "ledger"),
            f"nothing is recorded at 2026-01-05T10:00:00Z; choose a time in org-cohort from {RANGE}",
        ),
        (("-2h", "ledger"), f"nothing is recorded at 2026-01-05T07:00:00Z; choose a time in {RANGE}"),
        (
            ("noon", "ledger"),
            "TIME 'noon': write it as 2026-01-05T14:00Z, or as -2h for the time before the end of the recording",
        ),
        (
            ("-2x", "ledger"),
            "TIME '-2x': write it as 2026-01-05T14:00Z, or as -2h for the time before the end of the recording",
        ),
        (
            ("-1m", "run"),
            f"run has no answer about an earlier time; use one of {', '.join(QUESTIONS)}",
        ),
        (
            ("-1m", "ledger", "org-cohort"),
            "`gpuconsole at` reads a recorded cluster; omit FILES, --live and --snapshot",
        ),
        (("-1m", "ledger", "--recording", "7"), "there is no recording 7; the newest are 1 (org-cohort)"),
        (("-1m", "why", "prod/nothing"), "there is no workload, job or pod prod/nothing"),
    ],
)
def test_what_has_no_answer_is_refused(gpuconsole: Line, past: Past, arguments: tuple[str, ...], problem: str) -> None:
    result = gpuconsole("at", *arguments, "--history", past.history)
    assert (result.status, result.out, result.err) == (2, "", f"gpuconsole: {problem}\n")


def test_without_a_history_nothing_is_recorded(gpuconsole: Line) -> None:
    result = gpuconsole("at", "-1m", "ledger")
    assert result.status == 2
    assert result.err.endswith("history.db: nothing is recorded yet; the console records its clusters while it runs\n")


def test_a_file_that_is_no_history_is_refused_and_not_changed(gpuconsole: Line, tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    file.write_text("a text")
    result = gpuconsole("at", "-1m", "ledger", "--history", file)
    assert result.status == 2
    assert str(file) in result.err
    assert file.read_text() == "a text"
