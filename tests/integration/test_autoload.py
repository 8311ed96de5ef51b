"""The entrance: what `import torch` does, in which order things may be imported, and the ways it can go wrong."""

from __future__ import annotations

import shutil

import pytest

from support import scripts


def test_import_torch_is_enough() -> None:
    outcome = scripts.run(
        """
        import sys, torch
        print("torch_sinter" in sys.modules, torch.sinter.is_initialized())
        x = torch.ones(2, 2).to("sinter")
        print((x + x).sum().item(), x.device, torch.sinter.is_initialized())
        """
    )
    assert outcome.lines == ["False False", "8.0 sinter:0 True"]


@pytest.mark.parametrize("autoload", [True, False])
@pytest.mark.parametrize("first", ["torch", "torch_sinter", "torch.nn"])
def test_any_import_order(first: str, autoload: bool) -> None:
    outcome = scripts.run(
        f"""
        import {first}
        import torch_sinter, torch
        print(torch.ones(2, device="sinter").sum().item(), torch_sinter.__name__)
        """,
        autoload=autoload,
    )
    assert outcome.lines == ["2.0 torch_sinter"]


def test_switched_off() -> None:
    outcome = scripts.run(
        """
        import torch
        print(hasattr(torch, "sinter"), hasattr(torch.Tensor, "is_sinter"))
        """,
        autoload=False,
    )
    assert outcome.lines == ["False False"]


def test_tensors_modules_and_storages_get_their_methods() -> None:
    outcome = scripts.run(
        """
        import torch
        x = torch.ones(2)
        print(x.is_sinter, x.untyped_storage().is_sinter)
        y = x.sinter()
        print(y.is_sinter, y.untyped_storage().is_sinter, torch.nn.Linear(2, 2).sinter().weight.device)
        print(x.untyped_storage().sinter().device)
        packed = torch.nn.utils.rnn.pack_sequence([x, x])
        print(packed.is_sinter, packed.sinter().is_sinter)
        """
    )
    assert outcome.lines == ["False False", "True True sinter:0", "sinter:0", "False True"]


# One line each, the first thing that a process does with the device.
ENTRANCES = {
    "factory": 'torch.ones(2, device="sinter")',
    "like": 'torch.ones_like(torch.ones(2), device="sinter")',
    "new": 'torch.ones(2).new_ones(2, device="sinter")',
    "to": 'torch.ones(2).to("sinter")',
    "to device object": 'torch.ones(2).to(torch.device("sinter", 0))',
    "method": "torch.ones(2).sinter()",
    "module": 'torch.nn.Linear(2, 2, device="sinter")',
    "module to": 'torch.nn.Linear(2, 2).to("sinter")',
    "tensor": 'torch.tensor([1], device="sinter")',
    "as_tensor": 'torch.as_tensor([1], device="sinter")',
    "storage": 'torch.UntypedStorage(4, device="sinter")',
    "to_empty": 'torch.nn.Linear(2, 2, device="meta").to_empty(device="sinter")',
    "default device": 'torch.set_default_device("sinter"), torch.ones(2)',
    "with device": '[torch.ones(2) for _ in [torch.device("sinter").__enter__()]]',
    "load": 'torch.load(saved, map_location="sinter")',
    "autocast": 'torch.autocast("sinter").__enter__(), torch.ones(2, device="sinter")',
    "sinter stream": "torch.sinter.Stream()",
    "sinter event": "torch.sinter.Event()",
    "current stream": "torch.sinter.current_stream()",
    "rng state": "torch.sinter.get_rng_state()",
    "default generators": "torch.sinter.default_generators[0]",
    "init": "torch.sinter.init()",
    "accelerator after import": "__import__('torch_sinter'), torch.accelerator.current_accelerator()",
    "accelerator stream after import": "__import__('torch_sinter'), torch.accelerator.current_stream()",
    "device module": 'torch.get_device_module("sinter").Stream()',
    "fork_rng": 'torch.random.fork_rng(device_type="sinter").__enter__()',
    "generator": 'torch.Generator("sinter")',
    "stream": 'torch.Stream("sinter")',
    "event": 'torch.Event("sinter").record()',
    "dispatcher copy": 'torch.ops.aten._to_copy(torch.ones(2), device="sinter")',
}


