"""The header line, the line of views or the navigation path, and the footer with the keys that work now.

The header has mode and speed, source, engines, policy, problems, and the time and age of the data. The footer is made
from the action registry; refused actions are dimmed.
"""

from collections.abc import Collection, Sequence

from textual.notifications import SeverityLevel
from textual.reactive import reactive
from textual.strip import Strip

from gpuconsole.insight.forecast.agreement import AgreementCounts
from gpuconsole.insight.health.engines import EnginesInForce
from gpuconsole.insight.tables import counted
from gpuconsole.services.status import ConsoleMode, ConsoleStatus
from gpuconsole.ui import format as fmt
from gpuconsole.ui.actions import Action, Scope
from gpuconsole.ui.actions.keys import spell
from gpuconsole.ui.paint import GLYPHS, Cell, Painted, Piece, line, painted, width_of
from gpuconsole.ui.widgets.painter import RoleStyles, StatusLine
from gpuconsole.ui.widgets.textpane import wrapped
from gpuconsole.ui.widgets.time_line import behind_text

STALE = 5.0
"""Age in seconds from which the data of a running simulation counts as stale."""

Part = tuple[int, Cell]
"""A part of the header as (rank, text): a narrow screen drops the parts of the highest rank first."""


ENGINES = 2
"""Rank of the part with the active engines."""


def engine_words(engines: EnginesInForce, short: bool = False) -> str:
    """The active engines: `Kueue 0.19 · Volcano · Karpenter · MIG mixed`, or in short `Kueue×Volcano×Karp×MIG`."""
    if short:
        return "×".join(part.short for part in engines.parts)
    names = [part.name for part in engines.parts]
    return " · ".join(names if engines.admission.name else ["no queueing", *names])


def left_parts(status: ConsoleStatus, namespaces: Collection[str], short: bool = False) -> list[Part]:
    """Return the parts at the left of the header, in order; `short` shortens the names of the engines."""
    where = ", ".join(sorted(namespaces)) if namespaces else "all namespaces"
    parts: list[Part] = [(0, ((f" {mode(status)} ", "chip"),))]
    if status.behind is not None:
        parts.append((0, ((" PAST ", "chip"),)))
    elif status.read_only:
        parts.append((0, ((" RO ", "chip"),)))
    parts += history_parts(status)
    if status.stalled:
        parts.append((0, ((f"⚠ stalled: {status.stalled}", "fault"),)))
    if status.kueue:
        more = f" (+{len(status.kueue) - 1})" if len(status.kueue) > 1 else ""
        parts.append((0, ((f"⚠ {status.kueue[0].mark}{more}", "fault"),)))
    if status.alerts:
        parts.append((0, ((f"⚠ {counted(status.alerts, 'alert')} firing", "fault"),)))
    parts += agreement_parts(status.agreement)
    parts += sight_parts(status)
    parts += [
        (1, ((status.source, "strong"),)),
        (5, where) if not namespaces else (1, ((where, "borrowed"),)),
        (ENGINES, engine_words(status.engines, short)),
        (3, status.policy),
    ]
    if status.nodes_synthesised:
        parts.append((4, (("nodes: synthesised", "held"),)))
    if status.lost_events:
        parts.append((1, ((f"⚠ {status.lost_events:,} events dropped from the history: slow disk", "fault"),)))
    if status.worker not in ("", "on", "off"):
        parts.append((2, ((f"⚠ worker: {status.worker}", "fault"),)))
    return [(rank, text) for rank, text in parts if width_of(text)]


def history_parts(status: ConsoleStatus) -> list[Part]:
    """Return the parts that say that the history is not written, and which other process writes it."""
    writer = status.history_writer
    if status.reads_history:
        return [(0, ((f"history by {writer}", "held"),))]
    if not status.history:
        return []
    return [(0, ((f" NO HISTORY: {writer} writes it " if writer else " NO HISTORY ", "fault"),))]


def agreement_parts(counts: AgreementCounts) -> list[Part]:
    """Return how often the engine decided as Kueue did in the last 24 hours, if it was compared."""
    if not counts.known:
        return []
    return [(3, ((f"agreement with Kueue {counts}", "good" if counts.is_good else "fault"),))]


def sight_parts(status: ConsoleStatus) -> list[Part]:
    """Return the parts about a live cluster: what could not be read, and the rate of API requests."""
    sight = status.sight
    if sight is None:
        return []
    parts: list[Part] = []
    if sight.lost:
        parts.append((0, ((f"⚠ stale: {sight.lost}", "fault"),)))
    if sight.missing:
        parts.append((0, ((f" partial: {sight.readable} of {sight.kinds} ", "chip"),)))
    if sight.unread:
        parts.append((1, ((f"⚠ {sight.unread[0]}", "fault"),)))
    parts.append((4, f"API {sight.requests}/min, ≤ {sight.most:g}/s"))
    return parts


def mode(status: ConsoleStatus) -> str:
    """Format mode and speed: `SIM ×60`, `SIM ×1,000 → ×640` where the simulation cannot keep up, `SIM ⏸ paused`."""
    if status.paused:
        return f"{status.mode} ⏸ paused"
    if status.speed is None or status.mode is ConsoleMode.LIVE:
        return str(status.mode)
    text = f"{status.mode} {fmt.factor(status.speed)}"
    slow = status.reached is not None and status.reached < 0.9 * status.speed
    return f"{text} → {fmt.factor(round(status.reached, 1))}" if slow and status.reached else text


