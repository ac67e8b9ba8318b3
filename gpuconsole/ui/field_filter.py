"""Filters on the fields of a table: `gpus>=8 and queue=research and not wait<2h`.

    filter     := comparison | "not" filter | "(" filter ")" | filter "and" filter | filter "or" filter
    comparison := field operator value

`not` binds more tightly than `and`, and `and` more tightly than `or`. Operators are `=`, `!=`, `<`, `<=`, `>`, `>=`,
and for regular expressions `~`, `!~`. A value with blanks stands in quotes; a quote in it is doubled. Texts are
compared without regard to case. Values may have units: `30s`, `2h30m`, `40GiB`, `80%`, `$5`, `1.5k`.
"""

import operator
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as struct_field
from difflib import get_close_matches
from itertools import compress
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from gpuconsole.insight.tables import MISSING
from gpuconsole.model.text import clean

T = TypeVar("T")


class FilterError(ValueError):
    """The text is not a valid filter; the message says why."""

    def __init__(self, problem: str, at: int | None = None) -> None:
        """`at` is the index of the character in the text at which the problem is; None where that is unknown."""
        super().__init__(problem)
        self.at = at


@dataclass(frozen=True)
class Comparison:
    """A field of the row compared with a value."""

    field: str
    operator: str
    value: str
    at: int = struct_field(default=0, compare=False)
    """Index of the field in the text."""
    value_at: int = struct_field(default=0, compare=False)
    """Index of the value in the text."""


@dataclass(frozen=True)
class Negation:
    """Passes where its operand does not."""

    operand: "Expression"


@dataclass(frozen=True)
class Conjunction:
    """Passes where both sides do."""

    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Disjunction:
    """Passes where at least one side does."""

    left: "Expression"
    right: "Expression"


Expression: TypeAlias = Comparison | Negation | Conjunction | Disjunction

_NAME = r"[A-Za-z_][\w./-]*"
_OPERATOR = r"!=|!~|<=|>=|==|=|<|>|~"


def pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression that ignores case. Raises re.error, RecursionError and OverflowError."""
    with warnings.catch_warnings():
        # `[[` is a set with a bracket; Python warns that it may once be more.
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(text, re.IGNORECASE)


_COMPARISON = re.compile(rf"\s*({_NAME})\s*({_OPERATOR})", re.ASCII)
_BEGINNING = re.compile(rf"\s*(?:not\b\s*|\(\s*)*{_NAME}\s*(?:{_OPERATOR})", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"[^\s()]+")
DEEPEST = 40
"""Maximum depth of parentheses and negations."""


def is_expression(text: str) -> bool:
    """Return whether a text is meant as a filter on fields: it begins with a field and an operator."""
    return _BEGINNING.match(text) is not None


def parse_expression(text: str) -> Expression:
    """Parse a filter on fields. Raises FilterError with the place of the problem."""
    parser = _Parser(text)
    found = parser.disjunction(0)
    if not parser.at_end:
        raise FilterError(f"{parser.next_word}: expected and, or", parser.at)
    return found


class _Parser:
    """Recursive descent over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def at(self) -> int:
        """Index of the next character that is not blank."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at

    @property
    def at_end(self) -> bool:
        return self.at == len(self._text)

    @property
    def next_word(self) -> str:
        match = _WORD.match(self._text, self.at)
        return match[0] if match is not None else self._text[self.at : self.at + 1]

    def disjunction(self, depth: int) -> Expression:
        found = self._conjunction(depth)
        while self._took("or"):
            found = Disjunction(found, self._conjunction(depth))
        return found

    def _conjunction(self, depth: int) -> Expression:
        found = self._operand(depth)
        while self._took("and"):
            found = Conjunction(found, self._operand(depth))
        return found

    def _operand(self, depth: int) -> Expression:
        if depth > DEEPEST:
            raise FilterError(f"nested more than {DEEPEST} levels deep", self.at)
        # A field may be named `not`.
        comparison = _COMPARISON.match(self._text, self._at)
        if comparison is not None:
            at = comparison.start(1)
            self._at = comparison.end()
            sign = "=" if comparison[2] == "==" else comparison[2]
            value_at = self.at
            return Comparison(comparison[1], sign, self._value(), at, value_at)
        if self._took("not"):
            return Negation(self._operand(depth + 1))
        if self._text[self.at : self.at + 1] == "(":
            opened = self._at
            self._at += 1
            found = self.disjunction(depth + 1)
            if self._text[self.at : self.at + 1] != ")":
                raise FilterError("this parenthesis is not closed", opened)
            self._at += 1
            return found
        if self.at_end:
            raise FilterError("expected a field", self.at)
        raise FilterError(f"{self.next_word}: expected a field and an operator, such as gpus>=8", self.at)

    def _took(self, word: str) -> bool:
        if self.next_word.lower() != word:
            return False
        self._at += len(word)
        return True

    def _value(self) -> str:
        text, start = self._text, self.at
        if self.at_end:
            raise FilterError("expected a value", start)
        quote = text[start]
        if quote in "\"'":
            end = start + 1
            while (end := text.find(quote, end)) >= 0:
                if text[end : end + 2] != quote * 2:
                    self._at = end + 1
                    return text[start + 1 : end].replace(quote * 2, quote)
                end += 2
            raise FilterError("this quote is not closed", start)
        # A regular expression may have parentheses of its own.
        depth, end = 0, start
        while end < len(text) and not text[end].isspace():
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth < 0:
                break
            end += 1
        if end == start:
            raise FilterError("expected a value", start)
        self._at = end
        return text[start:end]


def format_expression(expression: Expression) -> str:
    """Return a text that parses to this expression."""
    match expression:
        case Comparison():
            return f"{expression.field}{expression.operator}{quoted(expression.value)}"
        case Negation():
            return f"not {_inside(expression.operand, (Comparison, Negation))}"
        case Conjunction(left, right):
            return f"{_inside(left, (Comparison, Negation, Conjunction))} and {_inside(right, (Comparison, Negation))}"
        case Disjunction(left, right):
            return f"{format_expression(left)} or {_inside(right, (Comparison, Negation, Conjunction))}"


def _inside(operand: Expression, bare: tuple[type, ...]) -> str:
    text = format_expression(operand)
    return text if isinstance(operand, bare) else f"({text})"


_BARE = re.compile(r"[^\s()\"'=~<>][^\s()]*")


def quoted(value: str) -> str:
    """Return a value as it can stand in a filter: in quotes where it needs them."""
    return value if _BARE.fullmatch(value) else '"' + value.replace('"', '""') + '"'


# Values


class Quantity(NamedTuple):
    """A number in the base unit of its kind: seconds, bytes, percent, dollars; the kind is empty for plain numbers."""

    value: float
    kind: str = ""


_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {
    **{f"{letter}i{end}": 1024 ** (power + 1) for power, letter in enumerate("KMGTP") for end in ("", "B")},
    **{f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGTP")},
    "B": 1,
}
_FACTORS = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_PLAIN = re.compile(r"[≥~▲▼×]?\s*(-?)(\$?)(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)\s?([A-Za-z%‰]*)", re.ASCII)


def quantity_in(text: str, *, whole: bool = True) -> Quantity | None:
    """Return the quantity that a text is, such as `2h30m`, `40GiB`, `1,234`, `$5`; None if it is none.

    Without `whole`, more text may follow, as in `5/8`, which is 5.
    """
    duration = _DURATION.match(text)
    if duration is not None and duration.end() == len(text):
        return Quantity(sum(float(part[1]) * _SECONDS[part[2]] for part in _PART.finditer(text)), "time")
    found = _PLAIN.match(text)
    if found is None or (whole and found.end() != len(text)):
        return None
    number = float(found[3].replace(",", "")) * (-1 if found[1] else 1)
    unit = found[4]
    if found[2]:
        return Quantity(number, "money")
    if unit in ("%", "‰"):
        return Quantity(number if unit == "%" else number / 10, "percent")
    if unit in _FACTORS:
        return Quantity(number * _FACTORS[unit])
    if unit in _BYTES:
        return Quantity(number * _BYTES[unit], "bytes")
    return None if whole else Quantity(number)


EXAMPLES = {"time": "30s, 10m, 2h", "bytes": "40GiB", "percent": "80%", "money": "$5", "": "8"}
_KINDS = {"seconds": "time", "percent": "percent", "usd": "money", "bytes": "bytes"}


# Fields


@dataclass(frozen=True)
class Field(Generic[T]):
    """A field of the rows of a table that filters can compare."""

    name: str
    cell: Callable[[T], Hashable]
    """What the table shows."""
    words: Callable[[Any], str]
    """The text of a cell, without the glyph before it; empty for a missing value."""
    number: Callable[[T], float | None] | None = None
    """The number behind the text, in `unit`."""
    unit: str = ""
    numeric: bool = False
    """Whether its cells are numbers, which may have units."""
    names: bool = False
    """Whether its texts are names of objects, which are also found without their namespaces."""
    aliases: tuple[str, ...] = ()


Select = Callable[[Sequence[T]], list[bool]]
"""Tells of each row whether it passes. Row by row it would take three times as long."""
LabelsOf = Callable[[T], Mapping[str, str]]
LABEL = "label."
"""What a field begins with that is a label of the object: `label.team=vision`."""


def check_expression(expression: Expression, fields: Sequence[Field[T]]) -> None:
    """Check the fields and values of a filter. Raises FilterError with the place of the problem."""
    for one in comparisons(expression):
        _compared(one, fields, lambda row: {})


def comparisons(expression: Expression) -> Iterable[Comparison]:
    """Yield all comparisons of a filter, from left to right."""
    match expression:
        case Comparison():
            yield expression
        case Negation(operand):
            yield from comparisons(operand)
        case Conjunction(left, right) | Disjunction(left, right):
            yield from comparisons(left)
            yield from comparisons(right)


def bind_expression(expression: Expression, fields: Sequence[Field[T]], labels: LabelsOf[T]) -> Select[T]:
    """Return a function that tells which rows pass; none passes a comparison of a field that is not there."""
    match expression:
        case Comparison():
            try:
                return _compared(expression, fields, labels)
            except FilterError:
                return lambda rows: [False] * len(rows)
        case Negation(operand):
            passes = bind_expression(operand, fields, labels)
            return lambda rows: [not passed for passed in passes(rows)]
        case Conjunction(left, right):
            first, second = bind_expression(left, fields, labels), bind_expression(right, fields, labels)

            def both(rows: Sequence[T]) -> list[bool]:
                passed = first(rows)
                rest = iter(second(list(compress(rows, passed))))
                return [one and next(rest) for one in passed]

            return both
        case Disjunction(left, right):
            return bind_expression(Negation(Conjunction(Negation(left), Negation(right))), fields, labels)


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def _compared(wanted: Comparison, fields: Sequence[Field[T]], labels: LabelsOf[T]) -> Select[T]:
    found = _find(wanted, fields, labels)
    if wanted.operator in ("~", "!~"):
        return _by_text(found, _matches(wanted))
    quantity = quantity_in(wanted.value) if found.numeric else None
    if quantity is not None:
        return _measured(wanted, found, quantity)
    if wanted.operator not in ("=", "!="):
        problem = f"expected a number, such as {EXAMPLES[_KINDS.get(found.unit, '')]}"
        if not found.numeric:
            raise FilterError(f"{found.name} is a text; use =, !=, ~ or !~", wanted.at)
        raise FilterError(problem, wanted.value_at)
    return _by_text(found, _equals(wanted, found))


def _by_text(found: Field[T], test: Callable[[str], bool]) -> Select[T]:
    """Test each distinct cell once; names are all distinct."""
    cell, words = found.cell, found.words
    if found.names:
        return lambda rows: [test(words(one)) for one in map(cell, rows)]

    def select(rows: Sequence[T]) -> list[bool]:
        cells = list(map(cell, rows))
        passes = {one: test(words(one)) for one in set(cells)}
        return [passes[one] for one in cells]

    return select


def find_field(name: str, fields: Iterable[Field[T]]) -> Field[T] | None:
    """Return the field with this name or alias; None if there is none."""
    name, known = name.lower(), tuple(fields)
    return next((one for one in known if one.name == name), None) or next(
        (one for one in known if name in one.aliases), None
    )


def _find(wanted: Comparison, fields: Sequence[Field[T]], labels: LabelsOf[T]) -> Field[T]:
    if wanted.field.startswith(LABEL):
        key = wanted.field.removeprefix(LABEL)
        return Field(wanted.field, lambda row: labels(row).get(key, ""), str)
    found = find_field(wanted.field, fields)
    if found is None:
        names = [one.name for one in fields]
        near = get_close_matches(wanted.field.lower(), names, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise FilterError(f"{wanted.field}: no such field{hint}; fields: {', '.join(names)}", wanted.at)
    return found


def _matches(wanted: Comparison) -> Callable[[str], bool]:
    try:
        search = pattern(wanted.value).search
    except (re.error, RecursionError, OverflowError) as error:
        at = getattr(error, "pos", None) or 0
        problem = getattr(error, "msg", str(error))
        raise FilterError(f"invalid regular expression: {problem}", wanted.value_at + at) from error
    return (lambda text: search(text) is not None) if wanted.operator == "~" else (lambda text: search(text) is None)


def _equals(wanted: Comparison, found: Field[T]) -> Callable[[str], bool]:
    value = wanted.value.casefold()
    short = found.names and "/" not in value

    def test(text: str) -> bool:
        name = text.rpartition("/")[2] if short else text
        return (name.casefold() == value) == (wanted.operator == "=")

    return test


def _measured(wanted: Comparison, found: Field[T], quantity: Quantity) -> Select[T]:
    compare, value, number = _ORDERS[wanted.operator], quantity.value, found.number
    missing = wanted.operator == "!="
    kind = _KINDS.get(found.unit, "")
    if number is not None:
        if quantity.kind not in ("", kind):
            raise FilterError(f"{found.name} needs a value such as {EXAMPLES[kind]}", wanted.value_at)
        return lambda rows: [missing if have is None else compare(have, value) for have in map(number, rows)]

    def test(text: str) -> bool:
        have = quantity_in(text, whole=False)
        if have is None or (quantity.kind and have.kind != quantity.kind):
            return missing
        return compare(have.value, value)

    return _by_text(found, test)


# Completion

KEYWORDS = ("and", "or", "not")
_OPENING = re.compile(r".*[\s(]|", re.DOTALL)


def complete_expression(
    text: str, fields: Sequence[Field[T]], values: Callable[[Field[T]], Iterable[str]], most: int = 12
) -> list[str]:
    """Return what the text may be continued to, as whole texts: fields, values of a field, `and` and `or`.

    `values` returns the values that a field has now. Empty where the text is no beginning of a filter on fields.
    """
    comparison = None
    for match in _COMPARISON.finditer(text):
        comparison = match
    if comparison is not None:
        rest = text[comparison.end() :]
        typed = rest.lstrip()
        if not re.search(r"[\s()]", typed):
            kept = text[: len(text) - len(typed)]
            return [f"{kept}{value}" for value in _values_for(comparison[1], typed, fields, values, most)]
    opening = _OPENING.match(text)
    kept = opening[0] if opening is not None else ""
    typed = text[len(kept) :].lower()
    if comparison is not None and kept and _is_complete(kept):
        words = [word for word in KEYWORDS if word != "not" and word.startswith(typed)]
        return [f"{kept}{word} " for word in words]
    if not typed and comparison is None:
        return []
    names = [one.name for one in fields if one.name.startswith(typed)]
    return [f"{kept}{name}" for name in names[:most]]


def _is_complete(text: str) -> bool:
    try:
        parse_expression(text.rstrip() + ")" * max(0, text.count("(") - text.count(")")))
    except FilterError:
        return False
    return True


def _values_for(
    name: str,
    typed: str,
    fields: Sequence[Field[T]],
    values: Callable[[Field[T]], Iterable[str]],
    most: int,
) -> list[str]:
    found = find_field(name, fields)
    if found is None or found.number is not None:
        return []
    wanted = typed.lstrip("\"'").casefold()
    having = (clean(value) for value in values(found))
    return [quoted(one) for one in having if one and one != MISSING and one.casefold().startswith(wanted)][:most]
