"""Drive the console in a real terminal: `make smoke`.

At 120×36 and 80×24, on the default fixture, every key of the action registry is pressed on a screen that offers it; the
log has to show that the key's action ran, or the menu has to say why it cannot be done just now. What happened in the
cluster meanwhile is read from the history that the console kept. Prints
`borrowed≥1 preempted≥1 gangPending≥1 keys N/N exceptions 0` with the real counts.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.store import queries
from gpuconsole.store.schema import open_for_reading
from tests.tools.terminal import Terminal

SIZES = ((120, 36), (80, 24))
SPEED = 60
MINUTE = 60.0
COMMAND = Path(sys.executable).with_name("gpuconsole")
VIEWS = {
    "dashboard": "1",
    "queues": "2",
    "workloads": "3",
    "nodes": "4",
    "topology": "5",
    "preemptions": "6",
    "what-if": "7",
    "submit": "8",
    "cost": "9",
    "history": "H",
    "drills": "T",
    "drill": "T enter",
    "why": "3 / p e n d i n g enter x",
    "time line": "1 ctrl+t left",
    "chart": "1 I p",
    "alerts": "1 J",
}
SCOPES = {
    "Tables": "workloads",
    "Selected object": "workloads",
    "Workloads": "workloads",
    "Queues": "queues",
    "Nodes": "nodes",
    "Topology": "topology",
    "Cost": "cost",
    "What-if": "what-if",
    "Submit": "submit",
    "Drills": "drill",
    "Time line": "time line",
}
READ = ("drills", "drill")
"""Their files are read first."""
ASKED = {"why": "u try in what-if", "time line": " PAST ", "alerts": "firing "}
"""What stands on a view once it has its answer."""
FIRST = {
    "object.rehearse": "why",
    "chart.earlier": "chart",
    "chart.later": "chart",
    "chart.series": "chart",
    "alert.silence": "alerts",
}
"""Where the key of an action works that needs more than something under the cursor."""
LEAVING = "app.suspend"
TOGGLES = ("sim.pause", "app.header", "app.zoom")
"""Pressed again, so that what they change does not stay for the keys that follow."""
RULES = 'groups: [{name: gpus, rules: [{alert: Allocated, expr: "gpuconsole_gpus > 0"}]}]'
"""Rules that raise an alert."""
FOOTER = "\\? help"
"""Stands on every screen; the header may be hidden by a key."""


LIVE = ("Edit", "Logs", "Port-forwards")
"""Scopes of screens that only a live cluster opens: the live tests press their keys."""


class Session:
    """One console in one terminal. Mutates: it presses keys and watches the log."""

    def __init__(self, terminal: Terminal, state: Path) -> None:
        self._terminal = terminal
        self._log = state / "gpuconsole.log"

    def actions_run(self) -> list[str]:
        text = self._log.read_text() if self._log.exists() else ""
        return re.findall(r"\baction ([a-z-]+\.[a-z-]+)", text)

    def exceptions(self) -> list[str]:
        text = self._log.read_text() if self._log.exists() else ""
        return re.findall(r"^.*(?:ERROR|CRITICAL|Traceback).*$", text, flags=re.MULTILINE)

    def calm(self) -> None:
        """Close whatever the last key opened."""
        for _ in range(2):
            self._terminal.press("escape")
            # A key that follows an escape at once would be taken for alt+key.
            time.sleep(0.2)

    def show(self, view: str) -> None:
        self.calm()
        for key in VIEWS[view].split():
            self._terminal.press(key)
            time.sleep(0.5 if view in READ else 0.15)
        if view in ASKED:
            with suppress(TimeoutError):
                self._terminal.wait(ASKED[view], 10)

    def ran(self, action: str, keys: str, view: str) -> bool:
        """Press the keys on this view; true once the log says that the action ran, or the menu why it cannot now."""
        self.show(view)
        before = self.actions_run().count(action)
        for key in keys.split():
            self._terminal.press(key)
            time.sleep(0.15)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            if self.actions_run().count(action) > before or self._refused(keys):
                return True
            time.sleep(0.05)
        return False

    def _refused(self, keys: str) -> bool:
        """A menu stays open and says why what was picked cannot be done with what is under the cursor."""
        return " " in keys and re.search(r"│ ⚠ \w", self._terminal.text()) is not None


def registry() -> list[dict[str, Any]]:
    done = subprocess.run([COMMAND, "keys", "-o", "json"], capture_output=True, text=True, check=True, timeout=60)
    actions: list[dict[str, Any]] = json.loads(done.stdout)
    return actions


def press_all(session: Session, terminal: Terminal) -> tuple[int, list[str]]:
    """Press every key of every action; return how many ran, and which did not."""
    good, missed = 0, []
    for action in registry():
        if action["scope"] in LIVE:
            continue
        for keys in action["keys"]:
            first = FIRST.get(action["id"]) or SCOPES.get(action["scope"], "dashboard")
            tries = [first, *(view for view in VIEWS if view != first)]
            if any(session.ran(action["id"], keys, view) for view in tries):
                good += 1
            else:
                missed.append(f"{action['id']} ({keys})")
            if action["id"] in TOGGLES:
                terminal.press(*keys.split())
            if action["id"] == LEAVING:
                terminal.wait("Stopped")
                terminal.run("fg")
                terminal.wait(FOOTER)
    session.calm()
    return good, missed


def counts(state: Path) -> dict[str, int]:
    """What the history says that happened."""
    questions: dict[str, Callable[[HistoryEvent], bool]] = {
        "borrowed": lambda line: line.what is HistoryEventKind.ADMITTED and line.borrowed > 0,
        "preempted": lambda line: line.what is HistoryEventKind.PREEMPTED,
        "gangPending": lambda line: line.what is HistoryEventKind.GANG_WAITING,
    }
    with closing(open_for_reading(state / "history.db")) as db:
        lines = [line for one in queries.recordings(db) for line in queries.events(db, one.id, 0, queries.ENDLESS)]
    return {name: sum(map(question, lines)) for name, question in questions.items()}


def drive(columns: int, lines: int) -> bool:
    """One size: a minute of the default fixture with every key pressed. Prints its line; true if all is well."""
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
        state = Path(folder)
        rules = state / "rules.yaml"
        rules.write_text(RULES)
        environment = {
            "GPUCONSOLE_STATE_DIR": folder,
            "GPUCONSOLE_ALERTS__RULES": str(rules),
            "TERM": "tmux-256color",
            "COLORTERM": "truecolor",
        }
        with Terminal(columns, lines, environment) as terminal:
            started = time.monotonic()
            terminal.run(f"{shlex.quote(str(COMMAND))} run --speed {SPEED}")
            terminal.wait(r"SIM ×")
            session = Session(terminal, state)
            keys, missed = press_all(session, terminal)
            time.sleep(max(0.0, MINUTE - (time.monotonic() - started)))
            session.show("dashboard")
            terminal.wait(FOOTER)
            terminal.press(":", "q", "enter")
            time.sleep(2)
            terminal.run("echo ended with $?")
            terminal.wait(r"^ended with 0")
            exceptions = session.exceptions()
        happened = counts(state)
    total = keys + len(missed)
    told = " ".join(f"{name} {count}" for name, count in happened.items())
    print(f"{columns}×{lines}: {told} keys {keys}/{total} exceptions {len(exceptions)}", flush=True)
    for line in (*(f"did not run: {key}" for key in missed), *exceptions):
        print(f"  {line}")
    return not missed and not exceptions and all(happened.values())


def main() -> int:
    good = [drive(*size) for size in SIZES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
