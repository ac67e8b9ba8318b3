"""Where the yardsticks beside the project are: `../shared`, which tests read and never copy."""

import os
from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parents[2].parent / "shared"

SHARED: Path | None = _FOLDER if _FOLDER.is_dir() else None
"""The folder, or None where the project stands alone."""

CONFORMANCE: Path | None = (
    Path(os.environ["GPUCONSOLE_CONFORMANCE"])
    if "GPUCONSOLE_CONFORMANCE" in os.environ
    else (SHARED / "conformance" if SHARED else None)
)
"""Decisions of real schedulers; GPUCONSOLE_CONFORMANCE names another folder of the same form."""

TRACES: Path | None = (
    Path(os.environ["GPUCONSOLE_TRACES"])
    if "GPUCONSOLE_TRACES" in os.environ
    else (SHARED / "traces" if SHARED and (SHARED / "traces").is_dir() else None)
)
"""Traces of real clusters; GPUCONSOLE_TRACES names another folder of the same form."""

needs_shared = pytest.mark.skipif(
    SHARED is None, reason="../shared is not beside the project: its yardsticks did not run"
)
needs_conformance = pytest.mark.skipif(
    CONFORMANCE is None, reason="no conformance data beside the project: they did not run"
)
needs_traces = pytest.mark.skipif(TRACES is None, reason="no traces beside the project: the FGD replay did not run")
