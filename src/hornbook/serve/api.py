"""The HTTP routes of Hornbook's own API, and what all routes share: the models, limits and time-outs."""

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException

from hornbook.objectives.masking import MaskingSettings
from hornbook.serve import schemas
from hornbook.serve.engine import BatchEngine, GenerationEngine, Job, Operation
from hornbook.serve.middleware import GONE, Metrics
from hornbook.serve.models import ServedModel
from hornbook.serve.schemas import MAX_ITEMS, MODEL_ROUTES
from hornbook.show.answers import show_answer
from hornbook.show.attention import show_all_attention
from hornbook.show.masking import show_masking, show_replaced
from hornbook.show.visualization import Visualization, show_forms, show_tokens

T = TypeVar("T")
INLINE_CHARACTERS = 20_000  # longer requests are tokenized in a thread, so that others are not held up
MAX_PREDICTIONS = 10 * MAX_ITEMS  # of masks per request; each has the whole text
DEEPEST = 5  # lists and objects in each other


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


NEEDED = {  # what a request needs of a model that predicts, by the kind of its task
    "spans": "answer questions about a passage (fine-tune one with --task spans)",
    "tagging": "tag words (fine-tune one with --task tagging)",
}


class ServerState:
    """The served models and the rules, as the routes need them."""

    def __init__(self, models: dict[str, ServedModel], settings: ServeSettings):
        self.models, self.settings, self.metrics = models, settings, Metrics()
        self.is_ready = False
        for name, model in models.items():
            report = partial(self.metrics.batch, name)
            model.engine = BatchEngine(settings.batch_tokens, settings.max_queue, on_batch=report)
            if "generate" in model.abilities:
                model.generator = GenerationEngine(model.loaded, settings.slots, settings.max_queue, report)
            self.metrics.watch(name, model.engines)

    def find(self, name: str | None, ability: str, kind: str | None = None) -> ServedModel:
        """The model of this name, or the first one that has the ability; for `predict`, of a kind of task."""

        def can(model: ServedModel) -> bool:
            return ability in model.abilities and (kind is None or model.abilities[ability] == kind)

        operation = f"do {ability}" if kind is None else NEEDED[kind]
        if name is None:
            first_able = next(filter(can, self.models.values()), None)
            if first_able is None:
                raise HTTPException(422, f"no model here can {operation}: serve one that can")
            return first_able
        if name not in self.models:
            raise HTTPException(404, f"there is no model '{name}' here: there is {', '.join(self.models)}")
        if not can(self.models[name]):
            operations = ", ".join(self.models[name].abilities)
            raise HTTPException(422, f"the model {name} cannot {operation}: it can do {operations}")
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

    async def submit(self, model: ServedModel, key: Hashable, items: list, run: Operation) -> Job:
        return model.engine.submit(key, items, run, await self.tokenized(model, items, model.count))

    async def run_request(
        self, request: Request, model: ServedModel, key: Hashable, items: list, run: Operation
    ) -> Sequence[Any]:
        """One result per item; ends early if the client goes away or its time is up."""
        job = await self.submit(model, key, items, run)
        return await self.wait(request, model, job)

    async def wait(self, request: Request, model: ServedModel, job: Job) -> Sequence[Any]:
        await self.wait_until_begun(request, model, job, job.future)
        return job.future.result()

    async def wait_until_begun(self, request: Request, model: ServedModel, job: Job, begun: asyncio.Future) -> None:
        """Waits until `begun` is set or the job is done; raises the error of a job that failed."""
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {job.future, begun, gone}, timeout=self.settings.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if job.future.done():
                job.future.result()
            elif not begun.done():
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


def add_operations(app: FastAPI, server: ServerState) -> None:
    routes = APIRouter(tags=["models"], responses=MODEL_ROUTES)

    @routes.post("/fill-mask", response_model=schemas.Masks | schemas.MasksOfTexts)
    async def fill_mask(body: schemas.FillMask, request: Request) -> dict[str, Any]:
        """The likeliest tokens of each mask of a text."""
        model = server.find(body.model, "fill-mask")
        mask = model.tokenizer.mask_token
        num_masks = sum(text.replace("[MASK]", mask).count(mask) for text in body.texts)
        if num_masks > MAX_ITEMS or num_masks * body.top_k > MAX_PREDICTIONS:
            raise HTTPException(
                422,
                f"the request asks for {body.top_k} predictions for each of {num_masks:,} masks: ask for at most "
                f"{MAX_ITEMS:,} masks and {MAX_PREDICTIONS:,} predictions at once",
            )
        fill_mask = partial(model.loaded.fill_mask, top_k=body.top_k)
        masks = await server.run_request(request, model, ("fill-mask", body.top_k), body.texts, fill_mask)
        return {"model": model.name} | ({"masks": masks[0]} if isinstance(body.text, str) else {"texts": masks})

    @routes.post("/next-sentence", response_model=schemas.NextSentence)
    async def next_sentence(body: schemas.Pair, request: Request) -> dict[str, Any]:
        """The probability that the second sentence follows the first."""
        model = server.find(body.model, "next-sentence")
        pairs = [(body.first, body.second)]
        (probability,) = await server.run_request(request, model, "next-sentence", pairs, model.next_sentence)
        return {"model": model.name, "is_next": probability}

    @routes.post("/detect", response_model=schemas.DetectedWords | schemas.DetectedWordsOfTexts)
    async def detect(body: schemas.TextOrTexts, request: Request) -> dict[str, Any]:
        """The probability of each word of having been replaced."""
        model = server.find(body.model, "detect")
        words = await server.run_request(request, model, "detect", body.texts, model.loaded.detect)
        return {"model": model.name} | ({"words": words[0]} if isinstance(body.text, str) else {"texts": words})

    @routes.post("/predict", response_model=schemas.Predictions)
    async def predict(body: schemas.Predict, request: Request) -> dict[str, Any]:
        """Predictions of a fine-tuned model, as a list: one per input, which is a text, a pair, or an object by the
        names of the model's inputs."""
        model = server.find(body.model, "predict")
        predictions = await server.run_request(request, model, "predict", body.items, model.predict)
        return {"model": model.name, "predictions": predictions}

    @routes.post("/answer", response_model=schemas.Answer)
    async def answer(body: schemas.Question, request: Request) -> dict[str, Any]:
        """The span of a passage that answers a question; `answer` is empty if the model finds none."""
        model = server.find(body.model, "predict", "spans")
        items = [(body.question, body.passage)]
        (prediction,) = await server.run_request(request, model, "predict", items, model.predict)
        return {"model": model.name, "has_answer": bool(prediction.get("answer")), **prediction}

    @routes.post("/explain", response_model=schemas.Explanation)
    async def explain(body: schemas.Explain, request: Request) -> dict[str, Any]:
        """The answer of a model that reads a knowledge graph, with the paths that it weighed for each choice."""
        model = server.find(body.model, "explain")
        items = [(body.question, body.choices, body.context)]
        (explanation,) = await server.run_request(request, model, "explain", items, model.explain)
        return {"model": model.name, **explanation}

    @routes.post("/tag", response_model=schemas.TaggedText | schemas.TaggedTexts, response_model_exclude_unset=True)
    async def tag(body: schemas.TextOrTexts, request: Request) -> dict[str, Any]:
        """The words of a text with their tags, and the entities."""
        model = server.find(body.model, "predict", "tagging")
        tagged = await server.run_request(request, model, "predict", body.texts, model.predict)
        return {"model": model.name} | (tagged[0] if isinstance(body.text, str) else {"texts": tagged})

    app.include_router(routes)


