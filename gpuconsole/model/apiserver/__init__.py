"""Simulated API server with Kueue 0.19: defaulting, schemas, rules and webhooks, with the texts of their errors."""

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
