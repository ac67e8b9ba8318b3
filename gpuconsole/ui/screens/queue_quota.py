"""Edits a quota: limit, flavor, new value and current value."""

from collections.abc import Sequence

from msgspec import UNSET

from gpuconsole.insight.index.quota_tree import QuotaNode, QuotaUse
from gpuconsole.model.commands import SetQuota
from gpuconsole.model.resources import amount, format_quantity
from gpuconsole.ui import format as fmt
from gpuconsole.ui.screens.objects import ObjectScreen
from gpuconsole.ui.screens.queue_rows import GPUS, TreeRow, tree_rows
from gpuconsole.ui.widgets.confirm import ChoiceOption, PromptField

LIMITS = {"nominal": "nominal quota", "borrowing": "borrowing limit", "lending": "lending limit"}
NO_LIMIT = ("none", "no", "-", "∞", "")


class QuotaScreen(ObjectScreen):
    """A screen with queue rows whose quotas can be edited."""

    def __init__(self) -> None:
        super().__init__()
        self._roots: Sequence[QuotaNode] = ()

    @property
    def _row(self) -> TreeRow | None:
        """The selected row."""
        raise NotImplementedError

    def _choose_quota(self) -> None:
        row = self._row
        if row is not None:
            options = [option for use in row.node.flavors for option in _limit_options(use)]
            queue = row.node.name
            self.choose(f"Quota of {queue}", options, lambda id: self._ask_quota(queue, id))

    def _ask_quota(self, queue: str, id: str) -> None:
        flavor, resource, which = id.split(" ")
        use = self._quota(queue, flavor, resource)
        if use is None:
            self.flash(f"{queue} no longer has quota of {resource} in {flavor}", "warning")
            return
        old = {"nominal": use.nominal, "borrowing": use.borrowing_limit, "lending": use.lending_limit}[which]
        before = fmt.limit(resource, old)
        wanted = PromptField(
            f"{queue}: {LIMITS[which]} of {fmt.resource(resource)} in {flavor}",
            "none" if old is None else format_quantity(resource, old),
            ("An amount as in a manifest: 8, 500m, 64Gi." + ("" if which == "nominal" else " `none` = no limit."),),
            lambda text: _wrong_amount(resource, text, which),
            lambda text: f"{before} → {fmt.limit(resource, _read(resource, text, which))}",
        )
        self.prompt(wanted, lambda text: self._set_quota(queue, use, which, _read(resource, text, which)))

    def _set_quota(self, queue: str, use: QuotaUse, which: str, value: int | None) -> None:
        command = SetQuota(
            queue,
            use.flavor,
            use.resource,
            nominal=value or 0 if which == "nominal" else use.nominal,
            borrowing_limit=value if which == "borrowing" else UNSET,
            lending_limit=value if which == "lending" else UNSET,
        )
        self.send([command], f"{queue}: {LIMITS[which]} is now {fmt.limit(use.resource, value)}")

    def _quota(self, queue: str, flavor: str, resource: str) -> QuotaUse | None:
        """The current quota, which may have changed while the dialog was open."""
        rows = (row.node for row in tree_rows(self._roots, {}, GPUS))
        uses = (use for node in rows if node.name == queue for use in node.flavors)
        return next((use for use in uses if (use.flavor, use.resource) == (flavor, resource)), None)


def _limit_options(use: QuotaUse) -> list[ChoiceOption]:
    values = {"nominal": use.nominal, "borrowing": use.borrowing_limit, "lending": use.lending_limit}
    return [
        ChoiceOption(
            f"{use.flavor} {use.resource} {which}",
            f"{use.flavor}  {fmt.resource(use.resource)}",
            detail=f"{LIMITS[which]}  {fmt.limit(use.resource, value)}",
        )
        for which, value in values.items()
    ]


def _read(resource: str, text: str, which: str) -> int | None:
    if which != "nominal" and text.strip().lower() in NO_LIMIT:
        return None
    return amount(resource, text)


def _wrong_amount(resource: str, text: str, which: str) -> str:
    try:
        value = _read(resource, text, which)
    except ValueError as error:
        return str(error)
    return "must be 0 or greater" if value is not None and value < 0 else ""
