"""Requests to the cluster in a thread, and external programs that take over the terminal."""

import logging
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from textual.app import SuspendNotSupported
from textual.worker import get_current_worker

from gpuconsole.errors import ConsoleError

if TYPE_CHECKING:
    from gpuconsole.ui.screens.base import ConsoleScreen

LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def run_in_background(screen: "ConsoleScreen", work: Callable[[], Answer], then: Callable[[Answer], object]) -> None:
    """Run `work` in a thread, then call `then` with its result; an error is shown as a toast."""

    def run() -> None:
        try:
            answer = work()
        except ConsoleError as error:
            screen.app.call_later(screen.flash, str(error), "error")
            return
        if not get_current_worker().is_cancelled:
            screen.app.call_later(then, answer)

    screen.run_worker(run, thread=True, group="errands")


def outside(screen: "ConsoleScreen", command: Sequence[str]) -> int | None:
    """Run another program in the terminal; its exit status, or None if it could not run."""
    try:
        with screen.app.suspend():
            return subprocess.call(command)
    except SuspendNotSupported:
        screen.flash("Cannot start an external program in this terminal", "error")
    except OSError as error:
        LOG.info("%s: %s", command[0], error)
        screen.flash(f"Cannot run {command[0]}: {error.strerror or error}", "error")
    return None
