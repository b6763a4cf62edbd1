"""The application and the process of `hornbook serve`: starts, answers requests, and on Ctrl-C or SIGTERM finishes
those that run."""

import asyncio
import contextlib
import dataclasses
import ipaddress
import itertools
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from hornbook import __version__
from hornbook.lifecycle.stopping import stop_signals
from hornbook.nn.int8 import WeightFormat
from hornbook.serve import schemas
from hornbook.serve.api import ServerState, ServeSettings, add_operations, add_show_routes
from hornbook.serve.engine import QueueFull
from hornbook.serve.middleware import FAILED, PAGE_FILES, RequestMiddleware, error_response
from hornbook.serve.models import ServedModel, open_models
from hornbook.serve.openai import add_openai_routes
from hornbook.serve.run_curves import list_runs
from hornbook.serve.schemas import EVERY_ROUTE, errors

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
BACKLOG = 2048
# Seconds after which idle connections are closed: later than clients close them (httpx and openai after 5), which would
# otherwise send a request on a connection that is just being closed.
KEEP_ALIVE = 75
PAGE = Path(__file__).parent / "page"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
TYPE_NAMES = ("str", "int", "float", "bool", "dict", "list")


def build_app(models: dict[str, ServedModel], settings: ServeSettings) -> FastAPI:
    """The application that serves these models."""
    server = ServerState(models, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server.is_ready = True
        yield
        server.is_ready = False
        await asyncio.to_thread(_close_engines, models)

    app = FastAPI(
        title="Hornbook",
        version=__version__,
        summary="Language models of the BERT and GPT families.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        strict_content_type=True,  # pages of other sites can send JSON without this header, but not with it
    )
    app.state.server = server
    _add_errors(app)
    _add_status(app, server)
    add_operations(app, server)
    add_show_routes(app, server)
    add_openai_routes(app, server)
    app.add_middleware(RequestMiddleware, server=server)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        sentence = validation_sentence(error.errors())
        if any(each["type"] == "extra_forbidden" for each in error.errors()):
            (body,) = request.scope["route"].dependant.body_params
            sentence += f"; its fields are {', '.join(body.field_info.annotation.model_fields)}"
        return error_response(422, sentence)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404 and error.detail == "Not Found":
            return error_response(404, f"{request.url.path} does not exist: /openapi.json lists what does")
        if error.status_code != 405:
            return error_response(error.status_code, str(error.detail), dict(error.headers or {}))
        methods = ", ".join(sorted(map(str.upper, app.openapi()["paths"].get(request.url.path, ["get"]))))
        return error_response(405, f"{request.method} is not allowed here: use {methods}", {"Allow": methods})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return error_response(500, FAILED)

    @app.exception_handler(QueueFull)
    async def busy(request: Request, error: QueueFull) -> Response:
        return error_response(429, str(error), {"Retry-After": str(error.seconds)})


def _add_status(app: FastAPI, server: ServerState) -> None:
    routes = APIRouter(tags=["status"], responses=EVERY_ROUTE)

    @routes.get("/health", response_model=schemas.Health)
    async def health() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @routes.get("/ready", response_model=schemas.Ready, responses={503: {"model": schemas.Ready}})
    async def ready() -> Response:
        """Whether requests are answered."""
        return JSONResponse({"ready": server.is_ready}, 200 if server.is_ready else 503)

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in Prometheus' format."""
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @routes.get("/models", response_model=schemas.Models, response_model_exclude_unset=True)
    async def models() -> dict[str, Any]:
        """The models and what each can do."""
        listed = [model.described() for model in server.models.values()]
        return {"models": listed, "has_runs": server.settings.runs is not None}

    @routes.get("/runs", response_model=schemas.Runs, responses=errors(404))
    async def runs() -> dict[str, Any]:
        """The runs in the folder of --runs, with their loss curves."""
        if server.settings.runs is None:
            raise HTTPException(404, "the server shows no runs: start it with 'hornbook serve MODEL --runs FOLDER'")
        try:
            return {"runs": await asyncio.to_thread(list_runs, server.settings.runs)}
        except ValueError as error:
            raise HTTPException(404, str(error)) from None

    app.include_router(routes)
    for path, name in PAGE_FILES.items():

        @app.get(path, include_in_schema=False)
        async def page(name: str = name) -> Response:
            return FileResponse(PAGE / name, headers=PAGE_HEADERS)


def validation_sentence(errors: Sequence[Any]) -> str:
    """The problems of a request as one sentence, in the words of pydantic."""
    problems: dict[str, dict[tuple, dict[str, str]]] = {}  # type by message, by field and path within it
    for error in errors:
        if error["type"] == "json_invalid":
            reason = error["ctx"]["error"].removesuffix(" starting at")
            return f"the body is not valid JSON at character {error['loc'][-1] + 1}: {reason}"
        if error["loc"] == ("body",):
            return "the body is not a JSON object: send one, with the header Content-Type: application/json"
        # A union of types adds their names to the path.
        field, *within = error["loc"][1:]
        path = tuple(
            part for part in within if isinstance(part, int) or (part.isidentifier() and part not in TYPE_NAMES)
        )
        message = "must not be empty" if error["type"] == "string_too_short" else error["msg"]
        problems.setdefault(str(field), {}).setdefault(path, {})[message] = error["type"]
    sentences = []
    for field, by_path in list(problems.items())[:3]:
        path = max(by_path, key=len)  # what is wrong with an item says more than that a list is not a text
        types = by_path[path]  # an error besides those of type is of the member of a union that has the right type
        messages = [message for message, kind in types.items() if not kind.endswith("_type")] or types
        sentences.append(f"{'.'.join(map(str, (field, *path)))}: {' or '.join(messages)}")
    return "the request is invalid: " + "; ".join(sentences)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal stops the server after the running requests, the second one at once. Unlike uvicorn's own,
        the signal is not raised again afterwards, because stopping was requested."""
        before = {each: signal.signal(each, self.handle_exit) for each in stop_signals()}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The second signal cancels what runs, which uvicorn would log as an error, with a traceback."""
        logging.getLogger("uvicorn.error").disabled = self.should_exit
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    models: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServeSettings | None = None,
    device: str = "auto",
    weights: WeightFormat = "float",
    log: Callable[[str], None] = print,
) -> None:
    """Loads the models and answers requests until the process is stopped. Port 0 chooses a free one."""
    settings = settings or ServeSettings()
    if not is_loopback(host) and settings.api_key is None:
        raise ValueError(f"{host} can be reached by others: add api_key=, or leave out host=")
    if is_loopback(host) and settings.api_key is None:
        # Another page in the same browser must not reach the server under a name of its own.
        settings = dataclasses.replace(settings, hosts=tuple(dict.fromkeys((*LOOPBACK, host))))
    listening = _listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    app = build_app(open_models(models, device, weights), settings)
    for model in app.state.server.models.values():
        log(f"{model.name}: {', '.join(model.abilities)}")
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.timeout) + 1,
    )
    log(f"serving on {address} (Ctrl-C stops)")
    _Uvicorn(config).run(sockets=[listening])
    _close_engines(app.state.server.models)  # after a second signal, uvicorn has left out the end of the lifespan
    log("stopped")


def _close_engines(models: Mapping[str, ServedModel]) -> None:
    """Lets the threads end: one that computes while Python exits would abort the process."""
    for engine in itertools.chain.from_iterable(model.engines for model in models.values()):
        engine.close()


def _listen(host: str, port: int) -> socket.socket:
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # now, as several processes could bind the port until one listens
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"cannot listen on {host}:{port} ({reason}): choose another port") from None
    listening.set_inheritable(True)
    return listening
