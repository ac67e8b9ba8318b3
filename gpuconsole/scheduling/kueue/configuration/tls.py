"""Validates TLS options: rejects versions below 1.2, and cipher suites and curves that Go's crypto/tls lacks."""

from collections.abc import Iterator

from gpuconsole.scheduling.kueue.configuration.manager import TLSOptions

VERSIONS = ("VersionTLS12", "VersionTLS13")
_TOO_OLD = ("VersionTLS10", "VersionTLS11")
SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
)
INSECURE_SUITES = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
)
"""Insecure cipher suites of Go's crypto/tls, which are accepted too."""
CURVES = (23, 24, 25, 29, 4587, 4588, 4589)
"""IANA ids of P-256, P-384, P-521, X25519 and hybrids with ML-KEM."""


def tls_faults(options: TLSOptions) -> list[str]:
    """Return the first error of the version, the cipher suites and the curves each; empty if there are none."""
    return [*_version(options.min_version), *_suites(options.cipher_suites), *_curves(options.curve_preferences)]


def _version(version: str) -> Iterator[str]:
    if version in _TOO_OLD:
        yield "invalid minVersion. Please use VersionTLS12 or VersionTLS13"
    elif version and version not in VERSIONS:
        yield f'invalid minVersion: unknown tls version "{version}". Please use VersionTLS12 or VersionTLS13'


def _suites(suites: tuple[str, ...]) -> Iterator[str]:
    unknown = next((suite for suite in suites if suite not in SUITES and suite not in INSECURE_SUITES), None)
    if unknown is not None:
        names = " ".join(SUITES)
        problem = f"Cipher suite {unknown} not supported or doesn't exist"
        yield f"invalid cipher suites: {problem}. Please use the secure cipher names: [{names}]"


def _curves(curves: tuple[int, ...]) -> Iterator[str]:
    unknown = next((curve for curve in curves if curve not in CURVES), None)
    if unknown is not None:
        yield f"invalid curve preferences: curve {unknown} not supported or doesn't exist"
