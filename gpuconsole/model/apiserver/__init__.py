"""What an API server with Kueue 0.19 makes of a write: defaults, schema, rules and webhooks, with Kueue's texts."""

from gpuconsole.model.apiserver.kinds import KINDS, Kind
from gpuconsole.model.apiserver.writes import Stage, Verdict, create, update

__all__ = ["KINDS", "Kind", "Stage", "Verdict", "create", "update"]
