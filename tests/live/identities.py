"""Who may do what on the throw-away cluster: one token for each, and the roles that go with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

Manifest = dict[str, Any]


class Identity(Struct, frozen=True):
    """Somebody who has a token."""

    name: str
    """Name of the context in the kubeconfig as well."""
    user: str
    groups: tuple[str, ...] = ()
    agent: bool = False
    """A program of the control plane, not a person."""

    @property
    def token(self) -> str:
        return f"token-of-{self.name}"


TEAM = "team-a"
"""The namespace of those who have only one."""
ADMIN = Identity("admin", "admin", ("system:masters",))
READER = Identity("reader", "reader")
"""May read what the console reads, everywhere, and change nothing."""
OPERATOR = Identity("operator", "operator")
"""May do all that the console offers."""
VIEWER = Identity("viewer", "viewer")
"""May see one namespace, by Kubernetes' own role `view`."""
NODELESS = Identity("nodeless", "nodeless")
"""May read everything that the console reads, but nodes."""
NOBODY = Identity("nobody", "nobody")
CONTROLLERS = Identity("controllers", "system:kube-controller-manager", agent=True)
SCHEDULER = Identity("scheduler", "system:kube-scheduler", agent=True)
KWOK = Identity("kwok", "kwok", ("system:masters",), agent=True)
KUEUE = Identity(
    "kueue", "system:serviceaccount:kueue-system:kueue-controller-manager", ("system:masters",), agent=True
)
"""The stand-in for Kueue's controllers."""
SETUP = Identity("setup", "setup", ("system:masters",), agent=True)
"""The tests themselves, where they arrange what the console is to find."""
EVERYBODY = (ADMIN, READER, OPERATOR, VIEWER, NODELESS, NOBODY, CONTROLLERS, SCHEDULER, KWOK, KUEUE, SETUP)

_KUEUE_VIEW = {
    "apiGroups": ["kueue.x-k8s.io"],
    "resources": ["workloads", "localqueues"],
    "verbs": ["get", "list", "watch"],
}
ROLES = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
"""The roles that come with the console: what they allow is what its readers and operators have here."""
_READ_ONLY, _OPERATOR, _NODELESS = "gpuconsole-read-only", "gpuconsole-operator", "nodeless"


def token_file() -> str:
    """What --token-auth-file reads."""
    return "".join(f'{who.token},{who.user},{who.name},"{",".join(who.groups)}"\n' for who in EVERYBODY)


def roles() -> Iterator[Manifest]:
    """Roles and bindings of the persons."""
    shipped = [yaml.safe_load((ROLES / name).read_text()) for name in ("read-only.yaml", "operator.yaml")]
    yield from shipped
    yield _role(_NODELESS, list(_without_nodes(shipped[0]["rules"])))
    # As Kueue ships it: who may view a namespace may see its Workloads and LocalQueues.
    aggregated = _role("kueue-viewer", [_KUEUE_VIEW])
    aggregated["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    yield aggregated
    yield _binding(READER, _READ_ONLY)
    yield _binding(OPERATOR, _READ_ONLY)
    yield _binding(OPERATOR, _OPERATOR)
    yield _binding(NODELESS, _NODELESS)
    bound = _binding(VIEWER, "view", kind="RoleBinding")
    bound["metadata"]["namespace"] = TEAM
    yield bound


def kubeconfig(server: str, authority: Path, current: Identity) -> str:
    """A kubeconfig with one context for each identity."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "live", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": who.name, "user": {"token": who.token}} for who in EVERYBODY],
            "contexts": [{"name": who.name, "context": {"cluster": "live", "user": who.name}} for who in EVERYBODY],
            "current-context": current.name,
        }
    )


def kubeconfig_by_plugin(server: str, authority: Path, token: Path) -> str:
    """A kubeconfig of somebody whose token is in a file, and comes by an exec plugin."""
    told = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"printf '{told}' \"$(cat {token})\""],
        "interactiveMode": "Never",
    }
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "live", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": "by-plugin", "user": {"exec": plugin}}],
            "contexts": [{"name": "by-plugin", "context": {"cluster": "live", "user": "by-plugin"}}],
            "current-context": "by-plugin",
        }
    )


def _without_nodes(rules: list[Manifest]) -> Iterator[Manifest]:
    for rule in rules:
        yield {**rule, "resources": [resource for resource in rule["resources"] if resource != "nodes"]}


def _role(name: str, rules: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def _binding(who: Identity, role: str, kind: str = "ClusterRoleBinding") -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": f"{who.name}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": who.user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
