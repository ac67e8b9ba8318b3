"""Schemas of parts that many kinds share: selectors, tolerations, references, template metadata."""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.forms import LABEL, LONGEST_LABEL, LONGEST_SUBDOMAIN, NODE_LABEL, REASON, SUBDOMAIN
from gpuconsole.model.apiserver.schema import (
    LABELS,
    MOMENT,
    TEXTS,
    Empty,
    Schema,
    SchemaRule,
    Transition,
    a_text,
    listed,
    one_of,
    quantity,
    record,
    whole,
)
from gpuconsole.model.documents.reader import INT64

POD_METADATA = record({"annotations": LABELS, "labels": LABELS}, texts="finalizers", text="name namespace")
REQUIREMENT = record({"key!": a_text(zero=""), "operator!": a_text(zero=""), "values": TEXTS})
LABEL_SELECTOR = record({"matchExpressions": listed(REQUIREMENT), "matchLabels": LABELS})
LOCAL_REFERENCE = record({"name": a_text(default="")})
TOLERATION = record(text="effect key operator value", int64="tolerationSeconds")


def named(
    *,
    least: int | None = None,
    empty: Empty = Empty.DROPPED,
    zero: str | None = None,
    rules: tuple[Transition, ...] = (),
) -> Schema:
    """Schema of an object's name."""
    return a_text(SUBDOMAIN, least=least, most=LONGEST_SUBDOMAIN, empty=empty, zero=zero, rules=rules)


def pod_set_name(default: str | None = None) -> Schema:
    """Schema of a pod set's name."""
    return a_text(LABEL, most=LONGEST_LABEL, default=default)


def exactly_one(*fields: str) -> SchemaRule:
    """Rule that exactly one of these fields is set."""

    def holds(place: Mapping[str, Any]) -> bool:
        return sum(field in place for field in fields) == 1

    message = f"exactly one of the fields in [{' '.join(fields)}] must be set"
    return SchemaRule(message, holds, f"write either {' or '.join(fields)}")


WEIGHT = record({"weight": quantity(1)})
"""Schema of fairSharing in a queue or cohort."""
STOP_POLICY = one_of("None", "Hold", "HoldAndDrain", default="None", empty=Empty.KEPT)
CONDITIONS = listed(
    record(
        {
            "lastTransitionTime!": MOMENT,
            "message!": a_text(most=32768),
            "observedGeneration": whole(0, INT64),
            "reason!": a_text(REASON, least=1, most=1024),
            "status!": one_of("True", "False", "Unknown"),
            "type!": a_text(NODE_LABEL, most=316),
        }
    ),
    most=16,
    by=("type",),
)
