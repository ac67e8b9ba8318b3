"""Detection of cycles and of excessive depth in hierarchies of cohorts and queues."""

from collections.abc import Mapping

from gpuconsole.model.manifests.loaded import LoadedObject
from gpuconsole.model.sanity_limits import MOST_LEVELS, parent_of, too_deep

FIELDS = {
    "cohorts": ("parentName", "cohort"),
    "volcano_queues": ("parent", "queue"),
    "kai_queues": ("parentQueue", "queue"),
}
"""Table → the field of `spec` that names the parent, and the word for its objects."""


def check_ancestors(entries: Mapping[str, LoadedObject], field: str, what: str) -> None:
    """Report each cycle once, at its first member in the input, and the first object that is nested too deeply."""
    done: set[str] = set()
    for name in entries:
        trail: dict[str, None] = {}
        while name in entries and name not in done:
            if name in trail:
                members = list(trail)[list(trail).index(name) :]
                _say_cycle(members, entries, field, what)
                break
            trail[name] = None
            name = parent_of(entries[name].obj)
        done.update(trail)
    deep = too_deep({name: parent_of(entry.obj) for name, entry in entries.items()})
    if deep:
        place = entries[deep].place
        problem = f"more than {MOST_LEVELS} levels of {what}s lie above {what} {deep}"
        place.report.error(place.at("spec", field), problem, "nest fewer in each other", f"{what}s-too-deep")


def _say_cycle(members: list[str], entries: Mapping[str, LoadedObject], field: str, what: str) -> None:
    first = next(name for name in entries if name in members)
    start = members.index(first)
    shown = [*members[start:], *members[:start]]
    cycle = " → ".join([*shown[:20], *(["…"] if len(shown) > 20 else []), first])
    place = entries[first].place
    place.report.error(
        place.at("spec", field),
        f"{what} {first} is its own ancestor: {cycle}; nothing below it can be admitted",
        f"remove spec.{field} from one {what} of the cycle",
        f"{what}-cycle",
    )
