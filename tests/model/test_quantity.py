"""Quantities are read exactly, rounded up once, and written as Kubernetes writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model import resources as quantity

READ = {
    "whole units stay whole": ("nvidia.com/gpu", "8", 8),
    "a YAML integer is as good as a string": ("nvidia.com/gpu", 8, 8),
    "cpu counts in milli": ("cpu", "1.5", 1500),
    "cpu may be written in milli": ("cpu", "250m", 250),
    "a part of a milli-CPU is rounded up": ("cpu", "1n", 1),
    "binary suffixes": ("memory", "1.5Gi", 1610612736),
    "decimal suffixes": ("memory", "1500M", 1_500_000_000),
    "exponents": ("memory", "2e3", 2000),
    "a part of a byte is rounded up": ("memory", "1m", 1),
    "more than MaxInt64 is MaxInt64": ("memory", "1e30", quantity.MAX),
    "a fraction of a GPU is rounded up; refusing it is the validator's task": ("nvidia.com/gpu", "500m", 1),
}


@pytest.mark.parametrize(("resource", "text", "want"), READ.values(), ids=READ)
def test_amounts_are_read_in_base_units(resource: str, text: str | int, want: int) -> None:
    assert quantity.amount(resource, text) == want


@pytest.mark.parametrize("text", ["", "eight", "1 Gi", "0x10", "1KB", "--1", "1e9999", "9" * 100, True])
def test_what_is_no_quantity_is_refused(text: str | bool) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse_quantity(text)


WRITTEN = {
    "milli-CPU": ("cpu", 1500, "1500m"),
    "whole CPUs": ("cpu", 32000, "32"),
    "thousands of CPUs": ("cpu", 2_000_000, "2k"),
    "gibibytes": ("memory", 16 * 1024**3, "16Gi"),
    "bytes that are no multiple of 1Ki have decimal suffixes": ("memory", 1_500_000_000, "1500M"),
    "bytes that no suffix shortens": ("memory", 1_025, "1025"),
    "GPUs": ("nvidia.com/gpu", 8, "8"),
    "hugepages are binary": ("hugepages-2Mi", 4 * 1024**2, "4Mi"),
    "nothing": ("memory", 0, "0"),
}


@pytest.mark.parametrize(("resource", "value", "want"), WRITTEN.values(), ids=WRITTEN)
def test_amounts_are_written_canonically(resource: str, value: int, want: str) -> None:
    assert quantity.format_quantity(resource, value) == want


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 2**62))
def test_what_is_written_is_read_back(resource: str, value: int) -> None:
    assert quantity.amount(resource, quantity.format_quantity(resource, value)) == value
