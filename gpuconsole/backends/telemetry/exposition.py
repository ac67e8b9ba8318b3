"""Parser of Prometheus' text exposition format 0.0.4, limited to the requested metrics.

Other lines are skipped by their first word, because an exporter has many more metrics than are shown.
"""

import re
from collections.abc import Collection, Iterator

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\})')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}
MOST_LINE = 20_000


def series(text: str, names: Collection[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield (metric, labels, value) of each line with one of these metrics; invalid lines are skipped."""
    for line in text.split("\n"):
        name = line[: line.find("{")] if "{" in line else line.partition(" ")[0]
        if name.strip() in names and len(line) <= MOST_LINE:
            found = _read(line[len(name) :])
            if found is not None:
                yield name.strip(), *found


def _read(rest: str) -> tuple[dict[str, str], float] | None:
    """Parse labels and value from the rest of a line."""
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        place = 1
        closed = rest[1:].lstrip().startswith("}")
        while not closed:
            match = _LABEL.match(rest, place)
            if match is None:
                return None
            labels[match[1]] = _ESCAPED.sub(lambda one: _ESCAPES.get(one[1], one[0]), match[2])
            place = match.end()
            closed = match[3] == "}" or rest[place:].lstrip().startswith("}")
        rest = rest[place:] if rest[place - 1] == "}" else rest[rest.index("}", place) + 1 :]
    try:
        return labels, float(rest.split()[0])
    except (IndexError, ValueError):
        return None
