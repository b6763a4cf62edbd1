"""Made-up text for the tests of corpus building."""

import random

TEXT = (
    "the a of and to in is was river mountain teacher lantern quietly walking sings under bridge morning "
    "evening letters written windows children harbour station market garden silver winter summer bread "
    "machine number history language country village people water light stone paper music voice"
)
WORDS = TEXT.split()


def sentence(generator: random.Random) -> str:
    words = [generator.choice(WORDS) + generator.choice(("", "", "s", "ly", "ed")) for _ in range(12)]
    return " ".join(words).capitalize() + "."


def story(seed: int, num_documents: int) -> str:
    """Documents of a few lines with a blank line between; every tenth repeats the one before."""
    generator = random.Random(seed)
    documents = []
    for number in range(num_documents):
        if number % 10 == 9:
            documents.append(documents[-1])
        else:
            lines = [" ".join(sentence(generator) for _ in range(3)) for _ in range(generator.randint(1, 4))]
            documents.append("\n".join(["Read the conditions before you copy.", *lines]))
    return "\n\n".join(documents) + "\n"