def right_part(status: ConsoleStatus) -> Painted:
    """Format the time of the data and its age."""
    if status.loading:
        return (("loading…", "dim"),)
    if status.behind is not None:
        return ((fmt.date_and_clock(status.time), "strong"), (f" · {behind_text(status.behind)} ", "victim"))
    # An idle live cluster sends data about once a minute; only a lost connection is stale.
    stale = bool(status.sight.lost) if status.sight is not None else status.age >= STALE and not status.paused
    age = f"{status.age:.1f}s old" if status.age < 10 else f"{status.age:,.0f}s old"
    return ((fmt.date_and_clock(status.time), "dim" if stale else ""), (f" · {age} ", "fault" if stale else "dim"))


def fit_parts(parts: list[Part], width: int, between: str = " · ") -> Painted:
    """Join as many parts as fit into `width`, in order; those of the highest rank are dropped first, rank 0 never."""
    chosen: set[int] = set()
    used = 0
    for index in sorted(range(len(parts)), key=lambda index: parts[index][0]):
        size = width_of(parts[index][1]) + (len(between) if used else 0)
        if parts[index][0] == 0 or used + size <= width:
            chosen.add(index)
            used += size
    pieces: list[Piece] = []
    for number, index in enumerate(sorted(chosen)):
        if number:
            pieces.append((between if number > 1 else " ", "dim"))
        pieces.extend(painted(parts[index][1]))
    return tuple(pieces)


class Header(StatusLine):
    """The first line of every screen."""

    def show(self, status: ConsoleStatus, namespaces: Collection[str]) -> None:
        right = right_part(status)
        room = self.size.width - width_of(right) - 1
        parts = left_parts(status, namespaces)
        if sum(width_of(text) + 3 for rank, text in parts if rank <= ENGINES) > room:
            parts = left_parts(status, namespaces, short=True)
        self.right = right
        self.left = fit_parts(parts, room)


ROOM = 14
"""Terminal cells kept free for the cursor position, so that no label is cut and nothing moves as numbers grow."""


def tabs(view: str, width: int, actions: Sequence[Action]) -> Painted:
    """Format all views with their keys, the active one marked; on narrow screens closer together, or only the keys."""
    views = [action for action in actions if action.scope is Scope.VIEWS]
    for gap in ("  ", " ", None):
        pieces: list[Piece] = [(" ", "")]
        for action in views:
            name, label = action.id.removeprefix("view."), action.label
            key = spell(action.keys[-1]) if action.keys else ""
            if name == view:
                pieces += [(f" {key} {label} ", "chip"), (" ", "")]
            elif gap:
                pieces += [(key, "key"), (f" {label}{gap}", "dim")]
            else:
                pieces += [(f"{key} ", "key")]
        if width_of(tuple(pieces)) <= width - ROOM:
            break
    return tuple(pieces)


def trail(names: Sequence[str]) -> Painted:
    """Format the navigation path: `workloads › research/rlhf-2`."""
    pieces: list[Piece] = [(" ", "")]
    for index, name in enumerate(names):
        if index:
            pieces.append((" › ", "dim"))
        pieces.append((name, "strong" if index == len(names) - 1 else "dim"))
    return tuple(pieces)


class Crumbs(StatusLine):
    """The second line of every screen: all views with their keys, or the navigation path."""

    def show(self, view: str, names: Sequence[str], actions: Sequence[Action]) -> None:
        """Show the views among `actions`, or the path if `names` has several screens; the text on the right stays."""
        self.left = trail(names) if len(names) > 1 else tabs(view, self.size.width, actions)


def keys_line(actions: Sequence[tuple[Action, bool]], width: int) -> Painted:
    """Format as many keys as fit, `⏎ open  x explain …`; each action has a flag that tells whether it is refused."""
    pieces: list[Piece] = [(" ", "")]
    used = 1
    for action, refused in actions:
        key, label = spell(action.keys[0]), f" {action.label}  "
        used += width_of(key) + len(label)
        if used > width:
            break
        pieces += [(key, "dim" if refused else "key"), (label, "dim" if refused else "")]
    return tuple(pieces)


class Footer(StatusLine):
    """The last line of every screen."""

    def show(self, actions: Sequence[tuple[Action, bool]]) -> None:
        tail = [pair for pair in actions if pair[0].id in ("app.help", "app.palette")]
        right = keys_line(tail, 40)
        self.right = right
        rest = [pair for pair in actions if pair not in tail]
        self.left = keys_line(rest, self.size.width - width_of(right))


class MessageLine(RoleStyles):
    """The newest message, above the footer; hidden while there is none. It takes its room from the body."""

    message: reactive[Painted] = reactive((), layout=True)

    def show(self, text: str, severity: SeverityLevel = "information") -> None:
        """Show a message; an empty text hides the line."""
        mark, role = SEVERITIES[severity]
        self.message = ((f" {mark} ", role), (text, role)) if text else ()
        self.display = bool(text)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(wrapped(self.message, width))

    def render_line(self, y: int) -> Strip:
        base, width = self.base, self.size.width
        rows = wrapped(self.message, width)
        return line(rows[y], "", width, base, self.style_of) if y < len(rows) else Strip.blank(width, base)


SEVERITIES: dict[SeverityLevel, Piece] = {
    "information": ("·", ""),
    "warning": (GLYPHS["fault"], "pending"),
    "error": (GLYPHS["victim"], "fault"),
}
"""Severity of a message → its glyph and role."""
