import pytest
from text_samples import DOCUMENTS, KINDS, NUM_TOKENS

from hornbook.text.training import train_tokenizer


@pytest.fixture(scope="session")
def trained():
    """Every kind, uncased and cased; do not change them."""
    return {
        (kind, cased): train_tokenizer(DOCUMENTS, kind=kind, cased=cased, vocab_size=NUM_TOKENS)
        for kind in KINDS
        for cased in (False, True)
    }
