"""Actions on workloads: stop, resume, requeue, priority, move, admission checks, what-if, duplicate."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, cast

from gpuconsole.insight.index.demand import units_of
from gpuconsole.insight.index.gpu_time import uncheckpointed_gpu_time
from gpuconsole.insight.index.pods import phase_of
from gpuconsole.insight.index.queues import open_checks
from gpuconsole.model.commands import AnswerCheck, MoveToQueue, Requeue, SetActive, SetPriority
from gpuconsole.model.devices import described
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.workloads import SUSPENDED_BY
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload, WorkloadPhase, phase
from gpuconsole.ui import format as fmt
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import BY_ID, Action, Handler, Handlers
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Cell
from gpuconsole.ui.screens.base import ActionGroup, ConsoleScreen
from gpuconsole.ui.screens.objects import name_all
from gpuconsole.ui.screens.scores import ScoresScreen, candidates
from gpuconsole.ui.screens.submit import SubmitScreen
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.dialogs import ChoiceOption, Effect, PromptField, Question, preview, whole_number

PRIORITIES = whole_number(-(2**31), 2**31 - 1)
ENDED = (WorkloadPhase.FINISHED, WorkloadPhase.FAILED)
NO_WORKLOAD = "No Workload object; in the what-if (7), press a to add its manifest or a command"
State = Literal["Pending", "Ready", "Retry", "Rejected"]
ANSWERS = {
    "Ready": ("good", "the check passes"),
    "Retry": ("pending", "the workload is evicted and requeued"),
    "Rejected": ("fault", "the workload is evicted and deactivated"),
}
"""State that an admission check can be set to → its colour role, and its consequence."""


class WorkloadActions(ActionGroup):
    """Actions on the workloads that a screen selects, and on jobs and pods without a Workload."""

    def __init__(self, screen: ConsoleScreen) -> None:
        self._screen = screen

    def targets(self) -> list[Workload]:
        """The workloads that an action is for, from the newest Snapshot: the marked ones, else the selected one."""
        found = (self._screen.snapshot.workloads.get(subject.key) for subject in self._screen.subjects())
        return [workload for workload in found if workload is not None]

    def workload_under_cursor(self) -> Workload | None:
        subject = self._screen.subject()
        return self._screen.snapshot.workloads.get(subject.key) if subject is not None else None

    def unmanaged(self) -> list[Job]:
        """Return the selected jobs that have no Workload object but can be suspended, on a live cluster."""
        if self._screen.console.object_access is None or self.targets():
            return []
        found = (
            self._screen.snapshot.jobs.get(subject.key)
            for subject in self._screen.subjects()
            if subject.table == "jobs"
        )
        return [job for job in found if job is not None and job.kind in SUSPENDED_BY and not job.ended]

    def handlers(self) -> Handlers:
        if not self.targets():
            return self._of_unqueued()
        return {
            "workload.stop": self._stop_or_resume,
            "workload.resume": lambda: self._set_active(True),
            "workload.requeue": self._requeue,
            "workload.priority": self._ask_priority,
            "workload.move": self._ask_queue,
            "workload.check": self._ask_check,
            "workload.scores": self._show_scores,
            "workload.duplicate": self._duplicate,
            "object.what-if": self._ask_what_if,
            "object.who": self._show_preemptions,
        }

    def _of_unqueued(self) -> Handlers:
        """Handlers for a job or pod without a Workload."""
        subject = self._screen.subject()
        if subject is None or subject.table == "workloads":
            return {}
        offered: dict[str, Handler] = {
            "object.who": self._show_preemptions,
            "object.what-if": lambda: self._screen.flash(NO_WORKLOAD, "warning"),
        }
        if self.unmanaged():
            offered |= {"workload.stop": self._suspend_or_resume, "workload.resume": lambda: self._suspend(False)}
        return offered

    def refusal(self, action: Action) -> str:
        return refusal(action, self.targets())

    def questions(self) -> Mapping[str, Callable[[], Question | None]]:
        return {"workload.stop": self._confirm_stop, "workload.requeue": self._confirm_requeue}

    def previews(self) -> Mapping[str, Callable[[], Question | None]]:
        return {
            "workload.stop": self._preview_stop,
            "workload.resume": lambda: self._preview("workload.resume", "Resume", _resumed),
            "workload.requeue": lambda: self._preview("workload.requeue", "Requeue", self._requeued),
        }

    def _preview_stop(self) -> Question | None:
        if self.unmanaged():
            return self._confirm_stop()
        if not self._any_active():
            return self._preview("workload.resume", "Resume", _resumed)
        return self._preview("workload.stop", "Stop", self._stopped)

    def _preview(self, id: str, verb: str, effect: Callable[[Workload], Effect]) -> Question:
        effects = [
            Effect(called(one.key), reason, refused=True) if (reason := refusal(BY_ID[id], [one])) else effect(one)
            for one in self.targets()
        ]
        return Question(f"{verb} {self._names()}?", preview(effects), yes=verb)

    def _stopped(self, workload: Workload) -> Effect:
        if not workload.active:
            return Effect(called(workload.key), "already inactive", refused=True)
        return Effect(
            called(workload.key), self._lost(workload) or "becomes inactive (spec.active: false) until resumed"
        )

    def _requeued(self, workload: Workload) -> Effect:
        return Effect(called(workload.key), self._lost(workload))

    def _lost(self, workload: Workload) -> str:
        return loss(self._screen.snapshot, workload) if workload.reserved else ""

    def _confirm_stop(self) -> Question | None:
        if jobs := self.unmanaged():
            return _suspension(jobs)
        if not self._any_active():
            return None
        lines = ("Releases its quota, and stays inactive until resumed.", *self._losses())
        return Question(f"Stop {self._names()}?", lines, yes="Stop")

    def _confirm_requeue(self) -> Question:
        lines = ("Evicts the workload and requeues it.", *self._losses())
        return Question(f"Requeue {self._names()}?", lines, yes="Requeue")

    def _names(self) -> str:
        return name_all([workload.key for workload in self.targets()])

    def _losses(self) -> tuple[Cell, ...]:
        return tuple(loss_line(self._screen.snapshot, workload) for workload in self.targets() if workload.reserved)[:8]

    def _any_active(self) -> bool:
        return any(workload.active for workload in self.targets())

    def _stop_or_resume(self) -> None:
        self._set_active(not self._any_active())

    def _set_active(self, active: bool) -> None:
        stop = BY_ID["workload.stop"]
        targets = [one for one in self.targets() if one.active != active and not refusal(stop, [one])]
        said = f"{'Resuming' if active else 'Stopping'} {name_all([workload.key for workload in targets])}"
        self._screen.send([SetActive(workload.key, active) for workload in targets], said)

    def _requeue(self) -> None:
        targets = [workload for workload in self.targets() if workload.reserved]
        self._screen.send([Requeue(w.key) for w in targets], f"Requeueing {name_all([w.key for w in targets])}")

    def _suspend_or_resume(self) -> None:
        self._suspend(not all(job.suspended for job in self.unmanaged()))

    def _suspend(self, suspended: bool) -> None:
        jobs = [job for job in self.unmanaged() if job.suspended != suspended]
        said = f"{'Suspending' if suspended else 'Resuming'} {name_all([job.key for job in jobs])}"
        self._screen.send([SetActive(job.key, not suspended) for job in jobs], said)

    def _ask_priority(self) -> None:
        targets = self.targets()
        classes = {one.name: one.value for one in self._screen.snapshot.workload_priority_classes.all()}
        named = ", ".join(f"{name} {value}" for name, value in classes.items())
        lines = (f"A number, or a WorkloadPriorityClass: {named}",) if classes else ()
        title = f"Priority of {name_all([workload.key for workload in targets])}"
        wanted = PromptField(
            title, str(targets[0].priority), lines, lambda text: "" if text in classes else PRIORITIES(text)
        )
        self._screen.dialogs.prompt(wanted, lambda text: self._set_priority(targets, text, classes))

    def _set_priority(self, targets: Iterable[Workload], text: str, classes: Mapping[str, int]) -> None:
        name = text if text in classes else ""
        priority = classes[name] if name else whole(text)
        commands = [SetPriority(workload.key, priority, name) for workload in targets]
        self._screen.send(commands, f"Priority {text} for {name_all([command.workload for command in commands])}")

    def _ask_queue(self) -> None:
        targets = self.targets()
        first = targets[0]
        options = [
            ChoiceOption(
                queue.name, queue.name, detail=((queue.cluster_queue, "dim"),), refused=_same(first, queue.name)
            )
            for queue in self._screen.snapshot.local_queues.all()
            if queue.namespace == first.namespace
        ]
        title = f"Move {name_all([workload.key for workload in targets])} to"
        self._screen.dialogs.choose(title, options, lambda queue: self._move(targets, queue), chosen=first.queue)

    def _move(self, targets: Iterable[Workload], queue: str) -> None:
        commands = [MoveToQueue(workload.key, queue) for workload in targets]
        self._screen.send(commands, f"Moving {name_all([command.workload for command in commands])} to {queue}")

    def _ask_check(self) -> None:
        """Ask for a check and its new state; a state that evicts asks for confirmation."""
        targets = [workload for workload in self.targets() if workload.reserved]
        names = dict.fromkeys(check.name for workload in targets for check in open_checks(workload))
        options = [
            ChoiceOption(
                f"{state} {name}", name, detail=((f"{state}  ", ANSWERS[state][0]), (ANSWERS[state][1], "dim"))
            )
            for name in names
            for state in ANSWERS
        ]
        title = f"Set an admission check of {name_all([workload.key for workload in targets])}"
        self._screen.dialogs.choose(title, options, lambda answer: self._answer(targets, answer))

    def _answer(self, targets: Iterable[Workload], answer: str) -> None:
        state, _, name = answer.partition(" ")
        held = [w for w in targets if any(check.name == name for check in open_checks(w))]
        commands = [AnswerCheck(workload.key, name, cast("State", state)) for workload in held]
        said = f"{name}: {state} for {name_all([workload.key for workload in held])}"
        if state == "Ready":
            self._screen.send(commands, said)
            return
        effect = ANSWERS[state][1].capitalize() + "."
        question = Question(f"Set admission check {name} to {state}?", (effect,), yes=state)
        self._screen.dialogs.ask(question, lambda: self._screen.send(commands, said))

    def _show_scores(self) -> None:
        workload = self.workload_under_cursor()
        pods = candidates(self._screen.snapshot, workload) if workload is not None else []
        if workload is not None and pods:
            self._screen.open(ScoresScreen(pods))
        else:
            self._screen.flash("No pods", "warning")

    def _duplicate(self) -> None:
        workload = self.workload_under_cursor()
        job = self._screen.snapshot.jobs.get(workload.owner) if workload is not None else None
        if job is None:
            self._screen.flash("No owner job to duplicate", "warning")
            return
        self._screen.console_app.go("submit")
        form = next((screen for screen in self._screen.app.screen_stack if isinstance(screen, SubmitScreen)), None)
        if form is not None:
            form.call_after_refresh(form.fill, job)

    def _ask_what_if(self) -> None:
        workload = self.workload_under_cursor()
        if workload is None:
            return
        ended = "already ended" if phase(workload) in ENDED else ""
        options = (
            ChoiceOption("copy", "resubmit (copy)", "c"),
            ChoiceOption("stop", "stop", "s", refused=ended or ("" if workload.active else "already stopped")),
            ChoiceOption("requeue", "requeue", "t", refused="" if workload.reserved else "quota not reserved"),
            ChoiceOption("priority", "change priority", "p", refused=ended),
        )
        self._screen.dialogs.choose(
            f"What-if for {called(workload.key)}", options, lambda kind: self._what_if(kind, workload)
        )

    def _what_if(self, kind: str, workload: Workload) -> None:
        match kind:
            case "copy":
                try_out(self._screen.console_app, whatif_changes.copy(self._screen.snapshot, workload))
            case "stop":
                try_out(self._screen.console_app, whatif_changes.stop(workload))
            case "requeue":
                try_out(self._screen.console_app, whatif_changes.requeue(workload))
            case "priority":
                wanted = PromptField(f"Priority of {workload.key}", str(workload.priority), check=PRIORITIES)
                self._screen.dialogs.prompt(
                    wanted,
                    lambda text: try_out(self._screen.console_app, whatif_changes.priority(workload, whole(text))),
                )

    def _show_preemptions(self) -> None:
        subject = self._screen.subject()
        if subject is not None:
            self._screen.console_app.go("preemptions", filtered=f"-w {called(subject.key)}")


def _suspension(jobs: Sequence[Job]) -> Question | None:
    if all(job.suspended for job in jobs):
        return None
    lines = ("Deletes its pods until it is resumed; uncheckpointed work is lost.",)
    return Question(f"Suspend {name_all([job.key for job in jobs])}?", lines, yes="Suspend")


def whole(text: str) -> int:
    """Convert a validated text such as `1,000` to a whole number."""
    return int(text.replace(",", "").replace("_", ""))


def _same(workload: Workload, queue: str) -> str:
    return "already in this queue" if workload.queue == queue else ""


def _holds(snapshot: Snapshot, workload: Workload) -> str:
    return "runs on" if phase_of(snapshot, workload) is WorkloadPhase.RUNNING else "has quota for"


def _resumed(workload: Workload) -> Effect:
    return Effect(called(workload.key), "is active again and pending")


def loss(snapshot: Snapshot, workload: Workload) -> str:
    """Format the devices and the work that would be lost if a workload were evicted now."""
    lost = fmt.not_saved(uncheckpointed_gpu_time(snapshot, workload))
    return f"{_holds(snapshot, workload)} {described(units_of(snapshot, workload))}; {lost}"


def loss_line(snapshot: Snapshot, workload: Workload) -> Cell:
    """Format a workload with what `loss` says about it."""
    return ("✖ ", "victim"), (f"{called(workload.key)} ", "strong"), (loss(snapshot, workload), "")


def refusal(action: Action, targets: list[Workload]) -> str:
    """Why an action does not apply to these workloads; empty if it does."""
    words = {phase(workload) for workload in targets}
    match action.id:
        case "workload.stop" | "workload.priority" if words and words <= set(ENDED):
            return "already ended"
        case "workload.resume" if targets and all(workload.active for workload in targets):
            return "not stopped"
        case "workload.requeue" if targets and not any(workload.reserved for workload in targets):
            return "quota not reserved"
        case "workload.check" if targets and not any(workload.reserved for workload in targets):
            return "quota not reserved, so admission checks have not started"
        case "workload.check" if targets and not any(map(open_checks, targets)):
            return "no pending admission checks"
        case "workload.move" if any(workload.reserved for workload in targets):
            return "only pending workloads can move; stop it first"
        case "workload.move" if words and words <= set(ENDED):
            return "already ended"
        case "workload.move" if len({workload.namespace for workload in targets}) > 1:
            return "the workloads are in several namespaces"
    return ""
