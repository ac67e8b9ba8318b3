"""resourceGroups of ClusterQueues and Cohorts, and fairSharing: their schema and webhook validation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.apiserver.refusals import duplicate, invalid
from gpuconsole.model.apiserver.schema import TEXT, Schema, SchemaRule, listed, quantity, record
from gpuconsole.model.apiserver.selectors import named
from gpuconsole.model.documents.fields import FieldError
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.syntax import label_key
from gpuconsole.model.quantity import capped

MOST_IN_QUEUE = 256
MOST_COMBINATIONS = 512
SMALLEST_WEIGHT = capped("1n")
_QUOTA = record(
    {"name!": TEXT, "nominalQuota!": quantity(zero="0"), "borrowingLimit": quantity(), "lendingLimit": quantity()}
)
_FLAVOR = record({"name!": named(zero=""), "resources!": listed(_QUOTA, least=1, most=64, by=("name",))})


def _misnumbered(group: Mapping[str, Any]) -> int:
    """Return the position of the first flavor whose resources do not match the group's coveredResources in number."""
    sizes = [len(flavor.get("resources") or ()) for flavor in group["flavors"]]
    return next((n for n, size in enumerate(sizes) if size != len(group["coveredResources"])), 0)


def _number_remedy(group: Mapping[str, Any]) -> str:
    flavor, covered = group["flavors"][_misnumbered(group)], group["coveredResources"]
    given = [quota.get("name", "") for quota in flavor.get("resources") or ()]
    missing = [resource for resource in covered if resource not in given]
    extra = [resource for resource in given if resource not in covered]
    parts = [f"lacks {' and '.join(missing)}, whose quota is 0 then"] if missing else []
    parts += [f"lists {', '.join(extra)}, which the group does not cover"] if extra else []
    said = f"flavor {flavor.get('name', '')} {' and '.join(parts)}: " if parts else ""
    return f"{said}list the resources of coveredResources, in that order: {', '.join(covered)}"


_SAME_NUMBER = SchemaRule(
    "flavors must have the same number of resources as the coveredResources",
    lambda group: all(len(flavor["resources"]) == len(group["coveredResources"]) for flavor in group["flavors"]),
    lambda group: _number_remedy(group),
    "resource-number",
    lambda group: ("flavors", _misnumbered(group), "resources"),
)
RESOURCE_GROUPS = listed(
    record(
        {
            "coveredResources!": listed(TEXT, least=1, most=64),
            "flavors!": listed(_FLAVOR, least=1, most=64, by=("name",)),
        },
        rules=(_SAME_NUMBER,),
    ),
    most=16,
)


def usage(*amounts: str) -> Schema:
    """Schema of usage in a status: flavors with their resources."""
    resource = record({"name!": TEXT} | dict.fromkeys(amounts, quantity()))
    flavor = record({"name!": named(), "resources!": listed(resource, most=64, by=("name",))})
    return listed(flavor, most=64, by=("name",))


Groups = Sequence[Mapping[str, Any]]


def flavor_names(groups: Groups) -> tuple[str, ...]:
    """Return the sorted names of the flavors in all groups."""
    return tuple(sorted({flavor.get("name", "") for group in groups for flavor in group.get("flavors") or ()}))


class Limits(Struct, frozen=True):
    """Rules of a kind for the limits in its quotas."""

    orphan: str
    """`cohort` or `parent` if the object has none, which forbids its limits; else empty."""
    lends_own: bool
    """The lendingLimit must not exceed the nominal quota."""


