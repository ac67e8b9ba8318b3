"""How plugins vote: who decides in a tier, when the next tier is asked, and which flags let a plugin speak."""

from collections.abc import Callable

import pytest

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.task import TaskInfo
from gpuconsole.scheduling.volcano.config import ENABLED_BY_DEFAULT, EnabledFlag, VolcanoPluginOption, tier_of
from gpuconsole.scheduling.volcano.session_plugins import ABSTAIN, PERMIT, REJECT, SessionPlugins, VictimsVote
from tests.support.volcano_clusters import job, queue, task

ASKER = task("asker")
TASKS = {name: task(name) for name in "abc"}
Ballot = dict[str, tuple[str, int]]
CASES: dict[str, tuple[list[list[str]], Ballot, str | None]] = {
    "those who vote in a tier must agree": ([["x", "y"]], {"x": ("ab", PERMIT), "y": ("bc", PERMIT)}, "b"),
    "who abstains has no say": ([["x", "y"]], {"x": ("", ABSTAIN), "y": ("bc", PERMIT)}, "bc"),
    "a vote for nobody ends the tier, and the next one is asked": (
        [["x", "y"], ["z"]],
        {"x": ("ab", PERMIT), "y": ("", PERMIT), "z": ("c", PERMIT)},
        "c",
    ),
    "after a vote for nobody the rest of the tier is not heard": (
        [["x", "y"]],
        {"x": ("", PERMIT), "y": ("a", PERMIT)},
        None,
    ),
    "where two have nothing in common, the third starts afresh": (
        [["x", "y", "z"]],
        {"x": ("a", PERMIT), "y": ("b", PERMIT), "z": ("c", PERMIT)},
        "c",
    ),
    "the first tier that finds anybody decides": (
        [["x"], ["y"]],
        {"x": ("ab", PERMIT), "y": ("a", PERMIT)},
        "ab",
    ),
    "nobody registered decides nothing": ([["x"]], {}, None),
}


def ballot(tiers: list[list[str]], votes: Ballot) -> SessionPlugins:
    voting = SessionPlugins([tier_of(*names) for names in tiers])
    for name, (who, vote) in votes.items():

        def victims(_: TaskInfo, candidates: list[TaskInfo], who: str = who, vote: int = vote) -> VictimsVote:
            return [one for one in candidates if one.name in who], vote

        voting.functions.preemptable[name] = voting.functions.reclaimable[name] = victims
    return voting


@pytest.mark.parametrize("name", CASES)
def test_victims(name: str) -> None:
    tiers, votes, want = CASES[name]
    voting = ballot(tiers, votes)
    for ask in (voting.preemptable, voting.reclaimable):
        got = ask(ASKER, list(TASKS.values()))
        assert (None if got is None else "".join(one.name for one in got)) == want


def test_a_plugin_speaks_only_where_its_tier_enables_it() -> None:
    voting = ballot([["x"]], {"x": ("a", PERMIT)})
    voting.tiers = ((VolcanoPluginOption(name="x", enabled=ENABLED_BY_DEFAULT - {EnabledFlag.PREEMPTABLE}),),)
    assert voting.preemptable(ASKER, list(TASKS.values())) is None
    assert voting.reclaimable(ASKER, list(TASKS.values())) == [TASKS["a"]]


VOTES: dict[str, tuple[list[list[str]], dict[str, int], bool]] = {
    "one rejection is enough": ([["x", "y"]], {"x": PERMIT, "y": REJECT}, False),
    "a permit ends with its tier": ([["x"], ["y"]], {"x": PERMIT, "y": REJECT}, True),
    "where all abstain the next tier is asked": ([["x"], ["y"]], {"x": ABSTAIN, "y": REJECT}, False),
    "nobody minding permits": ([["x"]], {"x": ABSTAIN}, True),
}


def says(vote: int) -> Callable[[JobInfo], int]:
    return lambda _: vote


@pytest.mark.parametrize("name", VOTES)
def test_permits_and_rejections(name: str) -> None:
    tiers, votes, want = VOTES[name]
    voting = SessionPlugins([tier_of(*names) for names in tiers])
    for plugin, vote in votes.items():
        voting.functions.job_enqueueable[plugin] = voting.functions.job_pipelined[plugin] = says(vote)
    assert voting.job_enqueueable(job()) is want
    assert voting.job_pipelined(job()) is want


def test_only_the_first_tier_that_speaks_says_whether_a_job_starves() -> None:
    voting = SessionPlugins([tier_of("silent"), tier_of("x", "y"), tier_of("z")])
    assert not voting.job_starving(job())
    voting.functions.job_starving |= {"x": lambda _: True, "z": lambda _: False}
    assert voting.job_starving(job())
    voting.functions.job_starving["y"] = lambda _: False
    assert not voting.job_starving(job())


def test_the_first_plugin_that_minds_orders_then_age_then_name() -> None:
    voting = SessionPlugins([tier_of("x"), tier_of("y")])
    old, young = job(name="young", created=1), job(name="old", created=2)
    assert voting.job_precedes(old, young)
    assert voting.job_precedes(job(name="a"), job(name="b"))
    voting.functions.job_order["y"] = lambda *_: 1
    assert not voting.job_precedes(old, young)
    voting.functions.job_order["x"] = lambda *_: -1
    assert voting.job_precedes(old, young)


def test_one_plugin_makes_a_queue_overused_and_all_must_let_it_take_a_task() -> None:
    voting = SessionPlugins([tier_of("x"), tier_of("y")])
    assert (voting.overused(queue()), voting.allocatable(queue(), ASKER)) == (False, True)
    voting.functions.overused |= {"x": lambda _: False, "y": lambda _: True}
    voting.functions.allocatable |= {"x": lambda *_: True, "y": lambda *_: False}
    assert (voting.overused(queue()), voting.allocatable(queue(), ASKER)) == (True, False)
