"""Drills played step by step: what was predicted, who went, by which rule, and what that is worth."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.drill import DrillSession, PredictionScore, run_drill
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import CandidateVerdict
from tests.insight.test_drill import DRILLS, drill

PLATFORM = "inference-spares-research"
NOTEBOOKS_1 = "development/job-notebooks-1-78058"
NOTEBOOKS_2 = "development/job-notebooks-2-040df"


def playing(name: str) -> DrillSession:
    scenario = drill(name)
    return DrillSession(replace(scenario, policy=replace(scenario.policy, traces_preemptions=True)))


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_that_is_played_comes_to_what_it_comes_to_when_it_is_run(name: str) -> None:
    play = DrillSession(drill(name))
    while play.coming is not None:
        play.step(())
    assert play.results == run_drill(drill(name))


def test_who_was_predicted_and_went_is_right_and_the_choice_is_told() -> None:
    play = playing(PLATFORM)
    first = play.step(())
    assert (first.gone, first.right) == ((), True)
    assert sorted(first.placed) == [
        "development/notebooks-1",
        "development/notebooks-2",
        "research/train-1",
        "research/train-2",
    ]

    coming = play.coming
    assert coming is not None
    assert (coming.number, coming.of, coming.at) == (2, 3, 10 * MINUTE)
    played = play.step([NOTEBOOKS_2])
    (gone,) = played.gone
    assert (gone.key, gone.name, gone.by) == (NOTEBOOKS_2, "development/notebooks-2", "inference/serve-1")
    assert (gone.reason, gone.at, gone.gpus) == ("reclaim in cohort", 10 * MINUTE, 8)
    assert gone.choice is not None
    assert (NOTEBOOKS_1, CandidateVerdict.NOT_NEEDED) in [(one.workload, one.verdict) for one in gone.choice.considered]
    assert (played.named, played.missed, played.spared) == ((NOTEBOOKS_2,), (), ())
    assert played.waiting == {"development/notebooks-2": "quota"}
    assert [(result.key, result.ok) for result in played.expected] == [
        ("evicted", True),
        ("admitted", True),
        ("pending", True),
    ]


def test_a_wrong_name_counts_twice_once_as_missed_and_once_as_spared() -> None:
    play = playing(PLATFORM)
    play.step(())
    played = play.step([NOTEBOOKS_1])
    assert (played.named, played.missed, played.spared) == ((), (NOTEBOOKS_2,), (NOTEBOOKS_1,))
    play.step(())
    assert play.score == PredictionScore(steps=3, right=2, named=0, missed=1, spared=1)


def test_of_a_job_that_loses_pods_the_job_is_named() -> None:
    play = playing("scavenger")
    play.step(())
    play.step(())
    said = [f"Job/default/scavenger-{number}" for number in (3, 4, 5)]
    played = play.step(said)
    assert played.right
    assert [one.name for one in played.gone] == [f"default/scavenger-{number}-0" for number in (3, 4, 5)]


def test_what_somebody_evicts_by_hand_is_told_in_its_own_words() -> None:
    play = playing("burn-rate")
    play.step(())
    (gone,) = play.step(()).gone
    assert (gone.key, gone.reason, gone.by, gone.choice) == ("PyTorchJob/default/train", "Drained", "", None)


def test_the_last_step_lasts_until_all_that_it_expects_is_decided() -> None:
    play = playing("three-nodes")
    while play.coming is not None:
        last = play.step(())
    assert play.snapshot.time == play.scenario.steps[-1].at + MINUTE
    assert last.waiting == {}
    assert "default/inference" in last.placed


def test_a_drill_that_is_over_does_no_further_step() -> None:
    play = playing("gang")
    while play.coming is not None:
        play.step(())
    with pytest.raises(LookupError, match="the drill is over"):
        play.step(())
