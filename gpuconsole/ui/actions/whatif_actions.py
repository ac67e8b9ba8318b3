"""Actions of the what-if screen and of the submit form."""

from gpuconsole.ui.actions.action import Action, Scope

WHAT_IF: tuple[Action, ...] = (
    Action(
        id="whatif.add",
        keys=("a",),
        label="add",
        help="Add a change to this what-if.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.undo",
        keys=("u",),
        label="undo",
        help="Remove the last change.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.run",
        keys=("enter",),
        label="run",
        help="Simulate baseline and what-if to the horizon, and compare.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.horizon",
        keys=("h",),
        label="horizon",
        help="Set how far ahead to simulate.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.later",
        keys=("t",),
        label="time",
        help="Set the simulated time of the changes added next.",
        scope=Scope.WHAT_IF,
    ),
    Action(
        id="whatif.compare",
        keys=("b",),
        label="A/B",
        help="Save the changes as A and start B; again swaps them.",
        scope=Scope.WHAT_IF,
    ),
    Action(
        id="whatif.plan",
        keys=("p",),
        label="plan",
        help="Find the cheapest change that starts these jobs within a target wait.",
        scope=Scope.WHAT_IF,
        aliases=("plan",),
        footer=True,
    ),
    Action(
        id="whatif.write",
        keys=("W",),
        label="write",
        help="Write the changes to a file for gpuconsole whatif -f.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
)

SUBMIT: tuple[Action, ...] = (
    Action(
        id="submit.send",
        keys=("ctrl+s",),
        label="submit",
        help="Submit the job.",
        scope=Scope.SUBMIT,
        changes=True,
        footer=True,
    ),
    Action(
        id="submit.preview",
        keys=("ctrl+y",),
        label="preview",
        help="Show the YAML to be submitted.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
    Action(
        id="submit.template",
        keys=("ctrl+t",),
        label="template",
        help="Choose a template.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
    Action(
        id="submit.what-if",
        keys=("ctrl+o",),
        label="what-if",
        help="Try the job in a what-if before submitting it.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
)
