"""Plugins that a profile enables at an extension point, in order: merges multiPoint with the point's own settings.

As kube-scheduler merges them (framework/runtime expandMultiPointPlugins): first those of multiPoint that the point
names as well, then the rest of multiPoint, then those that only the point names.
"""

from collections.abc import Sequence

from gpuconsole.model.documents.reader import Reader
from gpuconsole.scheduling.kube.profile import BALANCED, FILTERS, IMAGES, PREEMPTION, Weights

POINTS = (
    *("multiPoint", "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score"),
    *("reserve", "permit", "preBind", "bind", "postBind"),
)
OTHERS = ("SchedulingGates", "PrioritySort", "DefaultBinder", "Coscheduling", "GangScheduling")
"""Known plugins that neither filter nor score; the queue and gang scheduling do their work."""
KNOWN = (*FILTERS, BALANCED, IMAGES, PREEMPTION, *OTHERS)
EVERY = "*"


def enabled(plugins: Reader, point: str, defaults: Sequence[str]) -> tuple[str, ...]:
    """The plugins of `defaults` that are enabled at this point."""
    return tuple(name for name, _ in _expanded(plugins, point, tuple((name, 1) for name in defaults)))


def weighted(plugins: Reader, defaults: Weights) -> Weights:
    """The enabled score plugins with their weights; a weight of 0 counts as 1."""
    return tuple((name, weight or 1) for name, weight in _expanded(plugins, "score", defaults))


def _expanded(plugins: Reader, point: str, defaults: Weights) -> Weights:
    able = {name for name, _ in defaults}
    said = tuple((name, weight) for name, weight in _list(plugins, point, "enabled") if name in able)
    everywhere = _multi_point(plugins, defaults)
    off = {name for name, _ in _list(plugins, point, "disabled")}
    if EVERY in off:
        return said
    own = dict(said)
    both = tuple((name, own[name]) for name, _ in everywhere if name in own)
    kept = tuple((name, weight) for name, weight in everywhere if name not in own and name not in off)
    return (*both, *kept, *((name, weight) for name, weight in said if name not in dict(everywhere)))


def _multi_point(plugins: Reader, defaults: Weights) -> Weights:
    """What multiPoint enables of these: the defaults in their order, changed or not, then what is added."""
    able = {name for name, _ in defaults}
    off = {name for name, _ in _list(plugins, "multiPoint", "disabled")}
    said = {name: weight for name, weight in _list(plugins, "multiPoint", "enabled") if name in able}
    kept = () if EVERY in off else tuple((name, said.get(name, weight)) for name, weight in defaults if name not in off)
    return (*kept, *((name, weight) for name, weight in said.items() if name not in dict(kept)))


def _list(plugins: Reader, point: str, which: str) -> list[tuple[str, int]]:
    return [(str(place.raw("name")), place.number("weight", 0, low=0)) for place in plugins.mapping(point).items(which)]


def check(plugins: Reader) -> None:
    """Report unknown extension points and plugins as findings."""
    plugins.only(*POINTS)
    for point in POINTS:
        place = plugins.mapping(point)
        place.only("enabled", "disabled")
        for which in ("enabled", "disabled"):
            for one in place.items(which):
                one.only("name", "weight")
                name = one.required("name")
                if name and name not in KNOWN and (which == "enabled" or name != EVERY):
                    remedy = f"it has {', '.join(KNOWN)}"
                    one.report.warning(one.at("name"), f"there is no plugin {name} here", remedy, "unknown-plugin")
