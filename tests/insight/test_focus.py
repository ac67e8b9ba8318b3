"""The FOCUS export: columns, values, and what the FinOps Foundation's own validator says of it."""

import csv
import io
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import CostHour, CostKind, CostOwner
from gpuconsole.insight.cost.focus import COLUMNS, VALIDATOR_NAMES, focus_csv
from gpuconsole.model.clock import HOUR, parse_time

MONDAY = parse_time("2026-01-05T08:00:00Z")
TRAIN = CostOwner(
    kind=CostKind.WORKLOAD,
    workload="llm/pretrain",
    namespace="llm",
    team="research",
    project="chat",
    user="ada",
    queue="cq-llm",
    gpu_type="a100-80gb",
    capacity_type="spot",
    pool="a100",
    zone="us-east-1a",
)
WORK = CostHour(owner=TRAIN, hour=MONDAY, gpu_seconds=8 * 3600.0, used_usd=4.0, lost_usd=2.0, saved_usd=11.68)
IDLE = CostHour(owner=CostOwner(kind=CostKind.IDLE, gpu_type="l4"), hour=MONDAY, gpu_seconds=1800.0, idle_usd=0.405)
SYSTEM = CostHour(
    owner=CostOwner(kind=CostKind.SYSTEM, namespace="kube-system", gpu_type="cpu"), hour=MONDAY, system_usd=0.25
)
ROWS = (WORK, replace(WORK, hour=MONDAY + HOUR), IDLE, SYSTEM)


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_workload_on_spot_nodes() -> None:
    (row,) = parsed(focus_csv([WORK], "prod"))
    assert {name: value for name, value in row.items() if value} == {
        "AvailabilityZone": "us-east-1a",
        "BilledCost": "6.00000000",
        "BillingAccountId": "prod",
        "BillingAccountName": "prod",
        "BillingCurrency": "USD",
        "BillingPeriodEnd": "2026-02-01T00:00:00Z",
        "BillingPeriodStart": "2026-01-01T00:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeDescription": "llm/pretrain on a100-80gb spot nodes",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": "2026-01-05T09:00:00Z",
        "ChargePeriodStart": "2026-01-05T08:00:00Z",
        "ConsumedQuantity": "8.00000000",
        "ConsumedUnit": "GPU-Hours",
        "ContractedCost": "6.00000000",
        "ContractedUnitPrice": "0.75000000",
        "EffectiveCost": "6.00000000",
        "InvoiceIssuerName": "prod",
        "ListCost": "17.68000000",
        "ListUnitPrice": "2.21000000",
        "PricingCategory": "Dynamic",
        "PricingQuantity": "8.00000000",
        "PricingUnit": "GPU-Hours",
        "ProviderName": "prod",
        "PublisherName": "prod",
        "ResourceId": "llm/pretrain",
        "ResourceName": "llm/pretrain",
        "ResourceType": "Workload",
        "ServiceCategory": "Compute",
        "ServiceName": "Kubernetes GPU allocation",
        "SkuId": "a100-80gb",
        "SkuPriceId": "a100-80gb/spot",
        "SubAccountId": "research",
        "SubAccountName": "research",
        "Tags": '{"kind":"workload","namespace":"llm","team":"research","project":"chat",'
        '"user":"ada","queue":"cq-llm","pool":"a100"}',
        "InvoiceIssuer": "prod",
        "Provider": "prod",
        "Publisher": "prod",
        "ResourceID": "llm/pretrain",
        "ChargeType": "Usage",
        "x_UsedCost": "4.00000000",
        "x_UnderutilizedCost": "0.00000000",
        "x_LostCost": "2.00000000",
        "x_IdleCost": "0.00000000",
        "x_SystemCost": "0.00000000",
    }


def test_idle_gpus_and_system_pods_have_rows_of_their_own() -> None:
    facts = ("ResourceId", "ResourceType", "BilledCost", "PricingQuantity", "PricingUnit", "PricingCategory", "SkuId")
    assert [[row[name] for name in facts] for row in parsed(focus_csv([SYSTEM, IDLE], "prod"))] == [
        ["idle GPUs", "Idle GPUs", "0.40500000", "0.50000000", "GPU-Hours", "Standard", "l4"],
        ["system pods", "System pods", "0.25000000", "", "", "Standard", "cpu"],
    ]


