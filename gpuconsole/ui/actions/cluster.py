"""Actions that need an API server: editing manifests, logs, shells, port-forwards, changing the context."""

from gpuconsole.ui.actions.action import Action, Scope

MANIFESTS: tuple[Action, ...] = (
    Action(
        id="object.edit",
        keys=("e",),
        label="edit",
        help="Edit the manifest in $EDITOR; shows a diff before applying.",
        scope=Scope.OBJECT,
        changes=True,
    ),
    Action(
        id="queue.edit",
        keys=("m e",),
        label="edit manifest",
        help="Edit the manifest in $EDITOR; shows a diff before applying.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="edit.apply",
        keys=("ctrl+s",),
        label="apply",
        help="Apply the diff; rejected if the object changed meanwhile.",
        scope=Scope.EDIT,
        changes=True,
        footer=True,
    ),
    Action(
        id="edit.again",
        keys=("e",),
        label="edit again",
        help="Reopen the editor with the edited text.",
        scope=Scope.EDIT,
        footer=True,
    ),
    Action(
        id="submit.file",
        keys=("ctrl+g",),
        label="from a file",
        help="Submit manifests from a file; live clusters dry-run them first.",
        scope=Scope.SUBMIT,
        changes=True,
        footer=True,
    ),
)

PODS: tuple[Action, ...] = (
    Action(
        id="object.logs",
        keys=("l",),
        label="logs",
        help="Follow the logs of all its pods.",
        scope=Scope.OBJECT,
    ),
    Action(
        id="object.previous",
        keys=("p",),
        label="previous logs",
        help="Show the logs of its pods from before their last restart.",
        scope=Scope.OBJECT,
    ),
    Action(
        id="object.shell",
        keys=("m s",),
        label="shell",
        help="Open a shell in one of its pods (kubectl exec).",
        scope=Scope.OBJECT,
        changes=True,
    ),
    Action(
        id="object.forward",
        keys=("m f",),
        label="port-forward",
        help="Forward a local port to one of its pods (kubectl port-forward).",
        scope=Scope.OBJECT,
        changes=True,
    ),
    Action(
        id="logs.follow",
        keys=("f",),
        label="follow",
        help="Scroll with new lines, or pause scrolling.",
        scope=Scope.LOGS,
        footer=True,
    ),
    Action(
        id="logs.previous",
        keys=("p",),
        label="previous/current",
        help="Switch between the logs before the last restart and current logs.",
        scope=Scope.LOGS,
        footer=True,
    ),
    Action(
        id="forward.stop",
        keys=("s",),
        label="stop",
        help="Stop the selected port-forward.",
        scope=Scope.FORWARDS,
        footer=True,
    ),
)

PLACES: tuple[Action, ...] = (
    Action(
        id="app.context",
        label="context",
        help="Switch to another kubeconfig context.",
        scope=Scope.GLOBAL,
        aliases=("ctx", "context"),
        argument="[name]",
    ),
    Action(
        id="app.apply",
        label="apply a file",
        help="Submit manifests from a file; live clusters dry-run them first.",
        scope=Scope.GLOBAL,
        aliases=("apply",),
        argument="[file]",
        changes=True,
    ),
    Action(
        id="app.forwards",
        label="port-forwards",
        help="List port-forwards, and stop them.",
        scope=Scope.GLOBAL,
        aliases=("pf", "forwards"),
    ),
)
