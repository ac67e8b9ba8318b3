"""Simulation of an API server with Kueue 0.19: defaulting, schema validation, rules and webhooks, with Kueue's
texts.
"""

from gpuconsole.model.apiserver.kinds import KINDS, ApiKind
from gpuconsole.model.apiserver.writes import NOT_CHECKED, WriteResult, WriteStage, create, hidden, update

__all__ = ["KINDS", "NOT_CHECKED", "ApiKind", "WriteResult", "WriteStage", "create", "hidden", "update"]
