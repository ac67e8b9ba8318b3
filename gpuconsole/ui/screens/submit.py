"""Submit form: template, queue with its available quota, sizes, generated YAML, and when the job could start."""

import re
from collections.abc import Collection, Mapping, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.timer import Timer

from gpuconsole.insight.index.available_quota import DeviceChoice, Headroom, choice_of, device_choices, headroom
from gpuconsole.insight.index.demand import pod_accelerators
from gpuconsole.model.clock import Span, format_exactly, parse_span
from gpuconsole.model.commands import Submit
from gpuconsole.model.devices import WHOLE_GPU, DeviceUnit, counted_units
from gpuconsole.model.job import Job
from gpuconsole.model.manifests import Finding, Severity
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodTemplate
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui import whatif_changes
from gpuconsole.ui.actions import Action, Handlers
from gpuconsole.ui.job_templates import BY_ID, TEMPLATES, JobTemplate, JobTemplateRequest
from gpuconsole.ui.names import called
from gpuconsole.ui.paint import GLYPHS, Cell, Painted
from gpuconsole.ui.screens.background import run_in_background
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.global_actions import answer_lines, ask_file
from gpuconsole.ui.whatif_changes import try_out
from gpuconsole.ui.widgets.dialogs import ChoiceOption, Question
from gpuconsole.ui.widgets.form import Choices, Form, FormField, FormInput, Picker
from gpuconsole.ui.widgets.textpane import BLANK, Panes, TextPane, heading, text_line, yaml_lines
from gpuconsole.ui.workload_table import make_row, phase_cell
from gpuconsole.ui.yaml_view import as_documents

PAUSE = 0.15
"""Seconds without a key after which the form is validated."""
REMEMBERED = 3
"""Number of recently submitted jobs whose phase is shown."""


