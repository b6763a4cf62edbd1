"""Incremental decoding on CUDA: the captured step equals a full forward pass. Run by `make test-gpu`."""

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.inference.decoding_state import DecodingState
from hornbook.models.gpt import Gpt2, Gpt2Config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.05)])
def test_captured_steps_equal_full_forward_passes(random, window, dtype, tolerance):
    config = Gpt2Config(
        vocab_size=90, num_layers=3, width=64, num_heads=4, inner_width=256, max_positions=48, window=window
    )
    model = Gpt2(config).eval()
    model.initialize(torch.Generator().manual_seed(0))
    model.to("cuda", dtype)
    texts = [random.integers(0, 90, length).tolist() for length in (5, 1, 17)]
    decoding = DecodingState(model, len(texts), 48)
    logits = decoding.prefill(texts)
    for _ in range(20):
        with torch.no_grad():
            batch = pack([np.array(text) for text in texts]).to("cuda")
            expected = model.vocabulary_logits(model(batch)[batch.offsets[1:].long() - 1])[:, :90].float()
        assert (logits - expected).norm() / expected.norm() < tolerance
        chosen = random.integers(0, 90, len(texts))
        logits = decoding.step(torch.from_numpy(chosen).to("cuda"))
        texts = [[*text, int(token)] for text, token in zip(texts, chosen, strict=True)]
    assert decoding.cuda_graph is not None


def test_texts_that_join_and_leave_a_captured_batch_are_those_of_each_alone(tmp_path):
    from small_gpts import PROMPTS, saved_gpt

    import hornbook
    from hornbook.inference.continuous import ContinuousBatch
    from hornbook.inference.generation import GenerationConfig

    saved_gpt(tmp_path / "gpt")
    model = hornbook.load(tmp_path / "gpt", device="cuda")
    batch = ContinuousBatch(model.model, model.tokenizer, model.eos_id, 3)
    waiting, running = list(enumerate(PROMPTS)), {}
    while waiting or len(batch):
        if waiting and batch.has_free_slot:
            number, prompt = waiting.pop(0)
            running[number] = batch.add(
                model.prompt_ids([prompt])[0], GenerationConfig(max_new_tokens=5 + 3 * number, seed=number)
            )
        batch.step()
    for number, prompt in enumerate(PROMPTS):
        assert running[number].result() == model.generate(prompt, 5 + 3 * number, seed=number)[0]
