"""Imports and mounts unopened screens one by one while the console is idle, so that no key waits for that.

A screen that was never in front costs 30 to 250 ms of styles, layout and first answer; afterwards it is shown from what
it knows. While it is hidden it costs nothing: only the screen in front is told of new data.
"""

import threading
from collections.abc import Callable, Iterable

from textual import events
from textual.app import App

from gpuconsole.ui.key_idle_timer import KeyIdleTimer
from gpuconsole.ui.screens.snapshot_worker import GROUP

PRELOAD_PAUSE = 0.15
"""Seconds between two screens, for new data and keys."""


class ScreenPreloader:
    """Mounts the modes of an app in the background, the most likely one first. Mutates."""

    def __init__(
        self,
        app: App[None],
        modes: Iterable[str],
        *,
        load: Callable[[str], object],
        others: Iterable[str],
        shown: Callable[[], bool],
        ready: Callable[[], bool],
        pace: KeyIdleTimer,
    ) -> None:
        """`load` imports a mode in a thread, as soon as the first one was `shown`; it imports `others` last.

        `ready` says whether useful data exists.
        """
        self._app = app
        self._modes = list(modes)
        self._load = load
        self._loaded: set[str] = set()
        self._others = list(others)
        self._importing = False
        self._shown = shown
        self._ready = ready
        self._pace = pace
        self._timer = app.set_interval(PRELOAD_PAUSE, self._next, pause=True)

    def start(self) -> None:
        """Start, or restart after all screens were recreated."""
        self._left = [*self._modes]
        self._timer.resume()

    def _next(self) -> None:
        if not self._importing and self._shown():
            self._importing = True
            self._import(self._modes)
        if not self._ready() or self._pace.wait() > 0 or self._thinking():
            return
        while self._left and self._left[0] in self._app._screen_stacks:
            self._left.pop(0)
        if not self._left:
            self._timer.pause()
            self._import(self._others)
            return
        if self._left[0] not in self._loaded:
            return
        mode = self._left.pop(0)
        # What a change of mode does, without the change.
        self._app._init_mode(mode)
        screen = self._app._screen_stacks[mode][0]
        screen.post_message(events.ScreenSuspend())

    def _import(self, names: Iterable[str]) -> None:
        def work() -> None:
            for name in names:
                self._load(name)
                self._loaded.add(name)

        threading.Thread(target=work, name="import", daemon=True).start()

    def _thinking(self) -> bool:
        """Whether a hidden screen still computes its first answer: several at once slow down the front screen."""
        front = self._app.screen
        return any(
            worker.group == GROUP and worker.is_running and worker.node is not front for worker in self._app.workers
        )