class SubmitScreen(ConsoleScreen):
    """The submit form beside the YAML that it makes; on a narrow screen `ctrl+y` switches between them."""

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
        first, device = TEMPLATES[0], WHOLE_GPUS
        sizes = defaults(first)
        form = Form(
            [
                FormField("Template", Picker(template_choices(device), first.id, id="template")),
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
        self.form.picker("namespace").offer(namespace_choices(snapshot))
        self.form.picker("device").offer(device_words(snapshot))
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
        queues = queue_choices(self._rooms, self.form.values["namespace"], device)
        self.form.picker("queue").offer(queues, self._roomiest(device) if anew else None)
        self.form.picker("template").offer(template_choices(device))
        queued = bool(self.form.values["queue"])
        self.form.picker("priority").offer(priority_choices(self.snapshot, queued))
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
        self.form.put("name", free_name(self.snapshot, values["namespace"], values["template"], self._sent))

    @on(Form.Changed)
    def _changed(self, message: Form.Changed) -> None:
        message.stop()
        if message.field == "template":
            for name, value in defaults(BY_ID[self.form.values["template"]]).items():
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
        request, self._problems = read(self.form.values, covered_by(self.snapshot, room), self._device())
        return request

    def _judge(self) -> None:
        """Validate the form, and show the YAML and the prospects."""
        request = self._request()
        text = template_of(self.form.values).text(request)
        if text != self._text:
            self._text = text
            self._documents = as_documents(text)
            loaded = self.console.check(text)
            self._objects = () if loaded.has_errors else loaded.objects
            self._verdict = finding_lines(loaded.findings)
            self.query_one("#preview", TextPane).show(yaml_lines(text))
        self.form.complain(self._problems)
        prospects = [] if self._problems else request_prospects(self.snapshot, request, self._room())
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
        """Leave the focused field first, so that the screen's keys work again; then as on other screens."""
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
        values = of_job(self.snapshot, job)
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
        titles = template_choices(self._device())
        options = [ChoiceOption(id, title, str(number)) for number, (id, title) in enumerate(titles, start=1)]
        self.dialogs.choose("Template", options, lambda id: self.form.put("template", id), self.form.values["template"])

    def _ask_to_send(self) -> None:
        self._judge()
        if wrong := self._wrong():
            self.flash(wrong, "warning")
            return
        request = self._request()
        title = f"Submit {request.namespace}/{request.name}?"
        summary, desk = self._summary(request), self.console.object_access
        if desk is None:
            self.dialogs.ask(Question(title, summary, yes="Submit"), self._send)
            return
        documents = self._documents

        def tried(answers: Sequence[str]) -> None:
            self.dialogs.ask(Question(title, (*summary, *answer_lines(answers)), yes="Submit"), self._send)

        run_in_background(self, lambda: desk.rehearse(documents), tried)

    def _summary(self, request: JobTemplateRequest) -> tuple[Cell, ...]:
        template = template_of(self.form.values)
        where = f"queue {request.queue}" if request.queue else "no queue"
        rank = f", priority {request.priority_class}" if request.priority_class else ""
        unit = self._device().unit
        size = f"{request.pods} pod{'s' if request.pods != 1 else ''} × {counted_units(request.gpus, unit)}"
        found = request_prospects(self.snapshot, request, self._room())
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


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
MOST_GPUS = 100_000
MOST_PODS = 10_000
WHOLE_GPUS = DeviceChoice()


def read(
    values: Mapping[str, str], covered: frozenset[str] = frozenset(), device: DeviceChoice = WHOLE_GPUS
) -> tuple[JobTemplateRequest, dict[str, str]]:
    """Return the request in the form's fields, and the problem of each invalid field, by its id.

    An invalid number counts as the smallest value. `covered` are the resources for which the queue has quota.
    """
    problems: dict[str, str] = {}
    if device.device_class and values["template"] == "trainjob":
        problems["device"] = "a TrainJob cannot claim devices"
    name = values["name"].strip()
    if not _NAME.fullmatch(name) or len(name) > 63:
        problems["name"] = "only a-z, 0-9 and -, at most 63 characters" if name else "required"
    if not values["namespace"]:
        problems["namespace"] = "required"
    request = JobTemplateRequest(
        namespace=values["namespace"],
        name=name,
        queue=values["queue"],
        priority_class=values["priority"],
        gpus=_number(values, "gpus", 0, MOST_GPUS, problems),
        pods=_number(values, "pods", 1, MOST_PODS, problems),
        duration=_span(values, "duration", problems),
        checkpoint=_span(values, "checkpoint", problems),
        resource=device.resource,
        device_class=device.device_class,
        covered=covered,
    )
    return request, problems


def _number(values: Mapping[str, str], field: str, least: int, most: int, problems: dict[str, str]) -> int:
    text = values[field].strip()
    if not text.isdecimal() or not least <= int(text) <= most:
        problems[field] = f"{least} to {most:,}"
        return least
    return int(text)


def _span(values: Mapping[str, str], field: str, problems: dict[str, str]) -> Span | None:
    text = values[field].strip()
    if not text:
        return None
    try:
        span = parse_span(text)
    except ValueError:
        problems[field] = "use 30m, 1h30m or 2d"
        return None
    if span <= 0:
        problems[field] = "must be > 0"
    return span


def defaults(template: JobTemplate) -> dict[str, str]:
    """Return a template's default sizes as texts, by field id."""
    return {
        "gpus": str(template.gpus),
        "pods": str(template.pods),
        "duration": format_exactly(template.duration) if template.duration is not None else "",
        "checkpoint": format_exactly(template.checkpoint) if template.checkpoint is not None else "",
    }


def of_job(snapshot: Snapshot, job: Job) -> dict[str, str]:
    """Return the values that fill in the form for a job like this one, by field id."""
    kinds = {
        "PyTorchJob": "pytorch",
        "JobSet": "jobset",
        "RayJob": "rayjob",
        "RayCluster": "raycluster",
        "Deployment": "deployment",
        "StatefulSet": "statefulset",
        "LeaderWorkerSet": "workerset",
        "MPIJob": "mpi",
        "TrainJob": "trainjob",
        "CronJob": "nightly",
    }
    asked = [(_devices_of(snapshot, job.namespace, pod_set.template), pod_set.count) for pod_set in job.pod_sets]
    amounts = [(amount, device) for devices, _ in asked for device, amount in devices.items()]
    count, device = max(amounts, key=lambda pair: pair[0], default=(0, WHOLE_GPUS.key))
    pods = sum(pods for devices, pods in asked if device in devices) or 1
    plain = "training" if pods == 1 and count > 1 else "notebook" if pods == 1 else "sweep"
    return {
        "template": kinds.get(job.kind, plain),
        "namespace": job.namespace,
        "queue": job.queue,
        "priority": job.workload_priority_class,
        "device": device,
        "gpus": str(count),
        "pods": str(pods),
        "duration": format_exactly(job.duration) if job.duration else "",
        "checkpoint": format_exactly(job.checkpoint_interval) if job.checkpoint_interval else "",
    }


def _devices_of(snapshot: Snapshot, namespace: str, template: PodTemplate) -> dict[str, int]:
    """Key of a device choice → how many of it one pod requests; of alternative devices the first."""
    found = pod_accelerators(template)
    for claim in template.resource_claims:
        made = snapshot.resource_claim_templates.get(f"{namespace}/{claim.template}")
        for request in made.requests if made is not None else ():
            chosen = request.options[0] if request.options else request
            key = choice_of(snapshot, "", chosen.device_class).key
            found[key] = found.get(key, 0) + chosen.count
    return found


def free_name(snapshot: Snapshot, namespace: str, template: str, sent: Collection[str] = ()) -> str:
    """An unused name in the namespace; `sent` are the keys of jobs just submitted."""
    number = 1
    taken = {job.name for job in snapshot.jobs.all() if job.namespace == namespace}
    taken |= {key.rpartition("/")[2] for key in sent}
    while f"{template}-{number}" in taken:
        number += 1
    return f"{template}-{number}"


def template_choices(device: DeviceChoice) -> Choices:
    """Return the choices of a template, with sizes in the unit of the chosen devices."""
    return [(template.id, template.title_in(device.unit)) for template in TEMPLATES]


def device_words(snapshot: Snapshot) -> Choices:
    """Return the choices of an accelerator, with how many the nodes offer: `amd.com/gpu  16 GPUs`."""
    return [
        (one.key, f"{one.key}  {counted_units(one.total, one.unit) if one.total else 'no nodes'}")
        for one in device_choices(snapshot)
    ]


def namespace_choices(snapshot: Snapshot) -> Choices:
    """Return the choices of a namespace, those with a LocalQueue first."""
    with_queue = sorted({queue.namespace for queue in snapshot.local_queues.all()})
    others = sorted(set(snapshot.namespaces) - set(with_queue))
    return [*((name, name) for name in with_queue), *((name, f"{name}  (no LocalQueue)") for name in others)]


def queue_choices(rooms: tuple[Headroom, ...], namespace: str, device: DeviceChoice) -> Choices:
    """Return the choices of a queue: the namespace's LocalQueues with their available quota, and none."""
    queues = [(room.name, queue_words(room, device)) for room in rooms if room.namespace == namespace]
    return [*queues, ("", "none (not managed by Kueue)")]


def queue_words(room: Headroom, device: DeviceChoice) -> str:
    """Describe a LocalQueue in a line: `lq-research → cq-research  4 available (0 without borrowing) · 1 pending`."""
    own = max((flavor.own_left for flavor in room.of(device)), default=0)
    quota = (
        f"{room.best(device)} available ({own} without borrowing)" if room.of(device) else f"no quota for {device.key}"
    )
    free = f"⚠ {room.problem}" if room.problem else quota
    waits = f" · {room.pending} pending" if room.pending else ""
    return f"{room.name} → {room.cluster_queue}  {free}{waits}"


def priority_choices(snapshot: Snapshot, queued: bool) -> Choices:
    """WorkloadPriorityClasses for a job in a queue, PriorityClasses for any other; the highest first."""
    if queued:
        classes = [(one.value, one.name) for one in snapshot.workload_priority_classes.all()]
    else:
        classes = [(one.value, one.name) for one in snapshot.priority_classes.all()]
    return [("", "none: priority 0"), *((name, f"{name}  {value}") for value, name in sorted(classes, reverse=True))]


def covered_by(snapshot: Snapshot, room: Headroom | None) -> frozenset[str]:
    """Return the resources for which a queue has quota; empty without a queue."""
    queue = snapshot.cluster_queues.get(room.cluster_queue) if room is not None else None
    groups = queue.resource_groups if queue is not None else ()
    return frozenset(resource for group in groups for resource in group.covered_resources)


def request_prospects(snapshot: Snapshot, request: JobTemplateRequest, room: Headroom | None) -> list[Painted]:
    """Return lines that tell whether the requested job can start, by available quota and by node sizes."""
    device = choice_of(snapshot, request.resource, request.device_class)
    wanted = request.gpus * request.pods
    lines: list[Painted] = []
    if request.gpus > device.largest:
        words = f"no node has {counted_units(request.gpus, device.unit)}: the largest has {device.largest}"
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), words))
    if room is None:
        return [
            *lines,
            text_line((f"{GLYPHS['held']} ", "held"), "no queue: kube-scheduler places its pods at once, by priority"),
        ]
    flavors = room.of(device)
    most = max((flavor.potential for flavor in flavors), default=0)
    if room.problem:
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), room.problem))
    elif wanted and not flavors:
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), f"{room.cluster_queue} has no quota for {device.key}"))
    elif wanted > most:
        asked = counted_units(wanted, device.unit)
        words = f"requests {asked}; the maximum capacity of {room.cluster_queue} is {most}"
        lines.append(text_line((f"{GLYPHS['fault']} ", "fault"), words))
    elif wanted <= room.best(device):
        lines.append(text_line((f"{GLYPHS['good']} ", "good"), f"{_fitting(wanted, device.unit)} available quota now"))
    else:
        words = f"{_fitting(wanted, device.unit, fit=False)} available quota: pending, or preempts (ctrl+o: what-if)"
        lines.append(text_line((f"{GLYPHS['pending']} ", "pending"), words))
    for flavor in flavors:
        numbers = f"{flavor.available} available ({flavor.own_left} without borrowing), max {flavor.potential}"
        lines.append(text_line((f"  {flavor.flavor}: ", "dim"), numbers))
    return lines


