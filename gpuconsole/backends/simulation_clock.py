"""Clock of a backend with virtual time: speed, pause, steps, and the speed that was reached."""

import threading
from collections import deque

from gpuconsole.backends.base import clip_speed
from gpuconsole.model.clock import SECOND, Span

WINDOW = 40
"""Polls over which the reached speed is averaged: about two seconds."""


class SimulationClock:
    """Converts wall-clock seconds to virtual time. Mutable; `set_speed`, `pause`, `resume`, `step` are thread-safe."""

    def __init__(self, speed: float, paused: bool) -> None:
        self._speed = clip_speed(speed)
        self._paused = threading.Event()
        if paused:
            self._paused.set()
        self._steps = 0
        self._lock = threading.Lock()
        self._window: deque[tuple[float, Span]] = deque(maxlen=WINDOW)

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def reached(self) -> float:
        """Average speed of the last polls; 0 if there were none."""
        window = list(self._window)
        wall = sum(elapsed for elapsed, _ in window)
        return sum(span for _, span in window) / SECOND / wall if wall else 0.0

    @property
    def paused(self) -> bool:
        return self._paused.is_set()

    def set_speed(self, speed: float) -> None:
        """Set the virtual seconds per wall-clock second, clipped to the supported range."""
        self._speed = clip_speed(speed)
        # Speeds that were reached at another setting do not count.
        self._window.clear()

    def pause(self) -> None:
        """Stop virtual time."""
        self._paused.set()

    def resume(self) -> None:
        """Let virtual time continue."""
        self._window.clear()
        self._paused.clear()

    def step(self) -> None:
        """Let the next poll advance to the next event, even while paused."""
        with self._lock:
            self._steps += 1

    def take_steps(self) -> int:
        """Return and reset the number of requested steps."""
        with self._lock:
            steps, self._steps = self._steps, 0
        return steps

    def span(self, elapsed: float) -> Span:
        """Virtual time for `elapsed` wall-clock seconds; 0 while paused."""
        return 0 if self.paused else round(elapsed * self._speed * SECOND)

    def note(self, elapsed: float, span: Span) -> None:
        """Record how far virtual time advanced in `elapsed` seconds."""
        if elapsed > 0 and not self.paused:
            self._window.append((elapsed, span))
