"""The rules that stand on a schema (x-kubernetes-validations), asked of a value and of the one that it replaces."""

from typing import Any

from gpuconsole.model.apiserver.checking import Say, by_keys, identity
from gpuconsole.model.apiserver.refusals import invalid
from gpuconsole.model.apiserver.schema import Form, Rule, Schema
from gpuconsole.model.documents.findings import Path


def check_rules(schema: Schema, value: Any, say: Say, path: Path = (), old: Any = None) -> None:
    """Tell which rules do not hold of a value or of something in it.

    `old` is what it replaces, or None: rules about a change are asked only where there is something to compare with.
    What has not changed is not asked again (ratcheting).
    """
    if not schema.ruled:
        return
    for rule in schema.rules:
        if isinstance(rule, Rule):
            held = (old is not None and value == old) or _holds(rule, value)
        else:
            held = old is None or rule.holds(value, old)
        if held is not True:
            detail = rule.message if held is False else f"no such key: {held} evaluating rule: {rule.message}"
            say(invalid(path, value, detail, rule.remedy, rule.code))
    if schema.form is Form.RECORD:
        before = old if isinstance(old, dict) else {}
        for key, field in schema.fields.items():
            if field.ruled and key in value:
                check_rules(field, value[key], say, (*path, key), before.get(key))
    elif schema.form is Form.LIST and schema.items is not None:
        earlier = by_keys(schema, old)
        for n, entry in enumerate(value):
            check_rules(schema.items, entry, say, (*path, n), earlier.get(identity(schema, entry)))


def _holds(rule: Rule, value: Any) -> bool | str:
    """Whether a rule holds, or the name of the key that it misses: a missing key fails a rule, as in CEL."""
    try:
        return rule.holds(value)
    except KeyError as missing:
        return str(missing.args[0])
