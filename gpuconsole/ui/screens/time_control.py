"""Control of simulated time: pause, single step, speed."""

from collections.abc import Callable

from gpuconsole.errors import ConsoleError
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.dialogs_mixin import Handler
from gpuconsole.ui.widgets.confirm import PromptField

SPEEDS = (1, 10, 60, 300, 1000, 3600, 10_000)
"""Speeds that faster and slower step through."""
SLOWEST, FASTEST = SPEEDS[0], SPEEDS[-1]


def driving_handlers(screen: ConsoleScreen) -> dict[str, Handler]:
    """Action id → handler, with toasts and dialogs on this screen."""
    return {
        "sim.pause": lambda: pause_or_resume(screen),
        "sim.step": lambda: _drive(screen, screen.console.step),
        "sim.faster": lambda: _change_speed(screen, faster=True),
        "sim.slower": lambda: _change_speed(screen, faster=False),
        "sim.speed": lambda: _ask_speed(screen),
    }


def pause_or_resume(screen: ConsoleScreen, wanted: str = "") -> None:
    """Toggle pause; with `wanted` = `pause` only pause, with another word only resume."""
    console = screen.console
    paused = console.status.paused
    if wanted and paused == (wanted == "pause"):
        screen.flash("Already paused" if paused else "Already running")
    else:
        _drive(screen, console.resume if paused else console.pause)


def set_speed(screen: ConsoleScreen, text: str) -> None:
    """Set the speed from text such as `1000` or `×60`."""
    if wrong := wrong_speed(text):
        screen.flash(f"Speed {text}: {wrong}", "error")
    else:
        _drive(screen, lambda: screen.console.set_speed(_number(text)))


def wrong_speed(text: str) -> str:
    """The error in a speed; empty if it is valid."""
    try:
        speed = _number(text)
    except ValueError:
        return "enter a number"
    return "" if SLOWEST <= speed <= FASTEST else f"must be between {SLOWEST} and {FASTEST:,}"


def _number(text: str) -> float:
    return float(text.strip().lstrip("×x").replace(",", ""))


def _change_speed(screen: ConsoleScreen, *, faster: bool) -> None:
    speed = screen.console.status.speed or SLOWEST
    steps = [step for step in SPEEDS if step > speed] if faster else [step for step in SPEEDS[::-1] if step < speed]
    _drive(screen, lambda: screen.console.set_speed(float(steps[0] if steps else speed)))


def _ask_speed(screen: ConsoleScreen) -> None:
    speed = screen.console.status.speed
    lines = (f"From {SLOWEST} to {FASTEST:,}.",)
    wanted = PromptField("Simulated seconds per second", f"{speed:g}" if speed else "", lines, wrong_speed)
    screen.prompt(wanted, lambda text: set_speed(screen, text))


def _drive(screen: ConsoleScreen, control: Callable[[], None]) -> None:
    try:
        control()
    except ConsoleError as error:
        screen.flash(str(error), "warning")
    screen.refresh_frame()
