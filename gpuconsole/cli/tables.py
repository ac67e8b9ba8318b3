"""Plain text tables, as answers write them."""

from gpuconsole.insight.tables import counted as counted
from gpuconsole.insight.tables import seconds as seconds
from gpuconsole.insight.tables import table as table
