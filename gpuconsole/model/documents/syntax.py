"""Error texts of Kubernetes for invalid label keys, label values, DNS names and identifiers (k8s.io/apimachinery)."""

import re

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_VALUE_RULE = f"a valid label must be an empty string or {_NAME_RULE.removeprefix('must ')}"
_IDENTIFIER_RULE = "a valid C identifier must start with alphabetic character or '_', followed by a string of"

Faults = list[str]
"""Errors in a string; empty if it is valid."""


def _broken(rule: str, form: re.Pattern[str], *examples: str) -> str:
    shown = ",  or ".join(f"'{example}'" for example in examples)
    return f"{rule} (e.g. {shown}, regex used for validation is '{form.pattern}')"


def _check(text: str, form: re.Pattern[str], limit: int, broken: str) -> Faults:
    faults = [f"must be no more than {limit} bytes"] if len(text.encode()) > limit else []
    return faults if form.fullmatch(text) else [*faults, broken]


def label(text: str) -> Faults:
    """Validate a DNS label (RFC 1123)."""
    return _check(text, _LABEL, 63, _broken(_LABEL_RULE, _LABEL, "my-name", "123-abc"))


def service_name(text: str) -> Faults:
    """Validate a DNS label that begins with a letter (RFC 1035)."""
    return _check(text, _LABEL_1035, 63, _broken(_LABEL_1035_RULE, _LABEL_1035, "my-name", "abc-123"))


def subdomain(text: str) -> Faults:
    """Validate a DNS subdomain (RFC 1123)."""
    return _check(text, _SUBDOMAIN, 253, _broken(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))


def identifier(text: str) -> Faults:
    """Validate a C identifier."""
    rule = f"{_IDENTIFIER_RULE} alphanumeric characters or '_'"
    broken = _broken(rule, _IDENTIFIER, "my_name", "MY_NAME", "MyName")
    return [] if _IDENTIFIER.fullmatch(text) else [broken]


def label_value(text: str) -> Faults:
    """Validate the value of a label."""
    return _check(text, _VALUE, 63, _broken(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345"))


def label_key(text: str) -> Faults:
    """Validate the key of a label: an optional subdomain and `/`, then a name."""
    prefix, slash, name = text.rpartition("/")
    broken = _broken(_NAME_RULE, _NAME, "MyName", "my.name", "123-abc")
    if "/" in prefix:
        return [f"a valid label key {broken} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    before = [] if not slash else subdomain(prefix) if prefix else ["must be non-empty"]
    after = [] if name else ["must be non-empty"]
    after += _check(name, _NAME, 63, broken)
    return [*(f"prefix part {fault}" for fault in before), *(f"name part {fault}" for fault in after)]
