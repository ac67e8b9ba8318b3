"""What takes an API server: manifests in an editor, logs, shells, port-forwards, another context."""

from gpuconsole.ui.actions.action import Action, Scope

MANIFESTS: tuple[Action, ...] = (
    Action(
        id="object.edit",
        keys=("e",),
        label="edit",
        help="Edit its manifest in $EDITOR; the difference is shown before anything is applied.",
        scope=Scope.OBJECT,
        changes=True,
    ),
    Action(
        id="queue.edit",
        keys=("m e",),
        label="edit manifest",
        help="Edit its manifest in $EDITOR; the difference is shown before anything is applied.",
        scope=Scope.QUEUE,
        changes=True,
    ),
    Action(
        id="edit.apply",
        keys=("ctrl+s",),
        label="apply",
        help="Apply the difference, if nobody changed the object meanwhile.",
        scope=Scope.EDIT,
        changes=True,
        footer=True,
    ),
    Action(
        id="edit.again",
        keys=("e",),
        label="edit again",
        help="Go back into the editor with what was written.",
        scope=Scope.EDIT,
        footer=True,
    ),
    Action(
        id="submit.file",
        keys=("ctrl+g",),
        label="from a file",
        help="Submit manifests from a file; a live cluster tries them first, and its answer is shown.",
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
        help="Follow what its pods print, all pods of a gang together.",
        scope=Scope.OBJECT,
    ),
    Action(
        id="object.previous",
        keys=("p",),
        label="earlier logs",
        help="Show what its pods printed before their last restart.",
        scope=Scope.OBJECT,
    ),
    Action(
        id="object.shell",
        keys=("m s",),
        label="shell",
        help="Open a shell in one of its pods, by kubectl exec.",
        scope=Scope.OBJECT,
        changes=True,
    ),
    Action(
        id="object.forward",
        keys=("m f",),
        label="port-forward",
        help="Bring a port of one of its pods to this machine, by kubectl port-forward.",
        scope=Scope.OBJECT,
        changes=True,
    ),
    Action(
        id="logs.follow",
        keys=("f",),
        label="follow",
        help="Keep the newest line in sight, or stay where you are.",
        scope=Scope.LOGS,
        footer=True,
    ),
    Action(
        id="logs.previous",
        keys=("p",),
        label="earlier or now",
        help="Change between what was printed before the last restart, and what is printed now.",
        scope=Scope.LOGS,
        footer=True,
    ),
    Action(
        id="forward.stop",
        keys=("s",),
        label="stop",
        help="End the port-forward under the cursor.",
        scope=Scope.FORWARDS,
        footer=True,
    ),
)

PLACES: tuple[Action, ...] = (
    Action(
        id="app.context",
        label="context",
        help="Change to another context of the kubeconfig.",
        scope=Scope.GLOBAL,
        aliases=("ctx", "context"),
        argument="[name]",
    ),
    Action(
        id="app.apply",
        label="apply a file",
        help="Submit manifests from a file; a live cluster tries them first, and its answer is shown.",
        scope=Scope.GLOBAL,
        aliases=("apply",),
        argument="[file]",
        changes=True,
    ),
    Action(
        id="app.forwards",
        label="port-forwards",
        help="Show the port-forwards that run, and stop them.",
        scope=Scope.GLOBAL,
        aliases=("pf", "forwards"),
    ),
)
