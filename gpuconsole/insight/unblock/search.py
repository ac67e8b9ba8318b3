"""All suggestions for one workload: kind by kind, each tried before it is given."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.unblock import kinds, pod_kinds, quotas, suiting
from gpuconsole.insight.unblock.landing import UNTRIED, Land, Landing, Trying, untried
from gpuconsole.insight.unblock.least import TriedEnough
from gpuconsole.insight.unblock.needs import Gap, gaps_in_turn
from gpuconsole.insight.unblock.placing import Placing
from gpuconsole.insight.unblock.steps import Step
from gpuconsole.insight.unblock.trial import Trial, examined
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.sim.rehearsal import Rehearsal

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation

ON_NODES = "whether its pods find nodes then"
"""What is tried of each change that lets it in."""
_Kind = tuple[str, Iterator[tuple[Step, ...]]]
"""A kind of change in words, and the search for it, which begins when it is asked."""


class Suggestion(Struct, frozen=True):
    """Changes that together let the workload in; none of them can be left out or made smaller."""

    steps: tuple[Step, ...]
    landing: Landing = UNTRIED
    """Whether its pods find nodes then."""


class Suggestions(Struct, frozen=True, kw_only=True):
    """What was found, and how much was tried for it."""

    found: tuple[Suggestion, ...] = ()
    admitted_anyway: bool = False
    """It gets in without any change, as soon as its turn comes: there is nothing to suggest."""
    landing: Landing = UNTRIED
    """Whether its pods find nodes where it gets in anyway."""
    tried: int = 0
    complete: bool = True
    """False if the bound on what is tried was reached before all kinds were."""


class UnderWay(Struct, frozen=True):
    """How far a search is: the kind that is being tried, and how many of how many are done."""

    kind: str
    done: int
    of: int


class Search(Struct, frozen=True):
    """What was found so far; `under_way` is None once that is all."""

    so_far: Suggestions
    under_way: UnderWay | None = None


def suggest(rehearsal: Rehearsal, key: str, classes: Iterable[WorkloadPriorityClass] = ()) -> Suggestions:
    """Find what would let a waiting workload in. Nothing changes."""
    *_, last = searching(rehearsal, key, classes)
    return last.so_far


def searching(
    rehearsal: Rehearsal, key: str, classes: Iterable[WorkloadPriorityClass] = (), land: Land = untried
) -> Iterator[Search]:
    """The same piece by piece, with every few changes that were tried: who stops asking gives up.

    `land` says of each change that lets the workload in whether its pods find nodes then.
    """
    trial = Trial(rehearsal, key, classes)
    yield from _searching(trial, _all(trial), land)


def searching_places(simulation: "Simulation", key: str) -> Iterator[Search]:
    """What would let pods start that wait for nodes, piece by piece. Nothing changes."""
    trial = Placing(simulation, key)
    yield from _searching(trial, _each(_pod_kinds(trial)), untried)


def _searching(
    trial: Trial | Placing, tried: Iterator[tuple[UnderWay, tuple[Step, ...]]], land: Land
) -> Iterator[Search]:
    found: list[Suggestion] = []
    try:
        if not trial.fails(()):
            anyway = Suggestions(admitted_anyway=True, tried=trial.tries)
            landed = yield from _told(land(()), Search(anyway, UnderWay(ON_NODES, 0, 1)))
            yield Search(replace(anyway, landing=landed))
            return
        for under_way, steps in tried:
            # One change may suit pods to several flavors.
            if steps and all(one.steps != steps for one in found):
                so_far = Suggestions(found=tuple(found), tried=trial.tries)
                landed = yield from _told(land(steps), Search(so_far, replace(under_way, kind=ON_NODES)))
                found.append(Suggestion(steps, landed))
            yield Search(Suggestions(found=tuple(found), tried=trial.tries), under_way)
    except TriedEnough:
        yield Search(Suggestions(found=tuple(found), tried=trial.tries, complete=False))
        return
    yield Search(Suggestions(found=tuple(found), tried=trial.tries))


def _told(trying: Trying, state: Search) -> Generator[Search, None, Landing]:
    """Tell how far the search is with every piece of a landing; returns what came of that."""
    while True:
        try:
            next(trying)
        except StopIteration as over:
            landed: Landing = over.value
            return landed
        yield state


def _all(trial: Trial) -> Iterator[tuple[UnderWay, tuple[Step, ...]]]:
    """Kind by kind; where no single kind is enough, several together. No steps where a trial came to nothing."""
    entry = examined(trial.rehearsal, trial.key)
    found = gaps_in_turn(trial.rehearsal.session, entry) if entry is not None else []
    every, nothing = _kinds(trial, entry, found), True
    for under_way, steps in _each(every):
        nothing = nothing and not steps
        yield under_way, steps
    if nothing:
        last = UnderWay("several changes together", len(every), len(every) + 1)
        yield last, ()
        for steps in kinds.several(trial, entry, found):
            yield last, steps


def _each(every: list[_Kind]) -> Iterator[tuple[UnderWay, tuple[Step, ...]]]:
    for done, (kind, tried) in enumerate(every):
        under_way = UnderWay(kind, done, len(every))
        yield under_way, ()
        for steps in tried:
            yield under_way, steps


def _pod_kinds(trial: Placing) -> list[_Kind]:
    """What is tried for pods, in words, and how."""
    return [
        ("ends of other work", pod_kinds.ends(trial)),
        ("smaller gangs", pod_kinds.gangs(trial)),
        ("smaller requests", pod_kinds.smaller(trial)),
        ("more nodes", pod_kinds.nodes(trial)),
        ("cordoned nodes", pod_kinds.cordoned(trial)),
        ("tolerations and selectors", pod_kinds.suiting(trial)),
        ("disruption budgets", pod_kinds.budgets(trial)),
    ]


def _kinds(trial: Trial, entry: Entry | None, found: Sequence[Gap]) -> list[_Kind]:
    """What is tried, in words, and how; the searches begin when they are asked."""
    doors, moves = ("what is stopped or shut", kinds.doors(trial)), ("other queues", kinds.moves(trial))
    if entry is None:
        return [doors, moves]
    return [
        doors,
        ("ends of other work", quotas.ends(trial, entry)),
        ("smaller requests", kinds.smaller(trial, entry, found)),
        ("quotas and limits", quotas.raises(trial, entry, found)),
        ("priorities", kinds.priorities(trial)),
        ("topology levels", suiting.topologies(trial, entry)),
        ("more nodes", kinds.nodes(trial, entry)),
        ("tolerations and selectors", suiting.allowing(trial, entry)),
        moves,
    ]
