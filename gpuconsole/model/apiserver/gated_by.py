"""The annotation admission-gated-by: gates that must be removed before admission (Kueue 0.19
validation_admissiongatedby).
"""

from collections.abc import Iterator, Mapping

from gpuconsole.model.apiserver import forms
from gpuconsole.model.apiserver.refusals import forbidden, invalid, too_long
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import MapKey, Path

ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
LONGEST_GATE = 63
_PATH: Path = ("metadata", "annotations", MapKey(ADMISSION_GATED_BY))


def gates_of(text: str) -> list[str]:
    """Split a comma-separated list of gates."""
    return [gate.strip() for gate in text.split(",")] if text.strip() else []


def check_gates(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Validate that each gate is a unique domain-prefixed path of at most 63 characters."""
    text = annotations.get(ADMISSION_GATED_BY, "")
    seen: set[str] = set()
    for gate in gates_of(text):
        if not gate:
            yield invalid(_PATH, text, "cannot contain empty gate names", "drop a comma")
        elif gate in seen:
            yield invalid(_PATH, text, f"duplicate gate name: {gate}", "name it once")
        else:
            seen.add(gate)
            for part, message in forms.domain_path(gate):
                yield invalid(_PATH, part, message, "write it as example.com/gate")
            if len(gate) > LONGEST_GATE:
                yield too_long(_PATH, LONGEST_GATE)


def check_gates_change(annotations: Mapping[str, str], before: Mapping[str, str]) -> Iterator[FieldError]:
    """Validate that gates are only removed."""
    text, old = annotations.get(ADMISSION_GATED_BY, ""), before.get(ADMISSION_GATED_BY, "")
    if text and not old:
        yield forbidden(_PATH, "cannot add admission gate after creation", "name its gates when you create it")
    elif text and not set(gates_of(text)) <= set(gates_of(old)):
        yield forbidden(_PATH, "can only remove gates, not add new ones", f"keep some of {old}")
