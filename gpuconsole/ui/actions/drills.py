"""What can be done with drills: opening one, predicting, and going on."""

from gpuconsole.ui.actions.action import Action, Scope

DRILLS: tuple[Action, ...] = (
    Action(
        id="drill.go-on",
        keys=("enter",),
        label="go on",
        help="See who has to go and why, then come to the next step.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.name",
        keys=("a",),
        label="name one",
        help="Predict by name who has to go, or take that back; Space marks the row instead.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.again",
        keys=("R",),
        label="begin again",
        help="Play the drill again from its beginning.",
        scope=Scope.DRILLS,
        footer=True,
    ),
    Action(
        id="drill.file",
        keys=("o",),
        label="open a file",
        help="Play a drill of your own.",
        scope=Scope.DRILLS,
        footer=True,
    ),
)
