"""Results that are derived from Snapshots belong to their cluster: none is shared, and none keeps a Snapshot alive."""

import ast
import gc
import importlib
import pkgutil
import weakref
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path

from hypothesis import given, settings
from msgspec import Struct

import gpuconsole.insight
from gpuconsole.insight import derived
from gpuconsole.insight.derived import incremental, memoized
from gpuconsole.model.clock import MINUTE, Span
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import TABLES
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from tests.support.console_clusters import busy_org
from tests.support.random_simulations import LIVES, Deed, cluster
from tests.support.sim_cluster import start
from tests.support.snapshots import node

PURE = ("insight", "model", "scheduling", "sim")
ROOT = Path(gpuconsole.insight.__path__[0]).parent
CHANGING = ("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update")
"""Methods that change a list, dictionary or set."""


@memoized("nodes")
def names(snapshot: Snapshot) -> tuple[str, ...]:
    return (*snapshot.nodes,)


@incremental(0)
def calls(snapshot: Snapshot, before: int) -> int:
    return before + 1


def of_nodes(*named: str) -> ClusterState:
    state = ClusterState()
    for name in named:
        state.apply(Applied(0, node(name, labels={})))
    return state


def test_an_answer_is_the_same_object_until_a_table_that_it_reads_changes() -> None:
    state = of_nodes("a")
    first = names(state.freeze())
    assert names(state.freeze()) is first
    state.apply(Applied(0, node("b", labels={})))
    later = state.freeze()
    assert names(later) == ("a", "b")
    assert names(later) is names(later)


def test_the_answers_before_and_after_a_change_are_both_known() -> None:
    state = of_nodes("a")
    before = state.freeze()
    state.apply(Applied(0, node("b", labels={})))
    after = state.freeze()
    first, second = names(before), names(after)
    assert [names(before) is first, names(after) is second, names(before) is first] == [True, True, True]


def test_two_clusters_share_no_results() -> None:
    one, other = of_nodes("a"), of_nodes("a")
    assert [calls(one.freeze()), calls(one.freeze()), calls(other.freeze())] == [1, 2, 1]
    assert one.freeze().derived is not other.freeze().derived


def test_a_fork_begins_with_the_results_of_the_original_and_does_not_change_them() -> None:
    original = of_nodes("a")
    first = names(original.freeze())
    fork = original.fork()
    assert names(fork.freeze()) is first
    assert [calls(fork.freeze()), calls(fork.freeze()), calls(original.freeze())] == [1, 2, 1]
    continued = ClusterState.of(original.freeze(), ())
    assert names(continued.freeze()) is first
    assert [calls(continued.freeze()), calls(original.freeze())] == [2, 2]


def computations() -> dict[str, Callable[[Snapshot], object]]:
    """All functions of a Snapshot alone whose results are derived data, by module and name."""
    found = {}
    for module in pkgutil.walk_packages(gpuconsole.insight.__path__, "gpuconsole.insight."):
        for name, value in vars(importlib.import_module(module.name)).items():
            code = getattr(value, "__code__", None)
            if code is None or code.co_filename != derived.__file__ or value.__module__ != module.name:
                continue
            if set(value.__annotations__) - {"return", "before", "known", "old", "summed", "usages"} == {"snapshot"}:
                found[f"{module.name}.{name}"] = value
    return found


def plain(value: object) -> object:
    """The contents of an answer, comparable although some classes are compared by identity."""
    match value:
        case Mapping():
            # A node or workload whose last pod has gone keeps an empty group.
            return {key: plain(one) for key, one in value.items() if not isinstance(one, Mapping) or one}
        case tuple() | list():
            return [plain(one) for one in value]
        case Struct() if not value.__struct_config__.eq:
            return [plain(getattr(value, name)) for name in value.__struct_fields__]
        case _ if type(value).__eq__ is object.__eq__:
            fields = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
            fields |= getattr(value, "__dict__", {}).keys()
            # Private ones are filled when somebody asks.
            return {name: plain(getattr(value, name)) for name in fields if not name.startswith("_")}
        case _:
            return value


@given(LIVES)
@settings(max_examples=15)
def test_what_is_derived_step_by_step_equals_what_is_derived_at_once(deeds: list[tuple[Span, Deed]]) -> None:
    simulation = start(cluster())
    every = computations()
    # Queues and nodes that have no workloads and pods any more stay in them.
    for name in ("queues._indexed", "gpu_time._allocations"):
        del every[f"gpuconsole.insight.index.{name}"]
    assert len(every) > 40
    for span, deed in deeds:
        simulation.advance(simulation.now + span)
        deed(simulation)
        now = simulation.snapshot()
        fresh = Snapshot(now.time, now.serial, {name: getattr(now, name) for name in TABLES.values()}, now.recent)
        assert [name for name, compute in every.items() if plain(compute(now)) != plain(compute(fresh))] == []


def test_no_result_keeps_its_snapshot_alive() -> None:
    simulation = start(cluster())
    simulation.advance(simulation.now + MINUTE)
    snapshot = simulation.snapshot()
    for compute in computations().values():
        compute(snapshot)
    kept = weakref.ref(snapshot)
    simulation.advance(simulation.now + MINUTE)
    del snapshot
    gc.collect()
    assert kept() is None


def changed_globals(path: Path) -> Iterator[str]:
    """Module-level names whose values a function of the module changes."""
    tree = ast.parse(path.read_text())
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.Lambda):
            continue
        own = {arg.arg for arg in ast.walk(function) if isinstance(arg, ast.arg)}
        own |= {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        for part in ast.walk(function):
            match part:
                case ast.Global(names=given):
                    yield from given
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGING:
                    yield from {name} & names - own
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                    yield from {name} & names - own


INTERNED = ["_ADMISSIONS", "_CONDITIONS", "_MAPPINGS", "_NEEDS", "_POD_SETS", "_RESOURCES", "_TEMPLATES", "_TEXTS"]
"""Bounded tables of `model.objects`, so that equal parts of objects are one object."""
WITHOUT_CONTENTS = [
    "EMPTY",
    "EMPTY_CLUSTER_QUEUE_INDEX",
    "EMPTY_LOCAL_QUEUE_INDEX",
    "NO_ARGUMENTS",
    "NO_PODS_BY_NODE",
    "NO_ROWS",
]


def test_the_pure_packages_have_no_state_of_the_process() -> None:
    changed, objects = set(), set()
    for package in PURE:
        for path in (ROOT / package).rglob("*.py"):
            changed |= {f"{path.relative_to(ROOT)}: {name}" for name in changed_globals(path)}
            module = importlib.import_module(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
            objects |= {name for name, value in vars(module).items() if is_mutable_object(value)}
    assert changed == set()
    assert objects == {*INTERNED, *WITHOUT_CONTENTS}


def is_mutable_object(value: object) -> bool:
    """True for an instance of one of our own classes that is neither frozen nor a tuple."""
    kind = type(value)
    if not kind.__module__.startswith("gpuconsole.") or isinstance(value, (type, Enum, tuple)):
        return False
    return not (isinstance(value, Struct) and value.__struct_config__.frozen)


def test_two_consoles_share_no_results_and_a_closed_one_leaves_no_snapshot() -> None:
    one, other = busy_org(), busy_org()
    for console in (one, other):
        for compute in computations().values():
            compute(console.snapshot)
    assert one.snapshot.derived is not other.snapshot.derived
    last = weakref.ref(one.snapshot)
    one.stop()
    del one, console
    gc.collect()
    assert last() is None
    assert names(other.snapshot)
