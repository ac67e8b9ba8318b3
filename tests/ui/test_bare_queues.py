"""Queues that Kueue does not rule, on the queues screen and on the dashboard: they are seen, and cannot be held."""

import pytest

from gpuconsole.model.objects import Object
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from tests.insight.world import node, pod
from tests.ui.stage import SIZES, staged
from tests.ui.worlds import HOSTILE, recorded

GROUP = {"scheduling.k8s.io/group-name": "g"}


def volcano(queue: str = "research") -> list[Object]:
    return [
        node("n1"),
        VolcanoQueue(name=queue, weight=3),
        VolcanoQueue(name="product"),
        PodGroup(namespace="team", name="g", queue=queue),
        pod("r-0", "n1", (0, 1, 2), annotations=GROUP),
        pod("r-1", wants=2, annotations=GROUP),
    ]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_volcanos_queues_stand_where_kueues_would(size: tuple[int, int]) -> None:
    async with staged(recorded(volcano()), size) as stage:
        assert "3 / 5" in stage.line("research ")
        await stage.press("2", "j")
        assert "research" in stage.line("▌")
        assert "deserves 5 · at most 8 · weight 3 · reclaimable" in stage.text
        assert "Volcano queue" in stage.text


async def test_they_cannot_be_held() -> None:
    async with staged(recorded(volcano())) as stage:
        await stage.press("2", "s")
        said = [notice.message for notice in stage.app._notifications]
        assert said == ["hold or resume: only Kueue's queues can be held"]
        await stage.press("d")
        assert "Reclaimable" in stage.text


async def test_namespaces_stand_in_where_nothing_queues() -> None:
    async with staged(recorded([node("n1"), pod("p", "n1", (0, 1))])) as stage:
        await stage.press("2")
        assert "2 / 8" in stage.line("team")
        assert "no quota" in stage.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
async def test_hostile_names_reach_the_screen_clean(name: str) -> None:
    async with staged(recorded(volcano(name)), (80, 24)) as stage:
        for key in ("2", "j", "d", "escape", "y", "escape", "1"):
            await stage.press(key)
            assert all(line.isprintable() for line in stage.lines), key
