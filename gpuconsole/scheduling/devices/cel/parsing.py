"""Recursive-descent parser for CEL: splits an expression into tokens and builds a syntax tree from them.

Unknown names and functions are rejected, and so are expressions that are too long or nested too deep. `&&` and `||`
have a node type of their own (`LogicalOperation`), because they may absorb errors of their operands.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping

from msgspec import Struct

MAX_LENGTH = 10_240
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
    if len(expression) > MAX_LENGTH:
        raise SyntaxProblem(MAX_LENGTH, f"expression is longer than {MAX_LENGTH} characters")
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


Constant = str | int | float | bool | None


class Literal(Struct, frozen=True):
    """A constant."""

    value: Constant


class Name(Struct, frozen=True):
    """A variable."""

    name: str


class FieldAccess(Struct, frozen=True):
    """`of.field`; with `test` it is has(of.field)."""

    of: "Tree"
    field: str
    test: bool = False


class IndexAccess(Struct, frozen=True):
    """`of[key]`."""

    of: "Tree"
    key: "Tree"


class FunctionCall(Struct, frozen=True):
    """A call of a function, a method (its receiver is the first argument) or an operator (named by its sign)."""

    name: str
    arguments: tuple["Tree", ...]
    method: bool = False


class LogicalOperation(Struct, frozen=True):
    """Operands joined by `||`, or by `&&`."""

    operands: tuple["Tree", ...]
    decisive: bool
    """The operand value that decides the result alone: true for `||`, false for `&&`."""


class Ternary(Struct, frozen=True):
    """`test ? then : otherwise`."""

    test: "Tree"
    then: "Tree"
    otherwise: "Tree"


class ListLiteral(Struct, frozen=True):
    """A list, `[item, ...]`."""

    items: tuple["Tree", ...]


class MapLiteral(Struct, frozen=True):
    """A map, `{key: value, ...}`."""

    items: tuple[tuple["Tree", "Tree"], ...]


class BindMacro(Struct, frozen=True):
    """`cel.bind(name, value, body)`."""

    name: str
    value: "Tree"
    body: "Tree"


Tree = (
    Literal
    | Name
    | FieldAccess
    | IndexAccess
    | FunctionCall
    | LogicalOperation
    | Ternary
    | ListLiteral
    | MapLiteral
    | BindMacro
)


def height(tree: Tree) -> int:
    """Return the number of levels of a tree."""
    level, tallest = [tree], 0
    while level:
        level = [child for node in level for child in _children(node)]
        tallest += 1
    return tallest


def _children(tree: Tree) -> Iterator[Tree]:
    match tree:
        case FieldAccess(of):
            yield of
        case IndexAccess(of, key):
            yield from (of, key)
        case FunctionCall(arguments=items) | LogicalOperation(items) | ListLiteral(items):
            yield from items
        case Ternary(test, then, otherwise):
            yield from (test, then, otherwise)
        case MapLiteral(items):
            yield from (part for pair in items for part in pair)
        case BindMacro(_, value, body):
            yield from (value, body)


MAX_DEPTH = 30
"""Limit of nested subexpressions, such as parentheses; each level costs the parser a dozen calls."""
MAX_HEIGHT = 120
"""Limit of the height of the tree."""
_TOO_DEEP = "expression is nested too deep"

_CONSTANTS: Mapping[str, Constant] = {"true": True, "false": False, "null": None}
_RELATIONS = ("==", "!=", "<", "<=", ">", ">=", "in")


def parse(expression: str, names: Container[str], functions: Container[str]) -> Tree:
    """Parse an expression that may use only these variable names and functions. Raises SyntaxProblem."""
    tree = _Parser(expression, names, functions).whole()
    if height(tree) > MAX_HEIGHT:
        raise SyntaxProblem(0, _TOO_DEEP)
    return tree


class _Parser:
    """Parses one expression. Mutates: it advances through the tokens."""

    def __init__(self, expression: str, names: Container[str], functions: Container[str]) -> None:
        self._tokens = list(tokens(expression))
        self._at = 0
        self._depth = 0
        self._names = names
        self._functions = functions
        self._bound: list[str] = []

    def whole(self) -> Tree:
        tree = self._expression()
        if self._next.kind != "end":
            raise self._unexpected()
        return tree

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, *values: str) -> str:
        """Take the next token if it is one of these signs or words; returns it, or an empty string."""
        if self._next.kind in ("sign", "name") and self._next.value in values:
            return self._take().value
        return ""

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._unexpected()

    def _unexpected(self) -> SyntaxProblem:
        token = self._next
        return SyntaxProblem(token.column, f"Syntax error: mismatched input '{token.value}'")

    def _expression(self) -> Tree:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SyntaxProblem(self._next.column, _TOO_DEEP)
        tree = self._or()
        if self._accept("?"):
            then = self._or()
            self._expect(":")
            tree = Ternary(tree, then, self._expression())
        self._depth -= 1
        return tree

    def _or(self) -> Tree:
        return self._logical("||", self._and, decisive=True)

    def _and(self) -> Tree:
        return self._logical("&&", self._relation, decisive=False)

    def _logical(self, sign: str, part: Callable[[], Tree], *, decisive: bool) -> Tree:
        items = [part()]
        while self._accept(sign):
            items.append(part())
        return items[0] if len(items) == 1 else LogicalOperation(tuple(items), decisive)

    def _relation(self) -> Tree:
        return self._chain(
            _RELATIONS, lambda: self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._unary))
        )

    def _chain(self, signs: tuple[str, ...], operand: Callable[[], Tree]) -> Tree:
        tree = operand()
        while sign := self._accept(*signs):
            tree = FunctionCall(sign, (tree, operand()))
        return tree

    def _unary(self) -> Tree:
        signs = []
        while sign := self._accept("!", "-"):
            signs.append(sign)
        tree = self._member()
        for sign in reversed(signs):
            tree = FunctionCall(f"{sign}x", (tree,))
        return tree

    def _member(self) -> Tree:
        tree = self._primary()
        while sign := self._accept(".", "["):
            tree = self._field_or_call(tree) if sign == "." else self._index(tree)
        return tree

    def _field_or_call(self, tree: Tree) -> Tree:
        name = self._name()
        if not self._accept("("):
            return FieldAccess(tree, name.value)
        if tree == Name("cel") and name.value == "bind":
            return self._bind()
        return self._call(name, (tree,))

    def _index(self, tree: Tree) -> Tree:
        key = self._expression()
        self._expect("]")
        return IndexAccess(tree, key)

    def _name(self) -> Token:
        if self._next.kind != "name":
            raise self._unexpected()
        return self._take()

    def _bind(self) -> Tree:
        name = self._name().value
        self._expect(",")
        value = self._expression()
        self._expect(",")
        self._bound.append(name)
        body = self._expression()
        self._bound.pop()
        self._expect(")")
        return BindMacro(name, value, body)

    def _call(self, name: Token, receiver: tuple[Tree, ...]) -> Tree:
        arguments = self._arguments(")")
        if name.value == "has" and not receiver:
            if len(arguments) == 1 and isinstance(arguments[0], FieldAccess):
                return FieldAccess(arguments[0].of, arguments[0].field, test=True)
            raise SyntaxProblem(name.column, "invalid argument to has() macro")
        if name.value not in self._functions:
            raise SyntaxProblem(name.column, f"undeclared reference to '{name.value}' (in container '')")
        return FunctionCall(name.value, (*receiver, *arguments), method=bool(receiver))

    def _arguments(self, closing: str) -> list[Tree]:
        items: list[Tree] = []
        while not self._accept(closing):
            if items:
                self._expect(",")
                if self._accept(closing):
                    break
            items.append(self._expression())
        return items

    def _primary(self) -> Tree:
        token = self._next
        if token.kind == "number":
            return Literal(_number(self._take()))
        if token.kind == "text":
            return Literal(unquote(self._take().value))
        if token.kind == "name":
            return self._identifier(self._take())
        if self._accept("("):
            tree = self._expression()
            self._expect(")")
            return tree
        if self._accept("["):
            return ListLiteral(tuple(self._arguments("]")))
        if self._accept("{"):
            return MapLiteral(tuple(self._map_entries()))
        raise self._unexpected()

    def _map_entries(self) -> list[tuple[Tree, Tree]]:
        pairs: list[tuple[Tree, Tree]] = []
        while not self._accept("}"):
            if pairs:
                self._expect(",")
            key = self._expression()
            self._expect(":")
            pairs.append((key, self._expression()))
        return pairs

    def _identifier(self, token: Token) -> Tree:
        if token.value in _CONSTANTS:
            return Literal(_CONSTANTS[token.value])
        if self._accept("("):
            return self._call(token, ())
        known = token.value in self._names or token.value in self._bound
        if not known and not (token.value == "cel" and self._next.value == "."):
            raise SyntaxProblem(token.column, f"undeclared reference to '{token.value}' (in container '')")
        return Name(token.value)


def _number(token: Token) -> int | float:
    text = token.value.rstrip("uU")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return float(text) if any(mark in text for mark in ".eE") else int(text)
