"""Draw the README's pictures from the default fixture: `make screenshots` writes docs/*.svg.

The cluster is ticked by hand to one virtual moment, so the same pictures come out every time.
"""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from gpuconsole.backends.simulated import SimulatedBackend
from gpuconsole.cli.options import OpenRequest
from gpuconsole.cli.sources import open_simulation
from gpuconsole.services.console import Console
from gpuconsole.ui.app import ConsoleApp

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZE = (120, 36)
MINUTES = 25
PICTURES: dict[str, Sequence[str]] = {"dashboard": (), "nodes": ("4", "B")}


def opened() -> Console:
    """The default fixture after some minutes of its first hour."""
    source = open_simulation(OpenRequest())
    console = Console(SimulatedBackend(source.simulation, speed=60), about=source.about)
    for _ in range(MINUTES):
        console.tick(1.0)
    return console


async def draw(name: str, keys: Sequence[str]) -> None:
    app = ConsoleApp(opened(), repaint=0)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        svg = app.export_screenshot(title=f"gpuconsole · {name}")
    # The picture has to stand on its own: no fonts from elsewhere, and no name that changes with every run.
    svg = re.sub(r',\s*url\("https?://[^)]*\) format\("[a-z0-9]+"\)', "", svg)
    svg = re.sub(r"terminal-\d+", f"terminal-{name}", svg)
    (DOCS / f"{name}.svg").write_text(svg)
    print(f"docs/{name}.svg")


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    for name, keys in PICTURES.items():
        asyncio.run(draw(name, keys))


if __name__ == "__main__":
    main()
