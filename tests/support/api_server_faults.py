"""What a misbehaving API server, or a proxy in front of it, does instead of answering."""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

Fault = Callable[[BaseHTTPRequestHandler, threading.Event], None]
"""Does it to one request; the event is set when the server behaves again. The connection is closed afterwards."""

LOGIN = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n<body>Please sign in.</body></html>\n"
REDIRECT = {"Location": "https://login.example.org/?back=1"}
NAMES = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}


def status(code: int, **headers: str) -> Fault:
    """Answer with a status, as the API server says it."""
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": NAMES.get(code, "InternalError"),
        "message": f"the fault says {code}",
        "code": code,
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, _: _send(handler, code, json.dumps(said).encode(), named)


def answer(body: bytes, content: str = "application/json") -> Fault:
    """Answer 200 with this body."""
    return lambda handler, _: _send(handler, 200, body, {"Content-Type": content})


def watch_lines(*lines: bytes, again: float | None = None) -> Fault:
    """Answer 200 with these lines in chunks, once or every `again` seconds until the server behaves."""

    def send(handler: BaseHTTPRequestHandler, healed: threading.Event) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            while True:
                for line in lines:
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                if again is None or healed.wait(again):
                    break
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            return

    return send


def cut(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
    """Close the connection without a word."""


def cut_body(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
    """Announce more than comes."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"kind":"List","metadata":{"resourceVersion":"1')


def cut_chunk(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
    """Break a chunk off."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'ff\r\n{"type":"ADDED","obj')


def silence(handler: BaseHTTPRequestHandler, healed: threading.Event) -> None:
    """Say nothing, and never close the connection; not even when the server behaves again."""
    healed.wait()
    handler.connection.settimeout(30)
    try:
        handler.rfile.read(1)
    except OSError:
        return


def _send(handler: BaseHTTPRequestHandler, code: int, body: bytes, headers: Mapping[str, str]) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _event(type: str, thing: Any) -> bytes:
    return json.dumps({"type": type, "object": thing}).encode() + b"\n"


DEEP = b'{"kind":"List","metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}\n"
ANSWERS: dict[str, Fault] = {
    "401": status(401),
    "403": status(403),
    "404": status(404),
    "410": status(410),
    "429 with Retry-After": status(429, Retry_After="1"),
    "429 without": status(429),
    "500": status(500),
    "503": status(503),
    "redirect": lambda handler, _: _send(handler, 302, b"", REDIRECT),
    "418": lambda handler, _: _send(handler, 418, b"I'm a teapot", {}),
    "empty body": answer(b""),
    "login page": answer(LOGIN, "text/html"),
    "half of a body": cut_body,
    "half of a chunk": cut_chunk,
    "half of a JSON": answer(b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[{"metada'),
    "a list": answer(b"[]"),
    "a number": answer(b"7"),
    "null": answer(b"null"),
    "an empty object": answer(b"{}"),
    "a Status": answer(b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'),
    "wrong types": answer(b'{"kind":7,"metadata":[7],"items":{"a":7},"versions":"v1","groups":7,"status":[]}'),
    "items of wrong types": answer(b'{"kind":"List","metadata":{"resourceVersion":"9"},"items":[7,[],{"metadata":7}]}'),
    "deep nesting": answer(DEEP),
    "no UTF-8": answer(b'{"kind":"List","metadata":{"resourceVersion":"\xff"},"items":[]}'),
    "cut connection": cut,
}
"""What may come instead of any answer."""
WATCHES: dict[str, Fault] = {
    "ends at once": watch_lines(),
    "blank lines": watch_lines(b"\n", b"\n\n", b" \n"),
    "blank lines that go on": watch_lines(b"\n", again=0.05),
    "bytes without an end": watch_lines(b" " * 100, again=0.05),
    "garbage": watch_lines(b"}{garbage\n"),
    "garbage that goes on": watch_lines(b"}{garbage\n", again=0.05),
    "half of an event": watch_lines(b'{"type":"ADDED","object":{"metadata":{"na'),
    "event of no type": watch_lines(b'{"object":{"metadata":{"name":"x"}}}\n'),
    "event of an unknown type": watch_lines(_event("RENAMED", {"metadata": {"name": "n1"}}), again=0.2),
    "event without an object": watch_lines(b'{"type":"ADDED"}\n', again=0.2),
    "object without a name": watch_lines(_event("ADDED", {"metadata": {}}), again=0.2),
    "object of wrong types": watch_lines(_event("MODIFIED", {"metadata": {"name": "n1"}, "spec": 7}), again=0.2),
    "object of another kind": watch_lines(_event("ADDED", {"kind": "Status", "status": "Failure"}), again=0.2),
    "deep event": watch_lines(b'{"type":"ADDED","object":' + DEEP.strip() + b"}\n", again=0.2),
    "error without a code": watch_lines(_event("ERROR", {})),
    "error of wrong types": watch_lines(_event("ERROR", [7])),
    "410 as an event": watch_lines(_event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})),
    "500 as an event": watch_lines(_event("ERROR", {"kind": "Status", "code": 500, "message": "no"})),
    "bookmark of wrong types": watch_lines(_event("BOOKMARK", {"metadata": {"resourceVersion": 7}})),
}
"""What a watch may bring beside that."""
