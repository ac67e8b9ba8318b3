"""Simulation of an API server with Kueue 0.19: defaulting, schema validation, rules and webhooks, with Kueue's
texts.
"""

from gpuconsole.model.apiserver.writes import (
    KINDS,
    NOT_CHECKED,
    ApiKind,
    WriteResult,
    WriteStage,
    create,
    hidden,
    update,
)

__all__ = ["KINDS", "NOT_CHECKED", "ApiKind", "WriteResult", "WriteStage", "create", "hidden", "update"]
