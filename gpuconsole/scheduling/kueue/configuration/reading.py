"""Reads a Configuration from a document and reports everything that Kueue would reject.

Kueue decodes strictly: an unknown field or a wrong type is an error that prevents its start. A document of version
v1beta1 is converted to v1beta2 first (Kueue 0.19 apis/config/v1beta1 conversion).
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

from msgspec import Meta, Struct, structs

from gpuconsole.model.documents.findings import DocumentFindings, FieldError, FieldErrorKind, MapKey, Path, path_text
from gpuconsole.model.documents.reader import fit, shown, unknown_keys
from gpuconsole.model.resources import parse_quantity
from gpuconsole.scheduling.kueue.config import (
    DEFAULT_STRATEGIES,
    contradictory_gates,
    gate_refusals,
    gate_remedy,
    resolve_gates,
)
from gpuconsole.scheduling.kueue.configuration.form import (
    GROUP,
    KIND,
    VERSION,
    KueueConfigurationForm,
    nanoseconds,
    with_defaults,
)
from gpuconsole.scheduling.kueue.configuration.form import format_duration as write_duration
from gpuconsole.scheduling.kueue.configuration.validation import validate

_REMOVED_FIELD = "v1beta2 does not have it; it is ignored"


def from_v1beta1(document: Mapping[str, Any], report: DocumentFindings) -> dict[str, Any]:
    """Convert a v1beta1 document to v1beta2; removed fields are dropped with a note.

    Sections fairSharing and waitForPodsReady are dropped where they are disabled, else they get v1beta1's defaults.
    """
    plain = {**document, "apiVersion": f"{GROUP}/{VERSION}"}
    if plain.pop("queueVisibility", None) is not None:
        report.note(("queueVisibility",), _REMOVED_FIELD, "use the visibility API", "old-field")
    integrations = plain.get("integrations")
    if isinstance(integrations, Mapping) and "podOptions" in integrations:
        report.note(("integrations", "podOptions"), _REMOVED_FIELD, "use managedJobsNamespaceSelector", "old-field")
        plain["integrations"] = {name: value for name, value in integrations.items() if name != "podOptions"}
    sharing, ready = plain.pop("fairSharing", None), plain.pop("waitForPodsReady", None)
    if _is_enabled(sharing):
        plain["fairSharing"] = {"preemptionStrategies": [*DEFAULT_STRATEGIES], **_settings(sharing)}
    if _is_enabled(ready):
        plain["waitForPodsReady"] = {"timeout": "5m", "blockAdmission": True, **_settings(ready)}
    return plain


def _is_enabled(settings: object) -> bool:
    return isinstance(settings, Mapping) and settings.get("enable") is True


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "enable" and value != []}


OLD_API_VERSION = "v1beta1"
"""The version that is converted."""
F = TypeVar("F", bound=Struct)


def is_configuration(document: Mapping[str, Any]) -> bool:
    """True for a document with the kind and API group of a Configuration, of any version."""
    return document.get("kind") == KIND and str(document.get("apiVersion", "")).startswith(f"{GROUP}/")


def read_kueue_configuration(document: Mapping[str, Any], report: DocumentFindings) -> KueueConfigurationForm:
    """Read a Configuration, fill in its defaults and validate it.

    Errors are reported; unreadable values, unknown fields and unknown feature gates are dropped.
    """
    given = decode_configuration(document, report)
    configuration = with_defaults(given)
    named = {name: on for name, on in (given.feature_gates or {}).items() if _is_known(name, on, report)}
    for _, why in contradictory_gates(named):
        report.error(("featureGates",), why, "turn the one on, or the other off", "feature-gates")
    # Values that could not be read were reported and dropped: do not report them as missing too.
    unread = {finding.path for finding in report.findings}
    for error in validate(configuration, resolve_gates(named)):
        if error.field not in unread:
            _report_refusal(error, document, report)
    return structs.replace(configuration, feature_gates=named or None)


def decode_configuration(document: Mapping[str, Any], report: DocumentFindings) -> KueueConfigurationForm:
    """Read a Configuration as written, v1beta2 or v1beta1, without defaults or validation; errors are reported."""
    plain = _without_nulls(document)
    version = str(plain.get("apiVersion", "")).rpartition("/")[2]
    if version == OLD_API_VERSION:
        plain = from_v1beta1(plain, report)
    elif version != VERSION:
        known = f"write apiVersion: {GROUP}/{VERSION}"
        report.error(("apiVersion",), f"{shown(document.get('apiVersion'))} is not known", known, "old-version")
        plain = {**plain, "apiVersion": f"{GROUP}/{VERSION}"}
    for found in unknown_keys(plain, KueueConfigurationForm):
        report.error(found.path, f'unknown field "{path_text(found.path)}"', found.advice, "unknown-field")
    form, misfits = fit(plain, KueueConfigurationForm)
    for misfit in misfits:
        report.error(misfit.path, misfit.problem, "write a value of that type", "wrong-type")
    return _with_durations(form or KueueConfigurationForm(), (), report)


def _without_nulls(value: Any) -> Any:
    """Drop null values: Kubernetes treats them as absent."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, (list, tuple)) else value


