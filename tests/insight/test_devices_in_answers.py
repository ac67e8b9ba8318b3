"""Loans, victims, what-ifs, history and estimates count MIG instances, replicas and DRA devices, with their unit."""

from typing import Any

import pytest

from gpuconsole.insight.drill import UpcomingStep
from gpuconsole.insight.forecast.expected_start import expected_start
from gpuconsole.insight.forecast.forecast import forecast
from gpuconsole.insight.health.alerts import AlertKind, alerts
from gpuconsole.insight.index.gpu_time import uncheckpointed_gpu_time
from gpuconsole.insight.index.queues import MetricComparison, QueueMetrics, counted, position
from gpuconsole.insight.pending.pending import explain
from gpuconsole.insight.preemption.history import rows
from gpuconsole.insight.preemption.risk import risk
from gpuconsole.insight.sharing.fair_shares import Loan
from gpuconsole.insight.sharing.ledger import LoanLedger, ReclaimScenario, ReclaimVictim, ledger
from gpuconsole.insight.whatif.answer import verdict
from gpuconsole.insight.whatif.whatif import WhatIf, what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE, SECOND
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.prices import Prices
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario_form import read_changes
from gpuconsole.ui.answers.cluster_reports import ledger_lines
from gpuconsole.ui.screens.drill import coming_lines
from gpuconsole.ui.screens.node_actions import victims
from gpuconsole.ui.screens.preemptions import PREEMPTIONS
from gpuconsole.ui.screens.whatif import result_lines
from gpuconsole.ui.screens.workload_actions import loss_line
from gpuconsole.ui.whatif_changes import copy
from tests.insight.test_device_units import KINDS, text
from tests.support.device_cohort import job, lent

PRICE = Prices().gpu_hour["a100-80gb"]
PARTS = [name for name in KINDS if name != "DRA"]
SHORT = {"MIG": "MIG", "time": "rep", "MPS": "rep", "DRA": "dev"}


def short(name: str) -> str:
    return SHORT[KINDS[name].unit.partition(" ")[0].partition("-")[0]]


def whole_gpus(name: str, units: int) -> float:
    """To how many GPUs so many units amount: two fit on one, and a DRA device is one."""
    return units if name == "DRA" else units / 2


def resource_of(name: str) -> str:
    return KINDS[name].resource


def engine_of(snapshot: Snapshot) -> KueueSession:
    session = KueueSession()
    for thing in snapshot.objects():
        session.apply(thing, snapshot.time)
    return session


def wide_of(simulation: Simulation) -> str:
    """Key of the Workload that borrows."""
    (key,) = (one.key for one in simulation.snapshot().workloads.all() if one.name.startswith("job-wide"))
    return key


def tried(simulation: Simulation, *manifests: dict[str, Any]) -> WhatIf:
    """What comes of creating these within half an hour."""
    commands = read_changes([{"steps": [{"create": list(manifests)}]}], "changes", simulation.now).commands
    return complete_answer(what_if_steps(simulation, commands, 30 * MINUTE))


@pytest.mark.parametrize("name", KINDS)
def test_a_loan_of_devices_of_every_kind_is_in_the_ledger(name: str) -> None:
    simulation = lent(name)
    snapshot, wide, unit = simulation.snapshot(), wide_of(simulation), KINDS[name].unit
    found = ledger(snapshot, engine_of(snapshot), Prices())
    resource, began = resource_of(name), snapshot.time - HOUR
    hours = whole_gpus(name, 8)
    assert found.loans == (
        Loan(
            lender="cq-a",
            borrower="cq-b",
            flavor="a100",
            resource=resource,
            gpus=4,
            unit=unit,
            since=began,
            workloads=(wide,),
        ),
    )
    (one,) = found.exposures
    assert (one.lender, one.flavor, one.resource, one.gpus, one.unit, one.possible) == (
        *("cq-a", "a100", resource, 4),
        unit,
        True,
    )
    (leaving,) = one.leaving
    assert (leaving.workload, leaving.queue, leaving.gpus, leaving.unit) == (wide, "cq-b", 8, unit)
    assert (leaving.lost_gpu_hours, leaving.cost) == pytest.approx((hours, hours * PRICE))
    lines = ledger_lines(found, snapshot.time)
    assert lines[0] == f"4 {unit}s borrowed in 1 loan"
    assert f"4 {short(name)}" in lines[3]
    assert f"8 {short(name)}  {hours:.1f}" in lines[7]


