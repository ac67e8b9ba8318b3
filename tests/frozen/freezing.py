"""Files that hold what leaves the process: compared as a whole, and rewritten on request."""

import json
import os
from difflib import unified_diff
from pathlib import Path

FOLDER = Path(__file__).parent
SWITCH = "GPUCONSOLE_UPDATE_FROZEN"
"""The environment variable that rewrites the files instead of comparing them."""
REMEDY = f"""What leaves the process has changed. A rename inside the code must not do that: give the class, field or
value the name that it had for others (tag=, rename=, the value of the enum). If the change is meant, raise the version
of the document or file form where a field goes or changes its meaning, add a line to CHANGELOG.md, and rewrite the
files:

    {SWITCH}=1 .venv/bin/pytest tests/frozen

Texts may change without a version: read the difference, then rewrite the files as well."""
SHOWN = 60
"""So many lines of a difference are shown."""


def pretty(document: object) -> str:
    """A document as it is stored: a line for each value, so that differences can be read."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def check(name: str, found: str) -> None:
    """Compare a text with a stored one, or store it where the switch is on. Raises AssertionError."""
    file = FOLDER / name
    if os.environ.get(SWITCH):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found, encoding="utf-8")
        return
    stored = file.read_text(encoding="utf-8") if file.exists() else ""
    if found == stored:
        return
    lines = [*unified_diff(stored.splitlines(), found.splitlines(), f"{name} (stored)", f"{name} (now)", lineterm="")]
    more = [f"… and {len(lines) - SHOWN} lines more"] if len(lines) > SHOWN else []
    raise AssertionError("\n".join([REMEDY, "", *lines[:SHOWN], *more]))
