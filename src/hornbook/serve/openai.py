"""The routes that clients of OpenAI use: `/v1/models`, `/v1/embeddings` and `/v1/completions`."""

import asyncio
import base64
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from hornbook.inference.generation import Generated, GenerationConfig, OnText
from hornbook.serve.api import ServerState
from hornbook.serve.engine import Job
from hornbook.serve.middleware import FAILED, error_body
from hornbook.serve.models import ServedModel
from hornbook.serve.schemas import EVERY_ROUTE, MAX_API_SEED, MODEL_ROUTES, Text
from hornbook.tasks.encoded import l2_normalized

MAX_CHOICES = 128  # texts per request
MAX_STOPS = 16  # each is looked for after every token
LOG = logging.getLogger("uvicorn.error")
LARGEST_MAX_TOKENS = 4096
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The texts; with `stream`, server-sent events, each with the next part of a text.",
        "content": {"text/event-stream": {}},
    }
}
REASONS = {"end": "stop", "stop": "stop", "length": "length", "context": "length"}


class EmbeddingRequest(BaseModel):
    """As in OpenAI's API; other fields are ignored."""

    model_config = ConfigDict(strict=True)

    model: str
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None

    @property
    def texts(self) -> list[str] | None:
        """The texts; None if there are token ids in their place, which differ between vocabularies."""
        texts = [self.input] if isinstance(self.input, str) else list(self.input)
        return texts if all(isinstance(text, str) for text in texts) else None


