"""Measure what the console promises: `make bench`, or `python -m tests.tools.bench [--quick] cycles places forks …`.

Every figure is the median of several runs in one process, in CPU time where no wall clock is asked for, and stands
beside its ratio to a calibration loop of the same run, so that machines compare. What is beyond its bar is named at
the end; that decides nothing. Garbage is looked for as seldom as in every command of ours.
"""

import argparse

from gpuconsole.garbage import collect_seldom
from tests.tools.bench.completion import completion
from tests.tools.bench.costs import costs
from tests.tools.bench.cycles import cycles
from tests.tools.bench.followed import followed
from tests.tools.bench.forks import forks
from tests.tools.bench.gangs import gangs
from tests.tools.bench.history import growth, history
from tests.tools.bench.keys import keys
from tests.tools.bench.looks import looks
from tests.tools.bench.packing import packing
from tests.tools.bench.places import places
from tests.tools.bench.rebuilds import rebuilds
from tests.tools.bench.report import Report
from tests.tools.bench.risks import risks
from tests.tools.bench.series import series
from tests.tools.bench.shadows import shadows
from tests.tools.bench.tables import tables
from tests.tools.bench.whatifs import what_ifs

PARTS = {
    "cycles": cycles,
    "places": places,
    "forks": forks,
    "looks": looks,
    "loads": completion,
    "packing": packing,
    "gangs": gangs,
    "keys": keys,
    "whatifs": what_ifs,
    "followed": followed,
    "shadows": shadows,
    "risks": risks,
    "series": series,
    "rebuilds": rebuilds,
    "costs": costs,
    "tables": tables,
    "history": history,
    "growth": growth,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all of them unless some are named")
    parser.add_argument("--quick", action="store_true", help="one run of each load, fewer rounds of everything")
    options = parser.parse_args()
    collect_seldom()
    report = Report(quick=options.quick)
    for name in options.parts or PARTS:
        PARTS[name](report)
    print(f"beyond their bars: {', '.join(name.strip() for name in report.missed) or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
