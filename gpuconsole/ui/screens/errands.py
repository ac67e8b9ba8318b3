"""Errands: what a cluster has to be asked first, in a thread, before a screen goes on; and what takes the terminal."""

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


def errand(screen: "ConsoleScreen", work: Callable[[], Answer], then: Callable[[Answer], object]) -> None:
    """Do `work` in a thread, then go on with its answer; what goes wrong is said."""

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
    """Give the terminal to another program until it ends; its exit status, or None where it did not run."""
    try:
        with screen.app.suspend():
            return subprocess.call(command)
    except SuspendNotSupported:
        screen.flash("Cannot start an external program in this terminal", "error")
    except OSError as error:
        LOG.info("%s: %s", command[0], error)
        screen.flash(f"Cannot run {command[0]}: {error.strerror or error}", "error")
    return None
