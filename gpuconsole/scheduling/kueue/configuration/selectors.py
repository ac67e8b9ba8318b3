"""Label selectors in the Configuration: fields, validation and matching."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpuconsole.model.documents import field_errors as syntax
from gpuconsole.model.documents.field_errors import FieldError, forbidden, invalid, required
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.labels import LabelSelector, Requirement


class ExpressionForm(Struct, frozen=True, kw_only=True):
    """One entry of matchExpressions."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class SelectorForm(Struct, frozen=True, kw_only=True, rename="camel"):
    """A label selector as written."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[ExpressionForm, ...] = ()

    @property
    def selector(self) -> LabelSelector:
        """The selector in the form that matches labels."""
        wanted = (Requirement(part.key, part.operator, part.values) for part in self.match_expressions)
        return LabelSelector(self.match_labels, tuple(wanted))


def selector_errors(form: SelectorForm, path: Path) -> Iterator[FieldError]:
    """Yield the errors in a label selector (apimachinery ValidateLabelSelector)."""
    for key in form.match_labels:
        faults = syntax.label_key(key)
        yield from (invalid((*path, "matchLabels"), fault) for fault in faults)
    for number, part in enumerate(form.match_expressions):
        yield from _expression_errors(part, (*path, "matchExpressions", number))


def _expression_errors(part: ExpressionForm, path: Path) -> Iterator[FieldError]:
    if part.operator in ("In", "NotIn"):
        if not part.values:
            yield required((*path, "values"), "must be specified when `operator` is 'In' or 'NotIn'")
    elif part.operator in ("Exists", "DoesNotExist"):
        if part.values:
            yield forbidden((*path, "values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    else:
        yield invalid((*path, "operator"), "not a valid selector operator")
    yield from (invalid((*path, "key"), fault) for fault in syntax.label_key(part.key))
    for number, value in enumerate(part.values):
        yield from (invalid((*path, "values", number), fault) for fault in syntax.label_value(value))
