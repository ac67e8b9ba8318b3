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

KUEUE_GROUP = "kueue.x-k8s.io"
_READ = ["get", "list", "watch"]
_GROUPS = (
    KUEUE_GROUP,
    "batch",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "trainer.kubeflow.org",
    "ray.io",
    "batch.volcano.sh",
    "scheduling.volcano.sh",
    "topology.volcano.sh",
    "nodeinfo.volcano.sh",
    "scheduling.run.ai",
    "karpenter.sh",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "autoscaling.x-k8s.io",
    "leaderworkerset.x-k8s.io",
    "node.k8s.io",
    "policy",
    "apps",
    "events.k8s.io",
)
_CORE = ["namespaces", "pods", "pods/log", "events", "limitranges", "resourcequotas", "podtemplates", "services"]


def token_file() -> str:
    """What --token-auth-file reads."""
    return "".join(f'{who.token},{who.user},{who.name},"{",".join(who.groups)}"\n' for who in EVERYBODY)


def roles() -> Iterator[Manifest]:
    """Roles and bindings of the persons."""
    without_nodes = [_rule([""], _CORE), *(_rule([group], ["*"]) for group in _GROUPS)]
    reading = [*without_nodes, _rule([""], ["nodes"])]
    yield _role("console-reader", reading)
    yield _role("console-nodeless", without_nodes)
    yield _role(
        "console-operator",
        [
            *reading,
            _rule([""], ["nodes"], ["patch", "update"]),
            _rule([""], ["pods"], ["create", "delete", "patch", "update"]),
            _rule([""], ["pods/eviction", "pods/exec", "pods/portforward"], ["create", "get"]),
            _rule(list(_GROUPS), ["*"], ["create", "update", "patch", "delete"]),
        ],
    )
    # As Kueue ships it: who may view a namespace may see its Workloads and LocalQueues.
    aggregated = _role("kueue-viewer", [_rule([KUEUE_GROUP], ["workloads", "localqueues"])])
    aggregated["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    yield aggregated
    for who, role in ((READER, "console-reader"), (OPERATOR, "console-operator"), (NODELESS, "console-nodeless")):
        yield _binding("ClusterRoleBinding", who, role)
    yield {**_binding("RoleBinding", VIEWER, "view"), "metadata": {"name": VIEWER.name, "namespace": TEAM}}


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


def _rule(groups: list[str], resources: list[str], verbs: list[str] = _READ) -> Manifest:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _role(name: str, rules: list[Manifest]) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def _binding(kind: str, who: Identity, role: str) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": who.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": who.user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
