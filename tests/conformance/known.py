"""Which differences are accepted: those that KNOWN.md names, of which there may be three."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.conformance.tables import Score

MOST = 3
FILE = Path(__file__).with_name("KNOWN.md")
_LINE = re.compile(r"^- (scenarios/\S+) (\S+):", re.MULTILINE)


def problems(results: Iterable[Score], text: str) -> Iterator[str]:
    """Why the comparison fails: scenarios that differ without being known, and too many that are known."""
    known = set(_LINE.findall(text))
    if len(known) > MOST:
        yield f"KNOWN.md names {len(known)} scenarios, {MOST} are accepted"
    for result in results:
        if result.name.startswith("scenarios/"):
            for name in result.failures:
                if (result.name, name) not in known:
                    yield f"{result.name} {name} differs: {result.failures[name][0]}"
