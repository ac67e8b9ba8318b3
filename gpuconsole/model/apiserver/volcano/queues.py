"""Validation of a Volcano Queue: order of its amounts, state, hierarchy annotations (queues/validate)."""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from gpuconsole.model.apiserver.jobs.parts import Document, at
from gpuconsole.model.apiserver.volcano.objections import Objection
from gpuconsole.model.documents.findings import MapKey, Path
from gpuconsole.model.quantity import canonical, parse_quantity

HIERARCHY = "volcano.sh/hierarchy"
WEIGHTS = "volcano.sh/hierarchy-weights"
STATES = ("Open", "Closed")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)|nan", re.IGNORECASE)
_ORDER = "guarantee <= deserved <= capability"
Queues = Mapping[str, Document]


def check_queue(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Yield the errors in a queue; `queues` are all queues by name."""
    spec = at(queue, "spec") or {}
    yield from _check_amounts(spec)
    state = at(queue, "status", "state")
    if state and state not in STATES:
        yield _wrong(("status", "state"), "spec.state", state, f"queue state must be in [{' '.join(STATES)}]", "Open")
    yield from check_hierarchy(queue, queues)


def refusal_of(objections: list[Objection]) -> str:
    """Join the texts of objections as an aggregate of field errors prints them; empty if there are none."""
    texts = list(dict.fromkeys(objection.text for objection in objections))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def _wrong(path: Path, field: str, value: Any, detail: str, remedy: str) -> Objection:
    text = f'requestBody.{field}: Invalid value: "{value}": {detail}'
    return QueueObjection(path, text, remedy, "bad-queue", detail)


class QueueObjection(Objection, frozen=True):
    """Objection whose `problem` leaves out the field, because its path is shown anyway."""

    detail: str

    @property
    def problem(self) -> str:
        return self.detail


def _check_amounts(spec: Any) -> Iterator[Objection]:
    capability, deserved = spec.get("capability") or {}, spec.get("deserved") or {}
    guarantee = at(spec, "guarantee", "resource") or {}
    yield from _not_negative(capability, "capability")
    yield from _not_negative(deserved, "deserved")
    for name, text in guarantee.items():
        yield from _not_negative({name: text}, "guarantee", "resource")
        least = f"guarantee[{name}]={canonical(text)}"
        if name not in deserved:
            yield _of(name, "<nil>", f"deserved[{name}] must be >= {least}")
        elif parse_quantity(deserved[name]) < parse_quantity(text):
            shown = canonical(deserved[name])
            yield _of(name, shown, f"deserved[{name}]={shown} must be >= {least}")
    for name, text in deserved.items():
        if name in capability and parse_quantity(text) > parse_quantity(capability[name]):
            shown = canonical(text)
            most = f"capability[{name}]={canonical(capability[name])}"
            yield _of(name, shown, f"deserved[{name}]={shown} must be <= {most}")


def _of(name: str, shown: str, detail: str) -> Objection:
    return _wrong(("spec", "deserved", MapKey(name)), f"spec.deserved.{name}", shown, detail, f"keep to {_ORDER}")


def _not_negative(amounts: Mapping[str, Any], *keys: str) -> Iterator[Objection]:
    for name, text in amounts.items():
        if parse_quantity(text) < Fraction():
            field = ".".join(("spec", *keys, name))
            detail = "must be greater than or equal to 0"
            yield _wrong(("spec", *keys, MapKey(name)), field, canonical(text), detail, "write 0 or more")


def check_hierarchy(queue: Document, queues: Queues) -> Iterator[Objection]:
    """Report the first error in a queue's annotations for hierarchical DRF."""
    notes = at(queue, "metadata", "annotations") or {}
    hierarchy, weights = notes.get(HIERARCHY, ""), notes.get(WEIGHTS, "")
    if not hierarchy and not weights:
        return
    if hierarchy.count("/") != weights.count("/"):
        yield _noted(HIERARCHY, hierarchy, f"{HIERARCHY} must have the same length with {WEIGHTS}")
        return
    for weight in weights.split("/"):
        if not _NUMBER.fullmatch(weight):
            detail = (
                f'{weight} in the {weights} is invalid number: strconv.ParseFloat: parsing "{weight}": invalid syntax'
            )
            yield _noted(WEIGHTS, weights, detail)
            return
        if not float(weight) > 0:
            yield _noted(WEIGHTS, weights, f"{weight} in the {weights} must be larger than 0")
            return
    mine = at(queue, "metadata", "name")
    for name, other in sorted(queues.items()):
        theirs = (at(other, "metadata", "annotations") or {}).get(HIERARCHY, "")
        if theirs and name != mine and theirs.startswith(f"{hierarchy}/"):
            yield _noted(
                HIERARCHY, hierarchy, f"{hierarchy} is not allowed to be in the sub path of {theirs} of queue {name}"
            )
            return


def _noted(key: str, value: str, detail: str) -> Objection:
    path = ("metadata", "annotations", MapKey(key))
    return _wrong(path, "metadata.annotations", value, detail, "write root/sci/dev and 1/2/8, as an example")
