"""The bodies of requests and answers, from which the OpenAPI description is made; OpenAI's are in `openai.py`.

Bodies are checked strictly: a number in quotes is not a number, and a field that is not known is an error, except in
OpenAI's bodies, whose clients send more than is supported.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hornbook.inference.encoder import DetectedWord, MaskPrediction
from hornbook.show.translations import Language
from hornbook.show.visualization import TitledTable, TokenRow

MAX_ITEMS = 2048  # per request
MAX_API_SEED = 2**31

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_ITEMS)]
Probability = Annotated[float, Field(ge=0, le=1)]
ShownLanguage = Annotated[Language, Field(description="Of the notes and headings of the picture.")]


# ---- requests


class Body(BaseModel):
    """A request; a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str | None, Field(description="Name of the model; by default the first that can do it.")] = None


class TextOrTexts(Body):
    text: Annotated[Text | Texts, Field(description="A text, or several.")]

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


class FillMask(TextOrTexts):
    text: Annotated[Text | Texts, Field(description="A text, or several, with [MASK] where words are missing.")]
    top_k: Annotated[int, Field(ge=1, le=1000)] = 5


class Pair(Body):
    first: Text
    second: Text


class Predict(Body):
    inputs: Annotated[
        Text | Annotated[list[Text | list[Any] | dict[str, Any]], Field(min_length=1, max_length=MAX_ITEMS)],
        Field(description="A text, or a list of texts, pairs of texts, or objects."),
    ]

    @property
    def items(self) -> list[Any]:
        inputs = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        return [tuple(each) if isinstance(each, list) else each for each in inputs]


class Question(Body):
    question: Text
    passage: Text


class Explain(Body):
    question: Text
    choices: Annotated[list[Text], Field(min_length=2, max_length=20)]
    context: Annotated[str | None, Field(description="A text before the question.")] = None


class ShowRequest(Body):
    language: ShownLanguage = "en"


class ShowAnswer(Question, ShowRequest):
    pass


class ShowText(ShowRequest):
    text: Text
    pair: str | None = None


class ShowReplaced(ShowRequest):
    text: Text
    probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    num: Annotated[int, Field(ge=1, le=50)] = 5
    seed: Annotated[int, Field(ge=0, le=MAX_API_SEED)] = 0


class ShowMasking(ShowReplaced):
    pair: str | None = None
    unit: Literal["token", "word", "ngram"] = "token"


class ShowForms(ShowText):
    pair: Text


# ---- answers


class ErrorDetails(BaseModel):
    message: Annotated[str, Field(description="One sentence: what is wrong, and what to do.")]
    type: str
    code: int


class Error(BaseModel):
    error: ErrorDetails


class Result(BaseModel):
    model: Annotated[str, Field(description="Name of the model.")]


class Masks(Result):
    masks: Annotated[list[list[MaskPrediction]], Field(description="The likeliest tokens of each mask.")]


class MasksOfTexts(Result):
    texts: list[list[list[MaskPrediction]]]


class NextSentence(Result):
    is_next: Probability


class DetectedWords(Result):
    words: list[DetectedWord]


class DetectedWordsOfTexts(Result):
    texts: list[list[DetectedWord]]


class Predictions(Result):
    predictions: Annotated[
        list[dict[str, Any]], Field(description="The input and its prediction; the fields depend on the task.")
    ]


class Span(BaseModel):
    text: str
    start: int
    end: int
    probability: Probability


class Answer(Result):
    has_answer: bool
    question: str
    answer: str
    start: int | None
    end: int | None
    probability: Probability
    no_answer_score: float
    n_best: list[Span]


class WeighedPath(BaseModel):
    text: str
    weight: Annotated[Probability, Field(description="The attention of its pair of concepts times its own.")]
    pair_weight: Probability
    path_weight: Probability
    score: float


class ExplainedChoice(BaseModel):
    text: str
    probability: Probability
    without_paths: Probability
    concepts: list[str]
    paths: list[WeighedPath]
    drawn: Annotated[str | None, Field(description="The heaviest paths as SVG.")]


class Explanation(Result):
    question: str
    choice: int
    answer: str
    concepts: list[str]
    choices: list[ExplainedChoice]


class TaggedWords(BaseModel):
    words: list[str]
    tags: list[str]
    entities: Annotated[list[dict[str, Any]] | None, Field(description="None for tags without entities.")] = None
    probabilities: list[Probability]


class TaggedText(TaggedWords, Result):
    pass


class TaggedTexts(Result):
    texts: list[TaggedWords]


class Visualization(BaseModel):
    """As `hornbook show` prints it."""

    title: str
    notes: list[str]
    token_rows: list[TokenRow]
    tables: list[TitledTable]
    attention: dict[str, Any] | None
    language: Language
    legend: dict[str, str]


class Health(BaseModel):
    status: Literal["alive"]


class Ready(BaseModel):
    ready: bool


class ModelTask(BaseModel):
    kind: str
    labels: list[str]
    has_pairs: bool


class ModelDescription(BaseModel):
    name: str
    abilities: dict[str, str | None]
    language: Literal["en", "ko"]
    family: str | None = None
    max_positions: int | None = None
    task: ModelTask | None = None


class Models(BaseModel):
    models: list[ModelDescription]
    has_runs: bool


class SampleGuess(BaseModel):
    token: str
    probability: Probability


class Sample(BaseModel):
    """A held-out sentence with a masked word, and the predictions for it."""

    parts: Annotated[list[str], Field(description="The sentence, split at the mask.")]
    answer: str
    guesses: list[SampleGuess]


class Run(BaseModel):
    name: str
    what: str | None
    state: str | None
    result: str | None
    step: int | None
    num_steps: int | None
    curves: Annotated[dict[str, list[list[float | None]]], Field(description="Points: step, loss, tokens per second.")]
    objective: Annotated[str, Field(description="The terms of the loss: losses of others are not comparable.")]
    samples: list[Sample]


class Runs(BaseModel):
    runs: list[Run]


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These errors for the description of a route, with what each means."""
    return {status: {"model": Error, "description": MEANINGS[status]} for status in statuses}


MEANINGS = {
    400: "The server was addressed by another name, or the body is not readable.",
    401: "The API key is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "There is no such model, or nothing of this name.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    422: "The request is invalid, or the model cannot do it.",
    429: "The queue is full: try again after the seconds of Retry-After.",
    499: "The client closed the connection.",
    500: "The server failed; its log has the reason.",
    504: "The request took too long.",
}
EVERY_ROUTE = errors(400, 401, 403, 408, 413, 500)
MODEL_ROUTES = EVERY_ROUTE | errors(404, 422, 429, 504)
