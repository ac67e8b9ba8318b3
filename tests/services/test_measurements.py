"""How busy GPUs were in the last hour is known to the next console on the same live cluster, and to no other."""

from pathlib import Path

import pytest

from gpuconsole.insight.health.telemetry import BINS, Trend, on_node
from gpuconsole.model.clock import HOUR, MINUTE, Time
from gpuconsole.model.telemetry import GpuMetric, MeasuredDevice, NodeTelemetry
from gpuconsole.services.console import Console
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.store.recorder import Opening, Recorder
from tests.support.scripted_live_backend import Elsewhere
from tests.support.snapshots import START, node


def session(path: Path, time: Time, percent: float, *, source: str = "prod") -> Trend:
    """A console that measures a node once: how busy its GPU was by what that console knows."""
    told = NodeTelemetry(
        name="n", time=time, devices=(MeasuredDevice(gpu=0),), columns={GpuMetric.UTILISATION: (percent,)}
    )
    recorder = Recorder(path, Opening(version="0.1.0", mode="LIVE", source=source), wall=lambda: time, interval=1e6)
    about = ConsoleStatus(mode=ConsoleMode.LIVE, source=source)
    console = Console(Elsewhere([node("n", 1), told], time), about=about, recorder=recorder)
    console.tick(0)
    trend = console.trends.of(on_node(console.snapshot, "n"), time)
    console.stop()
    return trend


def test_the_next_console_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    assert session(path, START, 40.0) == (*(None,) * (BINS - 1), 40.0)
    assert session(path, START + 11 * MINUTE, 90.0) == (*(None,) * (BINS - 3), 40.0, None, 90.0)


@pytest.mark.parametrize(
    ("later", "source"), [(11 * MINUTE, "staging"), (HOUR, "prod")], ids=["another cluster", "an hour later"]
)
def test_nothing_else_is_known_to_it(tmp_path: Path, later: Time, source: str) -> None:
    path = tmp_path / "history.db"
    session(path, START, 40.0)
    assert session(path, START + later, 90.0, source=source) == (*(None,) * (BINS - 1), 90.0)
