"""Submit form: template, queue with its headroom, sizes, generated YAML and prospects."""

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.timer import Timer

from gpuconsole.insight.index.available_quota import DeviceChoice, Headroom, device_choices, headroom
from gpuconsole.model.commands import Submit
from gpuconsole.model.device_units import WHOLE_GPU, counted_units
from gpuconsole.model.job import Job
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import submit_form, whatif_changes
from gpuconsole.ui.actions import Action
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import Cell, Painted
from gpuconsole.ui.screens.actions_mixin import Handlers
from gpuconsole.ui.screens.background_tasks import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.submitting import answer_lines, ask_file
from gpuconsole.ui.screens.whatif_links import try_out
from gpuconsole.ui.template_jobs import JobTemplateRequest
from gpuconsole.ui.templates import BY_ID, TEMPLATES
from gpuconsole.ui.widgets.confirm import ChoiceOption, Question
from gpuconsole.ui.widgets.form import Form, FormField, FormInput, Picker
from gpuconsole.ui.widgets.panes import Panes
from gpuconsole.ui.widgets.textpane import BLANK, TextPane, heading, text_line, yaml_lines
from gpuconsole.ui.workload_columns import phase_cell
from gpuconsole.ui.workload_rows import make_row
from gpuconsole.ui.yaml_view import as_documents

PAUSE = 0.15
"""Delay in seconds between the last key and validation."""
REMEMBERED = 3
"""Number of recent submissions whose phase is shown."""


