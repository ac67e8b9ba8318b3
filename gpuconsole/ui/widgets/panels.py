"""Panels that share the room of a screen: which are shown, where, how large, in which order, and what is remembered.

Neighbours of one group stand side by side while their least widths fit; each large panel has lines of its own. Where
the least heights do not fit, panels are left out, those of the highest rank first.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from textual.containers import Container
from textual.geometry import Region, Size

from gpuconsole.store.private import write_private
from gpuconsole.ui.widgets.painter import share

LOG = logging.getLogger(__name__)


class Panel(Struct, frozen=True, kw_only=True):
    """What a panel needs. Widths and heights are in terminal cells, with its frame."""

    id: str
    """Id of its widget."""
    title: str
    group: str
    width: int
    """Least width."""
    height: int
    """Least height."""
    rank: int = 0
    """Panels of the highest rank are left out first; those of rank 0 stay."""
    grows: bool = False
    """Whether it uses the lines that no panel wants."""


class PanelChoice(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the operator chose for one panel."""

    id: str
    hidden: bool = False
    large: bool = False


Wants = Callable[[str, int], int]
"""Height that a panel with this id would use at a width."""


def arrange(panels: Sequence[Panel], large: frozenset[str], wants: Wants, size: Size) -> dict[str, Region]:
    """Divide the room among panels in their order; those that are missing in the result do not fit.

    Each line of panels gets its least height, then they grow evenly up to what they want. The rest goes to large
    panels, else to those that grow, else to the last line.
    """
    shown = list(panels)
    while True:
        rows = _in_rows(shown, large, size.width)
        least = sum(map(_least, rows))
        if least <= size.height or len(shown) <= 1:
            break
        shown.remove(_superfluous(shown, large, size.width, least))
    widths = [share(size.width, tuple(panel.width for panel in row)) for row in rows]
    wanted = [
        max(_least(row), *(wants(panel.id, width) for panel, width in zip(row, across, strict=True)))
        for row, across in zip(rows, widths, strict=True)
    ]
    heights = _heights(rows, wanted, large, size.height)
    places: dict[str, Region] = {}
    y = 0
    for row, across, height in zip(rows, widths, heights, strict=True):
        x = 0
        for panel, width in zip(row, across, strict=True):
            places[panel.id] = Region(x, y, width, height)
            x += width
        y += height
    return places


def _least(row: Sequence[Panel]) -> int:
    return max(panel.height for panel in row)


def _in_rows(panels: Sequence[Panel], large: frozenset[str], width: int) -> list[list[Panel]]:
    rows: list[list[Panel]] = []
    for panel in panels:
        before = rows[-1] if rows else []
        alone = not before or panel.id in large or before[-1].id in large or before[-1].group != panel.group
        if alone or sum(one.width for one in before) + panel.width > width:
            rows.append([panel])
        else:
            before.append(panel)
    return rows


def _superfluous(panels: Sequence[Panel], large: frozenset[str], width: int, least: int) -> Panel:
    """The panel to leave out: of the highest rank among those without which less height is needed."""

    def frees(panel: Panel) -> bool:
        others = [one for one in panels if one is not panel]
        return sum(map(_least, _in_rows(others, large, width))) < least

    return max(panels, key=lambda panel: (panel.rank > 0 and frees(panel), panel.rank))


def _heights(rows: Sequence[Sequence[Panel]], wanted: Sequence[int], large: frozenset[str], height: int) -> list[int]:
    heights = [_least(row) for row in rows]
    left = height - sum(heights)
    while left > 0:
        growing = [index for index in range(len(rows)) if heights[index] < wanted[index]]
        if not growing:
            break
        heights[min(growing, key=lambda index: heights[index])] += 1
        left -= 1
    if left > 0 and rows:
        takers = [index for index, row in enumerate(rows) if any(panel.id in large for panel in row)]
        takers = takers or [index for index, row in enumerate(rows) if any(panel.grows for panel in row)]
        takers = takers or [len(rows) - 1]
        for index, more in zip(takers, share(left, (1,) * len(takers)), strict=True):
            heights[index] += more
    return heights


class PanelLayout:
    """Which panels are shown and large, and in which order. Mutates; each change is saved if it has a file."""

    def __init__(self, panels: Sequence[Panel], file: Path | None = None) -> None:
        self._panels = {panel.id: panel for panel in panels}
        self._file = file
        self._choices = self._completed(_read(file) if file is not None else ())

    @property
    def choices(self) -> tuple[PanelChoice, ...]:
        """All panels in their order."""
        return tuple(self._choices)

    @property
    def shown(self) -> list[Panel]:
        """The panels that are not hidden, in their order."""
        return [self._panels[one.id] for one in self._choices if not one.hidden]

    @property
    def large(self) -> frozenset[str]:
        """Ids of the large panels."""
        return frozenset(one.id for one in self._choices if one.large)

    def change(self, id: str, **fields: bool) -> None:
        """Set `hidden` or `large` of a panel."""
        self._choices = [replace(one, **fields) if one.id == id else one for one in self._choices]
        self._save()

    def move(self, id: str, places: int) -> bool:
        """Move a shown panel by so many places of shown panels; False if it is the first or the last."""
        shown = [index for index, one in enumerate(self._choices) if not one.hidden]
        here = next((place for place, index in enumerate(shown) if self._choices[index].id == id), -1)
        there = here + places
        if here < 0 or not 0 <= there < len(shown):
            return False
        moved = self._choices.pop(shown[here])
        self._choices.insert(shown[there], moved)
        self._save()
        return True

    def reset(self) -> None:
        """Show all panels in their first order and size."""
        self._choices = self._completed(())
        self._save()

    def _completed(self, choices: Sequence[PanelChoice]) -> list[PanelChoice]:
        """The choices for panels that exist, each once, and the other panels after them."""
        known = {one.id: one for one in choices if one.id in self._panels}
        return [*known.values(), *(PanelChoice(id) for id in self._panels if id not in known)]

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            write_private(self._file, msgspec.json.encode(self._choices))
        except OSError as error:
            LOG.warning("The layout of panels is not saved to %s: %s", self._file, error)


def _read(file: Path) -> Sequence[PanelChoice]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=tuple[PanelChoice, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        LOG.warning("The layout of panels in %s is ignored: %s", file, error)
        return ()


class PanelArea(Container):
    """The room in which a screen puts its panels: the widgets with their ids, and nothing else."""

    DEFAULT_CSS = """
    PanelArea { height: 1fr; overflow: hidden; }
    PanelArea > * { position: absolute; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._places: Mapping[str, Region] = {}

    def put(self, places: Mapping[str, Region]) -> None:
        """Put the panels there; those without a place are not displayed."""
        if places == self._places:
            return
        self._places = places
        for child in self.children:
            region = places.get(child.id or "")
            child.display = region is not None
            if region is not None:
                child.styles.offset = region.offset
                child.styles.width, child.styles.height = region.size
        # The order of the keys that move from panel to panel.
        order = {id: number for number, id in enumerate(places)}
        self.sort_children(key=lambda child: order.get(child.id or "", len(order)))

    def put_back(self) -> None:
        """Put the panels again where they were, after one of them was maximized."""
        places, self._places = self._places, {}
        self.put(places)
