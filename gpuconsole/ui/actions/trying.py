"""What can be done in a what-if and in the submit form."""

from gpuconsole.ui.actions.action import Action, Scope

WHAT_IF: tuple[Action, ...] = (
    Action(
        id="whatif.add", keys=("a",), label="add", help="Add a change to the fork.", scope=Scope.WHAT_IF, footer=True
    ),
    Action(
        id="whatif.undo",
        keys=("u",),
        label="undo",
        help="Take the last change back out of the fork.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.run",
        keys=("enter",),
        label="run",
        help="Run the fork and the original to the horizon, and compare.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.horizon",
        keys=("h",),
        label="horizon",
        help="Set how far the fork looks ahead.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
    Action(
        id="whatif.later",
        keys=("t",),
        label="time",
        help="Let time pass in the fork before the changes that follow.",
        scope=Scope.WHAT_IF,
    ),
    Action(
        id="whatif.compare",
        keys=("b",),
        label="A/B",
        help="Put these changes aside as A, and compare others with them; again, and A and B change places.",
        scope=Scope.WHAT_IF,
    ),
    Action(
        id="whatif.plan",
        keys=("p",),
        label="plan",
        help="Find what quota, nodes or policy would let what is submitted here run within a wait, at the least cost.",
        scope=Scope.WHAT_IF,
        aliases=("plan",),
        footer=True,
    ),
    Action(
        id="whatif.write",
        keys=("W",),
        label="write",
        help="Write the changes as YAML, as gpuconsole whatif -f reads them.",
        scope=Scope.WHAT_IF,
        footer=True,
    ),
)

SUBMIT: tuple[Action, ...] = (
    Action(
        id="submit.send",
        keys=("ctrl+s",),
        label="submit",
        help="Submit what the form says.",
        scope=Scope.SUBMIT,
        changes=True,
        footer=True,
    ),
    Action(
        id="submit.preview",
        keys=("ctrl+y",),
        label="preview",
        help="Show the YAML that would be submitted.",
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
        help="Try it in a fork before submitting it.",
        scope=Scope.SUBMIT,
        footer=True,
    ),
)