def test_a_ledger_of_several_units_adds_each_up_and_counts_mixed_victims_in_devices() -> None:
    units = ("GPU", "MIG 1g.10gb instance")
    loans = tuple(
        Loan(lender="l", borrower="b", flavor="f", resource="nvidia.com/gpu", gpus=4, unit=unit, since=0, workloads=())
        for unit in units
    )
    leaving = tuple(
        ReclaimVictim(workload=f"a/{n}", queue="q", gpus=2, unit=unit, rule="r", lost_gpu_hours=0.0, cost=0.0)
        for n, unit in enumerate(units)
    )
    exposure = ReclaimScenario(
        lender="l", flavor="f", resource="nvidia.com/gpu", gpus=4, possible=True, leaving=leaving
    )
    lines = ledger_lines(LoanLedger(loans, (exposure,)), HOUR)
    assert lines[0] == "4 GPUs, 4 MIG 1g.10gb instances borrowed in 2 loans"
    assert "4 dev" in lines[-2]


@pytest.mark.parametrize("name", KINDS)
def test_borrowed_devices_of_every_kind_can_be_reclaimed(name: str) -> None:
    simulation = lent(name)
    (line,) = [one for one in alerts(simulation.snapshot()) if one.trouble is AlertKind.RECLAIMABLE]
    unit = KINDS[name].unit
    assert line.text == f"{wide_of(simulation)} runs on 4 borrowed {unit}s; cq-a can reclaim them"
    assert line.gpus == 4


@pytest.mark.parametrize("name", KINDS)
def test_who_waits_sees_who_holds_which_devices(name: str) -> None:
    simulation = lent(
        name, {"advanceSeconds": 300}, {"create": [job("b", "late", KINDS[name], 2), job("b", "later", KINDS[name])]}
    )
    snapshot, unit = simulation.snapshot(), KINDS[name].unit
    late, later = (one.key for one in snapshot.workloads.all() if "-late" in one.name)
    found = explain(snapshot, late)
    assert found is not None
    assert [(one.workload, one.gpus, one.unit, one.borrowed) for one in found.holders] == [
        (wide_of(simulation), 8, unit, 4)
    ]
    place = position(snapshot, later)
    assert place is not None
    assert (place.gpus_ahead, place.unit) == (2, unit)
    start = expected_start(simulation, late, runs=1, horizon=HOUR)
    assert (start.gpus, start.unit) == (2, unit)
    foreseen = {one.workload: (one.gpus, one.unit) for one in forecast(snapshot, simulation.policy).in_order()}
    assert foreseen[late] == (2, unit)


@pytest.mark.parametrize("name", KINDS)
def test_what_a_workload_runs_on_is_told_in_its_unit_with_what_an_eviction_would_lose(name: str) -> None:
    simulation = lent(name)
    snapshot, wide = simulation.snapshot(), wide_of(simulation)
    hours = whole_gpus(name, 8)
    assert uncheckpointed_gpu_time(snapshot, snapshot.workloads[wide]) == pytest.approx(hours * HOUR, abs=10)
    (one,) = risk(simulation, runs=1, horizon=HOUR).workloads
    assert (one.workload, one.gpus, one.unit, one.borrowed) == (wide, 8, KINDS[name].unit, 4)
    assert (one.lost_gpu_hours, one.cost) == pytest.approx((hours, hours * PRICE))
    said = text(loss_line(snapshot, snapshot.workloads[wide]))
    assert said == f"✖ b/wide runs on 8 {KINDS[name].unit}s; ~{hours:.1f} GPU-hours of work lost"


@pytest.mark.parametrize("name", KINDS)
def test_a_preemption_of_devices_is_told_with_their_unit_and_as_parts_of_gpus(name: str) -> None:
    simulation = lent(name, {"advanceSeconds": 1800}, {"create": [job("a", "big", KINDS[name], 4)]})
    snapshot, unit = simulation.snapshot(), KINDS[name].unit
    hours = whole_gpus(name, 8) / 2
    (row,) = rows(snapshot.recent)
    assert (row.victim.startswith("b/job-wide"), row.gpus, row.unit) == (True, 8, unit)
    assert (row.lost_gpu_hours, row.cost) == pytest.approx((hours, hours * PRICE))
    cells = {column.title: text(column.cell(row)) for column in PREEMPTIONS}
    assert (cells["GPUS"], cells["LOST"]) == (f"8 {short(name)}", f"{hours:.1f}h")
    told = {
        (line.what, line.gpus, line.unit, line.borrowed)
        for line in snapshot.recent
        if line.workload.startswith("b/job-wide")
        and line.what in (HistoryEventKind.ADMITTED, HistoryEventKind.EVICTED, HistoryEventKind.SUBMITTED)
    }
    assert told == {
        (HistoryEventKind.SUBMITTED, 8, unit, 0),
        (HistoryEventKind.ADMITTED, 8, unit, 4),
        (HistoryEventKind.EVICTED, 8, unit, 0),
    }
    bound = next(line for line in snapshot.recent if line.what is HistoryEventKind.POD_BOUND)
    assert (bound.gpus, bound.unit) == (1, unit)


