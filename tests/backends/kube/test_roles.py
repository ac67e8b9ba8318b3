"""The roles that come along: the reading one covers all that is read, and neither lets anybody near a Secret."""

from pathlib import Path

import yaml

from gpuconsole.backends.kube.discovery import SOURCES

ROLES = Path(__file__).parents[3] / "deploy" / "rbac"


def plural(kind: str) -> str:
    """As the API names its resources."""
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def rights(file: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) that a role allows."""
    role = yaml.safe_load((ROLES / file).read_text())
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_reading_role_covers_all_that_is_watched_and_writes_nothing() -> None:
    allowed = rights("read-only.yaml")
    for group, kind in SOURCES:
        assert {verb for g, resource, verb in allowed if (g, resource) == (group, plural(kind))} == {
            "get",
            "list",
            "watch",
        }
    assert {verb for _, _, verb in allowed} == {"get", "list", "watch"}


def test_no_role_allows_everything_or_secrets() -> None:
    for file in ("read-only.yaml", "operator.yaml"):
        for group, resource, verb in rights(file):
            assert "*" not in (group, resource, verb)
            assert resource != "secrets"
