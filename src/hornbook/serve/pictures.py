"""The HTTP routes of the pictures of `hornbook show`."""

import asyncio
import secrets
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from hornbook.objectives.masking import MaskingSettings
from hornbook.serve import schemas
from hornbook.serve.api import Server
from hornbook.serve.schemas import MODEL_ROUTES


def add_picture_routes(app: FastAPI, server: Server) -> None:
    routes = APIRouter(tags=["show"], responses=MODEL_ROUTES)

    @routes.post("/show/tokens", response_model=schemas.Picture)
    async def tokens(body: schemas.Shown, request: Request) -> dict[str, Any]:
        """The tokens of a text or pair."""
        model = server.find(body.model, "tokens")
        key, run = ("tokens", body.language), model.show_tokens(body.language)
        return (await server.answer(request, model, key, [(body.text, body.pair or None)], run))[0]

    @routes.post("/show/masking", response_model=schemas.Picture)
    async def masking(body: schemas.ShownMasking, request: Request) -> dict[str, Any]:
        """A text masked several times."""
        model = server.find(body.model, "masking")
        settings = MaskingSettings(probability=body.probability, unit=body.unit)
        run = model.show_masking(settings, body.num, body.seed, body.language)
        key = ("masking", settings, body.num, body.seed, body.language)
        return (await server.answer(request, model, key, [(body.text, body.pair or None)], run))[0]

    @routes.post("/show/replaced", response_model=schemas.Picture)
    async def replaced(body: schemas.ShownMasking, request: Request) -> dict[str, Any]:
        """A text masked, filled in by the generator and judged by the discriminator."""
        model = server.find(body.model, "replaced")
        run = model.show_replaced(body.num, body.probability, body.seed, body.language)
        return (await server.answer(request, model, secrets.token_hex(8), [body.text], run))[0]

    @routes.post("/show/attention", response_model=schemas.Picture)
    async def attention(body: schemas.Shown, request: Request) -> dict[str, Any]:
        """The attention of every layer and head."""
        model = server.find(body.model, "attention")
        key, run = ("attention", body.language), model.show_attention(body.language)
        return (await server.answer(request, model, key, [(body.text, body.pair or None)], run))[0]

    @routes.post("/show/forms", response_model=schemas.Picture)
    async def forms(body: schemas.ShownForms, request: Request) -> dict[str, Any]:
        """Two texts as the model reads them in each kind of task; a GPT gets GPT-1's forms."""
        model = server.find(body.model, "forms")
        key, run = ("forms", body.language), model.show_forms(body.language)
        return (await server.answer(request, model, key, [(body.text, body.pair)], run))[0]

    @routes.post("/show/parameters", response_model=schemas.Picture)
    async def parameters(body: schemas.ShownParameters) -> dict[str, Any]:
        """The parameters of the model by part."""
        model = server.find(body.model, "parameters")
        return await asyncio.to_thread(model.show_parameters, body.language)

    @routes.post("/show/answer", response_model=schemas.Picture)
    async def answer(body: schemas.ShownAnswer, request: Request) -> dict[str, Any]:
        """The start and end probabilities of every token of a passage."""
        model = server.find(body.model, "predict", "spans")
        key, run = ("show answer", body.language), model.show_answer(body.language)
        return (await server.answer(request, model, key, [(body.question, body.passage)], run))[0]

    app.include_router(routes)
