"""Latencies of controllers: what is drawn has the measured quantiles, and the same seed draws the same."""

import re
import runpy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MILLISECOND, SECOND, Span, parse_span
from gpuconsole.sim import run_times as latencies
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.sim.run_times import MEASURED, Latencies, LatencyDistribution, random_for
from gpuconsole.sim.scenario import build_simulation, load_scenario
from gpuconsole.sim.scenario_form import LatenciesForm, ScenarioError
from tests.support.sim_cluster import two_teams

STEPS = Latencies.__struct_fields__
TIME_PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "time.md"


def distribution(step: str) -> LatencyDistribution:
    found: LatencyDistribution = getattr(MEASURED, step)
    return found


def ten_thousand(latency: LatencyDistribution) -> list[Span]:
    random = Random(7)
    return sorted(latency.sample(random) for _ in range(10_000))


@pytest.mark.parametrize("step", STEPS)
def test_draws_have_the_quantiles_of_their_distribution(step: str) -> None:
    latency, drawn = distribution(step), ten_thousand(distribution(step))
    found = [drawn[10_000 * percent // 100] for percent in (5, 50, 90, 99)]
    assert found == pytest.approx([latency.p5, latency.p50, latency.p90, latency.p99], rel=0.15)
    assert drawn[0] >= 1
    assert 0.9 * latency.max < drawn[-1] <= latency.max


def test_the_same_seed_and_names_draw_the_same() -> None:
    def five(seed: int, name: str) -> list[Span]:
        random = random_for(seed, "latency", name)
        return [MEASURED.status_update.sample(random) for _ in range(5)]

    assert five(1, "red/a") == five(1, "red/a")
    assert len({tuple(five(1, "red/a")), tuple(five(2, "red/a")), tuple(five(1, "red/b"))}) == 3


def test_a_constant_is_always_the_same_and_takes_one_number_like_any_other() -> None:
    random, other = Random(1), Random(1)
    assert LatencyDistribution.constant(SECOND).sample(random) == SECOND
    MEASURED.start.sample(other)
    assert random.random() == other.random()


def test_a_step_never_takes_place_at_the_moment_of_its_cause() -> None:
    short = LatencyDistribution(p5=0, p50=0, p90=0, p99=0, max=MILLISECOND)
    assert [LatencyDistribution.constant(0).sample(Random(0)), ten_thousand(short)[0]] == [1, 1]


@pytest.mark.parametrize("quantiles", [(-1, 0, 0, 0, 0), (2, 1, 3, 4, 5), (1, 2, 3, 5, 4)])
def test_quantiles_that_decrease_are_refused(quantiles: tuple[Span, ...]) -> None:
    with pytest.raises(ValueError, match="quantiles must not decrease"):
        LatencyDistribution(**dict(zip(("p5", "p50", "p90", "p99", "max"), quantiles, strict=True)))


def test_latencies_are_saved_with_the_simulation() -> None:
    simulation = Simulation.from_objects(two_teams(), policy=SimPolicy(latencies=MEASURED), seed=0, start=0)
    assert Simulation.load(simulation.save()).policy.latencies == MEASURED


QUANTILES = {"p5": "10ms", "p50": "20ms", "p90": "50ms", "p99": "200ms", "max": "1.5s"}


def read(**keys: Any) -> Latencies | None:
    return load_scenario([keys], "s.yaml", objects=two_teams()).policy.latencies


def test_a_scenario_names_measured_latencies_or_none() -> None:
    assert read(latencies="measured") == MEASURED
    assert read(latencies="none") is None


@pytest.mark.usefixtures("measured_latencies")
def test_a_scenario_with_expectations_has_no_latencies_unless_it_asks_for_them() -> None:
    steps: list[dict[str, Any]] = [{"expect": [{"pending": []}]}]
    assert read(steps=steps) is None
    assert read(steps=steps, latencies="measured") == MEASURED


def test_a_scenario_sets_the_latency_of_a_step_and_the_others_stay_measured() -> None:
    found = read(latencies={"jobSuspend": "200ms", "bind": QUANTILES})
    assert found == replace(
        MEASURED,
        job_suspend=LatencyDistribution.constant(200 * MILLISECOND),
        bind=LatencyDistribution(
            p5=10 * MILLISECOND,
            p50=20 * MILLISECOND,
            p90=50 * MILLISECOND,
            p99=200 * MILLISECOND,
            max=1500 * MILLISECOND,
        ),
    )


@pytest.mark.parametrize("step", LatenciesForm.__struct_encode_fields__)
def test_each_step_is_read_to_its_own_latency(step: str) -> None:
    found = read(latencies={step: "3s"})
    changed = [name for name in STEPS if getattr(found, name) != getattr(MEASURED, name)]
    assert ["".join(part.capitalize() for part in name.split("_")) for name in changed] == [step[0].upper() + step[1:]]


WRONG: dict[str, tuple[Any, str]] = {
    "an unknown word": (
        "fast",
        "s.yaml: latencies: Invalid enum value 'fast'; it must be one of measured, none",
    ),
    "an unknown step": (
        {"jobSuspended": "1s"},
        "s.yaml: latencies: unknown key 'jobSuspended'; did you mean 'jobSuspend'?",
    ),
    "no duration": (
        {"bind": "quick"},
        "s.yaml: latencies.bind: 'quick' is not a duration; write it as 90s, 30m, 1h30m or 2d",
    ),
    "a number": (
        {"bind": 3},
        "s.yaml: latencies.bind: 3 stands where a text or a mapping or nothing belongs; "
        "write a text or a mapping or nothing",
    ),
    "a missing quantile": (
        {"bind": {name: text for name, text in QUANTILES.items() if name != "p90"}},
        "s.yaml: latencies.bind: p90 is missing; write it",
    ),
    "a quantile that is not a duration": (
        {"bind": {**QUANTILES, "p50": "quick"}},
        "s.yaml: latencies.bind.p50: 'quick' is not a duration; write it as 90s, 30m, 1h30m or 2d",
    ),
    "quantiles that decrease": (
        {"bind": {**QUANTILES, "p90": "15ms"}},
        "s.yaml: latencies.bind: quantiles must not decrease: 0s <= p5 <= p50 <= p90 <= p99 <= max",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_wrong_latencies_are_named_with_what_is_right(case: tuple[Any, str]) -> None:
    latencies, message = case
    with pytest.raises(ScenarioError) as caught:
        read(latencies=latencies)
    assert str(caught.value) == message


def test_latencies_of_a_scenario_are_saved_with_its_simulation() -> None:
    scenario = load_scenario([{"latencies": {"bind": QUANTILES, "start": "30s"}}], objects=two_teams())
    assert Simulation.load(build_simulation(scenario).save()).policy == scenario.policy


def test_the_page_about_time_has_the_latencies_that_are_drawn() -> None:
    rows = [line.split(" | ") for line in TIME_PAGE.read_text().splitlines() if re.match(r"\| `\w+` \| .* → ", line)]
    written = {row[0].strip("|` "): [parse_span(cell.rstrip("| ")) for cell in row[3:]] for row in rows}
    names = zip(LatenciesForm.__struct_encode_fields__, LatenciesForm.__struct_fields__, strict=True)
    drawn = {camel: distribution(name) for camel, name in names}
    assert written == {step: [one.p5, one.p50, one.p90, one.p99, one.max] for step, one in drawn.items()}


@pytest.mark.usefixtures("measured_latencies")
def test_without_the_key_latencies_are_as_measured() -> None:
    """The tests set the default to none: this one reads what is installed."""
    fresh = runpy.run_path(str(latencies.__file__))
    assert fresh["DEFAULT_LATENCIES"] is fresh["MEASURED"]
    assert read() == MEASURED
    assert "Without the key it is `measured`." in TIME_PAGE.read_text()
