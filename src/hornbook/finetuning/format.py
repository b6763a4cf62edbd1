"""What a model and its tokenizer become for a task: how a text is written there, and the tokens that this needs."""

from torch import nn

from hornbook.finetuning.settings import TaskSettings
from hornbook.interop.vocabulary import with_new_tokens
from hornbook.text.marks import filled_up, marked
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.randomness import seed_of


def written_for(trained: nn.Module, tokenizer: Tokenizer, settings: TaskSettings) -> tuple[nn.Module, Tokenizer]:
    """The model and the tokenizer that writes the task's texts. An encoder's stays as it is; a GPT's may put GPT-1's
    tokens around a text, whose embeddings start anew, and always names what fills up a batch in `transformers`."""
    if "clm" not in trained.head_makers:
        for name, usual in (("format", "tokenizer"), ("lm_weight", 0.0)):
            if getattr(settings, name) != usual:
                raise ValueError(
                    f"task.{name} is for GPTs, which predict next tokens, and the model is {trained.in_words()}: "
                    "leave it out"
                )
        return trained, tokenizer
    written = filled_up(marked(tokenizer) if settings.format == "gpt1" else tokenizer)
    if written.vocab_size == tokenizer.vocab_size and written.pad_id == trained.config.pad_id:
        return trained, written
    return with_new_tokens(trained, tokenizer, written, seed_of("new tokens")), written
