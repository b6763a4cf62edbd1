"""int8 weights: rounding by at most half a step, exact products, and outputs of a trained model that hardly change;
also with keys and values in bfloat16."""

import copy
import json
import sys

import numpy as np
import pytest
import torch
from small_gpts import CONTEXT, PROMPTS, byte_tokenizer, saved_gpt
from tiny import tiny_text

import hornbook as library
from hornbook import cli
from hornbook.batch import pack
from hornbook.inference import decoding_state
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.decoding_state import DecodingState
from hornbook.models.gpt import Gpt2, Gpt2Config
from hornbook.nn import int8
from hornbook.nn.int8 import Int8Linear, quantized_rows


@pytest.fixture(params=["kernels", "table kernel", "fallback"])
def way(request, monkeypatch):
    """With the kernels of this machine, and as on one that lacks that of products, or both."""
    if request.param != "kernels":
        monkeypatch.setattr(int8, "has_exact_kernel", lambda: False)
    elif not int8.has_exact_kernel():
        pytest.skip("no kernel here multiplies int8 exactly")
    if request.param == "fallback":
        monkeypatch.setattr(int8, "has_table_kernel", lambda: False)
    elif not int8.has_table_kernel():
        pytest.skip("no kernel here adds up rows of bytes")


def test_every_weight_is_off_by_half_a_step_at_most(random):
    weight = torch.from_numpy(random.normal(0, 1, (40, 70)) * np.geomspace(1e-6, 1e3, 40)[:, None]).float()
    weight[7] = 0
    numbers, scales = quantized_rows(weight)
    assert numbers.dtype == torch.int8 and numbers.abs().max() == 127
    errors = (numbers * scales[:, None].double() - weight).abs()
    assert (errors <= scales[:, None] * 0.5001).all()
    assert (errors > scales[:, None] * 0.4).any()
    assert torch.allclose(scales * 127, weight.abs().amax(1), atol=1e-20)


@pytest.mark.parametrize("num_tokens", [1, 2, 7, int8.NUM_AT_ONCE + 3])
def test_a_layer_is_the_product_with_the_rounded_weights(random, way, num_tokens):
    weight = torch.from_numpy(random.normal(0, 1, (33, 50))).float()
    bias = torch.from_numpy(random.normal(0, 1, 33)).float()
    x = torch.from_numpy(random.normal(0, 1, (num_tokens, 50)) * random.uniform(0.1, 40, (num_tokens, 1))).float()
    x[-1, 3:] *= 0  # few values
    numbers, scales = quantized_rows(weight)
    for added in (bias, None):
        layer = Int8Linear(weight, added)
        expected = x.double() @ (numbers * scales[:, None].double()).T + (0 if added is None else added)
        # Half a unit of a value: its token's largest / (127 x 256) / 2.
        bound = x.abs().amax(1, keepdim=True) / (127 * 256) / 2 * (numbers * scales[:, None]).abs().sum(1) + 1e-4
        found = layer(x)
        assert found.stride(1) == 1 and ((found - expected).abs() <= bound).all()
    assert torch.equal(Int8Linear(weight, bias)(x * 0), bias.expand(num_tokens, -1))


