"""A local server that speaks OpenAI's chat completions and Anthropic's messages, as badly as a test asks.

Each request takes the next `Behaviour` of the list (the last one stays). It listens on 127.0.0.1 only and stops with the test.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Behaviour:
    """How one request is answered: `status` other than 200 is an error, `die_after` chunks closes the connection."""

    text: str = ""
    finish: str = "stop"
    usage: dict[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 50})
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    die_after: int | None = None
    delay_s: float = 0.0
    garbage: bool = False


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviours: list[Behaviour]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours = behaviours
        self.requests: list[dict[str, Any]] = []
        self.seen_headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next(self, body: dict[str, Any], headers: dict[str, str]) -> Behaviour:
        with self.lock:
            self.requests.append(body)
            self.seen_headers.append(headers)
            self.times.append(time.monotonic())
            return self.behaviours[min(len(self.requests), len(self.behaviours)) - 1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that hangs up is part of the tests


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        how = self.server.next(body, {key.lower(): value for key, value in self.headers.items()})
        if how.status != 200:
            data = json.dumps({"error": {"message": f"status {how.status} of the test", "type": "test"}}).encode()
            self.send_response(how.status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **how.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        events = anthropic_events(how, body) if self.path.endswith("/messages") else openai_events(how, body)
        for number, event in enumerate(events):
            if how.die_after is not None and number >= how.die_after:
                self.connection.close()
                return
            time.sleep(how.delay_s)
            self.wfile.write(b"data: {garbage\n\n" if how.garbage else event)
            self.wfile.flush()


def pieces(text: str) -> list[str]:
    return [text[start : start + 400] for start in range(0, len(text), 400)] or [""]


def openai_events(how: Behaviour, body: dict[str, Any]) -> Iterator[bytes]:
    def chunk(**values: Any) -> bytes:
        whole = {
            "id": "chat-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": f"{body['model']}-served",
            **values,
        }
        return f"data: {json.dumps(whole)}\n\n".encode()

    for piece in pieces(how.text):
        yield chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}])
    yield chunk(choices=[{"index": 0, "delta": {}, "finish_reason": how.finish}])
    if how.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
        total = how.usage["prompt_tokens"] + how.usage["completion_tokens"]
        yield chunk(choices=[], usage={**how.usage, "total_tokens": total})
    yield b"data: [DONE]\n\n"


def anthropic_events(how: Behaviour, body: dict[str, Any]) -> Iterator[bytes]:
    def event(kind: str, **values: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **values})}\n\n".encode()

    usage = how.usage or {}
    start = {key: value for key, value in usage.items() if key != "output_tokens"} | {"output_tokens": 1}
    message = {"id": "msg-1", "type": "message", "role": "assistant", "content": [], "model": f"{body['model']}-served",
               "stop_reason": None, "stop_sequence": None, "usage": start}  # fmt: skip
    yield event("message_start", message=message)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in pieces(how.text):
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": how.finish, "stop_sequence": None},
                usage={"output_tokens": usage.get("output_tokens", 1)})  # fmt: skip
    yield event("message_stop")


@contextmanager
def serving(*behaviours: Behaviour) -> Iterator[Server]:
    server = Server(list(behaviours))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
