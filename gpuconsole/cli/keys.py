"""`gpuconsole keys`: the registry of actions, as a table or JSON."""

import click

from gpuconsole.cli.options import print_json
from gpuconsole.insight.tables import text_table
from gpuconsole.ui.actions import ACTIONS
from gpuconsole.ui.actions.keys import spell_all


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output: str) -> int:
    """List all keys: what each does, and where."""
    if output == "json":
        print_json(ACTIONS)
        return 0
    rows = [(action.scope.value, spell_all(action), action.label, action.help) for action in ACTIONS]
    for line in text_table(("where", "keys", "action", "what it does"), rows):
        click.echo(line)
    return 0