class SubmitScreen(ConsoleScreen):
    """The form beside its YAML; on a narrow screen `ctrl+y` switches between them."""

    view = "submit"
    AUTO_FOCUS = "#template"

    def __init__(self) -> None:
        super().__init__()
        self._filled = False
        self._rooms: tuple[Headroom, ...] = ()
        self._objects: tuple[Object, ...] = ()
        self._text = ""
        self._documents: tuple[str, ...] = ()
        self._problems: dict[str, str] = {}
        self._verdict: list[Painted] = []
        self._sent: list[str] = []
        self._timer: Timer | None = None

    def body(self) -> ComposeResult:
        first, device = TEMPLATES[0], submit_form.WHOLE_GPUS
        sizes = submit_form.defaults(first)
        form = Form(
            [
                FormField("Template", Picker(submit_form.template_choices(device), first.id, id="template")),
                FormField("Namespace", Picker([], "", id="namespace")),
                FormField("Queue", Picker([], "", id="queue")),
                FormField("Name", FormInput("", id="name")),
                FormField("Priority", Picker([], "", id="priority")),
                FormField("Device", Picker([(device.key, device.key)], device.key, id="device")),
                FormField("GPUs per pod", FormInput(sizes["gpus"], number=True, limit=6, id="gpus")),
                FormField("Pods", FormInput(sizes["pods"], number=True, limit=6, id="pods")),
                FormField("Duration", FormInput(sizes["duration"], limit=12, empty="from the scenario", id="duration")),
                FormField(
                    "Checkpoints",
                    FormInput(
                        sizes["checkpoint"], limit=12, empty="none: eviction loses all progress", id="checkpoint"
                    ),
                ),
            ]
        )
        yield Panes(Vertical(form, TextPane(id="verdict"), id="entry"), TextPane(wrap=False, id="preview"))

    # Display

    @property
    def form(self) -> Form:
        return self.query_one(Form)

    def show(self, snapshot: Snapshot) -> None:
        self._rooms = headroom(snapshot)
        self.form.picker("namespace").offer(submit_form.namespace_choices(snapshot))
        self.form.picker("device").offer(submit_form.device_words(snapshot))
        first, self._filled = not self._filled, True
        if first and len(self.namespaces) == 1:
            self.form.put("namespace", next(iter(self.namespaces)))
        self._offer(anew=first)
        if first:
            self._choose_covered_device()
            self._name_anew()
        self._judge()

    def _offer(self, *, anew: bool = False) -> None:
        """Update the choices for namespace, queue and device; `anew` selects the queue with most headroom."""
        device = self._device()
        queues = submit_form.queue_choices(self._rooms, self.form.values["namespace"], device)
        self.form.picker("queue").offer(queues, self._roomiest(device) if anew else None)
        self.form.picker("template").offer(submit_form.template_choices(device))
        queued = bool(self.form.values["queue"])
        self.form.picker("priority").offer(submit_form.priority_choices(self.snapshot, queued))
        whole = device.unit == WHOLE_GPU
        self.form.fields["gpus"].rename("GPUs per pod" if whole else "Per pod")
        self.form.fields["device"].display = not whole or len(self.form.picker("device").choices) > 1

    def _device(self) -> DeviceChoice:
        """The chosen device, or the only one."""
        choices, chosen = device_choices(self.snapshot), self.form.values.get("device")
        return next((one for one in choices if one.key == chosen), choices[0])

    def _choose_covered_device(self) -> None:
        """Choose a device for which the queue has quota, unless it has quota for the chosen one."""
        room, device = self._room(), self._device()
        if room is not None and not room.of(device):
            covered = (one for one in device_choices(self.snapshot) if room.of(one))
            self.form.put("device", next(covered, device).key)

    def _choose_covering_queue(self) -> None:
        """Choose a queue with quota for the chosen device, unless the chosen queue has some."""
        room, device = self._room(), self._device()
        roomiest = self._roomiest(device)
        if room is not None and not room.of(device) and any(r.name == roomiest and r.of(device) for r in self._here()):
            self.form.put("queue", roomiest)

    def _here(self) -> list[Headroom]:
        namespace = self.form.values["namespace"]
        return [room for room in self._rooms if room.namespace == namespace]

    def _roomiest(self, device: DeviceChoice) -> str:
        rooms = self._here()
        return max(rooms, key=lambda room: (not room.problem, room.best(device))).name if rooms else ""

    def _name_anew(self) -> None:
        values = self.form.values
        self.form.put("name", submit_form.free_name(self.snapshot, values["namespace"], values["template"], self._sent))

    @on(Form.Changed)
    def _changed(self, message: Form.Changed) -> None:
        message.stop()
        if message.field == "template":
            for name, value in submit_form.defaults(BY_ID[self.form.values["template"]]).items():
                self.form.put(name, value)
        if message.field in ("template", "namespace"):
            self._name_anew()
        if message.field == "device":
            self._choose_covering_queue()
        if message.field in ("namespace", "queue", "device"):
            self._offer(anew=message.field == "namespace")
        if message.field in ("namespace", "queue"):
            self._choose_covered_device()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PAUSE, self._judge)

    def _room(self) -> Headroom | None:
        values = self.form.values
        key = f"{values['namespace']}/{values['queue']}"
        return next((room for room in self._rooms if room.key == key), None)

    def _request(self) -> JobTemplateRequest:
        room = self._room()
        request, self._problems = submit_form.read(
            self.form.values, submit_form.covered_by(self.snapshot, room), self._device()
        )
        return request

    def _judge(self) -> None:
        """Validate the form, and show the YAML and the prospects."""
        request = self._request()
        text = submit_form.template_of(self.form.values).text(request)
        if text != self._text:
            self._text = text
            self._documents = as_documents(text)
            loaded = self.console.check(text)
            self._objects = () if loaded.has_errors else loaded.objects
            self._verdict = submit_form.finding_lines(loaded.findings)
            self.query_one("#preview", TextPane).show(yaml_lines(text))
        self.form.complain(self._problems)
        prospects = [] if self._problems else submit_form.request_prospects(self.snapshot, request, self._room())
        self.query_one("#verdict", TextPane).show([BLANK, *prospects, *self._verdict, *self._fates()])

    def _fates(self) -> list[Painted]:
        """Phases of the recent submissions."""
        if not self._sent:
            return []
        owned = {workload.owner: workload for workload in self.snapshot.workloads.all() if workload.owner in self._sent}
        lines: list[Painted] = [BLANK, heading("SUBMITTED")]
        for key in reversed(self._sent[-REMEMBERED:]):
            workload = owned.get(key)
            if workload is None:
                lines.append(text_line(f"  {key} ", ("no workload yet", "dim")))
            else:
                row = make_row(workload, "", self.snapshot)
                lines.append((("  ", ""), *phase_cell(row.phase), (f" {called(workload.key)} {row.reason}", "")))
        return lines

    # Actions

    def escape(self) -> None:
        """Leave the field first, so that the keys of the screen work again."""
        if isinstance(self.focused, (FormInput, Picker)):
            self.set_focus(self.query_one("#verdict", TextPane))
        else:
            super().escape()

    def handlers(self) -> Handlers:
        panes = self.query_one(Panes)
        return {
            **super().handlers(),
            "submit.send": self._ask_to_send,
            "submit.preview": lambda: panes.step(1),
            "submit.template": self._ask_template,
            "submit.what-if": self._try_out,
            "submit.file": lambda: ask_file(self),
        }

    def refusal(self, action: Action) -> str:
        if action.id in ("submit.send", "submit.what-if") and (wrong := self._wrong()):
            return wrong
        desk = self.console.object_access
        if desk is not None and action.id == "submit.send" and (refused := desk.refusal(Submit((), self._documents))):
            return refused
        return super().refusal(action)

    def _wrong(self) -> str:
        for name, problem in self._problems.items():
            return f"{name}: {problem}"
        return "" if self._objects else "the manifest has errors"

    def fill(self, job: Job) -> None:
        """Fill in the form from this job."""
        self._filled = True
        values = submit_form.of_job(self.snapshot, job)
        device, count = values["device"], int(values["gpus"])
        if count and device not in [one.key for one in device_choices(self.snapshot)]:
            self.flash(f"No node has {device}; choose another device", "warning")
        with self.prevent(Form.Changed):
            for name in ("device", *values):
                if name == "queue":
                    self._offer()
                self.form.put(name, values[name])
            self._offer()
        self._name_anew()
        self._judge()

    def _ask_template(self) -> None:
        titles = submit_form.template_choices(self._device())
        options = [ChoiceOption(id, title, str(number)) for number, (id, title) in enumerate(titles, start=1)]
        self.choose("Template", options, lambda id: self.form.put("template", id), self.form.values["template"])

    def _ask_to_send(self) -> None:
        self._judge()
        if wrong := self._wrong():
            self.flash(wrong, "warning")
            return
        request = self._request()
        title = f"Submit {request.namespace}/{request.name}?"
        summary, desk = self._summary(request), self.console.object_access
        if desk is None:
            self.ask(Question(title, summary, yes="Submit"), self._send)
            return
        documents = self._documents

        def tried(answers: Sequence[str]) -> None:
            self.ask(Question(title, (*summary, *answer_lines(answers)), yes="Submit"), self._send)

        run_in_background(self, lambda: desk.rehearse(documents), tried)

    def _summary(self, request: JobTemplateRequest) -> tuple[Cell, ...]:
        template = submit_form.template_of(self.form.values)
        where = f"queue {request.queue}" if request.queue else "no queue"
        rank = f", priority {request.priority_class}" if request.priority_class else ""
        unit = self._device().unit
        size = f"{request.pods} pod{'s' if request.pods != 1 else ''} × {counted_units(request.gpus, unit)}"
        found = submit_form.request_prospects(self.snapshot, request, self._room())
        return (template.title_in(unit), f"{size}, {where}{rank}", *found)

    def _send(self) -> None:
        objects = self._objects
        self.send([Submit(objects, self._documents)], f"Submitted {', '.join(obj.key for obj in objects)}")
        self._sent += [obj.key for obj in objects if isinstance(obj, Job)]
        self._name_anew()

    def _try_out(self) -> None:
        self._judge()
        request = self._request()
        words = f"{request.namespace}/{request.name}, {counted_units(request.gpus * request.pods, self._device().unit)}"
        rank = f", prio {request.priority_class}" if request.priority_class else ""
        try_out(self.console_app, whatif_changes.submit(self._objects, words + rank, self._documents))
