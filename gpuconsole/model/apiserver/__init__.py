"""What an API server with Kueue 0.19 makes of a write: defaults, schema, rules and webhooks, with Kueue's texts."""

from gpuconsole.model.apiserver.kinds import KINDS, Kind
from gpuconsole.model.apiserver.writes import NOT_CHECKED, Stage, Verdict, create, hidden, update

__all__ = ["KINDS", "NOT_CHECKED", "Kind", "Stage", "Verdict", "create", "hidden", "update"]
