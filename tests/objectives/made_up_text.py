"""A text of words with several tokens, and the kinds of tokenizer that encode it."""

import numpy as np

TEXT = (
    "river mountain teacher lantern quietly walking under bridge morning evening letters windows children harbour "
    "station market garden winter summer machine history language country village people water light stone music"
)
WORDS = TEXT.split()
KINDS = {"wordpiece": 120, "bpe": 330, "unigram": 150}  # with vocabularies so small that most words fall into pieces


def made_up_text(seed: int, num_documents: int) -> str:
    """Documents of sentences with commas, quotes and brackets; rarer endings make words of several tokens."""
    random = np.random.default_rng(seed)
    documents = []
    for _ in range(num_documents):
        sentences = []
        for _ in range(int(random.integers(4, 12))):
            endings = random.choice(["", "s", "less", "wards", "ish"], 12)
            words = [str(random.choice(WORDS)) + str(ending) for ending in endings]
            words[3] += ","
            words[6] = f"({words[6]})"
            words[9] = f'"{words[9]}"'
            sentences.append(" ".join(words).capitalize() + ".!?"[random.integers(3)])
        documents.append(" ".join(sentences))
    return "\n\n".join(documents) + "\n"
