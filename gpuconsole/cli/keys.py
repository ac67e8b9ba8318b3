"""`gpuconsole keys`: the actions and the keys that run them, as a table or JSON."""

import os

import click

from gpuconsole.cli.options import print_json
from gpuconsole.config import Config, load, setting_place
from gpuconsole.errors import ConfigError
from gpuconsole.insight.tables import text_table
from gpuconsole.ui.actions.keymap import Keymap, build_keymap
from gpuconsole.ui.actions.keys import spell_all


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output: str) -> int:
    """List all keys: what each does, and where."""
    actions = read_keymap(load({}, os.environ)).actions
    if output == "json":
        print_json(actions)
        return 0
    rows = [(action.scope.value, spell_all(action), action.label, action.help) for action in actions]
    for line in text_table(("where", "keys", "action", "what it does"), rows):
        click.echo(line)
    return 0


def read_keymap(settings: Config) -> Keymap:
    """The keys of the settings. Raises ConfigError that names the file and the line of each binding that is wrong."""
    keymap, problems = build_keymap(settings.keys.preset, settings.keys.bindings)
    if problems:
        places = [setting_place(os.environ, "keys", "bindings", one.id) for one in problems]
        first, *others = [(place, f"{one.id}: {one.problem}") for place, one in zip(places, problems, strict=True)]
        raise ConfigError(first[0], "\n".join((first[1], *(f"{place}: {text}" for place, text in others))))
    return keymap