def test_december_is_billed_until_the_first_of_january() -> None:
    (row,) = parsed(focus_csv([replace(IDLE, hour=parse_time("2026-12-31T23:00:00Z"))], "prod"))
    periods = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
    assert [row[name] for name in periods] == [
        *("2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", "2026-12-31T23:00:00Z", "2027-01-01T00:00:00Z")
    ]


def test_rows_of_an_owner_and_hour_are_one_and_empty_ones_are_left_out() -> None:
    moved = replace(WORK, gpu_seconds=0.0, used_usd=-1.0, lost_usd=1.0, saved_usd=0.0)
    (row,) = parsed(focus_csv([WORK, moved, replace(IDLE, gpu_seconds=0.0, idle_usd=0.0)], "prod"))
    assert (row["BilledCost"], row["x_UsedCost"], row["x_LostCost"]) == ("6.00000000", "3.00000000", "3.00000000")


amounts = st.floats(0, 1e6)
owners = st.builds(
    CostOwner,
    kind=st.sampled_from(CostKind),
    workload=st.text(max_size=20),
    team=st.text(max_size=20),
    gpu_type=st.sampled_from(["a100-80gb", "other", "cpu"]),
)
hours = st.builds(
    CostHour,
    owner=owners,
    hour=st.integers(0, 40_000).map(lambda number: MONDAY + number * HOUR),
    gpu_seconds=amounts,
    used_usd=amounts,
    underutilized_usd=amounts,
    lost_usd=amounts,
    idle_usd=amounts,
    system_usd=amounts,
    saved_usd=amounts,
)


@given(st.lists(hours, max_size=20))
def test_the_billed_cost_is_the_whole_cost_and_the_sum_of_its_parts(rows: list[CostHour]) -> None:
    found = parsed(focus_csv(rows, "prod"))
    billed = sum(float(row["BilledCost"]) for row in found)
    assert billed == pytest.approx(sum(row.cost_usd for row in rows), abs=1e-6)
    for row in found:
        parts = sum(float(value) for name, value in row.items() if name.startswith("x_"))
        assert float(row["BilledCost"]) == pytest.approx(parts, abs=1e-6)
        assert float(row["ListCost"]) >= float(row["BilledCost"]) - 1e-6
        assert isinstance(json.loads(row["Tags"]), dict)


def test_names_are_no_formulas_and_no_control_characters() -> None:
    hostile = replace(TRAIN, workload='=HYPERLINK("http://x")', team="@x\x1b[31m", gpu_type="-1")
    (row,) = parsed(focus_csv([replace(WORK, owner=hostile)], "=1+1"))
    assert (row["ResourceId"], row["SubAccountId"], row["SkuId"], row["ProviderName"]) == (
        *("""'=HYPERLINK("http://x")""", "'@x\ufffd[31m", "'-1", "'=1+1"),
    )


def validated(file: Path) -> str:
    """What focus-validator says of a file; it finds its list of currencies only from the folder that it lies in."""
    spec = find_spec("focus_validator")
    if spec is None or spec.origin is None:
        pytest.skip("focus-validator is not installed (it needs Python 3.11 or 3.12)")
    words = [sys.executable, "-m", "focus_validator.main", "--validate-version", "1.0", "--data-file", str(file)]
    done = subprocess.run(words, cwd=Path(spec.origin).parent.parent, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_the_validator_accepts_the_export(tmp_path: Path) -> None:
    file = tmp_path / "costs.csv"
    file.write_text(focus_csv(ROWS, "prod"))
    assert validated(file).splitlines()[-1] == "Validation succeeded."


def test_the_validator_would_find_a_missing_column_and_a_wrong_currency(tmp_path: Path) -> None:
    file = tmp_path / "costs.csv"
    file.write_text(focus_csv(ROWS, "prod").replace("BilledCost", "Billed").replace(",USD,", ",DOLLAR,"))
    said = validated(file)
    assert "BilledCost is a required column" in said
    assert "BillingCurrency" in said
    assert said.splitlines()[-1] == "Validation failed!"


def test_the_validators_names_are_added_and_none_is_missing() -> None:
    head = focus_csv([], "prod").splitlines()[0].split(",")
    assert head[: len(COLUMNS)] == sorted(COLUMNS)
    assert set(VALIDATOR_NAMES.values()) <= set(COLUMNS)
    assert len(set(head)) == len(head)
