"""How laws are tried: locally with new examples each time, in CI with the same ones, so that it never hangs on luck.

Controllers take no time here unless a test asks for latencies, so that tests can name moments to the second. And a word
about the tests that need a real API server, where they are left out.
"""

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

from gpuconsole.sim import run_times

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

run_times.DEFAULT_LATENCIES = None

LEFT_OUT = pytest.StashKey[int]()


@pytest.fixture
def measured_latencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations are made as users make them: with the latencies of a real control plane."""
    monkeypatch.setattr(run_times, "DEFAULT_LATENCIES", run_times.MEASURED)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the live tests that a run leaves out."""
    live = [item for item in items if item.get_closest_marker("live") is not None]
    if live and live[0].config.option.markexpr == "not live":
        stash = live[0].config.stash
        stash[LEFT_OUT] = stash.get(LEFT_OUT, 0) + len(live)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where several processes test, each tells how many it left out."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """All of them leave out the same."""
    told = getattr(node, "workeroutput", {}).get("left out", 0)
    node.config.stash[LEFT_OUT] = max(node.config.stash.get(LEFT_OUT, 0), told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that they did not run."""
    left_out = config.stash.get(LEFT_OUT, 0)
    if left_out:
        terminalreporter.line(f"{left_out} live tests did not run: `make test-live` does that (it needs Go)")
