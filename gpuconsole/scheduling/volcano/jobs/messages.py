"""Event messages of the job controller."""

from gpuconsole.model.volcano import JobAction


def action_message(action: JobAction, delay: str = "") -> str:
    """The event message of an action on a job; `delay` is empty if it runs at once."""
    return f"Execute action {action} after {delay}" if delay else f"Start to execute action {action} "
