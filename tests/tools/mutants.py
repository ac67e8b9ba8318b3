"""Break the rules one by one and see a test turn red: `make mutants`.

Each mutant is a named edit of one line of a rule. It is applied to a copy of the project; the tests named beside it
must then fail, without any data from outside the project. A mutant whose line is not found, or which survives, fails
the run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("gpuconsole", "tests", "fixtures", "themes", "pyproject.toml")


class Mutant(NamedTuple):
    """An edit: in `file`, `old` (which occurs exactly once) becomes `new`; one of `tests` has to notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS: tuple[Mutant, ...] = ()


def run_tests(folder: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # The copy has no `../shared` beside it: the project's own tests have to notice.
    environment = {k: v for k, v in os.environ.items() if k != "GPUCONSOLE_CONFORMANCE"}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def try_mutant(mutant: Mutant) -> str | None:
    """Apply one mutant to a fresh copy; return what is wrong, or None if a test turned red."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name) / "project"
        folder.mkdir()
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / part)
        path = folder / mutant.file
        text = path.read_text()
        if text.count(mutant.old) != 1:
            return f"its line occurs {text.count(mutant.old)} times in {mutant.file}"
        path.write_text(text.replace(mutant.old, mutant.new))
        result = run_tests(folder, mutant.tests)
        # 1 = a test failed; anything else is a broken run, which proves nothing.
        if result.returncode == 1:
            return None
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
        return "no test noticed" if result.returncode == 0 else f"pytest ended with {result.returncode}:\n{tail}"


def main() -> int:
    wanted = sys.argv[1:]
    mutants = [m for m in MUTANTS if not wanted or any(word in m.name for word in wanted)]
    healthy = run_tests(ROOT, tuple(sorted({test for m in mutants for test in m.tests})))
    if healthy.returncode:
        print(healthy.stdout[-3000:])
        print("the tests are red before any mutant is applied")
        return 1
    red = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for mutant, problem in zip(mutants, pool.map(try_mutant, mutants), strict=True):
            red += problem is None
            print(
                f"{'red     ' if problem is None else 'SURVIVED'}  {mutant.name}" + (f": {problem}" if problem else ""),
                flush=True,
            )
    print(f"{red}/{len(mutants)}")
    return 0 if red == len(mutants) and mutants else 1


if __name__ == "__main__":
    sys.exit(main())
