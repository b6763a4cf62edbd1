"""What a run would take: parameters to the last one, memory by what is cut over devices, FLOPs and days."""

import pytest

from hornbook.devices import matrix_flops
from hornbook.models.transformer import count_parameters
from hornbook.runs.pretraining.assembly import new_network
from hornbook.runs.pretraining.plan import GIB, plan
from hornbook.runs.pretraining.presets import PRESETS, preset_settings
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.resolve import resolve_settings


def test_parameters_are_those_of_the_network_without_the_rows_that_pad_the_vocabulary():
    overrides = {"model.vocab_size": 1024, "model.num_layers": 2}
    for preset in ("bert-tiny", "albert-base", "electra-small", "roberta-base"):
        settings = preset_settings(preset, overrides)
        network = new_network(settings)
        assert count_parameters(network) == sum(p.numel() for p in network.parameters())
        fewer = new_network(preset_settings(preset, overrides | {"model.vocab_size": 1000}))
        a_row = settings.model.embedding_width + 1  # its vector and its bias
        assert count_parameters(network) - count_parameters(fewer) == 24 * a_row


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_planned_without_memory(preset):
    found = plan(preset, devices=1024, device_bytes=80 * GIB)
    assert found.parameters > 1e6 and found.days > 0
    assert found.flops == pytest.approx(preset_settings(preset).planned_flops())
    held = [each.state_bytes for each in found.sharding]
    assert held == sorted(held, reverse=True) and held[0] == 16 * found.parameters
    assert held[-1] == pytest.approx(16 * found.parameters / 1024)
    assert found.fits(found.sharding[-1])


@pytest.mark.parametrize("preset", ["bert-large", "gpt3-6.7b", "gpt3-13b", "albert-xxlarge"])
def test_devices_needed_are_the_fewest_that_fit(preset):
    for gibibytes in (8, 40, 80):
        needed = plan(preset, device_bytes=gibibytes * GIB).devices_needed
        if needed is None:
            assert not plan(preset, devices=10**6, device_bytes=gibibytes * GIB).fits(
                plan(preset, devices=10**6, device_bytes=gibibytes * GIB).sharding[-1]
            )
            continue
        for devices in (needed, needed - 1):
            found = plan(preset, devices=max(1, devices), device_bytes=gibibytes * GIB)
            assert found.fits(found.sharding[-1]) == (devices == needed or needed == 1)


def test_devices_needed_are_printed(hornbook):
    assert (
        "2 of 80 GiB at least, with parallel.shard=true" in hornbook("plan", "gpt3-6.7b", "--device-memory", "80").out
    )


def test_twice_the_devices_or_utilisation_take_half_the_days():
    for devices in (0, -1):
        with pytest.raises(ValueError, match="devices must be at least 1"):
            plan("bert-base", devices=devices)
    one = plan("bert-base", devices=8, utilization=0.2)
    assert plan("bert-base", devices=16, utilization=0.2).days == pytest.approx(one.days / 2)
    assert plan("bert-base", devices=8, utilization=0.4).days == pytest.approx(one.days / 2)
    assert plan("bert-base", devices=8, utilization=0.2, tokens=one.tokens // 2).days == pytest.approx(one.days / 2)


def test_few_tokens_are_planned_with_the_recipe_that_a_run_takes():
    found = plan("bert-tiny", tokens=1_000_000)
    settings = resolve_settings(PretrainRequest(preset="bert-tiny", tokens=1_000_000))
    assert (found.recipe, found.length) == ("budget", 64) == ("budget", max(settings.lengths))
    assert found.flops == pytest.approx(1_000_000 * settings.mean_flops_per_token())
    published = plan("bert-tiny")
    assert (published.recipe, published.length) == ("published", 512)
    assert found.flops_per_token < published.flops_per_token


def test_model_that_does_not_fit_is_reported(hornbook):
    assert not plan("bert-large", device_bytes=4 * GIB).fits(plan("bert-large", device_bytes=4 * GIB).sharding[0])
    found = hornbook("plan", "bert-large", "--device-memory", "4")
    assert found.status == 0 and "does not fit" in found.out


def test_command(hornbook):
    found = hornbook("plan", "bert-base", "--devices", "8", "--device-memory", "80", "--json")
    answer = found.answer
    assert answer["parameters"] == 110_106_428 and len(answer["sharding"]) == 4
    assert "110,106,428" in hornbook("plan", "bert-base", "--devices", "8", "--device-memory", "80").stdout


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("hornbook.runs.pretraining.plan.matrix_flops", lambda device: 5e10)


@pytest.mark.parametrize("device", [[], ["--device", "cpu"]])
def test_a_machine_without_a_gpu_is_planned_at_its_own_speed(hornbook, no_gpu, device):
    found = hornbook("plan", "bert-tiny", "--json", *device)
    machine = found.answer["machine"]
    assert machine["flops"] == 5e10 and machine["is_here"] and "CPU core" in machine["where"]
    assert "0.05 TFLOP/s, measured on this machine" in " ".join(found.out.split()) and "989" not in found.out
    assert found.answer["days"] == pytest.approx(found.answer["flops"] / (0.4 * 5e10) / 86_400)


def test_a_time_of_many_days_has_no_decimals(hornbook, no_gpu):
    rows = dict(line.split(maxsplit=1) for line in hornbook("plan", "bert-base").out.splitlines() if " " in line)
    assert rows["time"].startswith("41,691 days, if each device reaches 40%")


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--devices", "8"], ["--device-memory", "80"]])
def test_the_speed_of_another_machine_is_assumed_and_named(hornbook, no_gpu, words):
    found = hornbook("plan", "bert-tiny", "--json", *words)
    assert found.answer["machine"]["flops"] == 989e12 and not found.answer["machine"]["is_here"]
    assert "the assumed bfloat16 peak" in " ".join(found.out.split())
    given = hornbook("plan", "bert-tiny", "--json", *words, "--device-tflops", "100").answer["machine"]
    assert given["flops"] == 100e12 and "as given" in given["speed"]


def test_matrix_products_are_measured():
    assert 1e7 < matrix_flops("cpu", seconds=0.01) < 1e15


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bert-base", "--device", "abacus"], "there is no device 'abacus' here"),
        (["bert-base", "--device-tflops", "nan"], "--device-tflops must be above 0"),
        (["bert-base", "--device-memory", "-1"], "--device-memory must be above 0, not -1"),
        (["bert-bsae"], "did you mean bert-base"),
        (["bert-base", "--devices", "0"], "at least 1"),
        (["bert-base", "--tokens", "0"], "tokens must be at least 1, not 0"),
        (["bert-base", "--utilization", "2"], "at most 1"),
        (["bert-base", "--set", "model.layers=3"], "no setting"),
    ],
)
def test_bad_input(hornbook, arguments, words):
    found = hornbook("plan", *arguments)
    assert found.status == 2 and words in found.error and len(found.error.splitlines()) == 1
