"""Every table that is compared, by `AREA/TEST`: the CHECKS of each module of this folder."""

from importlib import import_module
from pathlib import Path

from tests.conformance.tables import Check

_MODULES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if not path.stem.startswith("test_"))

CHECKS: dict[str, Check] = {
    name: check
    for module in _MODULES
    if module != "areas"
    for name, check in getattr(import_module(f"tests.conformance.{module}"), "CHECKS", {}).items()
}