@pytest.mark.parametrize("name", KINDS)
def test_a_whatif_tells_outcomes_victims_and_totals_in_their_unit(name: str) -> None:
    simulation = lent(name)
    unit, wide = KINDS[name].unit, wide_of(simulation)
    answer = tried(simulation, job("a", "big", KINDS[name], 4))
    (outcome,) = answer.outcomes
    assert (outcome.gpus, outcome.unit) == (4, unit)
    hours = whole_gpus(name, 8)
    (victim,) = answer.victims
    assert (victim.workload, victim.gpus, victim.unit) == (wide, 8, unit)
    assert (victim.lost_gpu_hours, victim.cost) == pytest.approx((hours, hours * PRICE))
    assert verdict(answer) == (
        f"{outcome.workload} starts in 30s; preempts {wide} (8 {unit}s, loses {hours:.1f} GPU-hours,"
        " does not restart before the horizon)."
    )
    assert {(one.queue, one.unit, one.used_without, one.used) for one in answer.queues} == {
        ("cq-a", unit, 0, 4),
        ("cq-b", unit, 8, 0),
    }
    assert (answer.unit, answer.gpus_total, answer.gpus_total_without, answer.gpus_total_with) == (unit, 8, 8, 8)
    assert (answer.gpus_now, answer.gpus_without, answer.gpus) == (8, 8, 4)
    half = whole_gpus(name, 4)
    assert (answer.gpu_hours_without, answer.capacity_hours) == pytest.approx((half, half))
    # Nobody for 30 s of it, then half of them.
    assert answer.gpu_hours == pytest.approx(half / 2 + half / 120, abs=0.02)
    lines = ["".join(piece for piece, _ in one) for one in result_lines(answer)]
    label = "MIG" if unit.startswith("MIG") else f"{unit.rpartition(' ')[2]}s"
    assert any(one.startswith(f"{label} in use") for one in lines)
    assert any(one.startswith(f"cq-a {label} ") for one in lines)


@pytest.mark.parametrize("name", KINDS)
def test_who_leaves_a_node_is_told_with_the_devices_held_there(name: str) -> None:
    (line,) = victims(lent(name).snapshot(), ["n1"])
    assert text(line) == f"✖ b/wide  8 {KINDS[name].unit}s here; ~{whole_gpus(name, 8):.1f} GPU-hours of work lost"


def test_a_drill_says_how_many_devices_the_work_that_comes_asks_for() -> None:
    simulation = lent("MIG mixed")
    commands = read_changes([{"steps": [{"create": [job("a", "big", KINDS["MIG mixed"], 4)]}]}], "drill", 0).commands
    told = [
        text(one)
        for one in coming_lines(UpcomingStep(number=1, of=1, at=0, commands=commands), simulation.snapshot(), ())
    ]
    assert any("4 MIG 3g.40gb instances in 4 pods" in one for one in told)


@pytest.mark.parametrize("name", KINDS)
def test_a_copy_and_those_who_make_room_are_told_in_their_unit(name: str) -> None:
    # A second later the preemptor is admitted.
    simulation = lent(name, {"advanceSeconds": 300}, {"create": [job("a", "own", KINDS[name], 2)]}, after=300 * SECOND)
    snapshot, wide, unit = simulation.snapshot(), wide_of(simulation), KINDS[name].unit
    (own,) = (one.key for one in snapshot.workloads.all() if "-own" in one.name)
    assert copy(snapshot, snapshot.workloads[own]).words == f"submit a/own-copy2, 2 {unit}s, priority 0"
    found = explain(snapshot, own)
    assert found is not None
    assert found.lines == (f"{wide} frees 8 {unit}s",)


@pytest.mark.parametrize("name", PARTS)
def test_quota_that_kueue_s_metrics_say_is_used_is_compared_for_every_kind_of_accelerator(name: str) -> None:
    used = {("a100", resource_of(name)): 8.0}
    compared = list(counted(QueueMetrics(queue="cq-b", usage=used), lent(name).snapshot()))
    assert compared == [MetricComparison(f"a100 {resource_of(name)}", 8, 8)]
