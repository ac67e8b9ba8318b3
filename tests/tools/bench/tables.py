"""Filter and sort the table of a big cluster's workloads."""

from gpuconsole.ui.table_model import Rows, parse_filter
from gpuconsole.ui.workload_table import Listing, WorkloadRow, WorkloadRows, columns
from tests.tools.bench.forks import simulation
from tests.tools.bench.report import Report, median

WORKLOADS, NODES = 100_000, 5_000
BAR = 0.15
FILTERS = ("gpus>=8 and queue~1 and wait>10m", "queue~1 or not phase=pending", "priority>0 and workload~9$")
SORTED = ("wait", "queue", "name")


def tables(report: Report) -> None:
    """A filter on fields, then a sort by a column, of 100,000 workloads."""
    made = simulation(WORKLOADS, NODES)
    listing: Listing = WorkloadRows().update(made.snapshot())
    rows: Rows[WorkloadRow] = Rows(
        lambda row: row.key, labels=lambda row: row.workload.labels, fault=lambda row: False, follow=False
    )
    rows.columns = columns(lambda: listing)
    rows.all = listing.rows
    for text in FILTERS:
        rows.filter = parse_filter(text, rows.columns)
        taken = median(rows.arrange, report.runs)
        report.time(f"filter {len(rows.all):,} rows by {text}"[:66], taken, f"{len(rows.order):,} pass", bar=BAR)
    for id in SORTED:
        rows.filter = parse_filter(FILTERS[0], rows.columns)
        rows.sorting = (next(column for column in rows.columns if column.id == id), True)
        report.time(f"  and sort by {id}", median(rows.arrange, report.runs), bar=BAR)
        rows.filter = None
        report.time(f"  sort all rows by {id}", median(rows.arrange, report.runs), bar=BAR)
