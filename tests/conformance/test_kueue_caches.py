"""Kueue's caches change no decision: a sample of what `python -m tests.tools.caches` compares."""

from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.scheduling.kueue import inadmissible_skip, nomination_cache
from gpuconsole.scheduling.kueue.context import NominationCache, SharedNominations
from gpuconsole.scheduling.kueue.state import KueueState
from tests.support.kueue_caches import KueueCache
from tests.support.shared_material import CONFORMANCE, needs_conformance
from tests.tools.caches import FIXTURES, Comparison, answer_cases, scenario_cases, simulation_cases

WHOLE = (KueueCache.NOMINATION_CACHE, KueueCache.SHARED_NOMINATIONS, KueueCache.INADMISSIBLE_SKIP)
BROKEN = {
    KueueCache.NOMINATION_CACHE: (NominationCache, "invalidate", lambda cache, tree, name: None),
    KueueCache.SHARED_NOMINATIONS: (SharedNominations, "usage_number", lambda cache, amounts: 0),
    KueueCache.UNCHANGED_COHORTS: (KueueState, "mark_holdings_changed", lambda state, cluster_queue: None),
    KueueCache.BATCHES: (inadmissible_skip, "_all_still_lack", lambda context, rules, candidates: True),
    KueueCache.INADMISSIBLE_SKIP: (nomination_cache, "_has_no_side_effect", lambda rules, assignment: True),
}
"""Cache → a rule of it, and the same rule broken."""


@needs_conformance
def test_scenarios_of_all_families_are_decided_alike_without_each_cache() -> None:
    assert CONFORMANCE is not None
    comparison = Comparison(WHOLE)
    for case in scenario_cases(CONFORMANCE, Random(1), 0.02):
        comparison.compare(case)
    assert comparison.differences == []
    assert len(comparison.cases) == 15


@given(st.integers(0, 2**32))
@settings(max_examples=12)
def test_random_simulations_and_their_forks_are_decided_alike_without_each_cache(seed: int) -> None:
    comparison = Comparison()
    for case in simulation_cases([seed]):
        comparison.compare(case)
    assert comparison.differences == []


def test_analyses_have_the_same_answers_without_each_cache() -> None:
    comparison = Comparison((*WHOLE, KueueCache.ALL))
    for case in answer_cases([1], FIXTURES[:3]):
        comparison.compare(case)
    assert comparison.differences == []
    assert comparison.decisions["answers"] > 30


@pytest.mark.parametrize("cache", BROKEN)
def test_a_cache_that_breaks_its_rule_is_found_by_leaving_it_out(cache: KueueCache) -> None:
    owner, name, broken = BROKEN[cache]
    comparison = Comparison((cache,))
    target: Any = owner
    with patch.object(target, name, broken):
        for case in simulation_cases(range(40)):
            comparison.compare(case)
            if comparison.differences:
                break
    assert comparison.differences
