"""Evaluation of a schema's validation rules (x-kubernetes-validations) on a value and the one that it replaces."""

from typing import Any

from msgspec.structs import replace

from gpuconsole.model.apiserver.checking import Say, by_keys, identity
from gpuconsole.model.apiserver.refusals import invalid
from gpuconsole.model.apiserver.schema import Schema, SchemaRule, Transition, ValueType
from gpuconsole.model.documents.findings import Path


def check_rules(
    schema: Schema, value: Any, say: Say, path: Path = (), old: Any = None, *, lenient: bool = False
) -> None:
    """Report the rules that a value or its parts violate.

    `old` is the value that it replaces, or None; transition rules are evaluated only if it is given, and other rules
    only if the value changed (ratcheting). A missing key violates a rule, as in CEL, unless `lenient`.
    """
    if not schema.ruled:
        return
    for rule in schema.rules:
        broken = _broken(rule, value, old)
        if broken and not (lenient and broken != rule.message):
            remedy = rule.remedy if isinstance(rule.remedy, str) else rule.remedy(value)
            deeper = rule.deeper(value) if isinstance(rule, SchemaRule) else ()
            say(replace(invalid(path, value, broken, remedy, rule.code), deeper=deeper))
    if schema.form is ValueType.RECORD:
        before = old if isinstance(old, dict) else {}
        for key, field in schema.fields.items():
            if field.ruled and key in value:
                check_rules(field, value[key], say, (*path, key), before.get(key), lenient=lenient)
    elif schema.form is ValueType.LIST and schema.items is not None:
        earlier = by_keys(schema, old)
        for n, entry in enumerate(value):
            known = earlier.get(identity(schema, entry))
            check_rules(schema.items, entry, say, (*path, n), known, lenient=lenient)


def _broken(rule: SchemaRule | Transition, value: Any, old: Any) -> str:
    """Return the message of a violated rule; empty if it holds or nothing changed."""
    try:
        if isinstance(rule, SchemaRule):
            held = (old is not None and value == old) or rule.holds(value)
        else:
            held = old is None or rule.holds(value, old)
    except KeyError as missing:
        return f"no such key: {missing.args[0]} evaluating rule: {rule.message}"
    return "" if held else rule.message
