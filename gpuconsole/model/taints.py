"""Taints in kubectl's notation, `key=value:Effect`, validated as the API server validates those of a node."""

from typing import Literal, cast

from gpuconsole.errors import InputError
from gpuconsole.model.documents.names import LONGEST_LABEL, SUBDOMAIN, is_label_key, is_label_value
from gpuconsole.model.labels import Taint
from gpuconsole.model.text import MAX_NAME, clean

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
EFFECTS: tuple[Effect, ...] = ("NoSchedule", "PreferNoSchedule", "NoExecute")
FORM = "key=value:Effect or key:Effect, such as dedicated=ml:NoSchedule"


class TaintError(InputError):
    """The string is not a taint, or the API server would refuse the taint."""


def parse_taint(text: str) -> Taint:
    """Parse `key=value:Effect` or `key:Effect` (kubectl taint: parseTaint). Raises TaintError."""
    head, colon, effect = text.strip().partition(":")
    if not colon or ":" in effect:
        raise TaintError(f"{_shown(text)} is not a taint; write {FORM}")
    key, _, value = head.partition("=")
    taint = Taint(key, value, effect)
    if problem := taint_problem(taint):
        raise TaintError(problem)
    return taint


def format_taint(taint: Taint) -> str:
    """Format a taint as kubectl does: `key=value:Effect`, or `key:Effect` without a value."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def taint_problem(taint: Taint) -> str:
    """Return why the API server refuses a taint of a node; empty if valid (core/v1 validation validateNodeTaints)."""
    if not taint.key:
        return "the key of a taint cannot be empty"
    if not _is_qualified(taint.key):
        return (
            f"{_shown(taint.key)} is not a valid key of a taint: an optional domain and '/', "
            f"then at most {LONGEST_LABEL} letters, digits, '-', '_' and '.'"
        )
    if not is_label_value(taint.value):
        return (
            f"{_shown(taint.value)} is not a valid value of a taint: at most {LONGEST_LABEL} letters, digits, "
            "'-', '_' and '.', with a letter or digit first and last"
        )
    if taint.effect not in EFFECTS:
        return f"{_shown(taint.effect)} is not an effect of a taint; write {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}"
    return ""


def effect_of(taint: Taint) -> Effect:
    """Return the effect of a validated taint."""
    return cast("Effect", taint.effect)


def _is_qualified(key: str) -> bool:
    """True for a qualified name (k8s.io/apimachinery IsQualifiedName), with or without a domain and a slash."""
    domain, slash, _ = key.rpartition("/")
    if slash and (len(domain) > MAX_NAME or not SUBDOMAIN.fullmatch(domain)):
        return False
    return is_label_key(key)


def _shown(text: str) -> str:
    return f"'{clean(text, 80)}'"