@pytest.fixture(scope="module")
def entered() -> dict[str, scripts.Outcome]:
    script = """
        import io, torch
        saved = io.BytesIO()
        torch.save(torch.ones(2), saved)
        saved.seek(0)
        assert not torch.sinter.is_initialized()
        {}
        assert torch.sinter.is_initialized(), "not loaded"
        torch.set_default_device("cpu")
        print((torch.ones(2, device="sinter") + 1).sum().item(), torch.accelerator.current_accelerator())
    """
    return scripts.run_each({name: script.format(entrance) for name, entrance in ENTRANCES.items()})


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_each_entrance_loads_the_library(entrance: str, entered: dict[str, scripts.Outcome]) -> None:
    assert entered[entrance].lines == ["4.0 sinter"], entered[entrance].stderr


def test_the_hooks_stand_in_forwards_everything_once_the_library_is_there() -> None:
    outcome = scripts.run(
        """
        import torch
        event = torch.Event("sinter", enable_timing=True)
        generator = torch.Generator("sinter").manual_seed(4)
        stream = torch.Stream("sinter")
        later = torch.Event("sinter", enable_timing=True)
        event.record(stream)
        x = torch.rand(2, device="sinter", generator=generator)
        later.record(stream)
        later.synchronize()
        stream.synchronize()
        print(event.elapsed_time(later) >= 0, generator.initial_seed(), x.device)
        pinned = torch.ones(2).pin_memory()
        print(pinned.is_pinned(), torch.ones(2).is_pinned())
        x.resize_(100)
        print(x.untyped_storage().nbytes())
        """
    )
    assert outcome.lines == ["True 4 sinter:0", "True False", "400"]


def test_pinning_before_the_first_use_says_what_to_do() -> None:
    outcome = scripts.run("import torch\ntorch.ones(2).pin_memory()", check=False)
    assert "none is available" in outcome.last_error and "import torch_sinter" in outcome.last_error
    outcome = scripts.run("import torch, torch_sinter\nprint(torch.ones(2).pin_memory().is_pinned())")
    assert outcome.lines == ["True"]


def test_asking_does_not_load() -> None:
    outcome = scripts.run(
        """
        import torch
        torch.manual_seed(3)
        torch.sinter.is_available(), torch.sinter.device_count(), torch.sinter.current_device()
        torch.sinter.memory_allocated(), torch.sinter.synchronize(), torch.sinter.get_amp_supported_dtype()
        torch.device("sinter"), torch.sinter.is_initialized(), torch.sinter.mem_get_info()
        with torch.sinter.device(0):
            pass
        print(torch.sinter.is_initialized())
        """
    )
    assert outcome.lines == ["False"]


def test_a_seed_given_before_the_first_use_counts() -> None:
    source = """
        import torch
        {before}
        x = torch.empty(0, device="sinter")
        {after}
        print(torch.rand(3, device="sinter").tolist(), torch.sinter.initial_seed())
    """
    early = scripts.run(source.format(before="torch.manual_seed(11)", after=""))
    late = scripts.run(source.format(before="", after="torch.manual_seed(11)"))
    other = scripts.run(source.format(before="torch.manual_seed(12)", after=""))
    assert early.stdout == late.stdout != other.stdout


def test_many_threads_may_be_first() -> None:
    outcome = scripts.run(
        """
        import threading, torch
        barrier, results = threading.Barrier(8), []
        def use():
            barrier.wait()
            results.append((torch.ones(2, device="sinter") + 1).sum().item())
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
        print(results == [4.0] * 8, len(hooks))
        """
    )
    assert outcome.lines == ["True 1"]


def test_the_module_imports_and_is_found_by_name() -> None:
    outcome = scripts.run(
        """
        import importlib.util, inspect, torch
        import torch.sinter as sinter
        print(sinter is torch.sinter, importlib.util.find_spec("torch.sinter").name)
        print(inspect.getmodule(sinter) is sinter)
        print(torch.sinter.is_initialized())
        """
    )
    assert outcome.lines == ["True torch.sinter", "True", "False"]


# A torch built for CUDA, as far as our package can see.
CUDA_BUILD = """
    import os, torch
    torch._C._has_cuda = True
    exists = os.path.exists
    os.path.exists = lambda path: path == {device!r} or exists(path)
    import torch_sinter_autoload
    torch_sinter_autoload._autoload()
"""


def test_a_machine_with_another_accelerator_is_left_alone() -> None:
    outcome = scripts.run(
        CUDA_BUILD.format(device="/dev/nvidiactl")
        + """
    print(hasattr(torch, "sinter"), torch._C._get_privateuse1_backend_name())
    import torch_sinter
    print(torch.ones(2, device="sinter").sum().item())
    """,
        autoload=False,
    )
    assert outcome.lines == ["False privateuseone", "2.0"]


