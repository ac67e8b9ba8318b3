"""The FOCUS 1.0 export: costs as a CSV file that billing tools read.

FOCUS is the FinOps Open Cost and Usage Specification, https://focus.finops.org. Version 1.0 is the newest one that the
package focus-validator 1.0.0 checks. The validator calls four columns by their display names of an earlier draft and
reads a fifth one that 1.0 has renamed; these stand at the end of each row with the same values (`VALIDATOR_NAMES`).

Each row is the cost of one owner in one UTC hour: a workload, idle GPUs, or system pods.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from gpuconsole.insight.cost.allocation import COST_AMOUNTS, CostHour, CostKind, CostOwner
from gpuconsole.insight.tables import Cell, Valued, write_csv
from gpuconsole.model.clock import HOUR, SECOND, Time, format_time
from gpuconsole.model.text import clean

COLUMNS = (
    *("AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription"),
    *("ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountCategory"),
    *("CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountStatus", "CommitmentDiscountType"),
    *("ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost"),
    *("InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity", "PricingUnit"),
    *("ProviderName", "PublisherName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType"),
    *("ServiceCategory", "ServiceName", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags"),
)
"""The columns of FOCUS 1.0."""
VALIDATOR_NAMES = {
    "InvoiceIssuer": "InvoiceIssuerName",
    "Provider": "ProviderName",
    "Publisher": "PublisherName",
    "ResourceID": "ResourceId",
    "ChargeType": "ChargeCategory",
}
"""Column that focus-validator 1.0.0 asks for → column of FOCUS 1.0 with the same values."""
OWN_COLUMNS = ("x_UsedCost", "x_UnderutilizedCost", "x_LostCost", "x_IdleCost", "x_SystemCost")
"""Parts of BilledCost; FOCUS reserves the prefix `x_` for columns that it does not define."""
SERVICE = "Kubernetes GPU allocation"
UNIT = "GPU-Hours"
_RESOURCE_TYPES = {CostKind.WORKLOAD: "Workload", CostKind.IDLE: "Idle GPUs", CostKind.SYSTEM: "System pods"}
_SHARED = {CostKind.IDLE: "idle GPUs", CostKind.SYSTEM: "system pods"}


def focus_csv(rows: Iterable[CostHour], cluster: str) -> str:
    """Return costs as a FOCUS CSV file with a header, sorted by hour and owner.

    `cluster` names the cluster, which is billing account and provider. Rows of the same owner and hour are added up;
    rows without cost and GPU time are left out.
    """
    text = io.StringIO()
    head = (*COLUMNS, *VALIDATOR_NAMES, *OWN_COLUMNS)
    write_csv(head, ([_cell(row[name]) for name in head] for row in focus_rows(rows, cluster)), text)
    return text.getvalue()


def focus_rows(rows: Iterable[CostHour], cluster: str) -> Iterator[Mapping[str, str | float | None]]:
    """Yield the rows of the FOCUS file by column; None is null."""
    name = clean(cluster, 253) or "cluster"
    totals: dict[tuple[Time, CostOwner], CostHour] = {}
    for row in rows:
        key = (row.hour, row.owner)
        totals[key] = _added(totals[key], row) if key in totals else row
    for _, row in sorted(totals.items(), key=lambda item: (item[0][0], _order(item[0][1]))):
        if round(row.cost_usd, 8) or round(row.gpu_seconds, 3):
            yield _row(row, name)


def _added(one: CostHour, other: CostHour) -> CostHour:
    """The sum of two rows of the same owner and hour."""
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in COST_AMOUNTS})


def _order(owner: CostOwner) -> tuple[str, ...]:
    return (owner.kind, owner.workload, owner.namespace, owner.gpu_type, owner.capacity_type, owner.pool, owner.zone)


def _row(row: CostHour, cluster: str) -> dict[str, str | float | None]:
    owner, month = row.owner, _month(row.hour)
    quantity = row.gpu_seconds / 3600 or None
    unit, list_cost = UNIT if quantity else None, row.cost_usd + row.saved_usd
    facts: dict[str, str | float | None] = dict.fromkeys(COLUMNS)
    facts |= {
        "AvailabilityZone": owner.zone or None,
        "BilledCost": row.cost_usd,
        "BillingAccountId": cluster,
        "BillingAccountName": cluster,
        "BillingCurrency": "USD",
        "BillingPeriodStart": month[0],
        "BillingPeriodEnd": month[1],
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{_resource(owner)} on {owner.gpu_type} {owner.capacity_type} nodes",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": format_time(row.hour),
        "ChargePeriodEnd": format_time(row.hour + HOUR),
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "ContractedCost": row.cost_usd,
        "ContractedUnitPrice": row.cost_usd / quantity if quantity else None,
        "EffectiveCost": row.cost_usd,
        "InvoiceIssuerName": cluster,
        "ListCost": list_cost,
        "ListUnitPrice": list_cost / quantity if quantity else None,
        "PricingCategory": "Dynamic" if owner.capacity_type == "spot" else "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ProviderName": cluster,
        "PublisherName": cluster,
        "ResourceId": _resource(owner),
        "ResourceName": _resource(owner),
        "ResourceType": _RESOURCE_TYPES[owner.kind],
        "ServiceCategory": "Compute",
        "ServiceName": SERVICE,
        "SkuId": owner.gpu_type,
        "SkuPriceId": f"{owner.gpu_type}/{owner.capacity_type}",
        "SubAccountId": owner.team or None,
        "SubAccountName": owner.team or None,
        "Tags": _tags(owner),
    }
    facts |= {name: facts[column] for name, column in VALIDATOR_NAMES.items()}
    parts = (row.used_usd, row.underutilized_usd, row.lost_usd, row.idle_usd, row.system_usd)
    return facts | dict(zip(OWN_COLUMNS, parts, strict=True))


def _resource(owner: CostOwner) -> str:
    """The workload; for idle GPUs and system pods what they are, and their pool."""
    if owner.kind is CostKind.WORKLOAD:
        return owner.workload
    kind = _SHARED[owner.kind]
    return f"{kind} of {owner.workload or owner.pool}" if owner.workload or owner.pool else kind


def _tags(owner: CostOwner) -> str:
    tags = {
        "kind": owner.kind.value,
        "namespace": owner.namespace,
        "team": owner.team,
        "project": owner.project,
        "user": owner.user,
        "queue": owner.queue,
        "pool": owner.pool,
    }
    return json.dumps({key: clean(value) for key, value in tags.items() if value}, separators=(",", ":"))


def _month(hour: Time) -> tuple[str, str]:
    """The first moment of the month of an hour, and of the next month, in UTC."""
    first = datetime.fromtimestamp(hour / SECOND, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return format_time(int(first.timestamp()) * SECOND), format_time(int(after.timestamp()) * SECOND)


def _cell(value: str | float | None) -> Cell:
    return Valued(f"{value:.8f}", value) if isinstance(value, float) else value
