"""How close pods have to be by Volcano's hyper nodes: the same words in jobs, tasks, PodGroups and their sub-groups."""

from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.volcano import NetworkTopology


def network_topology(place: Reader) -> NetworkTopology | None:
    """What `networkTopology` says, if it is there."""
    if "networkTopology" not in place:
        return None
    asked = place.mapping("networkTopology")
    return NetworkTopology(
        mode=asked.one_of("mode", "", ("hard", "soft")),
        highest_tier=asked.optional("highestTierAllowed"),
        highest_tier_name=asked.text("highestTierName"),
    )
