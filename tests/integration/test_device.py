"""`torch.sinter`: the names that torch.cuda has, for one device whose memory is the host's."""

from __future__ import annotations

import pytest
import torch


def test_there_is_one_device() -> None:
    assert torch.sinter.is_available() and torch.sinter.is_initialized() and torch.sinter._initialized
    assert torch.sinter.device_count() == 1 and torch.sinter.current_device() == 0
    assert torch.get_device_module("sinter") is torch.sinter
    assert torch.ones(1, device="sinter").device == torch.device("sinter", 0)


@pytest.mark.parametrize("given", [0, "sinter", "sinter:0", torch.device("sinter"), torch.device("sinter", 0)])
def test_ways_to_name_it(given: object) -> None:
    torch.sinter.set_device(given)
    with torch.sinter.device(given):
        assert torch.sinter.current_device() == 0
    torch.sinter.synchronize(given)
    assert torch.sinter.get_device_properties(given).name == torch.sinter.get_device_name(given)


@pytest.mark.parametrize("given", [1, "sinter:1"])
def test_a_second_device_is_refused_with_the_reason(given: object) -> None:
    for use in (torch.sinter.set_device, torch.sinter.device, torch.sinter.synchronize):
        with pytest.raises(RuntimeError, match=r"one sinter device, sinter:0"):
            use(given)


def test_tensors_on_a_second_device_are_refused() -> None:
    with pytest.raises(RuntimeError, match="sinter:1"):
        torch.ones(1, device="sinter:1")


def test_another_type_of_device_is_refused() -> None:
    with pytest.raises(ValueError, match="cpu"):
        torch.sinter.set_device("cpu")


def test_properties() -> None:
    properties = torch.sinter.get_device_properties()
    free, total = torch.sinter.mem_get_info()
    assert 0 < free <= total == properties.total_memory
    assert properties.multi_processor_count == torch.get_num_threads()
    assert properties.name and properties.type == "sinter"
    assert torch.sinter.is_bf16_supported()
    assert set(torch.sinter.get_amp_supported_dtype()) == {torch.bfloat16, torch.float16}


def test_device_of_takes_any_tensor(device: str) -> None:
    for tensor in (torch.ones(1), torch.ones(1, device=device)):
        with torch.sinter.device_of(tensor):
            assert torch.sinter.current_device() == 0


def test_unknown_names_are_attribute_errors() -> None:
    assert not hasattr(torch.sinter, "no_such_name")
    with pytest.raises(AttributeError, match=r"torch\.sinter.*no_such_name"):
        torch.sinter.no_such_name  # noqa: B018


def test_everything_public_is_there() -> None:
    for name in torch.sinter.__all__:
        assert getattr(torch.sinter, name) is not None
