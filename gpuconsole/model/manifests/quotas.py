"""resourceGroups of ClusterQueues and Cohorts: quotas in the order of the covered resources."""

from gpuconsole.model.documents.amounts import not_negative
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.queues import FlavorQuotas, Quota, ResourceGroup


def resource_groups(spec: Reader) -> tuple[ResourceGroup, ...]:
    """Read `spec.resourceGroups`."""
    return tuple(_group(place) for place in spec.items("resourceGroups"))


def _group(place: Reader) -> ResourceGroup:
    covered = tuple(dict.fromkeys(place.texts("coveredResources")))
    return ResourceGroup(covered, tuple(_flavor(flavor, covered) for flavor in place.items("flavors")))


def _flavor(place: Reader, covered: tuple[str, ...]) -> FlavorQuotas:
    """Read a flavor's quotas: a missing one is 0, one of a resource that is not covered is dropped."""
    quotas = dict(_quota(item) for item in place.items("resources"))
    return FlavorQuotas(place.text("name"), {resource: quotas.get(resource, Quota()) for resource in covered})


def _quota(item: Reader) -> tuple[str, Quota]:
    resource = item.text("name")
    if "nominalQuota" not in item:
        item.report.warning(item.at("nominalQuota"), "nominalQuota is missing; it is 0", "give a quota", "no-quota")
    return resource, Quota(
        not_negative(item, "nominalQuota", resource) or 0,
        not_negative(item, "borrowingLimit", resource),
        not_negative(item, "lendingLimit", resource),
    )
