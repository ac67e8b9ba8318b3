"""The history of preemptions: victim ← preemptor, the rule in words, what it lost; chains and counts."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.preemption.history import PreemptionStats, preemption_stats, rows
from gpuconsole.insight.series import QueueSample, SeriesKind
from gpuconsole.model.clock import DAY, HOUR, MINUTE, SECOND
from gpuconsole.model.events import (
    CandidateVerdict,
    ConsideredCandidate,
    HistoryEvent,
    HistoryEventKind,
    PreemptionTrace,
)
from gpuconsole.ui import format as fmt
from gpuconsole.ui.paint import painted, plain
from gpuconsole.ui.screens.preemptions import PreemptionsScreen, count_lines, window_line
from gpuconsole.ui.screens.workloads import WorkloadDetailScreen
from gpuconsole.ui.widgets.textpane import TextPane
from gpuconsole.ui.widgets.trends import WHOLE_CLUSTER, Trend, TrendWindow
from tests.support.console_clusters import HOSTILE, NOW, history, org_cohort, recorded, running
from tests.support.console_stage import SIZES, staged


def preempted(victim: str, by: str, ago: int) -> HistoryEvent:
    return HistoryEvent(
        time=NOW - ago, what=HistoryEventKind.PREEMPTED, workload=victim, by=by, reason="InClusterQueue", gpus=1
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_each_preemption_names_victim_preemptor_rule_and_loss(size: tuple[int, int]) -> None:
    async with staged(recorded(org_cohort(), history()), size) as stage:
        await stage.press("6")
        newest, older = stage.line("research/rlhf"), stage.line("dev/notebook-2")
        assert stage.text.index(newest) < stage.text.index(older)
        assert "← prod/serve-2" in newest
        assert " reclaim " in newest
        assert "2.9h" in newest
        if size[0] >= 110:
            assert "500 ← 10k" in newest
        assert "Preempted to accommodate a workload in the cohort" in stage.text


async def test_names_have_room_where_the_terminal_is_narrow() -> None:
    lines = [preempted("ranking/rank-108", "vision/detect-182", MINUTE)]
    async with staged(recorded(org_cohort(), lines), (80, 24)) as stage:
        await stage.press("6")
        assert stage.line("rank-10").split()[2:8] == [
            "✖",
            "ranking/rank-108",
            "1",
            "←",
            "vision/detect-182",
            "priority",
        ]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_preemptions_of_several_days_have_their_date(size: tuple[int, int]) -> None:
    lines = [preempted("ranking/rank-108", "vision/detect-182", 3 * DAY), preempted("llm/tune", "llm/rlhf", MINUTE)]
    async with staged(recorded(org_cohort(), lines), size) as stage:
        await stage.press("6")
        assert fmt.date_and_minute(NOW - 3 * DAY) in stage.line("ranking/rank")
        assert fmt.date_and_minute(NOW - MINUTE) in stage.line("llm/tune")


def test_a_window_with_more_preemptions_than_are_listed_says_whose_the_totals_are() -> None:
    window = TrendWindow("last 7 d", "7 d", 7 * DAY, HOUR)
    sample = QueueSample(kind=SeriesKind.CLUSTER, name="", preempted=1_267)
    trend = Trend(series=WHOLE_CLUSTER, window=window, end=NOW, samples=((NOW - HOUR, sample),))
    for listed, totals in (
        (500, "1,267 preemptions; newest 500: 220.9 GPU-h lost, $514.21"),
        (499, "499 preemptions, 220.9 GPU-h lost, $514.21"),
    ):
        stats = PreemptionStats(preemptions=listed, lost_gpu_hours=220.9, cost=514.21)
        line = plain(window_line(stats, window, trend))
        assert (line.startswith(" Last 7 d  "), line.endswith(f"  {totals}")) == (True, True), line


async def test_counts_sum_up_and_name_who_was_hit_most_often() -> None:
    lines = [*history(), preempted("research/rlhf", "prod/serve-3", 20 * MINUTE)]
    async with staged(recorded(org_cohort(), lines)) as stage:
        await stage.press("6")
        counts = stage.screen(PreemptionsScreen).query_one("#counts", TextPane).text.splitlines()
        assert counts[:6] == [
            "PREEMPTIONS",
            "  2 in the last hour",
            "  listed: preemptions in recent events",
            "",
            "LISTED",
            "  3 preemptions, 3.0 GPU-h lost, $6.63",
        ]
        assert counts[counts.index("VICTIMS") + 1] == "    2×  research/rlhf  2.9 GPU-h, $6.41"
        assert "⟲2" in stage.line("prod/serve-3")


async def test_only_a_victim_goes_in_circles_and_not_who_gained_from_it_once() -> None:
    lines = [preempted("research/rlhf", f"prod/serve-{number}", number * MINUTE) for number in (3, 2, 1)]
    async with staged(recorded(org_cohort(), lines)) as stage:
        await stage.press("6")
        counts = stage.screen(PreemptionsScreen).query_one("#counts", TextPane).text.splitlines()
        assert [line for line in counts if "preemption loop" in line] == [
            "    3×  research/rlhf  0.0 GPU-h, $0.00 ✖ preemption loop"
        ]


async def test_who_else_was_considered_stands_below_with_the_shares_of_that_time() -> None:
    candidates = (
        ConsideredCandidate("research/embed", "cq-research", CandidateVerdict.PUT_BACK, 400),
        ConsideredCandidate("research/rlhf", "cq-research", CandidateVerdict.CHOSEN, 500),
    )
    choice = PreemptionTrace("166.7", "0", candidates, left_out=3)
    line = replace(preempted("research/rlhf", "prod/serve-3", 20 * MINUTE), choice=choice)
    async with staged(recorded(org_cohort(), [*history(), line])) as stage:
        await stage.press("6")
        story = stage.screen(PreemptionsScreen).query_one("#story", TextPane).text.splitlines()
        assert story[story.index("CANDIDATES, IN ORDER   share ~166 ‰ ← 0 ‰") + 1 :] == [
            "  · research/embed  cq-research, priority 400: restored (fill-back): the other victims free enough",
            "  ✖ research/rlhf  cq-research, priority 500: evicted",
            "  and 3 more",
        ]


async def test_enter_opens_the_victim_and_w_the_preemptor() -> None:
    async with staged(recorded(org_cohort(), history())) as stage:
        await stage.press("6", "enter")
        assert stage.screen(WorkloadDetailScreen).crumb() == "research/rlhf"
        await stage.press("escape", "down", "w")
        assert stage.screen(WorkloadDetailScreen).crumb() == "research/llm-ft"


async def test_w_on_a_workload_shows_its_preemptions_though_kueue_named_it_after_its_job() -> None:
    made = running("job-train-0a1b2", 4)
    lines = [*history(), preempted(made.key, "prod/serve-3", 20 * MINUTE)]
    async with staged(recorded([*org_cohort(), made], lines)) as stage:
        await stage.press("3", "/", *"train", "enter", "w")
        await stage.tick()
        assert [line.split()[3] for line in stage.lines if " ✖ " in line] == ["research/train"]


async def test_w_on_a_workload_that_was_never_preempted_says_so_in_words() -> None:
    async with staged(recorded(org_cohort(), history()), (80, 24)) as stage:
        await stage.press("3", "/", *"embed", "enter", "w")
        await stage.tick()
        first = next(n for n, line in enumerate(stage.lines) if "○" in line)
        assert stage.lines[first : first + 2] == [
            "  ○ research/embed was neither victim nor preemptor: none of 2 rows matches (Esc",
            "    shows all).",
        ]
        await stage.press("escape")
        assert "research/rlhf" in stage.text


def test_sums_of_losses_some_of_which_nobody_knows_are_at_least_so_much() -> None:
    known = PreemptionStats(preemptions=3, lost_gpu_hours=2.0, cost=4.0)
    for found, said in (
        (known, "  3 preemptions, 2.0 GPU-h lost, $4.00"),
        (replace(known, unknown=1, unpriced=1), "  3 preemptions, at least 2.0 GPU-h lost, at least $4.00"),
        (replace(known, unknown=3, unpriced=3), "  3 preemptions, unknown GPU-h lost, cost unknown"),
    ):
        assert "".join(text for text, _ in painted(count_lines(found)[1])) == said


async def test_without_preemptions_it_says_so() -> None:
    async with staged(recorded(org_cohort())) as stage:
        await stage.press("6")
        assert "No preemptions" in stage.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_no_screen_raw(name: str) -> None:
    bad = replace(history()[3], workload=f"{name}/{name}", by=f"{name}/{name}", reason=name, message=name, queue=name)
    async with staged(recorded(org_cohort(), [bad]), (80, 24)) as stage:
        for keys in ("6", "tab", "enter"):
            await stage.press(*keys.split())
            assert all(line.isprintable() for line in stage.lines), keys


def test_a_loop_of_25_workloads_is_told_by_its_most_frequent_pairs() -> None:
    """In a ring, where the first pair comes three times; lines are never longer than two names."""
    ring = [(f"dev/w{number:02}", f"dev/w{(number + 1) % 25:02}") for number in range(25)]
    lines = [
        HistoryEvent(time=NOW + number * SECOND, what=HistoryEventKind.PREEMPTED, workload=victim, by=by, gpus=1)
        for number, (victim, by) in enumerate([*ring, ring[7], ring[7], ring[3]])
    ]
    told = [plain(one).rstrip() for one in count_lines(preemption_stats(rows(lines)))]
    first = told.index("PREEMPTION LOOPS") + 1
    assert told[first : first + 12] == [
        "  25 workloads  28 preemptions, 0.0 GPU-h, $0.00",
        "    3×  dev/w07 ← dev/w08",
        "    2×  dev/w03 ← dev/w04",
        *(f"    1×  dev/w{number:02} ← dev/w{number + 1:02}" for number in (0, 1, 2, 4, 5, 6, 8, 9)),
        "        and 15 more pairs",
    ]
