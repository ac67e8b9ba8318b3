"""Actions on nodes, on every screen that shows them: cordon, uncordon, taint, drain, fail, restore."""

from collections.abc import Callable, Mapping, Sequence

from gpuconsole.insight.index.demand import pod_units
from gpuconsole.insight.index.gpu_time import uncheckpointed_gpu_time
from gpuconsole.model.cluster import Pod
from gpuconsole.model.commands import Cordon, Drain, FailNode, RestoreNode, SetTaint
from gpuconsole.model.devices import NO_UNITS, WHOLE_GPU, Units, added, described
from gpuconsole.model.documents.pods_and_selectors import FORM, TaintError, effect_of, format_taint, parse_taint
from gpuconsole.model.labels import Taint
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import format as fmt
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.screens.base import ActionGroup, ConsoleScreen
from gpuconsole.ui.screens.objects import name_all
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.dialogs import ChoiceOption, Effect, PromptField, Question, preview

QUICK = 30
"""Grace period of a quick drain in seconds."""
DRAINS = (
    ChoiceOption("usual", "evict pods", "e", (("respects PodDisruptionBudgets and grace periods", "dim"),)),
    ChoiceOption("quick", f"evict within {QUICK}s", "q", ((f"grace period of {QUICK}s", "dim"),)),
    ChoiceOption("sparing", "skip unmanaged pods", "s", (("keeps pods that no controller would recreate", "dim"),)),
    ChoiceOption("forced", "delete pods", "d", (("ignores PodDisruptionBudgets", "dim"),)),
)
HARSH = (("⚠ ", "fault"), ("Pods are deleted; PodDisruptionBudgets are ignored.", ""))
MOST_VICTIMS = 8
"""Number of named victims of a drain or taint."""
EFFECTS = {
    "NoSchedule": "no new pods without a matching toleration",
    "PreferNoSchedule": "the scheduler avoids the node if possible",
    "NoExecute": "evicts pods without a matching toleration, and accepts no new ones",
}
"""Taint effect → its description."""


