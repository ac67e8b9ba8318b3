"""Kueue's caches, each of which can be turned off, so that tests compare decisions with and without it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any
from unittest.mock import patch

from gpuconsole.scheduling.kueue.context import NominationCache, SharedNominations
from gpuconsole.scheduling.kueue.scheduler import ReportRefusals
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.scheduling.kueue.state import InadmissibleSkip


class KueueCache(Enum):
    """A cache of Kueue's sessions, or a part of one."""

    NOMINATION_CACHE = "NominationCache"
    """Nominations, candidates and victims of a tree, while its quota holders are the same."""
    SHARED_NOMINATIONS = "SharedNominations"
    """Nominations of equivalent heads by usage, shared by forks; without them no refusal can be skipped."""
    UNCHANGED_COHORTS = "InadmissibleSkip.unchanged_cohorts"
    """Trees in which another cycle would repeat all refusals."""
    BATCHES = "InadmissibleSkip.batches"
    """Heads that forks mark inadmissible in advance; single heads are still skipped."""
    INADMISSIBLE_SKIP = "InadmissibleSkip"
    """All skips: of unchanged trees, of single heads, and of batches."""
    ALL = "all of them"


class _NeverHit(dict[Any, Any]):
    """A dict that stays empty."""

    def __setitem__(self, key: object, value: object) -> None:
        pass


_RUN_CYCLE = KueueSession.run_cycle


@contextmanager
def without(*caches: KueueCache) -> Iterator[None]:
    """Run the block with these caches empty or never hit; none are given to keep all of them.

    Make, fork or load simulations inside the block: what a simulation has cached before it is not dropped.
    """
    off = set(caches)
    if KueueCache.ALL in off:
        off |= {KueueCache.NOMINATION_CACHE, KueueCache.SHARED_NOMINATIONS, KueueCache.INADMISSIBLE_SKIP}
    if KueueCache.INADMISSIBLE_SKIP in off:
        off |= {KueueCache.UNCHANGED_COHORTS, KueueCache.BATCHES}
    with ExitStack() as stack:
        if KueueCache.NOMINATION_CACHE in off:
            for method in ("cohort_entries", "queue_entries"):
                stack.enter_context(patch.object(NominationCache, method, _no_entries))
        if KueueCache.SHARED_NOMINATIONS in off:
            stack.enter_context(patch.object(SharedNominations, "nominations", _always_empty()))
        if KueueCache.UNCHANGED_COHORTS in off:
            stack.enter_context(patch.object(InadmissibleSkip, "unchanged_cohorts", _always_empty()))
        if KueueCache.INADMISSIBLE_SKIP in off:
            stack.enter_context(patch.object(KueueSession, "run_cycle", _try_every_head))
        elif KueueCache.BATCHES in off:
            stack.enter_context(patch.object(KueueSession, "run_cycle", _skip_single_heads))
        yield


def _no_entries(cache: NominationCache, of: object) -> _NeverHit:
    return _NeverHit()


def _always_empty() -> property:
    return property(lambda cache: _NeverHit(), lambda cache, entries: None)


def _try_every_head(session: KueueSession, now: int, **options: Any) -> Any:
    return _RUN_CYCLE(session, now, **options | {"report": ReportRefusals.EVERY})


def _skip_single_heads(session: KueueSession, now: int, **options: Any) -> Any:
    """Batches are only for cycles whose refusals may have other amounts than they have now."""
    if options.get("report") is ReportRefusals.CHANGED_REASON:
        options["report"] = ReportRefusals.CHANGED
    return _RUN_CYCLE(session, now, **options)