def _fitting(count: int, unit: DeviceUnit, fit: bool = True) -> str:
    """`1 GPU fits`, `8 MIG 1g.10gb instances do not fit`."""
    does = "does" if count == 1 else "do"
    return f"{counted_units(count, unit)} {('fits' if count == 1 else 'fit') if fit else f'{does} not fit'}"


def finding_lines(findings: tuple[Finding, ...]) -> list[Painted]:
    """Return lines with the validation findings, worst first.

    Findings about undefined references are left out, as the cluster has the objects that the form names.
    """
    shown = [finding for finding in findings if not finding.code.startswith("undefined-")]
    shown.sort(key=lambda finding: list(Severity).index(finding.severity))
    looks = {Severity.ERROR: ("✖", "fault"), Severity.WARNING: ("⚠", "pending"), Severity.NOTE: ("·", "dim")}
    lines: list[Painted] = []
    for finding in shown:
        sign, role = looks[finding.severity]
        lines.append(
            text_line((f"{sign} ", role), (f"{finding.path}: ", "dim"), f"{finding.problem}; {finding.remedy}")
        )
    return lines


def template_of(values: Mapping[str, str]) -> JobTemplate:
    """Return the template that is chosen in the form's fields."""
    return BY_ID.get(values["template"], TEMPLATES[0])
