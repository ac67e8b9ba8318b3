"""`gpuconsole web`: the console in a browser, for who has the token, from the server's own page, read-only."""

import asyncio
import contextlib
import json
import shutil
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from gpuconsole.cli.headless import Listener
from gpuconsole.cli.web import COOKIE, command, web_server

TOKEN = "a-token-for-tests"
STARTED = [sys.executable, "-m", "gpuconsole", "run", "--read-only", "three-nodes"]


@asynccontextmanager
async def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, viewers: int = 1) -> AsyncIterator[str]:
    """Serve the console on a free port; returns the address of the pages."""
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUCONSOLE_WORKER", "false")
    monkeypatch.chdir(tmp_path)
    listener = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    server = web_server(STARTED, Listener("127.0.0.1", port), token=TOKEN, viewers=viewers)
    runner = web.AppRunner(await server.application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        async with asyncio.timeout(60):
            while server.watching:
                await asyncio.sleep(0.1)
        # textual-serve does not wait for the end of a process after that of its output.
        await asyncio.sleep(0.5)
        await runner.cleanup()


def cookie_of(address: str) -> str:
    """Name of the cookie with the token."""
    return COOKIE + address.rpartition(":")[2]


async def shown(viewer: aiohttp.ClientWebSocketResponse, words: str, keys: str = "") -> bool:
    """Wait until the console writes these words; presses the keys first."""
    if keys:
        await viewer.send_str(json.dumps(["stdin", keys]))
    seen = b""
    async with asyncio.timeout(60):
        async for message in viewer:
            if message.type is aiohttp.WSMsgType.BINARY:
                seen += message.data
                if words.encode() in seen:
                    return True
    return False


async def test_only_who_has_the_token_sees_a_page_and_the_address_loses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as address, aiohttp.ClientSession() as browser:
        for path in ("/", "/ws", "/static/js/textual.js", "/download/x", "/?token=wrong", "/?token="):
            async with browser.get(address + path) as page:
                assert (page.status, "token" in await page.text()) == (401, True)
        async with browser.get(f"{address}/?token={TOKEN}", allow_redirects=False) as page:
            assert (page.status, page.headers["Location"]) == (303, f"{address}/")
            cookie = page.cookies[cookie_of(address)]
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        async with browser.get(address, cookies={cookie_of(address): TOKEN}) as page:
            assert (page.status, TOKEN in await page.text()) == (200, False)
            assert page.headers["X-Frame-Options"] == "DENY"
            assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]


async def test_a_viewer_has_a_console_that_changes_nothing_and_reaches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(tmp_path, monkeypatch) as address,
        aiohttp.ClientSession(cookies={cookie_of(address): TOKEN}) as browser,
    ):
        socket = address.replace("http:", "ws:") + "/ws?width=120&height=36"
        for origin in ("", "http://elsewhere.example", address.replace("127.0.0.1", "localhost")):
            async with browser.get(socket.replace("ws:", "http:"), headers={"Origin": origin}) as page:
                assert page.status == 403
        async with browser.ws_connect(socket, origin=address) as viewer:
            assert await shown(viewer, " RO ")
            async with browser.get(socket.replace("ws:", "http:"), headers={"Origin": address}) as page:
                assert (page.status, "The limit of 1 viewers is reached" in await page.text()) == (503, True)
            before = sorted(tmp_path.iterdir())
            assert await shown(viewer, "not in a browser", ":export x.csv\r")
            assert await shown(viewer, "read-only", "4c")
            assert sorted(tmp_path.iterdir()) == before
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.WSServerHandshakeError):
                    async with browser.ws_connect(socket, origin=address) as again:
                        assert await shown(again, " RO "), "the place of a viewer who left is free"
                        return
                await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--listen", ":8000"], "is not a loopback address: use --tls-cert and --tls-key"),
        (["--listen", ":8000", "--tls-cert", "KEY"], "add --public-url https://HOST:8000"),
        (["--tls-key", "KEY"], "--tls-key needs --tls-cert"),
        (["--tls-cert", "KEY"], "cannot use the certificate"),
        (["--token-file", "KEY"], "a token needs at least 16 printable characters without spaces"),
        (["--no-such-option"], "No such option '--no-such-option'"),
    ],
)
def test_what_cannot_be_served_safely_is_an_error(arguments: list[str], problem: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("short\n")
    done = CliRunner().invoke(command, [str(key) if one == "KEY" else one for one in arguments])
    assert done.exit_code != 0
    assert problem in f"{done.output} {done.exception}"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="NO CHROMIUM: the console was not tried in a real browser")
async def test_a_real_browser_shows_the_console_and_passes_on_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as address, browsing(tmp_path) as page:
        await page.call("Network.enable")
        await page.call("Page.enable")
        await page.call("Page.navigate", url=f"{address}/?token={TOKEN}")
        await page.received("Pending")
        for kind in ("keyDown", "keyUp"):
            await page.call("Input.dispatchKeyEvent", type=kind, key="4", text="4" if kind == "keyDown" else "")
        await page.received("nodes")
        shown_at = await page.call("Runtime.evaluate", expression="location.href + ' ' + document.body.className")
        assert shown_at["result"]["value"] == f"{address}/ -loaded -first-byte"


class Page:
    """A page of a browser, driven by Chrome's DevTools protocol. Mutates."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._frames = b""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method, and return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(30):
            while (message := await self._next()).get("id") != self._number:
                pass
        assert "error" not in message, message
        return dict(message["result"])

    async def received(self, words: str) -> None:
        """Wait until the page has received these words from the console."""
        async with asyncio.timeout(60):
            while words.encode() not in self._frames:
                await self._next()
        self._frames = b""

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json()
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            self._frames += b64decode(frame["payloadData"]) if frame["opcode"] == 2 else b""
        return message


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Page]:
    """A page of a headless Chromium."""
    browser = await asyncio.create_subprocess_exec(
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'chromium'}",
        "about:blank",
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert browser.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = b""
            while not line.startswith(b"DevTools listening on "):
                line = await browser.stderr.readline()
                assert line, "Chromium ended"
        drain = asyncio.create_task(browser.stderr.read())
        port = line.split(b":")[2].split(b"/")[0].decode()
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                (target,) = [one for one in await listed.json() if one["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
        drain.cancel()
    finally:
        browser.terminate()
        await browser.wait()