class NodeActions(ActionGroup):
    """Actions on the nodes that a screen selects."""

    def __init__(self, screen: ConsoleScreen) -> None:
        self._screen = screen

    def targets(self) -> list[str]:
        """Names of the selected nodes."""
        return [
            key for table, key in self._screen.subjects() if table == "nodes" and key in self._screen.snapshot.nodes
        ]

    def handlers(self) -> Handlers:
        if not self.targets():
            return {}
        return {
            "node.cordon": lambda: self._cordon(True),
            "node.uncordon": lambda: self._cordon(False),
            "node.drain": self._drain,
            "node.taint": self._ask_taint,
            "node.untaint": self._choose_taint,
            "node.fail": self._fail,
            "node.restore": self._restore,
            "object.what-if": self._ask_what_if,
        }

    def refusal(self, action: Action) -> str:
        nodes = [self._screen.snapshot.nodes[name] for name in self.targets()]
        if not nodes:
            return ""
        match action.id:
            case "node.cordon" if all(node.unschedulable for node in nodes):
                return "already cordoned"
            case "node.uncordon" if not any(node.unschedulable for node in nodes):
                return "not cordoned"
            case "node.untaint" if not any(node.taints for node in nodes):
                return "no taints"
            case "node.restore" if all(node.ready for node in nodes):
                return "the node has not failed"
            case "node.fail" if not any(node.ready for node in nodes):
                return "already failed"
        return ""

    def questions(self) -> Mapping[str, Callable[[], Question | None]]:
        return {"node.drain": self._confirm_drain, "node.fail": self._confirm_fail}

    def previews(self) -> Mapping[str, Callable[[], Question | None]]:
        return {
            "node.cordon": lambda: self._preview_cordon(True),
            "node.uncordon": lambda: self._preview_cordon(False),
        }

    def _preview_cordon(self, cordoned: bool) -> Question:
        nodes = [self._screen.snapshot.nodes[name] for name in self.targets()]
        does, already = (
            ("becomes unschedulable; running pods stay", "already cordoned")
            if cordoned
            else ("becomes schedulable", "not cordoned")
        )
        effects = [
            Effect(node.name, already if node.unschedulable == cordoned else does, node.unschedulable == cordoned)
            for node in nodes
        ]
        verb = "Cordon" if cordoned else "Uncordon"
        return Question(f"{verb} {name_all(self.targets())}?", preview(effects), yes=verb)

    def _confirm_drain(self) -> Question | None:
        """None for a live cluster: there the drain mode is chosen first."""
        if self._screen.console.object_access is not None:
            return None
        lines = ("Cordons the node and evicts:", *self._victims())
        return Question(f"Drain {name_all(self.targets())}?", lines, yes="Drain")

    def _confirm_fail(self) -> Question:
        lines = ("The node goes NotReady; its pods fail and uncheckpointed work is lost.", *self._victims())
        return Question(f"Fail {name_all(self.targets())}?", lines, yes="Fail node")

    def _victims(self, evicts: Callable[[Pod], bool] = lambda pod: True) -> tuple[Cell, ...]:
        lines = victims(self._screen.snapshot, self.targets(), evicts)
        if not lines:
            return ((("○ ", "idle"), ("no pods", "")),)
        more = len(lines) - MOST_VICTIMS
        return (*lines[:MOST_VICTIMS], *((f"… and {more} more",) if more > 0 else ()))

    def _cordon(self, cordoned: bool) -> None:
        names = self.targets()
        said = f"{'Cordoning' if cordoned else 'Uncordoning'} {name_all(names)}"
        self._screen.send([Cordon(name, cordoned) for name in names], said)

    def _ask_taint(self) -> None:
        names = self.targets()
        effects: list[Painted] = [((f"{effect}  ", "strong"), (said, "dim")) for effect, said in EFFECTS.items()]
        wanted = PromptField(f"Taint {name_all(names)}", "", (FORM, *effects), _taint_fault, self._preview_taint)
        self._screen.dialogs.prompt(wanted, lambda text: self._confirm_taint(names, parse_taint(text)))

    def _preview_taint(self, text: str) -> Cell:
        """Preview of the effect of the typed taint."""
        taint = parse_taint(text)
        nodes = [self._screen.snapshot.nodes[name] for name in self.targets()]
        others = {one.value for node in nodes for one in node.taints if _is_same(one, taint)} - {taint.value}
        replaced = f"; replaces the value {', '.join(sorted(others)) or 'none'}" if others else ""
        if taint.effect != "NoExecute":
            return ((f"{EFFECTS[taint.effect]}{replaced}", "dim"),)
        count = len(victims(self._screen.snapshot, self.targets(), _is_evicted_by(taint)))
        return ((f"⚠ evicts the pods of {count} workload{'s' if count != 1 else ''}{replaced}", "pending"),)

    def _confirm_taint(self, names: list[str], taint: Taint) -> None:
        """Add the taint; one that evicts pods asks for confirmation."""
        text = format_taint(taint)
        commands = [SetTaint(name, taint.key, taint.value, effect_of(taint)) for name in names]
        said = f"Tainting {name_all(names)} {text}"
        if taint.effect != "NoExecute":
            self._screen.send(commands, said)
            return
        lines = ("NoExecute evicts pods without a matching toleration:", *self._victims(_is_evicted_by(taint)))
        self._screen.dialogs.ask(
            Question(f"Taint {name_all(names)} {text}?", lines, yes="Taint"), lambda: self._screen.send(commands, said)
        )

    def _choose_taint(self) -> None:
        """Choose the taint to remove, and ask for confirmation, because new pods may be scheduled then."""
        names = self.targets()
        there = dict.fromkeys(taint for name in names for taint in self._screen.snapshot.nodes[name].taints)
        options = [
            ChoiceOption(str(n), taint.effect, str(n) if n < 10 else "", format_taint(taint))
            for n, taint in enumerate(there, start=1)
        ]
        title = f"Remove a taint of {name_all(names)}"
        self._screen.dialogs.choose(title, options, lambda picked: self._confirm_untaint(list(there)[int(picked) - 1]))

    def _confirm_untaint(self, taint: Taint) -> None:
        names = [name for name in self.targets() if taint in self._screen.snapshot.nodes[name].taints]
        text = format_taint(taint)
        commands = [SetTaint(name, taint.key, taint.value, effect_of(taint), removed=True) for name in names]
        question = Question(
            f"Remove taint {text} from {name_all(names)}?",
            ("Pods without a matching toleration can be scheduled there again.",),
            yes="Remove",
        )
        self._screen.dialogs.ask(
            question, lambda: self._screen.send(commands, f"Removing taint {text} from {name_all(names)}")
        )

    def _ask_what_if(self) -> None:
        name = self.targets()[0]
        options = (
            ChoiceOption("lose", "fail node", "k", (("NotReady", "dim"),)),
            ChoiceOption("drain", "drain node", "d"),
            ChoiceOption("cordon", "cordon node", "c"),
        )
        changes = {"lose": whatif_changes.lose, "drain": whatif_changes.drain, "cordon": whatif_changes.cordon}
        self._screen.dialogs.choose(
            f"What-if for {name}", options, lambda kind: try_out(self._screen.console_app, changes[kind](name))
        )

    def _drain(self) -> None:
        names = self.targets()
        if self._screen.console.object_access is None:
            self._screen.send([Drain(name) for name in names], f"Draining {name_all(names)}")
        else:
            self._screen.dialogs.choose(f"Drain {name_all(names)}", DRAINS, lambda how: self._ask_drain(names, how))

    def _ask_drain(self, names: list[str], how: str) -> None:
        """Ask for confirmation after the drain mode was chosen (live clusters only)."""
        lines = (HARSH,) if how == "forced" else ()
        question = Question(f"Drain {name_all(names)}?", (*lines, *self._victims()), yes="Drain")
        said = f"Draining {name_all(names)}"
        self._screen.dialogs.ask(question, lambda: self._screen.send([drain(name, how) for name in names], said))

    def _fail(self) -> None:
        names = [name for name in self.targets() if self._screen.snapshot.nodes[name].ready]
        self._screen.send([FailNode(name) for name in names], f"Failing {name_all(names)}")

    def _restore(self) -> None:
        names = [name for name in self.targets() if not self._screen.snapshot.nodes[name].ready]
        self._screen.send([RestoreNode(name) for name in names], f"Restoring {name_all(names)}")