def add_show_routes(app: FastAPI, server: ServerState) -> None:
    """The pictures of `hornbook show`."""
    routes = APIRouter(tags=["show"], responses=MODEL_ROUTES)

    async def drawn(
        request: Request, model: ServedModel, key: Hashable, item: tuple, draw: Callable[..., Visualization]
    ) -> dict[str, Any]:
        """The picture that `draw` makes of the texts in `item`; items with the same key are drawn together."""
        drawn = await server.run_request(
            request, model, key, [item], lambda items: [draw(*each).to_dict() for each in items]
        )
        return drawn[0]

    @routes.post("/show/tokens", response_model=schemas.Visualization)
    async def tokens(body: schemas.ShowText, request: Request) -> dict[str, Any]:
        """The tokens of a text or pair."""
        model = server.find(body.model, "tokens")
        draw = partial(show_tokens, model.tokenizer, language=body.language)
        return await drawn(request, model, ("tokens", body.language), (body.text, body.pair or None), draw)

    @routes.post("/show/masking", response_model=schemas.Visualization)
    async def masking(body: schemas.ShowMasking, request: Request) -> dict[str, Any]:
        """A text masked several times."""
        model = server.find(body.model, "masking")
        settings = MaskingSettings(probability=body.probability, unit=body.unit)
        options = {"settings": settings, "num": body.num, "seed": body.seed, "language": body.language}
        draw = partial(show_masking, model.tokenizer, **options)
        return await drawn(request, model, ("masking", *options.values()), (body.text, body.pair or None), draw)

    @routes.post("/show/replaced", response_model=schemas.Visualization)
    async def replaced(body: schemas.ShowReplaced, request: Request) -> dict[str, Any]:
        """A text masked, filled in by the generator and judged by the discriminator."""
        model = server.find(body.model, "replaced")
        options = {"num": body.num, "probability": body.probability, "seed": body.seed, "language": body.language}
        draw = partial(show_replaced, model.loaded, **options)
        return await drawn(request, model, secrets.token_hex(8), (body.text,), draw)

    @routes.post("/show/attention", response_model=schemas.Visualization)
    async def attention(body: schemas.ShowText, request: Request) -> dict[str, Any]:
        """The attention of every layer and head."""
        model = server.find(body.model, "attention")
        draw = partial(show_all_attention, [(model.name, model.loaded)], language=body.language)
        return await drawn(request, model, ("attention", body.language), (body.text, body.pair or None), draw)

    @routes.post("/show/forms", response_model=schemas.Visualization)
    async def forms(body: schemas.ShowForms, request: Request) -> dict[str, Any]:
        """Two texts as the model reads them in each kind of task; a GPT gets GPT-1's forms."""
        model = server.find(body.model, "forms")
        draw = partial(show_forms, model.tokenizer, is_gpt=model.is_gpt, language=body.language)
        return await drawn(request, model, ("forms", body.language), (body.text, body.pair), draw)

    @routes.post("/show/parameters", response_model=schemas.Visualization)
    async def parameters(body: schemas.ShowRequest) -> dict[str, Any]:
        """The parameters of the model by part."""
        model = server.find(body.model, "parameters")
        return await asyncio.to_thread(model.show_parameters, body.language)

    @routes.post("/show/answer", response_model=schemas.Visualization)
    async def answer(body: schemas.ShowAnswer, request: Request) -> dict[str, Any]:
        """The start and end probabilities of every token of a passage."""
        model = server.find(body.model, "predict", "spans")
        draw = partial(show_answer, model.predictor, language=body.language)
        return await drawn(request, model, ("show answer", body.language), (body.question, body.passage), draw)

    app.include_router(routes)
