"""What the operator chose about tables, remembered in a file: columns, order and widths, sort, and saved views."""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from gpuconsole.store.private import write_private
from gpuconsole.ui.table_model import ColumnChoice

LOG = logging.getLogger(__name__)


class TableLayout(Struct, frozen=True, omit_defaults=True):
    """Columns and order of the rows of one table."""

    columns: tuple[ColumnChoice, ...] = ()
    """In their order; empty for the columns of the console."""
    sort: str = ""
    """The column by which it is sorted; empty for the order of the console."""
    descending: bool = False


class SavedView(Struct, frozen=True, omit_defaults=True):
    """A screen with its filter and the layout of its table, under a name."""

    view: str
    filter: str = ""
    layout: TableLayout = TableLayout()
    namespaces: tuple[str, ...] = ()
    """The namespaces shown; empty for all."""


class _Contents(Struct, frozen=True, omit_defaults=True):
    tables: Mapping[str, TableLayout] = {}
    views: Mapping[str, SavedView] = {}


class TableLayouts:
    """The layouts of all tables and the saved views. Mutates; each change is saved if it has a file."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        found = _read(file) if file is not None else _Contents()
        self._tables, self._views = dict(found.tables), dict(found.views)

    def table(self, name: str) -> TableLayout:
        """Return the layout of a table; the empty one if nothing was chosen."""
        return self._tables.get(name, TableLayout())

    def remember(self, name: str, layout: TableLayout) -> str:
        """Keep the layout of a table; return what went wrong, or an empty text."""
        if layout == TableLayout():
            self._tables.pop(name, None)
        else:
            self._tables[name] = layout
        return self._save()

    @property
    def views(self) -> Mapping[str, SavedView]:
        """The saved views by name."""
        return self._views

    def save_view(self, name: str, view: SavedView) -> str:
        """Keep a view under a name; return what went wrong, or an empty text."""
        self._views[name] = view
        return self._save()

    def delete_view(self, name: str) -> str:
        """Delete a saved view; return what went wrong, or an empty text."""
        del self._views[name]
        return self._save()

    def _save(self) -> str:
        if self._file is None:
            return ""
        try:
            write_private(self._file, msgspec.json.format(msgspec.json.encode(_Contents(self._tables, self._views))))
        except OSError as error:
            LOG.warning("Tables are not saved to %s: %s", self._file, error)
            return f"not saved to {self._file}: {error.strerror or error}"
        return ""


def _read(file: Path) -> _Contents:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Contents)
    except FileNotFoundError:
        return _Contents()
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        LOG.warning("The layouts of tables in %s are ignored: %s", file, error)
        return _Contents()
