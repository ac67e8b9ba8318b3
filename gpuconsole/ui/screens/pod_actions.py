"""Actions on the pods of an object: logs, shell, port-forward. They need a live cluster."""

import re
import shutil
from collections.abc import Callable, Iterable

from gpuconsole.errors import ConsoleError
from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.screens.background_tasks import outside
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.screens.forwards import ForwardsScreen
from gpuconsole.ui.screens.logs import LogScreen
from gpuconsole.ui.widgets.confirm import ChoiceOption, PromptField

PODDED = ("workloads", "jobs", "pods")
"""Tables whose objects have pods, or are pods."""
SHELL = "if command -v bash >/dev/null; then exec bash; else exec sh; fi"
NO_KUBECTL = "kubectl is not in the PATH"
HIGHEST = 65_535
_PORTS = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})")


def pods_of(snapshot: Snapshot, subjects: Iterable[tuple[str, str]]) -> list[Pod]:
    """The pods of workloads and jobs, and pods themselves, sorted by pod set and index."""
    wanted = list(subjects)
    workloads = {key for table, key in wanted if table == "workloads"}
    jobs = {key for table, key in wanted if table == "jobs"}
    alone = {key for table, key in wanted if table == "pods"}
    found = [pod for pod in snapshot.pods.all() if pod.workload in workloads or pod.job in jobs or pod.key in alone]
    return sorted(found, key=lambda pod: (pod.namespace, pod.pod_set, pod.index, pod.name))


def show_logs(screen: ConsoleScreen, name: str, pods: list[Pod], *, previous: bool = False) -> None:
    """Open the logs of all these pods."""
    begun = [pod.key for pod in pods if pod.node]
    if begun:
        screen.open(LogScreen(name, begun, previous=previous))
    else:
        screen.flash("No pod is scheduled yet" if pods else "No pods", "warning")


def open_shell(screen: ConsoleScreen, pods: list[Pod]) -> None:
    """Open a shell in one of the running pods."""
    _choose(screen, "Open a shell in", pods, lambda pod: _shell(screen, pod))


def _shell(screen: ConsoleScreen, pod: Pod) -> None:
    words, console = f"shell in {pod.key}", screen.console
    desk = console.object_access
    if desk is None or not _kubectl(screen, words):
        return
    command = desk.kubectl("exec", "-it", "-n", pod.namespace, pod.name, "--", "sh", "-c", SHELL)
    code = outside(screen, command)
    if code is not None:
        console.note(words, f"exited with {code}", failed=code != 0)
        screen.flash(f"The {words} exited with {code}", "warning" if code else "information")


def ask_port(screen: ConsoleScreen, pods: list[Pod]) -> None:
    """Forward a port of one of the running pods."""
    _choose(screen, "Forward a port of", pods, lambda pod: _ask_port(screen, pod))


def _ask_port(screen: ConsoleScreen, pod: Pod) -> None:
    lines = ("PORT, or LOCAL:REMOTE for a different local port.", "Listens on 127.0.0.1 only.")
    screen.prompt(PromptField(f"Port of {pod.key}", "", lines, wrong_ports), lambda text: _forward(screen, pod, text))


def wrong_ports(text: str) -> str:
    """The error in `PORT` or `LOCAL:REMOTE`; empty if valid."""
    found = _PORTS.fullmatch(text.strip())
    if found is None:
        return "enter PORT or LOCAL:REMOTE"
    numbers = [int(number) for number in found.groups() if number is not None]
    return "" if int(found[2]) and max(numbers) <= HIGHEST else f"ports are 1 to {HIGHEST:,}"


def _forward(screen: ConsoleScreen, pod: Pod, text: str) -> None:
    found = _PORTS.fullmatch(text.strip())
    words, console = f"port-forward {pod.key} {text}", screen.console
    desk = console.object_access
    if found is None or desk is None or not _kubectl(screen, words):
        return
    local, remote = int(found[1] or 0), int(found[2])
    arguments = ("port-forward", "--address", "127.0.0.1", "-n", pod.namespace, f"pod/{pod.name}")
    # Without a number before the colon kubectl chooses a free port.
    command = desk.kubectl(*arguments, f"{local or ''}:{remote}")
    try:
        console.forwards.start(pod.key, local, remote, command)
    except OSError as error:
        console.note(words, str(error), failed=True)
        screen.flash(f"Cannot run kubectl: {error.strerror or error}", "error")
        return
    console.note(words, "started")
    screen.open(ForwardsScreen())


def _kubectl(screen: ConsoleScreen, words: str) -> bool:
    """Whether kubectl exists and the session permits the action; records the action."""
    if shutil.which("kubectl") is None:
        screen.flash(NO_KUBECTL, "error")
        return False
    try:
        screen.console.permit(words)
    except ConsoleError as error:
        screen.flash(str(error), "warning")
        return False
    return True


def _choose(screen: ConsoleScreen, title: str, pods: list[Pod], then: Callable[[Pod], object]) -> None:
    running = {pod.key: pod for pod in pods if pod.phase is PodPhase.RUNNING}
    if not running:
        screen.flash("No running pods", "warning")
    elif len(running) == 1:
        then(next(iter(running.values())))
    else:
        options = [ChoiceOption(key, pod.name, detail=((pod.node, "dim"),)) for key, pod in running.items()]
        screen.choose(title, options, lambda key: then(running[key]))
