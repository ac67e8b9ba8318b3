"""resourceGroups of ClusterQueues and Cohorts, with the rules that Kueue's API server checks (its own texts)."""

from collections.abc import Iterable

from gpuconsole.model.documents.amounts import not_negative
from gpuconsole.model.documents.findings import Path
from gpuconsole.model.documents.names import is_label_key, name, unique
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.queues import FlavorQuotas, Quota, ResourceGroup

MOST_GROUPS = 16
MOST_IN_GROUP = 64
MOST_IN_QUEUE = 256
MOST_COMBINATIONS = 512

Listed = list[tuple[Reader, str, Quota]]
"""Each quota that a document lists, with its place and its resource."""


def resource_groups(spec: Reader, *, parent: str, above: str, lends_own: bool) -> tuple[ResourceGroup, ...]:
    """Read `spec.resourceGroups`.

    `parent` is the field that names the cohort above and `above` its word in Kueue's texts. `lends_own`: a lending
    limit may not exceed the nominal quota (ClusterQueues; not checked on Cohorts).
    """
    listed: Listed = []
    groups = tuple(_group(place, listed) for place in spec.items("resourceGroups", MOST_GROUPS))
    _check_twice(spec, groups)
    _check_totals(spec, groups)
    if not spec.raw(parent):
        _check_no_parent(spec, listed, above)
    if lends_own:
        _check_lending(listed)
    return groups


def _group(place: Reader, listed: Listed) -> ResourceGroup:
    place.only("coveredResources", "flavors")
    listed_resources = place.texts("coveredResources", MOST_IN_GROUP)
    unique(place, "coveredResources", listed_resources)
    for position, resource in enumerate(listed_resources):
        if not is_label_key(resource):
            problem = f"{shown(resource)} is no name of a resource"
            place.report.refused(
                place.at("coveredResources", position), problem, "write it as nvidia.com/gpu", "bad-name"
            )
    covered = tuple(dict.fromkeys(listed_resources))
    for key in ("coveredResources", "flavors"):
        if not place.raw(key):
            place.report.refused(place.at(key), f"{key} is empty", "it needs at least one entry", "required")
    return ResourceGroup(covered, tuple(_flavor(f, covered, listed) for f in place.items("flavors", MOST_IN_GROUP)))


def _flavor(place: Reader, covered: tuple[str, ...], listed: Listed) -> FlavorQuotas:
    """Quotas in the order of the covered resources; a missing one is 0, one that is not covered is left out."""
    place.only("name", "resources")
    flavor = name(place, "name", required=True)
    quotas: dict[str, Quota] = {}
    for item in place.items("resources", MOST_IN_GROUP):
        resource, quota = _quota(item)
        if resource in quotas:
            item.report.refused(item.at("name"), f"{resource} is listed twice", "list it once", "duplicate")
        quotas[resource] = quota
        listed.append((item, resource, quota))
    _check_order(place, flavor, tuple(quotas), covered)
    return FlavorQuotas(flavor, {resource: quotas.get(resource, Quota()) for resource in covered})


def _quota(item: Reader) -> tuple[str, Quota]:
    item.only("name", "nominalQuota", "borrowingLimit", "lendingLimit")
    resource = item.required("name")
    if "nominalQuota" not in item:
        item.report.warning(item.at("nominalQuota"), "nominalQuota is missing; it is 0", "give a quota", "no-quota")
    return resource, Quota(
        not_negative(item, "nominalQuota", resource) or 0,
        not_negative(item, "borrowingLimit", resource),
        not_negative(item, "lendingLimit", resource),
    )


def _check_order(place: Reader, flavor: str, order: tuple[str, ...], covered: tuple[str, ...]) -> None:
    missing = [resource for resource in covered if resource not in order]
    extra = [resource for resource in order if resource not in covered]
    remedy = f"list the resources of coveredResources, in that order: {', '.join(covered)}"
    if missing:
        place.report.refused(
            place.at("resources"),
            f"flavor {flavor} lacks {' and '.join(missing)}, whose quota is 0 then: flavors must have the same number "
            "of resources as the coveredResources",
            remedy,
            "missing-resource",
        )
    if extra:
        place.report.refused(
            place.at("resources"),
            f"flavor {flavor} lists {', '.join(extra)}, which the group does not cover: ignored",
            "add it to coveredResources, or drop it here",
            "uncovered-resource",
        )
    if [r for r in order if r in covered] != [r for r in covered if r in order]:
        place.report.refused(
            place.at("resources"),
            f"flavor {flavor} orders its resources differently ({', '.join(order)}): each must match the name in "
            "coveredResources",
            remedy,
            "resource-order",
        )


def _check_twice(spec: Reader, groups: Iterable[ResourceGroup]) -> None:
    resources: set[str] = set()
    flavors: set[str] = set()
    for g, group in enumerate(groups):
        for n, resource in enumerate(group.covered_resources):
            _once(spec, ("resourceGroups", g, "coveredResources", n), resource, resources)
        for n, flavor in enumerate(group.flavors):
            _once(spec, ("resourceGroups", g, "flavors", n, "name"), flavor.name, flavors)


def _once(spec: Reader, path: Path, name: str, seen: set[str]) -> None:
    if name in seen:
        spec.report.refused(
            spec.at(*path), f"{name} stands in more than one place", "name it in one resource group only", "duplicate"
        )
    seen.add(name)


def _check_totals(spec: Reader, groups: tuple[ResourceGroup, ...]) -> None:
    flavors = sum(len(group.flavors) for group in groups)
    resources = sum(len(group.covered_resources) for group in groups)
    for what, count in (("flavors", flavors), ("covered resources", resources)):
        if count > MOST_IN_QUEUE:
            spec.report.refused(
                spec.at("resourceGroups"),
                f"total number of {what} across all resourceGroups must be ≤ {MOST_IN_QUEUE}, got {count}",
                "split the queue",
                "too-many",
            )
    for g, group in enumerate(groups):
        count = sum(len(flavor.resources) for flavor in group.flavors)
        if count > MOST_COMBINATIONS:
            spec.report.refused(
                spec.at("resourceGroups", g),
                f"number of flavor-resource combinations in a resourceGroup must be ≤ {MOST_COMBINATIONS}, got {count}",
                "split the group",
                "too-many",
            )


def _check_no_parent(spec: Reader, listed: Listed, above: str) -> None:
    """One finding a limit and object: the places are alike, and so is the remedy."""
    for limit in ("borrowingLimit", "lendingLimit"):
        places = [item for item, _, _ in listed if limit in item]
        if places:
            more = f" (in {len(places)} places)" if len(places) > 1 else ""
            spec.report.refused(
                places[0].at(limit),
                f"{limit} without a {above} is ignored{more}: {limit} must be nil when {above} is empty",
                f"name a {above}, or drop {limit}",
                f"{'borrowing' if limit == 'borrowingLimit' else 'lending'}-without-cohort",
            )


def _check_lending(listed: Listed) -> None:
    for item, _, quota in listed:
        if quota.lending_limit is not None and quota.lending_limit > quota.nominal:
            item.report.refused(
                item.at("lendingLimit"),
                f"lendingLimit {shown(item.raw('lendingLimit'))} must be less than or equal to the nominalQuota",
                f"write {shown(item.raw('nominalQuota'))} or less",
                "lending-over-nominal",
            )
