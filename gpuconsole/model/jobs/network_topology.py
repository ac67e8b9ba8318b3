"""Network topology constraints by Volcano's HyperNodes, in jobs, tasks, PodGroups and sub-groups."""

from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.volcano import NetworkTopology


def network_topology(place: Reader) -> NetworkTopology | None:
    """Read `networkTopology`; None if absent."""
    if "networkTopology" not in place:
        return None
    asked = place.mapping("networkTopology")
    return NetworkTopology(
        mode=asked.one_of("mode", "", ("hard", "soft")),
        highest_tier=asked.optional("highestTierAllowed"),
        highest_tier_name=asked.text("highestTierName"),
    )
