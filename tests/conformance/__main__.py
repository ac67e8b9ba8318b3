"""`python -m tests.conformance [NAME…]`: one line per scenario family and table, then one per area of tables.

A table that has no check counts with all of its cases as failed, unless the project has no use for what it tests.
`--show` also prints what differs.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conformance.areas import CHECKS
from tests.conformance.known import FILE, UNUSED, areas, problems
from tests.conformance.scenarios import SCENARIOS, families, score_family
from tests.conformance.tables import Score, load, score, unchecked
from tests.conformance.tables import names as tables_in
from tests.support.shared_material import CONFORMANCE


def scores(folder: Path, names: Sequence[str] = ()) -> Iterator[Score]:
    """Score every family and every table whose name contains one of `names`; no names are all."""

    def chosen(name: str) -> bool:
        return not names or any(part in name for part in names)

    for part in SCENARIOS:
        for family in families(folder / part):
            if chosen(f"{part}/{family}"):
                yield score_family(folder / part, family)
    for name in tables_in(folder):
        if name not in UNUSED and chosen(name):
            yield score(load(folder, name), CHECKS.get(name, unchecked))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("names", nargs="*", help="only families and tables whose names contain one of these")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print the differences of N failed cases each")
    options = parser.parse_args()
    if CONFORMANCE is None or not CONFORMANCE.is_dir():
        print("no conformance data beside the project: nothing was compared", file=sys.stderr)
        return 0
    results = []
    for result in scores(CONFORMANCE, options.names):
        results.append(result)
        print(result.line(), flush=True)
        for name, differences in list(result.failures.items())[: options.show]:
            print(f"  {name}")
            for difference in differences:
                print(f"   {difference}")
    for line in areas(results):
        print(line)
    found = list(problems(results, FILE.read_text()))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
