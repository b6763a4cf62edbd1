"""Every route does what its OpenAPI description promises, whatever is sent."""

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from served_page import served

from hornbook.serve.api import ServeSettings
from hornbook.serve.server import build_app

# A text without a mask, or for a model that is not there, is valid by the description and still refused.
LEFT_OUT = [positive_data_acceptance]
MAX_BYTES = 50_000
SERVED = ("first", "texts", "tags", "answers", "gpt", "electra")
schema = schemathesis.openapi.from_dict(build_app({}, ServeSettings()).openapi())


@schema.hook
def map_body(context, body):
    """Names that some model here has, and short texts, so that many requests reach a model."""
    if isinstance(body, dict) and isinstance(body.get("model"), str):
        body["model"] = SERVED[len(body["model"]) % len(SERVED)]
    if isinstance(body, dict) and isinstance(body.get("text"), str) and body["text"]:
        body["text"] += " [MASK]"
    return body


@schema.hook
def filter_body(context, body):
    """A request that is too large is refused as such (413), whatever else is wrong with it: tested elsewhere."""
    return len(json.dumps(body)) < MAX_BYTES if isinstance(body, dict | list) else True


@pytest.fixture(scope="module")
def address(folders, electra):
    yield from served([*(folders[name] for name in SERVED[:-1]), electra], ServeSettings(max_bytes=MAX_BYTES))


@schema.parametrize()
@settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_answers_match_the_description(case, address):
    case.call_and_validate(base_url=address, excluded_checks=LEFT_OUT)
