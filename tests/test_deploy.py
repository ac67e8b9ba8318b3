"""What is deployed: the recorder's manifests, its rights, the dashboards and the alert rules."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuconsole.cli import COMMANDS
from gpuconsole.cli.record import POD, POD_NAMESPACE
from gpuconsole.cli.record import command as record_command

ROOT = Path(__file__).resolve().parent.parent
DEPLOY, DOCS = ROOT / "deploy", ROOT / "docs"
RECORDER = DEPLOY / "recorder"
METRICS = DOCS / "reference" / "metrics.md"
READING = {"get", "list", "watch"}
NOT_FOR_THE_RECORDER = {"pods/log", "clusterqueues/pendingworkloads", "localqueues/pendingworkloads"}
_NAME = re.compile(r"\b(?:gpuconsole_[a-z0-9_]+|training_job_cost_usd)\b")


def documents() -> Iterator[dict[str, Any]]:
    """The objects of the kustomization, with its namespace as kustomize sets it."""
    kustomization = yaml.safe_load((RECORDER / "kustomization.yaml").read_text())
    for file in kustomization["resources"]:
        for document in yaml.safe_load_all((RECORDER / file).read_text()):
            if document["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
                document["metadata"]["namespace"] = kustomization["namespace"]
            yield document


def one(kind: str) -> dict[str, Any]:
    (found,) = [document for document in documents() if document["kind"] == kind]
    return found


def rights(file: Path) -> dict[tuple[str, str], set[str]]:
    """(API group, resource) → verbs of the ClusterRole in a file."""
    found: dict[tuple[str, str], set[str]] = {}
    for document in yaml.safe_load_all(file.read_text()):
        for rule in document.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_every_file_of_the_recorder_is_used_and_names_are_unique() -> None:
    kustomization = yaml.safe_load((RECORDER / "kustomization.yaml").read_text())
    files = {file.name for file in RECORDER.iterdir()} - {"kustomization.yaml", "Dockerfile"}
    assert files == set(kustomization["resources"])
    names = [(document["kind"], document["metadata"]["name"]) for document in documents()]
    assert len(names) == len(set(names))


def test_the_image_is_built_from_all_that_the_wheel_contains_and_from_no_caches() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    taken = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    needed = {*wheel["packages"], *wheel["force-include"], "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert taken == needed


def test_the_recorder_may_only_read_and_as_much_as_the_console() -> None:
    own, console = rights(RECORDER / "rbac.yaml"), rights(DEPLOY / "rbac" / "read-only.yaml")
    assert set().union(*own.values()) == READING
    assert own == {right: verbs for right, verbs in console.items() if right[1] not in NOT_FOR_THE_RECORDER}
    assert not [resource for _, resource in own if resource in ("secrets", "pods/exec", "*")]


def test_the_binding_gives_the_role_to_the_service_account_of_the_pod() -> None:
    binding, account, role = one("ClusterRoleBinding"), one("ServiceAccount"), one("ClusterRole")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    named = {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": POD_NAMESPACE}
    assert subject == named
    assert one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == named["name"]


def test_one_pod_writes_the_history_and_needs_no_rights_on_its_node() -> None:
    deployment = one("Deployment")
    spec = deployment["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    (volume,), (mount,) = pod["volumes"], container["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == one("PersistentVolumeClaim")["metadata"]["name"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["GPUCONSOLE_STATE_DIR"] == mount["mountPath"], "the rest of the file system is read-only"
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert one("Service")["spec"]["selector"] == spec["selector"]["matchLabels"]


def test_the_arguments_are_those_of_the_command_and_probes_ask_the_metrics_port() -> None:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    assert name == "record"
    assert name in COMMANDS
    parsed = record_command.make_context("record", list(arguments))
    assert parsed.params["live"] is True
    (port,) = container["ports"]
    assert parsed.params["metrics"].port == port["containerPort"]
    assert parsed.params["metrics"].host == "", "probes come from outside the pod"
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert [probe["path"] for probe in probes.values()] == ["/-/healthy", "/-/healthy", "/-/ready"]


def test_history_pull_asks_the_pod_that_is_deployed() -> None:
    deployment = one("Deployment")["metadata"]
    assert f"deploy/{deployment['name']}" == POD
    assert deployment["namespace"] == POD_NAMESPACE == one("Namespace")["metadata"]["name"]


def documented() -> set[str]:
    """Metrics that the reference lists, each in the first column of a table."""
    return {found[1] for found in re.finditer(r"^\| `([a-z0-9_]+)`", METRICS.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("file", sorted((DEPLOY / "grafana").glob("*.json")), ids=lambda file: file.stem)
def test_a_dashboard_is_complete(file: Path) -> None:
    board = json.loads(file.read_text())
    assert board["schemaVersion"] >= 39, "Grafana 11"
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert "datasource" in variables
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, f"{panel['title']} overlaps another panel"
        taken |= cells
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables
            assert set(_NAME.findall(target["expr"])) <= documented(), "the reference lists every metric"


def test_the_rules_use_documented_metrics() -> None:
    text = (DEPLOY / "prometheus" / "rules.yaml").read_text()
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    used = {name for rule in rules for name in _NAME.findall(re.sub(r"gpuconsole:[\w:]+", "", rule["expr"]))}
    assert used <= documented()
    for rule in rules:
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description"}
