"""Tokenizer for CEL expressions."""

import re
from collections.abc import Iterator

from msgspec import Struct

LONGEST = 10_240
"""Limit of an expression's length, in characters."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]{1,16}[uU]?|\d{1,19}(?:\.\d{1,19})?(?:[eE][+-]?\d{1,3})?[uU]?)
  | (?P<text>[rR]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>\|\||&&|==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-3][0-7]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


class SyntaxProblem(ValueError):
    """Error: the expression cannot be parsed; `column` is the offset from its start, from 0."""

    def __init__(self, column: int, problem: str) -> None:
        super().__init__(problem)
        self.column = column


class Token(Struct, frozen=True):
    """A lexical token; `kind` is number, text, name, sign or end."""

    kind: str
    value: str
    column: int


def tokens(expression: str) -> Iterator[Token]:
    """Split an expression into tokens, the last of kind `end`. Raises SyntaxProblem."""
    if len(expression) > LONGEST:
        raise SyntaxProblem(LONGEST, f"expression is longer than {LONGEST} characters")
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise SyntaxProblem(at, f"Syntax error: token recognition error at: {expression[at]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            yield Token(kind, match[0], at)
        at = match.end()
    yield Token("end", "<EOF>", at)


def unquote(literal: str) -> str:
    """Return the value of a string literal."""
    if literal[0] in "rR":
        return literal[2:-1]
    return _ESCAPE.sub(_unescape, literal[1:-1])


def _unescape(match: re.Match[str]) -> str:
    body = match[1]
    if len(body) == 1:
        return _ESCAPED.get(body, body)
    return chr(int(body[1:], 16)) if body[0] in "xu" else chr(int(body, 8))
