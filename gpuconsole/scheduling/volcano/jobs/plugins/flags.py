"""Arguments of a job plugin, parsed as by Go's flag package: `--port=5000`, `-port 5000`, `--wait-master-enabled`."""

from collections.abc import Mapping, Sequence

Value = str | int | bool
Flags = Mapping[str, Value]
"""Default by flag name; its type is the type of the flag."""
_TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def read_flags(arguments: Sequence[str], defaults: Flags) -> dict[str, Value]:
    """The value of each known flag; parsing stops at the first unknown or invalid one, as in Go."""
    values, rest = dict(defaults), list(arguments)
    while rest:
        head = rest.pop(0)
        name, given, text = _split(head)
        if name not in values:
            return values
        if isinstance(values[name], bool) and not given:
            text = "true"
        elif not given:
            if not rest:
                return values
            text = rest.pop(0)
        value = _value(text, values[name])
        if value is None:
            return values
        values[name] = value
    return values


def _split(head: str) -> tuple[str, bool, str]:
    """(name, True if a value follows `=`, that value); the name is empty if the argument is not a flag."""
    if not head.startswith("-") or head in ("-", "--"):
        return "", False, ""
    name, equals, text = head.removeprefix("-").removeprefix("-").partition("=")
    return name, bool(equals), text


def _value(text: str, like: Value) -> Value | None:
    if isinstance(like, bool):
        return _TRUTHS.get(text)
    if isinstance(like, int):
        try:
            return int(text, 0)
        except ValueError:
            return None
    return text
