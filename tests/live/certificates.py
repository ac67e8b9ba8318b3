"""The certificates of a throw-away control plane, made by openssl for 127.0.0.1 and for a day."""

import subprocess
from pathlib import Path

from msgspec import Struct

_NAMES = "subjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"


class Pair(Struct, frozen=True):
    """A certificate and its key."""

    certificate: Path
    key: Path


class Certificates(Struct, frozen=True, kw_only=True):
    """Who vouches for whom."""

    authority: Pair
    serving: Pair
    """For every server of the control plane."""
    front_authority: Pair
    front: Pair
    """With this the API server calls the servers behind it."""
    kubelet_client: Pair
    admin: Pair
    """A user by client certificate, in the group system:masters."""
    accounts: Pair
    """The key pair that signs the tokens of service accounts; its `certificate` is the public key."""


def make(folder: Path) -> Certificates:
    """Make them all in a new folder."""
    folder.mkdir()
    authority = _authority(folder, "authority")
    front_authority = _authority(folder, "front-authority")
    return Certificates(
        authority=authority,
        serving=_signed(folder, "serving", "/CN=kube-apiserver", authority),
        front_authority=front_authority,
        front=_signed(folder, "front", "/CN=front-proxy-client", front_authority),
        kubelet_client=_signed(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet", authority),
        admin=_signed(folder, "admin", "/O=system:masters/CN=admin-by-certificate", authority),
        accounts=_key_pair(folder, "accounts"),
    )


def _authority(folder: Path, name: str) -> Pair:
    pair = _key(folder, name)
    _openssl(
        "req", "-x509", "-new", "-key", str(pair.key), "-subj", f"/CN={name}", "-days", "1", "-out",
        str(pair.certificate), "-addext", "basicConstraints=critical,CA:TRUE",
        "-addext", "keyUsage=critical,keyCertSign,digitalSignature",
    )  # fmt: skip
    return pair


def _signed(folder: Path, name: str, subject: str, authority: Pair) -> Pair:
    pair = _key(folder, name)
    _openssl(
        "req", "-x509", "-new", "-key", str(pair.key), "-subj", subject, "-days", "1", "-out", str(pair.certificate),
        "-CA", str(authority.certificate), "-CAkey", str(authority.key), "-addext", _NAMES,
        "-addext", "basicConstraints=CA:FALSE", "-addext", "extendedKeyUsage=serverAuth,clientAuth",
        "-addext", "keyUsage=digitalSignature",
    )  # fmt: skip
    return pair


def _key_pair(folder: Path, name: str) -> Pair:
    pair = _key(folder, name)
    _openssl("ec", "-in", str(pair.key), "-pubout", "-out", str(pair.certificate))
    return pair


def _key(folder: Path, name: str) -> Pair:
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(pair.key))
    return pair


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
