"""The HTTP routes of the pictures of `hornbook show`."""

import asyncio
import secrets
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from hornbook.objectives.masking import MaskingSettings
from hornbook.serve import schemas
from hornbook.serve.api import Server
from hornbook.serve.models import ServedModel
from hornbook.serve.schemas import MODEL_ROUTES
from hornbook.show.answers import show_answer
from hornbook.show.attention import show_all_attention
from hornbook.show.masking import show_masking, show_replaced
from hornbook.show.picture import Picture
from hornbook.show.tokens import show_forms, show_tokens


def add_picture_routes(app: FastAPI, server: Server) -> None:
    routes = APIRouter(tags=["show"], responses=MODEL_ROUTES)

    async def drawn(
        request: Request, model: ServedModel, key: Hashable, item: tuple, draw: Callable[..., Picture]
    ) -> dict[str, Any]:
        """The picture that `draw` makes of the texts in `item`; items with the same key are drawn together."""
        answers = server.answer(request, model, key, [item], lambda items: [draw(*each).to_dict() for each in items])
        return (await answers)[0]

    @routes.post("/show/tokens", response_model=schemas.Picture)
    async def tokens(body: schemas.Shown, request: Request) -> dict[str, Any]:
        """The tokens of a text or pair."""
        model = server.find(body.model, "tokens")
        draw = partial(show_tokens, model.tokenizer, language=body.language)
        return await drawn(request, model, ("tokens", body.language), (body.text, body.pair or None), draw)

    @routes.post("/show/masking", response_model=schemas.Picture)
    async def masking(body: schemas.ShownMasking, request: Request) -> dict[str, Any]:
        """A text masked several times."""
        model = server.find(body.model, "masking")
        settings = MaskingSettings(probability=body.probability, unit=body.unit)
        options = {"settings": settings, "num": body.num, "seed": body.seed, "language": body.language}
        draw = partial(show_masking, model.tokenizer, **options)
        return await drawn(request, model, ("masking", *options.values()), (body.text, body.pair or None), draw)

    @routes.post("/show/replaced", response_model=schemas.Picture)
    async def replaced(body: schemas.ShownMasking, request: Request) -> dict[str, Any]:
        """A text masked, filled in by the generator and judged by the discriminator."""
        model = server.find(body.model, "replaced")
        options = {"num": body.num, "probability": body.probability, "seed": body.seed, "language": body.language}
        draw = partial(show_replaced, model.loaded, **options)
        return await drawn(request, model, secrets.token_hex(8), (body.text,), draw)

    @routes.post("/show/attention", response_model=schemas.Picture)
    async def attention(body: schemas.Shown, request: Request) -> dict[str, Any]:
        """The attention of every layer and head."""
        model = server.find(body.model, "attention")
        draw = partial(show_all_attention, [(model.name, model.loaded)], language=body.language)
        return await drawn(request, model, ("attention", body.language), (body.text, body.pair or None), draw)

    @routes.post("/show/forms", response_model=schemas.Picture)
    async def forms(body: schemas.ShownForms, request: Request) -> dict[str, Any]:
        """Two texts as the model reads them in each kind of task; a GPT gets GPT-1's forms."""
        model = server.find(body.model, "forms")
        draw = partial(show_forms, model.tokenizer, is_gpt=model.is_gpt, language=body.language)
        return await drawn(request, model, ("forms", body.language), (body.text, body.pair), draw)

    @routes.post("/show/parameters", response_model=schemas.Picture)
    async def parameters(body: schemas.PictureRequest) -> dict[str, Any]:
        """The parameters of the model by part."""
        model = server.find(body.model, "parameters")
        return await asyncio.to_thread(model.show_parameters, body.language)

    @routes.post("/show/answer", response_model=schemas.Picture)
    async def answer(body: schemas.ShownAnswer, request: Request) -> dict[str, Any]:
        """The start and end probabilities of every token of a passage."""
        model = server.find(body.model, "predict", "spans")
        draw = partial(show_answer, model.predictor, language=body.language)
        return await drawn(request, model, ("show answer", body.language), (body.question, body.passage), draw)

    app.include_router(routes)
