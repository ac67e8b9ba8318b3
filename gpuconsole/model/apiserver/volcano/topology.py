"""Network topology of jobs, tasks and PodGroups: the highest tier by number or by name, not both."""

from typing import Any

from gpuconsole.model.apiserver.jobs.parts import at

BOTH = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"


def names_both(place: Any) -> bool:
    """True if `networkTopology` sets the highest tier by number and by name."""
    asked = at(place, "networkTopology")
    return at(asked, "highestTierAllowed") is not None and bool(at(asked, "highestTierName"))
