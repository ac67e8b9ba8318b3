"""Arguments of plugins and actions in volcano-scheduler.conf, parsed leniently by type."""

from collections.abc import Iterator, Mapping

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def parse_flag(text: str) -> bool | None:
    """Parse a boolean; None if it is not one (Go's strconv.ParseBool)."""
    return True if text in _TRUE else False if text in _FALSE else None


class VolcanoArguments(Mapping[str, object]):
    """Arguments of one plugin or action; a value of another type counts as missing.

    Volcano 1.15 framework.Arguments: only integers convert to floats, and strings to booleans.
    """

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def integer(self, key: str, base: int) -> int:
        """GetInt: an integer; `base` for a fraction or a string."""
        value = self._values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else base

    def number(self, key: str, base: float) -> float:
        """GetFloat64: an integer or a fraction, else `base`."""
        value = self._values.get(key)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else base

    def flag(self, key: str, base: bool) -> bool:
        """GetBool: true or false, also as a string, else `base`."""
        value = self._values.get(key)
        if isinstance(value, bool):
            return value
        parsed = parse_flag(value) if isinstance(value, str) else None
        return base if parsed is None else parsed

    def text(self, key: str, base: str) -> str:
        """GetString: a string, else `base`."""
        value = self._values.get(key)
        return value if isinstance(value, str) else base


NONE = VolcanoArguments()