class CompletionRequest(BaseModel):
    """As in OpenAI's API, with top_k and repetition_penalty. Fields with an unsupported effect are refused; all other
    unknown fields are ignored."""

    model_config = ConfigDict(strict=True)

    model: str
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)] = ""
    max_tokens: Annotated[int | None, Field(ge=1, le=LARGEST_MAX_TOKENS)] = 16
    temperature: Annotated[float | None, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float | None, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int | None, Field(ge=1)] = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    n: Annotated[int | None, Field(ge=1, le=MAX_CHOICES)] = 1
    stop: Text | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = None
    seed: Annotated[int | None, Field(ge=0, le=MAX_API_SEED)] = None
    stream: bool | None = False
    stream_options: dict[str, Any] | None = None
    echo: bool | None = False
    # Not supported: refused unless they have no effect.
    logprobs: int | None = None
    suffix: str | None = None
    best_of: int | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None

    def unsupported(self) -> str | None:
        """The name of a field that has an effect which is not supported."""
        if self.logprobs is not None:  # 0 asks for those of the chosen tokens
            return "logprobs"
        names = ("suffix", "logit_bias", "presence_penalty", "frequency_penalty")
        if name := next((name for name in names if getattr(self, name)), None):
            return name
        return "best_of" if self.best_of not in (None, 0, self.n or 1) else None

    def settings(self) -> dict[str, Any]:
        """The arguments of `generate`."""
        is_greedy = self.temperature == 0
        seed = self.seed if self.seed is not None else secrets.randbelow(MAX_API_SEED)
        return {
            "max_new_tokens": self.max_tokens or 16,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": None if self.top_p in (None, 1) or is_greedy else self.top_p,
            "top_k": None if is_greedy else self.top_k,
            "repetition_penalty": self.repetition_penalty,
            "num_return_sequences": self.n or 1,
            "stop_strings": (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            "seed": 0 if is_greedy else seed,  # so that greedy requests share batches
        }


class ListedModel(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ListedModels(BaseModel):
    object: Literal["list"]
    data: list[ListedModel]


class PromptUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Usage(PromptUsage):
    completion_tokens: int


class EmbeddingVector(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: Annotated[list[float] | str, Field(description="With base64: the bytes of float32 numbers.")]


class EmbeddingResponse(BaseModel):
    object: Literal["list"]
    model: str
    data: list[EmbeddingVector]
    usage: PromptUsage


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length"] | None


class CompletionResponse(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


def add_openai_routes(app: FastAPI, server: ServerState) -> None:
    routes = APIRouter(prefix="/v1", tags=["openai"], responses=MODEL_ROUTES)

    @app.get("/v1/models", tags=["openai"], response_model=ListedModels, responses=EVERY_ROUTE)
    async def models() -> dict[str, Any]:
        """The names of the models."""
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "hornbook"} for name in server.models]
        return {"object": "list", "data": listed}

    @routes.post("/embeddings", response_model=EmbeddingResponse)
    async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
        """One vector of length 1 per text, as OpenAI's are."""
        model = server.find(body.model, "embed")
        texts = body.texts
        if texts is None:
            raise HTTPException(422, "input has token ids, which differ between vocabularies: send texts")
        width = model.loaded.model.config.width
        if body.dimensions not in (None, width):
            raise HTTPException(422, f"the vectors of {model.name} have {width} dimensions: leave out dimensions")
        job = await server.submit(model, "embed", texts, model.loaded.embed)
        vectors = await server.wait(request, model, job)
        content = {
            "object": "list",
            "model": model.name,
            "data": [
                {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
                for index, vector in enumerate(l2_normalized(np.array(vectors)))
            ],
            "usage": {"prompt_tokens": job.num_tokens, "total_tokens": job.num_tokens},
        }
        return Response(json.dumps(content), media_type="application/json")

    @routes.post("/completions", response_model=CompletionResponse, responses=STREAMED)
    async def completions(body: CompletionRequest, request: Request) -> Response | dict[str, Any]:
        """Continuations of a prompt; with `stream`, as they are generated."""
        model = server.find(body.model, "generate")
        if (name := body.unsupported()) is not None:
            raise HTTPException(422, f"{name} is not supported: leave it out")
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        settings = body.settings()
        if len(prompts) * settings["num_return_sequences"] > MAX_CHOICES:
            raise HTTPException(422, f"the request asks for more than {MAX_CHOICES} texts: lower n")
        if settings["num_return_sequences"] > 1 and settings["temperature"] == 0:
            raise HTTPException(422, "temperature 0 gives the same text every time: set n to 1, or raise temperature")
        texts = _Completion(server, model, body, prompts, settings)
        return await (texts.stream(request) if body.stream else texts.whole(request))

    app.include_router(routes)


def _encoded(vector: np.ndarray, encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(np.ascontiguousarray(vector, np.float32).tobytes()).decode()
    return vector.tolist()


class _Completion:
    """One request for completions. Choice i is sample i % n of prompt i // n."""

    def __init__(
        self, server: ServerState, model: ServedModel, body: CompletionRequest, prompts: list[str], settings: dict
    ):
        self.server, self.model, self.body, self.prompts, self.settings = server, model, body, prompts, settings
        self.id, self.created = f"cmpl-{secrets.token_hex(12)}", int(time.time())

    async def _submit(self, on_text: OnText | None = None) -> Job:
        try:
            config = GenerationConfig(**self.settings)
        except ValueError as error:
            raise HTTPException(422, self.model.public(str(error))) from None
        ids = await self.server.tokenized(self.model, self.prompts, self.model.generator.encode)
        self.num_prompt_tokens = sum(map(len, ids))
        job = self.model.generator.submit(ids, config, on_text)
        job.future.add_done_callback(self._count_tokens)
        return job

    def _count_tokens(self, future: asyncio.Future) -> None:
        if not future.cancelled() and future.exception() is None:
            self.server.metrics.generated.labels(self.model.name).inc(_num_tokens(future.result()))

    async def whole(self, request: Request) -> dict[str, Any]:
        job = await self._submit()
        texts = await self.server.wait(request, self.model, job)
        choices = []
        for prompt, samples in zip(self.prompts, texts, strict=True):
            for sample in samples:
                text = prompt + sample.text if self.body.echo else sample.text
                choices.append(self._choice(len(choices), text, REASONS[sample.finish_reason]))
        return self._chunk(choices) | {"usage": self._usage(texts)}

    async def stream(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue = asyncio.Queue()
        begun = loop.create_future()

        def put(event: tuple[int, str]) -> None:
            events.put_nowait(event)
            if not begun.done():
                begun.set_result(None)

        def on_text(prompt: int, sample: int, text: str) -> None:
            loop.call_soon_threadsafe(put, (prompt * self.settings["num_return_sequences"] + sample, text))

        job = await self._submit(on_text)
        job.future.add_done_callback(lambda _: events.put_nowait(None))
        deadline = loop.time() + self.server.settings.timeout
        await self.server.wait_until_begun(request, self.model, job, begun)  # a request that fails has its status
        return _EventStream(job, self._events(job, events, deadline))

    async def _events(self, job: Job, events: asyncio.Queue, deadline: float) -> AsyncIterator[str]:
        try:
            if self.body.echo:
                repeated = [prompt for prompt in self.prompts for _ in range(self.settings["num_return_sequences"])]
                for index, prompt in enumerate(repeated):
                    yield self._event([self._choice(index, prompt, None)])
            while True:
                async with asyncio.timeout_at(deadline):  # a slow client does not count
                    event = await events.get()
                if event is None:
                    break
                yield self._event([self._choice(*event, None)])
            texts = job.future.result()
            reasons = [REASONS[sample.finish_reason] for samples in texts for sample in samples]
            yield self._event([self._choice(index, "", reason) for index, reason in enumerate(reasons)])
            if (self.body.stream_options or {}).get("include_usage"):
                yield _data(self._chunk([]) | {"usage": self._usage(texts)})
            yield "data: [DONE]\n\n"
        except TimeoutError:
            yield _data(error_body(504, self.server.too_slow))
        except ValueError as error:
            yield _data(error_body(422, self.model.public(str(error))))
        except Exception:
            LOG.exception("a stream failed")
            yield _data(error_body(500, FAILED))

    def _event(self, choices: list[dict]) -> str:
        return _data(self._chunk(choices))

    def _chunk(self, choices: list[dict]) -> dict[str, Any]:
        info = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model.name}
        return info | {"choices": choices}

    def _choice(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}

    def _usage(self, texts: list[list[Generated]]) -> dict[str, int]:
        num_prompt, num_new = self.num_prompt_tokens, _num_tokens(texts)
        return {"prompt_tokens": num_prompt, "completion_tokens": num_new, "total_tokens": num_prompt + num_new}


class _EventStream(StreamingResponse):
    """The events of a job, which is cancelled when the client is gone, also before the first event."""

    def __init__(self, job: Job, events: AsyncIterator[str]):
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.cancel()


def _num_tokens(texts: list[list[Generated]]) -> int:
    return sum(len(sample.ids) for samples in texts for sample in samples)


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
