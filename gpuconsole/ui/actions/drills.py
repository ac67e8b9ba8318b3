"""Actions of drills: open a drill, predict victims, continue."""

from gpuconsole.ui.actions.action import Action, Scope

DRILLS: tuple[Action, ...] = (
    Action(
        id="drill.go-on",
        keys=("enter",),
        label="continue",
        help="Show the victims and the reasons, then the next step.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.name",
        keys=("a",),
        label="pick victim",
        help="Predict a victim by name, or undo it; Space marks a row.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.again",
        keys=("R",),
        label="restart",
        help="Restart the drill from its first step.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.file",
        keys=("o",),
        label="open a file",
        help="Open a drill from a file.",
        scope=Scope.DRILLS,
        footer=True,
    ),
)