def _with_durations(form: F, path: Path, report: DocumentFindings) -> F:
    """Return the form with durations in Go's format and without invalid quantities, which are reported."""
    hints, changes = get_type_hints(type(form), include_extras=True), {}
    for field in structs.fields(form):
        value, place = getattr(form, field.name), (*path, field.encode_name)
        if _is_duration(hints[field.name]) and value is not None:
            changes[field.name] = _duration(value, field.default, place, report)
        elif isinstance(value, Struct):
            changes[field.name] = _with_durations(value, place, report)
        elif isinstance(value, tuple) and value and isinstance(value[0], Struct):
            below = (_with_durations(part, (*place, number), report) for number, part in enumerate(value))
            changes[field.name] = tuple(below)
        elif field.name == "outputs":
            changes[field.name] = dict(_quantities(value, place, report))
    return structs.replace(form, **changes) if changes else form


def _is_duration(hint: Any) -> bool:
    parts = (hint, *getattr(hint, "__args__", ()))
    marks = (mark for part in parts for mark in getattr(part, "__metadata__", ()))
    return any(isinstance(mark, Meta) and mark.title == "duration" for mark in marks)


def _duration(text: str, otherwise: Any, path: Path, report: DocumentFindings) -> Any:
    try:
        return write_duration(nanoseconds(text))
    except ValueError as error:
        report.error(path, str(error), "write it as 90s, 30m or 1h30m", "bad-span")
        return otherwise


def _quantities(outputs: Mapping[str, Any], path: Path, report: DocumentFindings) -> Iterator[tuple[str, str]]:
    for name, quantity in outputs.items():
        try:
            parse_quantity(quantity)
        except (ValueError, OverflowError):
            problem = f"{shown(quantity)} is not a quantity"
            report.error((*path, MapKey(name)), problem, "write it as 8, 500m, 1.5Gi or 2e3", "bad-quantity")
        else:
            yield name, str(quantity)


def _is_known(name: str, on: bool, report: DocumentFindings) -> bool:
    for _, why in gate_refusals({name: on}):
        report.error(("featureGates", name), why, gate_remedy(name), "feature-gates")
        return False
    return True


def _report_refusal(error: FieldError, document: Mapping[str, Any], report: DocumentFindings) -> None:
    value = shown(_value(document, error.path))
    match error.kind:
        case FieldErrorKind.REQUIRED:
            problem, advice = "it is missing", error.detail or "say it"
        case FieldErrorKind.DUPLICATE:
            problem, advice = f"{value} stands twice", "drop or rename one of them"
        case FieldErrorKind.FORBIDDEN:
            problem, advice = "it is forbidden here", error.detail
        case FieldErrorKind.NOT_SUPPORTED:
            problem, advice = f"{value} is not supported", error.detail
        case _:
            problem, advice = f"{value} is not accepted", error.detail
    report.error(error.path, problem, advice, "refused")


def _value(document: Any, path: Path) -> Any:
    for key in path:
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, (list, tuple)) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            return None
    return document
