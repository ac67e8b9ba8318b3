"""All suggestions for one workload: kind by kind, each tried before it is given."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from gpuconsole.insight.unblock import kinds, quotas
from gpuconsole.insight.unblock.needs import Gap, gaps
from gpuconsole.insight.unblock.steps import Step
from gpuconsole.insight.unblock.trial import Trial, TriedEnough, examined
from gpuconsole.model.queues import WorkloadPriorityClass
from gpuconsole.scheduling.kueue.entry import Entry
from gpuconsole.sim.rehearsal import Rehearsal


class Suggestion(Struct, frozen=True):
    """Changes that together let the workload in; none of them can be left out or made smaller."""

    steps: tuple[Step, ...]


class Suggestions(Struct, frozen=True, kw_only=True):
    """What was found, and how much was tried for it."""

    found: tuple[Suggestion, ...] = ()
    admitted_anyway: bool = False
    """It gets in without any change, as soon as its turn comes: there is nothing to suggest."""
    tried: int = 0
    complete: bool = True
    """False if the bound on what is tried was reached before all kinds were."""


def suggest(
    rehearsal: Rehearsal,
    key: str,
    classes: Iterable[WorkloadPriorityClass] = (),
    progress: Callable[[int], object] = lambda tried: None,
) -> Suggestions:
    """Find what would let a waiting workload in; `progress` hears how many changes were tried. Nothing changes."""
    trial = Trial(rehearsal, key, classes)
    found: list[Suggestion] = []
    try:
        if not trial.fails(()):
            return Suggestions(admitted_anyway=True, tried=trial.tries)
        for steps in _all(trial):
            found.append(Suggestion(steps))
            progress(trial.tries)
    except TriedEnough:
        return Suggestions(found=tuple(found), tried=trial.tries, complete=False)
    return Suggestions(found=tuple(found), tried=trial.tries)


def _all(trial: Trial) -> Iterator[tuple[Step, ...]]:
    """Kind by kind; where no single kind is enough, several together."""
    entry = examined(trial.rehearsal, trial.key)
    found = gaps(trial.rehearsal.session, entry) if entry is not None else []
    nothing = True
    for steps in _each(trial, entry, found):
        if steps:
            nothing = False
            yield steps
    if nothing:
        yield from kinds.several(trial, entry, found)


def _each(trial: Trial, entry: Entry | None, found: Sequence[Gap]) -> Iterator[tuple[Step, ...]]:
    yield from kinds.doors(trial)
    if entry is not None:
        yield from quotas.ends(trial, entry)
        yield from kinds.smaller(trial, entry, found)
        yield from quotas.raises(trial, entry, found)
        yield from kinds.priorities(trial)
        yield from kinds.topologies(trial, entry)
        yield from kinds.nodes(trial, entry)
        yield from kinds.suiting(trial, entry)
    yield from kinds.moves(trial)
