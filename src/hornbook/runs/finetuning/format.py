"""Adapts a model and its tokenizer to the input format of a task, adding the tokens that the format needs."""

from torch import nn

from hornbook.interop.vocabulary import with_new_tokens
from hornbook.runs.finetuning.settings import TaskSettings
from hornbook.text.marks import filled_up, marked
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.randomness import seed_of


def with_task_format(trained: nn.Module, tokenizer: Tokenizer, settings: TaskSettings) -> tuple[nn.Module, Tokenizer]:
    """The model and the tokenizer for the task's inputs. An encoder's tokenizer is unchanged. A GPT's gets a padding
    token, which `transformers` needs, and with `task.format=gpt1` GPT-1's start, delimiter and extract tokens, whose
    embeddings are newly initialised."""
    if "clm" not in trained.head_makers:
        for name, default in (("format", "tokenizer"), ("lm_weight", 0.0)):
            if getattr(settings, name) != default:
                raise ValueError(f"task.{name} is for GPTs, and the model is {trained.in_words()}: leave it out")
        return trained, tokenizer
    adapted = filled_up(marked(tokenizer) if settings.format == "gpt1" else tokenizer)
    if adapted.vocab_size == tokenizer.vocab_size and adapted.pad_id == trained.config.pad_id:
        return trained, adapted
    return with_new_tokens(trained, tokenizer, adapted, seed_of("new tokens")), adapted