@pytest.mark.parametrize("num_out", [33, 2 * int8.WIDEST, 5 * int8.WIDEST + 33])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_token_alone_equals_the_same_token_in_a_batch(random, way, monkeypatch, num_out, num_threads):
    """It uses another kernel, and each of its values is rounded the same. Its matrix is stored in blocks, a few per
    thread."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    layer = Int8Linear(torch.from_numpy(random.normal(0, 1, (num_out, 128))).float(), None)
    x = torch.from_numpy(random.normal(0, 1, (200, 128))).float()
    alone = torch.cat([layer(each[None]) for each in x])
    assert ((alone - layer(x)).norm(dim=1) / alone.norm(dim=1)).max() < 1e-6


@pytest.mark.parametrize(("num_out", "width"), [(33, 3072), (128, 256)])
def test_packed_weights_give_the_same_to_the_last_bit(random, num_out, width):
    """Otherwise a text would change once a layer has been used often."""
    if not int8.has_exact_kernel() or not int8.has_packed_kernel():
        pytest.skip("no kernel here multiplies int8 exactly, or none packed weights")
    layer = Int8Linear(torch.from_numpy(random.normal(0, 1, (num_out, width))).float(), None)
    x = torch.from_numpy(random.normal(0, 1, (5, width))).float()
    first = layer(x)
    layer.num_calls = int8.NUM_BEFORE_PACKING - 1
    layer(x)
    assert "_packed" not in vars(layer)
    assert torch.equal(layer(x), first) and "_packed" in vars(layer)
    assert torch.equal(layer(x.repeat(60, 1)), first.repeat(60, 1))  # more than at once


def test_weights_are_not_packed_where_their_kernel_is_slow(random, monkeypatch):
    """oneDNN has none for signed bytes on CPUs without AMX, and took 21 s for what takes 2 ms."""
    if not int8.has_exact_kernel():
        pytest.skip("no kernel here multiplies int8 exactly")
    seconds = iter([21.0, 0.002])
    monkeypatch.setattr(int8, "fastest_seconds", lambda run: next(seconds))
    monkeypatch.setattr(int8, "has_packed_kernel", int8.has_packed_kernel.__wrapped__)
    layer = Int8Linear(torch.from_numpy(random.normal(0, 1, (33, 50))).float(), None)
    x = torch.from_numpy(random.normal(0, 1, (5, 50))).float()
    first = layer(x)
    layer.num_calls = int8.NUM_BEFORE_PACKING
    assert torch.equal(layer(x), first) and "_packed" not in vars(layer)


def test_a_token_does_not_depend_on_its_neighbours(random, way):
    layer = Int8Linear(torch.from_numpy(random.normal(0, 1, (33, 50))).float(), None)
    x = torch.from_numpy(random.normal(0, 1, (4, 50))).float()
    louder = x.clone()
    louder[1:] *= 1000
    assert torch.equal(layer(x)[0], layer(louder)[0])


def test_all_matrices_are_quantized_and_no_table(tmp_path):
    saved_gpt(tmp_path)
    model = library.load(tmp_path).model.quantize()
    plain = library.load(tmp_path).model
    assert not [part for part in model.modules() if isinstance(part, torch.nn.Linear)]
    assert sum(isinstance(part, Int8Linear) for part in model.modules()) == 4 * model.config.num_layers + 1
    assert torch.equal(model.embeddings.tokens.weight, plain.embeddings.tokens.weight)
    numbers, scales = quantized_rows(plain.embeddings.tokens.weight[: plain.config.vocab_size])
    assert torch.equal(model.clm.int8.weight_int8_OI, numbers) and torch.equal(model.clm.int8.scales_O, scales)


def test_a_head_of_its_own(tmp_path):
    saved_gpt(tmp_path, tie_word_embeddings=False)
    plain = library.load(tmp_path).model
    x = torch.randn(3, plain.config.width)
    with torch.no_grad():
        expected = plain.next_token_logits(x)
        quantized = plain.quantize()
        found = quantized.next_token_logits(x)
        of_masks = quantized.vocabulary_logits(x)  # of a hybrid model
    assert 0 < (found - expected).norm() / expected.norm() < 0.02
    assert torch.equal(of_masks[:, : found.shape[1]], found) and (of_masks[:, found.shape[1] :] < -1000).all()


def test_written_text_is_cached_and_batched_as_ever(tmp_path, way):
    """Greedy texts equal those of full forward passes; these weights have no near ties."""
    saved_gpt(tmp_path)
    model = library.load(tmp_path, weights="int8")
    found = model.generate(PROMPTS, 12, temperature=0)
    assert found == [model.generate(prompt, 12, temperature=0) for prompt in PROMPTS]
    window = model.tokenizer.encode_batch([PROMPTS[0]])[0].ids
    for token in found[0][0].ids:
        with torch.no_grad():
            logits = model.model.next_token_logits(model.model(pack([np.array(window)]))[-1:])
        assert int(logits.argmax()) == token
        window.append(token)


@pytest.fixture(scope="module")
def trained() -> DecoderModel:
    """A GPT that learned a small text for a few seconds; do not change its weights."""
    tokenizer = byte_tokenizer()
    config = Gpt2Config(
        vocab_size=tokenizer.vocab_size,
        num_layers=2,
        width=48,
        num_heads=4,
        inner_width=192,
        max_positions=CONTEXT,
        eos_id=tokenizer.id("</s>"),
    )
    model = Gpt2(config).eval()
    model.initialize(torch.Generator().manual_seed(0))
    ids = np.concatenate([pieces.ids for pieces in tokenizer.encode_batch([tiny_text(60)])])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    random = np.random.default_rng(0)
    for _ in range(60):
        rows = [ids[start : start + CONTEXT] for start in random.integers(0, len(ids) - CONTEXT - 1, 16)]
        batch = pack(rows)
        logits = model.vocabulary_logits(model(batch))[:-1]
        loss = torch.nn.functional.cross_entropy(logits, batch.ids_T[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return DecoderModel(model, tokenizer, "trained")


def test_the_perplexity_of_a_trained_model_changes_by_less_than_a_hundredth(tmp_path, trained):
    (tmp_path / "text.txt").write_text(tiny_text(12), encoding="utf-8")
    plain = trained.perplexity(tmp_path / "text.txt").per_token
    rounded = DecoderModel(copy.deepcopy(trained.model).quantize(), trained.tokenizer, "rounded")
    found = rounded.perplexity(tmp_path / "text.txt").per_token
    assert plain < 60  # it has learned: 300 tokens alike would be 300
    assert found != plain and abs(found / plain - 1) < 0.01


def loss_by_steps(model: Gpt2, rows: np.ndarray, monkeypatch, kind: torch.dtype) -> tuple[float, DecodingState]:
    """Log-probability of each next token, decoding all rows at once."""
    monkeypatch.setattr(decoding_state, "cache_dtype", lambda like: kind)
    decoding = DecodingState(model, len(rows), rows.shape[1])
    ids_NL = torch.from_numpy(rows).long()
    logits_NV, losses = decoding.prefill(rows[:, :1]), []
    for place in range(1, rows.shape[1]):
        losses.append(torch.nn.functional.cross_entropy(logits_NV, ids_NL[:, place]).item())
        logits_NV = decoding.step(ids_NL[:, place])
    return float(np.mean(losses)), decoding


@pytest.mark.parametrize("num_rows", [1, 8])
def test_keys_and_values_in_bfloat16_hardly_change_a_trained_model(monkeypatch, trained, num_rows):
    """One text, which has its own code path, and several."""
    ids = np.concatenate([pieces.ids for pieces in trained.tokenizer.encode_batch([tiny_text(12)])])
    rows = ids[: num_rows * CONTEXT].reshape(num_rows, CONTEXT)
    quantized = copy.deepcopy(trained.model).quantize()
    exact, decoding = loss_by_steps(quantized, rows, monkeypatch, torch.float32)
    found, shorter = loss_by_steps(quantized, rows, monkeypatch, torch.bfloat16)
    assert shorter.layers[0].kv_2NHLC.nbytes * 2 == decoding.layers[0].kv_2NHLC.nbytes
    assert found != exact and abs(found - exact) < 0.005


def test_only_with_int8_weights_and_where_it_is_faster(tmp_path, monkeypatch):
    saved_gpt(tmp_path)
    for is_supported, kind in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: is_supported)  # noqa: B023
        for num_texts in (1, 2):
            for weights, expected in (("int8", kind), ("float", torch.float32)):
                model = library.load(tmp_path, weights=weights, device="cpu").model
                assert DecodingState(model, num_texts, CONTEXT).layers[0].kv_2NHLC.dtype == expected


def test_rounded_weights_are_not_saved(tmp_path):
    saved_gpt(tmp_path / "model")
    with pytest.raises(ValueError, match="was opened with int8 weights, which are rounded: open it with float weights"):
        library.load(tmp_path / "model", weights="int8").save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_the_commands_take_it_and_refuse_others(tmp_path, monkeypatch, capsys):
    saved_gpt(tmp_path)

    def run(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    rounded = library.load(tmp_path, weights="int8")
    status, out, _ = run(
        "generate", tmp_path, "the river", "--weights", "int8", "--max-new-tokens", 8, "--temperature", 0
    )
    assert (status, out) == (0, f"the river{rounded.generate('the river', 8, temperature=0)[0].text}\n")
    _, out, _ = run("score", tmp_path, "the river", "--weights", "int8", "--json")
    (found,) = json.loads(out)["scores"]
    assert found["log_probability"] == pytest.approx(rounded.score("the river")[0].total)
    assert found["log_probability"] != pytest.approx(library.load(tmp_path).score("the river")[0].total, abs=1e-5)
    assert "weights must be one of float, int8, not 'int4'" in run("generate", tmp_path, "the", "--weights", "int4")[2]