def check_groups(groups: Groups, limits: Limits) -> Iterator[FieldError]:
    """Validate names, amounts and limits; a resource or flavor may be in one group only.

    Kueue 0.19 clusterqueue_webhook validateResourceGroups.
    """
    resources: set[str] = set()
    flavors: set[str] = set()
    for g, group in enumerate(groups):
        path: Path = ("spec", "resourceGroups", g)
        covered = group.get("coveredResources") or []
        for n, resource in enumerate(covered):
            place = (*path, "coveredResources", n)
            for message in label_key(resource):
                yield invalid(place, resource, message, "write it as nvidia.com/gpu", "bad-name")
            if resource in resources:
                yield duplicate(place, resource)
            resources.add(resource)
        for n, flavor in enumerate(group.get("flavors") or ()):
            place = (*path, "flavors", n)
            yield from _check_flavor(flavor, covered, limits, place)
            name = flavor.get("name", "")
            if name in flavors:
                yield duplicate((*place, "name"), name)
            flavors.add(name)


def _check_flavor(
    flavor: Mapping[str, Any], covered: Sequence[str], limits: Limits, path: Path
) -> Iterator[FieldError]:
    for n, (quota, resource) in enumerate(zip(flavor.get("resources") or (), covered, strict=False)):
        place = (*path, "resources", n)
        name = quota.get("name", "")
        if name != resource:
            order = f"list the resources of coveredResources, in that order: {', '.join(covered)}"
            yield invalid((*place, "name"), name, "must match the name in coveredResources", order, "resource-order")
        yield from _not_negative(quota, "nominalQuota", place)
        yield from _not_orphaned(quota, "borrowingLimit", limits.orphan, place)
        yield from _not_negative(quota, "borrowingLimit", place)
        yield from _not_negative(quota, "lendingLimit", place)
        yield from _not_orphaned(quota, "lendingLimit", limits.orphan, place)
        lent, nominal = quota.get("lendingLimit"), quota.get("nominalQuota", 0)
        if limits.lends_own and lent is not None and capped(lent) > capped(nominal):
            detail, code = "must be less than or equal to the nominalQuota", "lending-over-nominal"
            yield invalid((*place, "lendingLimit"), lent, detail, f"write {nominal} or less", code)


def _not_negative(quota: Mapping[str, Any], key: str, path: Path) -> Iterator[FieldError]:
    amount = quota.get(key)
    if amount is not None and capped(amount) < 0:
        yield invalid((*path, key), amount, "must be greater than or equal to 0", "write 0 or more", "negative")


def _not_orphaned(quota: Mapping[str, Any], key: str, orphan: str, path: Path) -> Iterator[FieldError]:
    if orphan and key in quota:
        code = f"{key.removesuffix('Limit')}-without-cohort"
        detail = f"must be nil when {orphan} is empty"
        yield invalid((*path, key), quota[key], detail, f"name a {orphan}, or drop {key}", code)


def check_totals(groups: Groups) -> Iterator[FieldError]:
    """Validate the total numbers of flavors and resources in a ClusterQueue."""
    path: Path = ("spec", "resourceGroups")
    for what, key in (("flavors", "flavors"), ("covered resources", "coveredResources")):
        total = sum(len(group.get(key) or ()) for group in groups)
        if total > MOST_IN_QUEUE:
            detail = f"total number of {what} across all resourceGroups must be ≤ {MOST_IN_QUEUE}, got {total}"
            yield invalid(path, total, detail, "split the queue", "too-many")
    for g, group in enumerate(groups):
        total = sum(len(flavor.get("resources") or ()) for flavor in group.get("flavors") or ())
        if total > MOST_COMBINATIONS:
            detail = (
                f"number of flavor-resource combinations in a resourceGroup must be ≤ {MOST_COMBINATIONS}, got {total}"
            )
            yield invalid((*path, g), total, detail, "split the group", "too-many")


def check_weight(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate that a weight is 0 or more than a billionth, because less would be rounded to 0."""
    weight = (spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return
    path: Path = ("spec", "fairSharing")
    if capped(weight) < 0:
        detail = "must be greater than or equal to 0"
        yield replace(invalid(path, weight, detail, "write 0 or more", "negative"), deeper=("weight",))
    elif 0 < capped(weight) <= SMALLEST_WEIGHT:
        detail = "When not 0, weight must be > 10e-9"
        refusal = invalid(path, weight, detail, "write 0 or a larger weight", "bad-weight")
        yield replace(refusal, deeper=("weight",))
