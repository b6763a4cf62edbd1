"""Checks of every request before its route (server name, API key, size of the body), the metrics of `/metrics`, and
the form of errors."""

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect, Request

from hornbook.serve.engine import BatchReport, Engine

if TYPE_CHECKING:
    from hornbook.serve.api import ServerState

PAGE_FILES = {"/": "index.html", "/style.css": "style.css"} | {
    f"/{name}.js": f"{name}.js" for name in ("app", "base", "panels", "pictures", "runs", "words")
}
OPEN_PATHS = {*PAGE_FILES, "/health", "/ready"}  # need no key
ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
GONE = 499  # the client closed the connection
FAILED = "the server failed on this request: its log has the reason"
PORT = re.compile(r":\d+$")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class RequestMiddleware:
    """ASGI middleware. The body is read here, so that a route never waits for a slow client."""

    def __init__(self, app: Any, server: "ServerState"):
        self.app, self.server = app, server

    async def __call__(self, scope: dict, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def counted(message: dict) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._pass(scope, receive, counted)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self.server.metrics.requests.labels(path, status).inc()
            self.server.metrics.seconds.labels(path).observe(time.monotonic() - started)

    async def _pass(self, scope: dict, receive: Any, send: Any) -> None:
        async def refuse(status: int, message: str) -> None:
            await error_response(status, message, {"Connection": "close"})(scope, receive, send)

        settings = self.server.settings
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if settings.hosts != ("*",):
            host = headers.get("host", "").lower()
            if PORT.sub("", host) not in settings.hosts:
                names = ", ".join(settings.hosts)
                await refuse(400, f"the server is not known by this name: use one of {names}")
                return
            if "origin" in headers and headers["origin"].lower().rpartition("://")[2] != host:
                await refuse(403, "web pages of other sites cannot use this server: use its own page, or a program")
                return
        if settings.api_key is not None and scope["path"] not in OPEN_PATHS:
            scheme, _, api_key = headers.get("authorization", "").partition(" ")
            is_key = secrets.compare_digest(api_key.encode("latin-1"), settings.api_key.encode())
            if scheme.lower() != "bearer" or not is_key:
                await refuse(401, "the API key is missing or wrong: send 'Authorization: Bearer KEY'")
                return
        too_large = f"the request is larger than {settings.max_bytes:,} bytes: send less text at once"
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > settings.max_bytes:
            await refuse(413, too_large)
            return
        body = bytearray()
        try:
            async with asyncio.timeout(settings.timeout):
                async for chunk in Request(scope, receive).stream():
                    body += chunk
                    if len(body) > settings.max_bytes:
                        await refuse(413, too_large)
                        return
        except ClientDisconnect:
            await refuse(GONE, "the client closed the connection")  # for the metrics
            return
        except TimeoutError:
            await refuse(408, f"the request did not arrive within {settings.timeout:g} s: send it again")
            return
        is_read = False

        async def replay() -> dict:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self.app(scope, replay, send)


class Metrics:
    """The metrics of one server, in Prometheus' format."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge, histogram = (partial(kind, registry=self.registry) for kind in (Counter, Gauge, Histogram))
        self.requests = counter("hornbook_requests", "Requests answered.", ["path", "status"])
        self.seconds = histogram("hornbook_request_seconds", "Time to answer.", ["path"], buckets=SECONDS)
        self.batch_jobs = histogram("hornbook_batch_requests", "Requests per batch.", ["model"], buckets=SIZES)
        self.batch_tokens = histogram("hornbook_batch_tokens", "Tokens per batch.", ["model"], buckets=SIZES)
        self.batch_seconds = histogram("hornbook_batch_seconds", "Time per batch.", ["model"], buckets=SECONDS)
        self.waited = histogram("hornbook_queue_seconds", "Time in the queue.", ["model"], buckets=SECONDS)
        self.generated = counter("hornbook_generated_tokens", "Tokens generated.", ["model"])
        self.waiting = gauge("hornbook_waiting_requests", "Requests in the queue.", ["model"])
        self.running = gauge("hornbook_running_requests", "Requests being computed.", ["model"])

    def watch(self, name: str, engines: Sequence[Engine]) -> None:
        """Reports the queues of a model."""
        self.waiting.labels(name).set_function(lambda: sum(len(engine.waiting) for engine in engines))
        self.running.labels(name).set_function(lambda: sum(engine.num_running for engine in engines))

    def batch(self, name: str, report: BatchReport) -> None:
        self.batch_jobs.labels(name).observe(report.num_jobs)
        self.batch_tokens.labels(name).observe(report.num_tokens)
        self.batch_seconds.labels(name).observe(report.seconds)
        self.waited.labels(name).observe(report.waited)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def error_body(status: int, message: str) -> dict[str, Any]:
    """An error in the form that clients of OpenAI expect: one sentence under error.message."""
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "code": status}}


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(error_body(status, message), status, headers)
