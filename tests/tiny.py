"""A made-up text and the size of a model that learn in a second."""

import random as chance

TINY_MODEL = {
    "model.num_layers": 1,
    "model.width": 32,
    "model.num_heads": 2,
    "model.inner_width": 64,
    "data.short_length": 32,
    "data.length": 64,
    "runtime.threads": 1,
}
TINY_WORDS = [  # the same, for the command
    *(part for name, value in TINY_MODEL.items() for part in ("--set", f"{name}={value}")),
    *("--batch-tokens", "512"),
]
ENGLISH = "the a of and river teacher lantern bridge morning letters windows children harbour garden silver bread"
KOREAN = "한국어 위키백과는 한국어로 운영되는 여우가 게으른 개를 뛰어넘었다 사람은 한국어를 압니다"


def tiny_text(num_documents: int, seed: int = 0) -> str:
    """Made-up documents with a blank line between, every fourth in Korean."""
    draw = chance.Random(seed)

    def sentence(words: list[str]) -> str:
        return " ".join(draw.choice(words) for _ in range(draw.randint(5, 12))).capitalize() + "."

    documents, english, korean = [], ENGLISH.split(), KOREAN.split()
    for number in range(num_documents):
        words = korean if number % 4 == 3 else english
        documents.append("\n".join(" ".join(sentence(words) for _ in range(3)) for _ in range(draw.randint(1, 4))))
    return "\n\n".join(documents) + "\n"