def drain(node: str, how: str) -> Drain:
    """Return the Command that drains a node; `how` is the id of an option in `DRAINS`."""
    match how:
        case "quick":
            return Drain(node, grace=QUICK)
        case "sparing":
            return Drain(node, sparing=True)
        case "forced":
            return Drain(node, forced=True)
    return Drain(node)


def _taint_fault(text: str) -> str:
    try:
        parse_taint(text)
    except TaintError as error:
        return str(error)
    return ""


def _is_same(one: Taint, other: Taint) -> bool:
    """Whether both have the same key and effect, of which a node has at most one taint."""
    return (one.key, one.effect) == (other.key, other.effect)


def _is_evicted_by(taint: Taint) -> Callable[[Pod], bool]:
    """Whether a pod is evicted by this taint (kube-controller-manager: taint eviction)."""
    return lambda pod: not any(one.tolerates(taint) for one in pod.template.tolerations)


def victims(snapshot: Snapshot, nodes: Sequence[str], evicts: Callable[[Pod], bool] = lambda pod: True) -> list[Cell]:
    """Return a line per workload with pods on these nodes that `evicts` selects: its devices and the lost work."""
    names = frozenset(nodes)
    held: dict[str, Units] = {}
    for pod in snapshot.pods.all():
        if pod.node in names and not pod.done and evicts(pod):
            owner = pod.workload or pod.job or pod.key
            # A pod may share a GPU without requesting it.
            here = pod_units(snapshot, pod) or {WHOLE_GPU: len(pod.gpus)}
            held[owner] = added(held.get(owner, NO_UNITS), here)
    return [_victim(snapshot, owner, units) for owner, units in held.items()]


def _victim(snapshot: Snapshot, owner: str, units: Units) -> Cell:
    workload = snapshot.workloads.get(owner)
    loss = ""
    if workload is not None:
        loss = f"; {fmt.not_saved(uncheckpointed_gpu_time(snapshot, workload))}"
    return (("✖ ", "victim"), (called(owner), "strong"), (f"  {described(units)} here{loss}", ""))
