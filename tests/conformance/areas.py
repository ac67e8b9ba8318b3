"""Every table that is compared, by its name: the CHECKS of each module of this folder and of those below it.

Kueue's tables are named `AREA/TEST`, those of the other engines `volcano/AREA/TEST` and `kai/AREA/TEST`.
"""

from importlib import import_module
from pathlib import Path

from tests.conformance.tables import Check

_HERE = Path(__file__).parent
_MODULES = sorted(
    ".".join(path.relative_to(_HERE).with_suffix("").parts)
    for path in _HERE.glob("**/[a-z]*.py")
    if not path.stem.startswith("test_")
)

CHECKS: dict[str, Check] = {
    name: check
    for module in _MODULES
    if module != "areas"
    for name, check in getattr(import_module(f"tests.conformance.{module}"), "CHECKS", {}).items()
}
