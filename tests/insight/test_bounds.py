"""Slots where one node or one pod makes no sense: what is said is a bound, and never on the wrong side."""

import pytest
from msgspec.structs import replace

from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.insight.data_gaps import IdleBound, bound_of_idle, missing_for_placement
from gpuconsole.insight.index.fragmentation import Slots, Usefulness, idle_at_most
from gpuconsole.insight.index.gpu_map import GpuState
from gpuconsole.insight.pending.why import view_on
from gpuconsole.insight.preemption.risk import reclaim_risk
from gpuconsole.insight.sharing.slots import StartableGangs, slots
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Pod
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot, SnapshotFile, Visibility, VisibilityGap, decode, encode
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.policy import SimPolicy
from gpuconsole.ui.answers.cluster_reports import risk_lines, slots_lines
from tests.support.snapshots import node, unseen, world

SIDES = {"nodes": IdleBound.AT_LEAST, "pods": IdleBound.AT_MOST}


def gap(table: str) -> VisibilityGap:
    """One object of a kind makes no sense."""
    return VisibilityGap(table=table, resource=table, why=f"1 of {table} could not be read", partly=True)


def opened(file: SnapshotFile) -> Snapshot:
    return ClusterState.from_file(file).freeze()


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    """The bundled cluster when some of it is idle; without topologies, so that decisions do not rest on nodes."""
    simulation = open_simulation(OpenRequest(files=("default",))).simulation
    simulation.advance(simulation.now + 4 * HOUR)
    file = decode(encode(simulation.snapshot()))
    plain = (replace(one, topology="") if isinstance(one, ResourceFlavor) else one for one in file.objects)
    return opened(replace(file, objects=tuple(plain)))


def unread(snapshot: Snapshot, table: str, key: str) -> Snapshot:
    """The cluster with one object that could not be read."""
    file, gone = decode(encode(snapshot)), getattr(snapshot, table)[key]
    objects = tuple(one for one in file.objects if not (type(one) is type(gone) and one.key == key))
    return opened(replace(file, objects=objects, seen=Visibility(gaps=(gap(table),))))


def numbers(answer: tuple[Usefulness, tuple[StartableGangs, ...]]) -> dict[str, int]:
    """All that is counted of idle GPUs, by name."""
    useful, starts = answer
    rows: list[Slots] = [useful.cluster, *useful.flavors, *useful.domains]
    found = {f"{row.level} {row.name} {size}": count for row in rows for size, count in row.slots.items()}
    found |= {f"{row.level} {row.name} idle": row.idle for row in rows}
    found |= {f"{row.level} {row.name} pod": row.largest_pod for row in rows}
    return found | {f"{one.queue} {one.flavor} {size}": count for one in starts for size, count in one.now.items()}


def test_without_visible_pods_gpus_and_mig_devices_of_one_node_count_as_idle_at_most() -> None:
    mixed = replace(node("n"), allocatable={GPU: 2, "nvidia.com/mig-1g.10gb": 3})
    row = idle_at_most(world([mixed], seen=unseen(Pod)))["n"]
    counts = {unit.noun: {state: n for state, n in states.items() if n} for unit, states in row.by_unit.items()}
    assert counts == {"GPU": {GpuState.IDLE: 2}, "MIG 1g.10gb instance": {GpuState.IDLE: 3}}


@pytest.mark.parametrize("table", SIDES)
def test_numbers_are_on_the_right_side_of_the_truth_whatever_is_not_read(cluster: Snapshot, table: str) -> None:
    keys = [row.key for row in getattr(cluster, table).all() if table == "nodes" or (row.node and row.gpus)]
    truth, others = numbers(slots(cluster, IdleBound.EXACT)), 0
    for key in keys[:: max(1, len(keys) // 12)]:
        seen = unread(cluster, table, key)
        bound = bound_of_idle(seen)
        assert bound is SIDES[table]
        said = numbers(slots(seen, bound))
        wrong = {
            name: (number, truth.get(name, 0))
            for name, number in said.items()
            if (number > truth.get(name, 0) if bound is IdleBound.AT_LEAST else number < truth[name])
        }
        assert (wrong, said.keys() <= truth.keys(), len(said) > 50) == ({}, True, True)
        others += sum(number != truth[name] for name, number in said.items())
    assert others


@pytest.mark.parametrize("table", SIDES)
def test_people_see_the_marks_and_no_reason_that_rests_on_what_is_not_seen(cluster: Snapshot, table: str) -> None:
    key = next(row.key for row in getattr(cluster, table).all() if table == "nodes" or row.gpus)
    bound, mark = SIDES[table], {"nodes": "≥ ", "pods": "≤ "}[table]
    first, *lines = slots_lines(*slots(unread(cluster, table, key), bound), bound)
    assert first == f"{mark}means {bound}: some {table} are not visible"
    assert mark in next(line for line in lines if line.startswith("cluster"))
    assert not [line for line in lines if "are spread over" in line or "fragments" in line or "idle GPUs" in line]


def test_nothing_is_said_where_both_are_not_seen_or_nobody_knows_how_much(cluster: Snapshot) -> None:
    file = decode(encode(cluster))
    blind = VisibilityGap(table="pods", resource="pods", why="cannot list pods")
    some = VisibilityGap(table="pods", resource="pods", why="only namespace a is read", namespaces=("a",))
    cases = {(): IdleBound.EXACT, (gap("nodes"), gap("pods")): None, (blind,): None, (some,): None}
    for gaps, want in cases.items():
        assert bound_of_idle(opened(replace(file, seen=Visibility(gaps=gaps)))) is want


@pytest.mark.parametrize("table", SIDES)
def test_of_risk_that_is_said_which_does_not_rest_on_nodes_and_pods(cluster: Snapshot, table: str) -> None:
    key = next(row.key for row in getattr(cluster, table).all() if table == "nodes" or row.gpus)
    seen = unread(cluster, table, key)
    assert missing_for_placement(seen) == (f"1 of {table} could not be read",)
    found, truth = (reclaim_risk(view_on(snapshot, SimPolicy())) for snapshot in (seen, cluster))
    assert found == truth
    assert found.workloads
    assert {(one.probability, one.median, one.cost, one.causes) for one in found.workloads} == {(None, None, None, ())}
    assert [one for one in found.workloads if one.turns]
    assert risk_lines(found)[0] == f"{len(found.workloads)} running workloads; preemption risk unknown"


def test_where_more_is_not_seen_nothing_is_said_of_risk(cluster: Snapshot) -> None:
    queues = VisibilityGap(table="workloads", resource="workloads", why="1 of workloads could not be read", partly=True)
    blind = VisibilityGap(table="pods", resource="pods", why="cannot list pods")
    for gaps in ((), (gap("pods"), queues), (blind,), (blind, gap("nodes"))):
        file = replace(decode(encode(cluster)), seen=Visibility(gaps=gaps))
        assert missing_for_placement(opened(file)) == ()
