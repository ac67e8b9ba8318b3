"""Pictures of whole screens; look at those that change, then `pytest tests/ui/test_pictures.py --snapshot-update`."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.app import App
from textual.pilot import Pilot

from gpuconsole.model.autoscaling import POOL, SPOT, NodeGroup, NodePool, ProvisionedInstance
from gpuconsole.model.clock import HOUR
from gpuconsole.model.cluster import Node
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import Topology
from gpuconsole.model.resources import GPU
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleStatus
from gpuconsole.ui.app import ConsoleApp
from tests.support.console_clusters import NOW, history, org_cohort, recorded
from tests.support.recorded_histories import RecordedConsole

SIZES = {"80x24": (80, 24), "160x50": (160, 50)}
KEYS = {"dashboard": "1", "nodes": "4", "topology": "5", "cost": "9"}
PAST = {
    "trends": (("1",), " of 24 quota|20/24 GPUs"),
    "queue-trends": (("2", "down"), " of 16 quota|8/16 GPUs"),
    "time-line": (("1", "ctrl+t", *["left"] * 20), "20m ago"),
}
"""View → its keys, and a pattern of what is on it once it is drawn."""
RACKS = {"node-1": "rack-a", "node-2": "rack-a", "node-3": "rack-b"}


class StillConsole(Console):
    """A console whose data are never older than a moment."""

    @property
    def status(self) -> ConsoleStatus:
        return replace(super().status, age=0.0)


def campus() -> list[Object]:
    """The organisation in two racks; node-3 is a spot machine of a pool."""
    things = org_cohort()
    for place, thing in enumerate(things):
        if isinstance(thing, Node):
            labels = {**thing.labels, "rack": RACKS[thing.name], "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
            labels |= {POOL: "burst"} if thing.name == "node-3" else {}
            things[place] = replace(thing, labels=labels)
    machine = ProvisionedInstance(
        name="node-3",
        type="p4de.24xlarge",
        capacity_type=SPOT,
        price=14.0,
        list_price=40.97,
        gpus=8,
        launched=NOW - 3 * HOUR,
        ready=NOW - 2 * HOUR,
    )
    return [
        *things,
        Topology(name="campus", levels=("rack", HOSTNAME)),
        NodePool(name="burst", limits={GPU: 32}),
        NodeGroup(name="burst", instances=(machine,), launched=1, interrupted=1),
    ]


def still() -> Console:
    console = recorded(campus(), history())
    console.__class__ = StillConsole
    return console


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", KEYS)
def test_the_screen_looks_as_it_did(view: str, size: str, snap_compare: Callable[..., bool]) -> None:
    async def arrive(pilot: Pilot[Any]) -> None:
        await pilot.press(KEYS[view])
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()

    app = ConsoleApp(still(), repaint=0)
    assert snap_compare(app, terminal_size=SIZES[size], run_before=arrive)


STILL = 10
"""Number of looks at the screen, 50 ms apart, that have to show the same."""


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Console]:
    """A console with the history of 45 minutes."""
    console = RecordedConsole(tmp_path / "history.db", minutes=45).console
    console.__class__ = StillConsole
    yield console
    console.stop()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", PAST)
def test_the_past_looks_as_it_did(view: str, size: str, past: Console, snap_compare: Callable[..., bool]) -> None:
    keys, pattern = PAST[view]

    async def arrive(pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)
        shown, since = "", 0
        for turn in range(200):
            await pilot.app.workers.wait_for_complete()
            await pilot.pause(0.05)
            before, shown = shown, text_of(pilot.app)
            since = since if shown == before else turn
            # Parts of the screen come one after the other: the picture is taken once nothing has changed for a while.
            if re.search(pattern, shown) and turn - since >= STILL:
                break

    app = ConsoleApp(past, repaint=0)
    assert snap_compare(app, terminal_size=SIZES[size], run_before=arrive)


def text_of(app: App[Any]) -> str:
    """What can be seen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)
