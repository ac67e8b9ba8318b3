"""Which cluster is meant, as whom: what a kubeconfig says, and what of it is refused as unsafe."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpuconsole.backends.kube import target as plugin_process
from gpuconsole.backends.kube.client import ApiServerConnection
from gpuconsole.backends.kube.errors import Unreachable
from gpuconsole.backends.kube.target import RequestedCluster, find
from gpuconsole.errors import ClusterError, UsageError

Document = dict[str, Any]
SERVER = "https://cluster.example.org:6443"
UNCHECKED: Document = {"insecure-skip-tls-verify": True}
PROXIED: Document = {"proxy-url": "http://proxy.example.org:3128"}


def kubeconfig(
    folder: Path, *contexts: Document, current: str = "one", name: str = "kubeconfig", **cluster: Any
) -> str:
    """Write a kubeconfig whose only cluster and user are `c` and `u`."""
    one = {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [one, *contexts],
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def context(name: str, **more: str) -> Document:
    return {"name": name, "context": {"cluster": "c", "user": "u", **more}}


def test_the_current_context_is_meant_where_none_is_named(tmp_path: Path) -> None:
    place = find(RequestedCluster(kubeconfig=kubeconfig(tmp_path, context("two"))))
    assert (place.context, place.server, place.namespace) == ("one", SERVER, "team")
    assert place.name == f"context one ({SERVER})"


def test_a_context_that_is_named_is_meant_although_another_is_current(tmp_path: Path) -> None:
    place = find(RequestedCluster(kubeconfig=kubeconfig(tmp_path, context("two")), context="two"))
    assert (place.context, place.namespace) == ("two", "default")


def test_a_context_can_be_named_where_none_is_current(tmp_path: Path) -> None:
    assert find(RequestedCluster(kubeconfig=kubeconfig(tmp_path, current=""), context="one")).context == "one"


def test_a_context_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no context three; choose one of one, two"):
        find(RequestedCluster(kubeconfig=kubeconfig(tmp_path, context("two")), context="three"))


def test_several_files_are_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kubeconfig(tmp_path, name="first")
    second = kubeconfig(tmp_path, context("two", namespace="there"), name="second")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:{tmp_path}/missing")
    assert find(RequestedCluster(context="two")).namespace == "there"


DEEP = ["contexts: " + "[" * 5000 + "]" * 5000, "contexts: &a [*a]", "current-context: " + "9" * 5000,
        "current-context: !!timestamp x", "current-context: !!bool x", "current-context: !!int ''"]  # fmt: skip
"""What makes a reader of YAML give up in other ways."""


@pytest.mark.parametrize("text", ["", "[]", "apiVersion: v1\nkind: Config\n", "contexts: [{}]", "{", "a: [b", *DEEP])
def test_a_file_that_is_no_kubeconfig_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UsageError, match=str(path)):
        find(RequestedCluster(kubeconfig=str(path)))


def test_a_file_that_is_not_there_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no kubeconfig at .*; set --kubeconfig or KUBECONFIG"):
        find(RequestedCluster(kubeconfig=str(tmp_path / "none")))


def test_a_certificate_that_is_not_checked_is_accepted_only_where_that_was_asked_for_by_name(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, **UNCHECKED)
    with pytest.raises(ClusterError, match=r"its identity is not verified.*--insecure-skip-tls-verify"):
        find(RequestedCluster(kubeconfig=path))
    assert not find(RequestedCluster(kubeconfig=path, insecure=True)).client.configuration.verify_ssl


def test_the_flag_alone_leaves_certificates_checked(tmp_path: Path) -> None:
    assert find(RequestedCluster(kubeconfig=kubeconfig(tmp_path), insecure=True)).client.configuration.verify_ssl


def test_a_token_does_not_go_over_plain_http(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server="http://cluster.example.org")
    for insecure in (False, True):
        with pytest.raises(ClusterError, match="is not https; the token would be sent in clear text"):
            find(RequestedCluster(kubeconfig=path, insecure=insecure))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_on_loopback_it_may(tmp_path: Path, host: str) -> None:
    assert (
        find(RequestedCluster(kubeconfig=kubeconfig(tmp_path, server=f"http://{host}:8080"))).server
        == f"http://{host}:8080"
    )


def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, **PROXIED)
    assert find(RequestedCluster(kubeconfig=path)).client.configuration.proxy == "http://proxy.example.org:3128"


def test_names_from_a_kubeconfig_cannot_steer_the_terminal(tmp_path: Path) -> None:
    place = find(RequestedCluster(kubeconfig=kubeconfig(tmp_path, context("a\x1b[2Jb")), context="a\x1b[2Jb"))
    assert "\x1b" not in place.context


def test_in_a_pod_its_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(UsageError, match="mount a service account token, or use --kubeconfig"):
        find(RequestedCluster())


TOKEN = """#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": STATUS}'
"""
PLUGINS = {
    "it ends with an error": (
        "#!/bin/sh\necho 'the SSO session has expired; run sso login' >&2\nexit 3\n",
        "process returned 3. the SSO session has expired; run sso login",
    ),
    "it says nothing": ("#!/bin/sh\n", "failed to decode process output"),
    "it says something else": ("#!/bin/sh\necho '<html>'\n", "failed to decode process output"),
    "its answer is a list": ("#!/bin/sh\necho '[]'\n", "malformed response. missing key 'apiVersion'"),
    "no status": (TOKEN.replace("STATUS", "null"), "its output has neither a token nor a client certificate"),
    "an empty status": (TOKEN.replace("STATUS", "{}"), "its output has neither a token nor a client certificate"),
    "an empty token": (TOKEN.replace("STATUS", '{"token": ""}'), "its output has neither a token nor a client"),
    "no key": (TOKEN.replace("STATUS", '{"clientCertificateData": "x"}'), "its output has neither a token nor a"),
    "another version": (TOKEN.replace("/v1", "/v9").replace("STATUS", '{"token": "t"}'), "plugin api version"),
}


def with_plugin(folder: Path, text: str | None, **settings: Any) -> RequestedCluster:
    """A kubeconfig whose user is `get-token`, a script with this text; without one it is not there."""
    path = folder / "get-token"
    if text is not None:
        path.write_text(text)
        path.chmod(0o755)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), **settings}
    file = Path(kubeconfig(folder))
    document = json.loads(file.read_text())
    document["users"] = [{"name": "u", "user": {"exec": plugin}}]
    file.write_text(json.dumps(document))
    return RequestedCluster(kubeconfig=str(file))


@pytest.mark.parametrize(("text", "says"), PLUGINS.values(), ids=PLUGINS)
def test_an_exec_plugin_that_fails_is_an_error_that_names_it_and_the_context(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ClusterError) as error:
        find(with_plugin(tmp_path, text))
    assert str(error.value).startswith(f"context one: the exec plugin {tmp_path}/get-token failed: {says}")


ENDLESS = {
    "it hangs": ("#!/bin/sh\nsleep 1000\n", "no output within 0.5 s"),
    "what it started hangs": ("#!/bin/sh\nsleep 1000 &\n", "no output within 0.5 s"),
    "it closes stdout and hangs": ("#!/bin/sh\nexec >&- 2>&-\nsleep 1000\n", "it did not exit within 0.5 s"),
    "it never stops talking": ("#!/bin/sh\nexec yes\n", "its output exceeds 1 MiB"),
    "it never stops complaining": ("#!/bin/sh\nexec yes >&2\n", "its output exceeds 1 MiB"),
    "it waits for keys": ("#!/bin/sh\nread line\nexit 4\n", "process returned 4"),
    "it says no text": ("#!/bin/sh\nprintf '\\377\\376'\n", "'utf-8' codec can't decode"),
}


@pytest.mark.parametrize(("text", "says"), ENDLESS.values(), ids=ENDLESS)
def test_an_exec_plugin_that_does_not_end_or_waits_for_keys_is_an_error_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr(plugin_process, "LIMIT", 0.5)
    begun = time.monotonic()
    with pytest.raises(ClusterError) as error:
        find(with_plugin(tmp_path, text))
    assert str(error.value).startswith(f"context one: the exec plugin {tmp_path}/get-token failed: {says}")
    assert time.monotonic() - begun < 10.0


def test_an_exec_plugin_that_is_not_there_is_an_error_with_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as error:
        find(with_plugin(tmp_path, None, installHint="brew install get-token"))
    assert str(error.value) == (
        f"context one: the exec plugin {tmp_path}/get-token failed: it cannot be run: No such file or directory;"
        " brew install get-token"
    )


def test_the_token_of_an_exec_plugin_is_used_until_it_expires(tmp_path: Path) -> None:
    status = '{"token": "t", "expirationTimestamp": "2000-01-01T00:00:00Z"}'
    configuration = find(with_plugin(tmp_path, TOKEN.replace("STATUS", status))).client.configuration
    assert configuration.api_key["BearerToken"] == "Bearer t"
    status = '{"token": "new", "expirationTimestamp": "2999-01-01T00:00:00Z"}'
    with_plugin(tmp_path, TOKEN.replace("STATUS", status))
    assert configuration.get_api_key_with_prefix("BearerToken") == "Bearer new"


def test_an_exec_plugin_that_fails_when_its_token_expires_is_told_and_not_run_for_each_request(tmp_path: Path) -> None:
    status = '{"token": "t", "expirationTimestamp": "2000-01-01T00:00:00Z"}'
    connection = ApiServerConnection(with_plugin(tmp_path, TOKEN.replace("STATUS", status)))
    with_plugin(tmp_path, f"#!/bin/sh\necho run >> {tmp_path}/runs\necho too late >&2\nexit 1\n")
    for _ in range(3):
        with pytest.raises(Unreachable, match=r"context one: the exec plugin .*/get-token failed: .* too late; run it"):
            connection.get("/api")
    assert (tmp_path / "runs").read_text() == "run\n"
