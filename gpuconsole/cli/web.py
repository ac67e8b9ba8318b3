"""`gpuconsole web`: serves the console to browsers, each viewer with a process of its own.

textual-serve runs the console behind a websocket, but has neither authentication nor TLS. The server here adds both:
every request needs the token of the session, as a cookie after the first page; a websocket has to come from a page of
this server; and beyond this machine's loopback address, pages are served by TLS only.
"""

import hmac
import secrets
import shlex
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from gpuconsole.cli.headless import Listener, ListenerType
from gpuconsole.errors import UsageError
from gpuconsole.model.text import clean

EVERYWHERE = ("", "0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
COOKIE = "gpuconsole-token-"
"""Name of the cookie, before the port: cookies of one host are shared by all its ports."""
SHORTEST_TOKEN = 16
"""Minimum characters of a token that the user chooses."""
NO_TOKEN = "Open the address that `gpuconsole web` printed, with its token.\n"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--listen",
    type=ListenerType(),
    metavar="ADDRESS",
    default="127.0.0.1:8000",
    show_default=True,
    help="Address to serve on; other than loopback needs TLS.",
)
@click.option("--viewers", type=click.IntRange(1, 100), default=4, show_default=True, help="Maximum viewers at a time.")
@click.option("--allow-changes", is_flag=True, help="Let viewers change the cluster (default: read-only).")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the token that viewers need (default: a new random one).",
)
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate chain (PEM).")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Key of the certificate (PEM).")
@click.option("--public-url", metavar="URL", default="", help="Address that viewers open, such as that of a proxy.")
@click.argument("arguments", metavar="[RUN OPTIONS] [FILES]...", nargs=-1, type=click.UNPROCESSED)
def command(
    listen: Listener,
    viewers: int,
    allow_changes: bool,
    token_file: Path | None,
    tls_cert: str | None,
    tls_key: str | None,
    public_url: str,
    arguments: tuple[str, ...],
) -> int:
    """Serve the console to browsers.

    Files and all other options are those of `gpuconsole run`, such as --live. Each viewer has a console of its own, in
    a process of its own. The address that is printed contains the token: whoever has it sees the cluster.
    """
    from gpuconsole.cli import run

    # An error in the arguments is told now, and not to each viewer.
    run.command.make_context("gpuconsole run", list(arguments), help_option_names=["-h", "--help"])
    if tls_cert is not None and listen.host in EVERYWHERE and not public_url:
        raise UsageError(
            f"{listen} listens on all interfaces: add --public-url https://HOST:{listen.port}, which viewers open"
        )
    tls = _tls(listen, tls_cert, tls_key)
    try:
        from aiohttp import web
    except ImportError as error:
        raise UsageError(f"{error}; install gpuconsole[web]") from error
    started = [sys.executable, "-m", "gpuconsole", "run", *([] if allow_changes else ["--read-only"]), *arguments]
    server = web_server(
        started, listen, token=_token(token_file), viewers=viewers, public_url=public_url, has_tls=tls is not None
    )
    click.echo(f"{server.public_url}/?token={server.token}")
    click.echo(f"gpuconsole: at most {viewers} viewers, {'with changes' if allow_changes else 'read-only'}", err=True)
    try:
        web.run_app(server.application(), host=listen.host or None, port=listen.port, ssl_context=tls, print=None)
    except OSError as error:
        raise UsageError(f"cannot serve on {listen}: {error.strerror}; choose another address") from error
    return 0


def _tls(listen: Listener, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the TLS settings; None without TLS, which only loopback may do. Raises UsageError."""
    if cert is None:
        if key is not None:
            raise UsageError("--tls-key needs --tls-cert")
        if listen.host not in LOOPBACK:
            raise UsageError(
                f"{listen} is not a loopback address: use --tls-cert and --tls-key, or a proxy with TLS on this machine"
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use the certificate {cert}: {error}") from error
    return context


def _token(file: Path | None) -> str:
    """Return the token of a file, or a new one. Raises UsageError."""
    if file is None:
        return secrets.token_urlsafe(32)
    token = file.read_text(errors="replace").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{file}: a token needs at least {SHORTEST_TOKEN} printable characters without spaces")
    return token


def _site(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address; the usual port of a scheme may be written out."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None


def _other_site(origin: str, expected: str) -> str:
    """Why the page of another site is refused, and what to do if it is a proxy's."""
    found = clean(origin, 100) or "missing"
    return (
        f"Refused: the page's origin is {found}, expected {expected}.\n"
        f"If a proxy serves this page, start gpuconsole web with --public-url and the address that viewers open.\n"
    )


def web_server(
    started: list[str], listen: Listener, *, token: str, viewers: int, public_url: str = "", has_tls: bool = False
) -> Any:
    """Return the server, a textual-serve `Server`; `started` is the command line that each viewer's process runs."""
    from aiohttp import web
    from textual_serve.server import Server

    scheme = "https" if has_tls else "http"
    host = f"[{listen.host}]" if ":" in listen.host else listen.host or "localhost"

    class WebServer(Server):
        """Serves the console to viewers who have the token. Mutates."""

        def __init__(self) -> None:
            address = public_url.rstrip("/") or f"{scheme}://{host}:{listen.port}"
            super().__init__(
                shlex.join(started), host=listen.host, port=listen.port, title="gpuconsole", public_url=address
            )
            self.token = token
            self.cookie = f"{COOKIE}{listen.port}"
            self.watching = 0
            """Viewers that have a console now."""

        async def application(self) -> web.Application:
            """Return the web application."""
            app = await self._make_app()
            app.middlewares.append(self._guarded())
            return app

        async def on_startup(self, app: web.Application) -> None:
            """Say nothing: the command says where it serves."""

        def _guarded(self) -> Any:
            @web.middleware
            async def guard(
                request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
            ) -> web.StreamResponse:
                refused = self._refused(request)
                response = refused if refused is not None else await handler(request)
                if not response.prepared:
                    response.headers.update(HEADERS)
                return response

            return guard

        def _refused(self, request: web.Request) -> web.Response | None:
            """Return why a request is refused, or the page that takes the token out of the address; else None."""
            given = request.query.get("token", "")
            if given and request.path == "/" and self._is_token(given):
                response = web.Response(status=303, headers={"Location": f"{self.public_url}/"})
                secure = self.public_url.startswith("https:")
                response.set_cookie(self.cookie, token, httponly=True, samesite="Strict", secure=secure)
                return response
            if not self._is_token(request.cookies.get(self.cookie, "")):
                return web.Response(status=401, text=NO_TOKEN)
            if request.path != "/ws":
                return None
            # Another site's page in the same browser must not reach the console.
            origin = request.headers.get("Origin", "")
            if _site(origin) != _site(self.public_url):
                return web.Response(status=403, text=_other_site(origin, self.public_url))
            if self.watching >= viewers:
                text = f"The limit of {viewers} viewers is reached. Close another page, or start with more --viewers.\n"
                return web.Response(status=503, text=text)
            return None

        def _is_token(self, given: str) -> bool:
            return hmac.compare_digest(given.encode(errors="replace"), token.encode())

        async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
            """Run the console of one viewer until the page is closed."""
            self.watching += 1
            try:
                return await super().handle_websocket(request)
            finally:
                self.watching -= 1

    return WebServer()
