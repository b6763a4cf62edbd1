"""The HTTP routes of Hornbook's own API, and what all routes share: limits, time-outs, and the form of errors."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from hornbook import __version__
from hornbook.serve import schemas
from hornbook.serve.engine import Engine, QueuedRequest, QueueFull, Run
from hornbook.serve.generation import GenerationEngine
from hornbook.serve.metrics import Metrics
from hornbook.serve.middleware import PAGE_FILES, RequestMiddleware, error_response
from hornbook.serve.models import ServedModel
from hornbook.serve.run_list import list_runs
from hornbook.serve.schemas import EVERY_ROUTE, MAX_ITEMS, MODEL_ROUTES, errors

T = TypeVar("T")
PAGE = Path(__file__).parent / "page"
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
INLINE_CHARACTERS = 20_000  # longer requests are tokenized in a thread, so that others are not held up
DEEPEST = 5  # lists and objects in each other
GONE = 499  # the client closed the connection
TYPE_NAMES = ("str", "int", "float", "bool", "dict", "list")
PROBLEMS = {  # by pydantic's type of error
    "missing": "is missing",
    "extra_forbidden": "is not a field of this request",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
}


@dataclasses.dataclass(frozen=True)
class ServeSettings:
    """Limits and options of the server."""

    api_key: str | None = None
    timeout: float = 60.0  # seconds per request
    max_queue: int = 64  # waiting requests per model
    max_bytes: int = 1_000_000  # of a request
    batch_tokens: int = 4096
    slots: int = 4  # texts that a GPT generates at the same time
    hosts: tuple[str, ...] = ("*",)  # names under which the server may be addressed
    runs: Path | None = None  # folder whose runs the page shows
    log_text: Callable[[str], None] | None = None  # gets the texts of requests; none: they are not logged


class Server:
    """The served models and the rules, as the routes need them."""

    def __init__(self, models: dict[str, ServedModel], settings: ServeSettings):
        self.models, self.settings, self.metrics = models, settings, Metrics()
        self.is_ready = False
        for name, model in models.items():
            report = partial(self.metrics.batch, name)
            model.engine = Engine(settings.batch_tokens, settings.max_queue, on_batch=report)
            if "generate" in model.abilities:
                model.generator = GenerationEngine(model.loaded, settings.slots, settings.max_queue, report)
            self.metrics.watch(name, model.engines)

    def find(self, name: str | None, ability: str, kind: str | None = None) -> ServedModel:
        """The model of this name, or the first that has the ability; for `predict`, of a kind of task."""

        def can(model: ServedModel) -> bool:
            return ability in model.abilities and (kind is None or model.abilities[ability] == kind)

        operation = f"{ability} ({kind})" if kind else ability
        if name is None:
            first_able = next(filter(can, self.models.values()), None)
            if first_able is None:
                raise HTTPException(422, f"no model here can do {operation}: serve one that can")
            return first_able
        if name not in self.models:
            raise HTTPException(404, f"there is no model '{name}' here: there is {', '.join(self.models)}")
        if not can(self.models[name]):
            operations = ", ".join(self.models[name].abilities)
            raise HTTPException(422, f"the model {name} cannot do {operation}: it can do {operations}")
        return self.models[name]

    async def tokenized(self, model: ServedModel, items: list, tokenize: Callable[[list[str]], T]) -> T:
        """`tokenize` of the texts in the items of a request, which are logged with `log_text`."""
        texts = [text for item in items for text in _texts_in(item)]
        if not 1 <= len(items) <= MAX_ITEMS:
            raise HTTPException(422, f"the request has {len(items)} texts: give 1 to {MAX_ITEMS}")
        if self.settings.log_text is not None:
            for text in texts:
                self.settings.log_text(text)
        try:
            if sum(map(len, texts)) <= INLINE_CHARACTERS:
                return tokenize(texts)
            return await asyncio.to_thread(tokenize, texts)
        except ValueError as error:
            raise HTTPException(422, model.public(str(error))) from None

    async def submit(self, model: ServedModel, key: Hashable, items: list, run: Run) -> QueuedRequest:
        """Queues a request."""
        return model.engine.submit(key, items, run, await self.tokenized(model, items, model.count))

    async def answer(self, request: Request, model: ServedModel, key: Hashable, items: list, run: Run) -> Sequence[Any]:
        """One result per item; ends early if the client goes away or its time is up."""
        job = await self.submit(model, key, items, run)
        return await self.wait(request, model, job)

    async def wait(
        self, request: Request, model: ServedModel, job: QueuedRequest, begun: asyncio.Future | None = None
    ) -> Sequence[Any]:
        """The results of a job; with `begun`, returns nothing as soon as that is done."""
        gone = asyncio.ensure_future(_disconnected(request))
        awaited = {job.future, gone} | ({begun} if begun is not None else set())
        try:
            await asyncio.wait(awaited, timeout=self.settings.timeout, return_when=asyncio.FIRST_COMPLETED)
            if job.future.done():
                return job.future.result()
            if begun is not None and begun.done():
                return []
            job.cancel()
            if gone.done():
                raise HTTPException(GONE, "the client closed the connection")
            raise HTTPException(504, self.too_slow)
        except ValueError as error:
            raise HTTPException(422, model.public(str(error))) from None
        finally:
            gone.cancel()

    @property
    def too_slow(self) -> str:
        return f"the request took longer than {self.settings.timeout:g} s: send less text, or raise the timeout"


def _texts_in(item: Any, depth: int = 0) -> list[str]:
    """All texts in an item: a text, or a list or dictionary of them."""
    if isinstance(item, str):
        return [item]
    if depth == DEEPEST:
        raise HTTPException(422, "the inputs are nested too deeply: give texts, pairs of texts, or objects")
    if isinstance(item, dict):
        item = list(item.values())
    return [text for each in item for text in _texts_in(each, depth + 1)] if isinstance(item, list | tuple) else []


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def validation_sentence(errors: Sequence[Any]) -> str:
    """The problems of a request as one sentence."""
    problems: dict[str, dict[tuple, dict[str, None]]] = {}  # by field and path within it, without duplicates
    for error in errors:
        if error["type"] == "json_invalid":
            reason = error["ctx"]["error"].removesuffix(" starting at")
            return f"the body is not valid JSON at character {error['loc'][-1] + 1}: {reason}"
        if error["loc"] == ("body",):
            return "the body is not a JSON object: send one, with the header Content-Type: application/json"
        # A union of types adds their names to the path.
        field, *within = error["loc"][1:]
        path = tuple(part for part in within if isinstance(part, int) or _is_name(part))
        problems.setdefault(str(field), {}).setdefault(path, {})[_problem(error)] = None
    sentences = []
    for field, by_path in list(problems.items())[:3]:
        path = max(by_path, key=len)  # what is wrong with an item says more than that a list is not a text
        sentences.append(f"{'.'.join(map(str, (field, *path)))} {' or '.join(by_path[path])}")
    return "the request is invalid: " + "; ".join(sentences)


def _is_name(part: str) -> bool:
    """Whether part of a path is the name of a field, not of a type such as list[constrained-str]."""
    return part.isidentifier() and part not in TYPE_NAMES


def _problem(error: Any) -> str:
    """What is wrong with a value, without the words of the validating library."""
    if (template := PROBLEMS.get(error["type"])) is not None:
        return template.format(**error.get("ctx", {}))
    return f"is wrong: {error['msg'][0].lower()}{error['msg'][1:]}"


def build_app(models: dict[str, ServedModel], settings: ServeSettings) -> FastAPI:
    """The application that serves these models."""
    server = Server(models, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        server.is_ready = True
        yield
        server.is_ready = False
        for model in models.values():
            for engine in model.engines:
                await asyncio.to_thread(engine.close)

    app = FastAPI(
        title="Hornbook",
        version=__version__,
        summary="Language models of the BERT and GPT families.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = server
    _add_errors(app)
    _add_status(app, server)
    _add_operations(app, server)
    from hornbook.serve.openai import add_openai_routes
    from hornbook.serve.pictures import add_picture_routes

    add_picture_routes(app, server)
    add_openai_routes(app, server)
    app.add_middleware(RequestMiddleware, server=server)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return error_response(422, validation_sentence(error.errors()))

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
        return error_response(500, "the server failed on this request: its log has the reason")

    @app.exception_handler(QueueFull)
    async def busy(request: Request, error: QueueFull) -> Response:
        return error_response(429, str(error), {"Retry-After": str(error.seconds)})


def _add_status(app: FastAPI, server: Server) -> None:
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
        return {"runs": await asyncio.to_thread(list_runs, server.settings.runs)}

    app.include_router(routes)
    for path, name in PAGE_FILES.items():

        @app.get(path, include_in_schema=False)
        async def page(name: str = name) -> Response:
            return FileResponse(PAGE / name, headers=PAGE_HEADERS)


def _add_operations(app: FastAPI, server: Server) -> None:
    routes = APIRouter(tags=["models"], responses=MODEL_ROUTES)

    @routes.post("/fill-mask", response_model=schemas.Masks | schemas.MasksOfTexts)
    async def fill_mask(body: schemas.FillMask, request: Request) -> dict[str, Any]:
        """The likeliest tokens of each mask of a text."""
        model = server.find(body.model, "fill-mask")
        fill_mask = partial(model.loaded.fill_mask, top_k=body.top_k)
        masks = await server.answer(request, model, ("fill-mask", body.top_k), body.texts, fill_mask)
        return {"model": model.name} | ({"masks": masks[0]} if isinstance(body.text, str) else {"texts": masks})

    @routes.post("/next-sentence", response_model=schemas.NextSentence)
    async def next_sentence(body: schemas.Pair, request: Request) -> dict[str, Any]:
        """The probability that the second sentence follows the first."""
        model = server.find(body.model, "next-sentence")
        pairs = [(body.first, body.second)]
        (probability,) = await server.answer(request, model, "next-sentence", pairs, model.next_sentence)
        return {"model": model.name, "is_next": probability}

    @routes.post("/detect", response_model=schemas.DetectedWords | schemas.DetectedWordsOfTexts)
    async def detect(body: schemas.TextOrTexts, request: Request) -> dict[str, Any]:
        """The probability of each word of having been replaced."""
        model = server.find(body.model, "detect")
        words = await server.answer(request, model, "detect", body.texts, model.loaded.detect)
        return {"model": model.name} | ({"words": words[0]} if isinstance(body.text, str) else {"texts": words})

    @routes.post("/predict", response_model=schemas.Predictions)
    async def predict(body: schemas.Predict, request: Request) -> dict[str, Any]:
        """Predictions of a fine-tuned model: one per input, which is a text, a pair, or an object by the names of the
        model's inputs."""
        model = server.find(body.model, "predict")
        items = [tuple(each) if isinstance(each, list) else each for each in body.inputs]
        predictions = await server.answer(request, model, "predict", items, model.predict)
        return {"model": model.name, "predictions": predictions}

    @routes.post("/answer", response_model=schemas.Answer)
    async def answer(body: schemas.Question, request: Request) -> dict[str, Any]:
        """The span of a passage that answers a question; `answer` is empty if the model finds none."""
        model = server.find(body.model, "predict", "spans")
        items = [(body.question, body.passage)]
        (prediction,) = await server.answer(request, model, "predict", items, model.predict)
        return {"model": model.name, "has_answer": bool(prediction.get("answer")), **prediction}

    @routes.post("/explain", response_model=schemas.Explanation)
    async def explain(body: schemas.Explain, request: Request) -> dict[str, Any]:
        """The answer of a model that reads a knowledge graph, with the paths that it weighed for each choice."""
        model = server.find(body.model, "explain")
        items = [(body.question, body.choices, body.context)]
        (explanation,) = await server.answer(request, model, "explain", items, model.explain)
        return {"model": model.name, **explanation}

    @routes.post("/tag", response_model=schemas.TaggedText | schemas.TaggedTexts, response_model_exclude_unset=True)
    async def tag(body: schemas.TextOrTexts, request: Request) -> dict[str, Any]:
        """The words of a text with their tags, and the entities."""
        model = server.find(body.model, "predict", "tagging")
        tagged = await server.answer(request, model, "predict", body.texts, model.predict)
        return {"model": model.name} | (tagged[0] if isinstance(body.text, str) else {"texts": tagged})

    app.include_router(routes)
