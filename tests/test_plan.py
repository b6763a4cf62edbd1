"""What a run would take: parameters to the last one, memory by what is cut over devices, FLOPs and days."""

import pytest

from hornbook.models.registry import PRESETS
from hornbook.pretraining.plan import GIB, count_parameters, plan
from hornbook.pretraining.settings import preset_settings
from hornbook.pretraining.trained import new_network


def test_parameters_are_those_of_the_network_without_the_rows_that_pad_the_vocabulary():
    changes = {"model.vocab_size": 1024, "model.num_layers": 2}
    for preset in ("bert-tiny", "albert-base", "electra-small", "roberta-base"):
        settings = preset_settings(preset, changes)
        assert count_parameters(settings) == sum(p.numel() for p in new_network(settings).parameters())
        fewer = preset_settings(preset, changes | {"model.vocab_size": 1000})
        a_row = settings.model.embedding_width + 1  # its vector and its bias
        assert count_parameters(settings) - count_parameters(fewer) == 24 * a_row


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_planned_without_memory(preset):
    found = plan(preset, devices=1024, device_bytes=80 * GIB)
    assert found.parameters > 1e6 and found.days > 0
    assert found.flops == pytest.approx(preset_settings(preset).planned_flops())
    held = [each.state_bytes for each in found.sharding]
    assert held == sorted(held, reverse=True) and held[0] == 16 * found.parameters
    assert held[-1] == pytest.approx(16 * found.parameters / 1024)
    assert found.fits(found.sharding[-1])


def test_twice_the_devices_or_utilisation_take_half_the_days():
    one = plan("bert-base", devices=8, utilisation=0.2)
    assert plan("bert-base", devices=16, utilisation=0.2).days == pytest.approx(one.days / 2)
    assert plan("bert-base", devices=8, utilisation=0.4).days == pytest.approx(one.days / 2)
    assert plan("bert-base", devices=8, utilisation=0.2, tokens=one.tokens // 2).days == pytest.approx(one.days / 2)


def test_what_does_not_fit_is_said(hornbook):
    assert not plan("bert-large", device_bytes=4 * GIB).fits(plan("bert-large", device_bytes=4 * GIB).sharding[0])
    found = hornbook("plan", "bert-large", "--device-memory", "4")
    assert found.status == 0 and "does not fit" in found.out


def test_the_verb(hornbook):
    found = hornbook("plan", "bert-base", "--devices", "8", "--device-memory", "80", "--json")
    answer = found.answer
    assert answer["parameters"] == 110_106_428 and len(answer["sharding"]) == 4
    assert "110,106,428" in hornbook("plan", "bert-base", "--devices", "8", "--device-memory", "80").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bert-bsae"], "did you mean bert-base"),
        (["bert-base", "--devices", "0"], "at least 1"),
        (["bert-base", "--tokens", "0"], "--tokens must be at least 1, not 0"),
        (["bert-base", "--utilisation", "2"], "at most 1"),
        (["bert-base", "--set", "model.layers=3"], "no setting"),
    ],
)
def test_bad_input(hornbook, arguments, words):
    found = hornbook("plan", *arguments)
    assert found.status == 2 and words in found.error and len(found.error.splitlines()) == 1