def test_a_build_for_another_accelerator_without_one_still_says_so() -> None:
    outcome = scripts.run(
        CUDA_BUILD.format(device=None)
        + """
    print(torch.accelerator.current_accelerator(), torch.accelerator.is_available(), torch.sinter.is_initialized())
    torch.ones(2, device="sinter")
    print(torch.accelerator.current_accelerator())
    """,
        autoload=False,
    )
    assert outcome.lines == ["cuda False False", "sinter"]


def test_no_warnings() -> None:
    outcome = scripts.run(
        """
        import torch, torch_sinter
        model = torch.nn.Linear(2, 2).to("sinter")
        model(torch.ones(1, 2, device="sinter")).sum().backward()
        torch_sinter.metrics.report()
        """,
        PYTHONWARNINGS="error",
    )
    assert outcome.stderr == ""


def test_another_backend_in_the_slot() -> None:
    other = 'import torch\ntorch.utils.rename_privateuse1_backend("fancy")\n'
    outcome = scripts.run(other + "import torch_sinter", autoload=False, check=False)
    assert outcome.returncode != 0
    assert "'sinter'" in outcome.last_error and "'fancy'" in outcome.last_error
    # Autoloading must not take torch away from the other backend's users.
    outcome = scripts.run(other + "import torch_sinter_autoload as a; a._autoload(); print('alive')", autoload=False)
    assert outcome.lines == ["alive"] and "'fancy'" in outcome.stderr


def test_another_backend_that_has_not_named_itself() -> None:
    other = """
        import torch
        torch._C._acc.register_python_privateuseone_hook(torch._C._acc.PrivateUse1Hooks())
    """
    outcome = scripts.run(other + "    import torch_sinter", autoload=False, check=False)
    assert outcome.returncode != 0 and "another out-of-tree device" in outcome.last_error
    outcome = scripts.run(
        other
        + """
        import torch_sinter_autoload
        torch_sinter_autoload._autoload()
        print(torch.ones(2).sum().item(), torch._C._get_privateuse1_backend_name())
        """,
        autoload=False,
    )
    assert outcome.lines == ["2.0 privateuseone"] and "another out-of-tree device" in outcome.stderr


def test_another_backend_after_us() -> None:
    outcome = scripts.run('import torch; torch.utils.rename_privateuse1_backend("fancy")', check=False)
    assert outcome.returncode != 0 and "sinter" in outcome.last_error


def test_wrong_torch_version_names_both() -> None:
    outcome = scripts.run(
        """
        import torch
        torch.__version__ = torch.torch_version.TorchVersion("2.12.1+cpu")
        import torch_sinter
        """,
        autoload=False,
        check=False,
    )
    assert outcome.last_error.startswith("ImportError")
    assert "2.13" in outcome.last_error and "2.12.1+cpu" in outcome.last_error


def test_wrong_torch_version_does_not_break_import_torch() -> None:
    outcome = scripts.run(
        """
        import torch
        torch.__version__ = torch.torch_version.TorchVersion("2.14.0")
        print(torch.ones(2).sum().item())
        torch.ones(2, device="sinter")
        """,
        check=False,
    )
    assert outcome.lines == ["2.0"] and outcome.last_error.startswith("ImportError")


def test_missing_library_is_said_with_its_path(tmp_path) -> None:
    without = shutil.ignore_patterns("lib", "include", "__pycache__")
    for package in ("torch_sinter", "torch_sinter_autoload"):
        shutil.copytree(scripts.PACKAGES / package, tmp_path / package, ignore=without)
    outcome = scripts.run(
        f"""
        import sys
        # An editable install answers imports before sys.path does.
        sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
        sys.path.insert(0, {str(tmp_path)!r})
        import torch, torch_sinter
        print(torch.sinter.is_available(), torch.sinter.device_count())
        for _ in range(2):
            try:
                torch.ones(2, device="sinter")
            except ImportError as error:
                print(error)
        """,
        autoload=False,
    )
    assert outcome.lines[0] == "False 0"
    assert str(tmp_path) in outcome.lines[1] and outcome.lines[1] == outcome.lines[2]
    assert "make setup" in outcome.lines[1]


def test_a_library_that_does_not_load_is_said_with_the_reason(tmp_path) -> None:
    outcome = scripts.run(
        f"""
        import pathlib, torch, torch_sinter
        from torch_sinter._src import runtime
        broken = pathlib.Path({str(tmp_path)!r}) / "libtorch_sinter.so"
        broken.write_bytes(b"not a library")
        runtime.library_path = lambda: broken
        try:
            torch.ones(2, device="sinter")
        except torch_sinter.LibraryError as error:
            print(error)
        print(torch.sinter.is_initialized())
        """
    )
    assert str(tmp_path) in outcome.lines[0] and "2.13" in outcome.lines[0]
    assert outcome.lines[-1] == "False"
