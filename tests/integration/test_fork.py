"""A forked child may use the device: what was recorded is plain data, and no thread of ours is missing there."""

from __future__ import annotations

import pytest

from support import scripts

TRAIN = """
import os, torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 16).to("sinter")
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
batch = torch.ones(4, 16, device="sinter")
def step():
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
def in_child(function):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(write, repr(function()).encode())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    return os.read(read, 1000).decode()
"""


def test_parent_and_child_train_on() -> None:
    outcome = scripts.run(
        TRAIN
        + """
step()
there = in_child(lambda: [step() for _ in range(3)])
here = [step() for _ in range(3)]
print(there == repr(here))
""",
        timeout=60,
    )
    assert outcome.lines == ["True"]


def test_pending_work_runs_in_both() -> None:
    outcome = scripts.run(
        TRAIN
        + """
x = torch.arange(4.0, device="sinter") * 3 + 1
print(in_child(x.tolist), x.tolist())
""",
        timeout=60,
    )
    assert outcome.lines == ["[1.0, 4.0, 7.0, 10.0] [1.0, 4.0, 7.0, 10.0]"]


def test_memory_is_apart() -> None:
    outcome = scripts.run(
        TRAIN
        + """
x = torch.zeros(2, device="sinter")
print(in_child(lambda: x.add_(5).tolist()), x.tolist())
""",
        timeout=60,
    )
    assert outcome.lines == ["[5.0, 5.0] [0.0, 0.0]"]


def test_first_use_in_the_child() -> None:
    outcome = scripts.run(
        """
        import os, torch
        child = os.fork()
        x = torch.ones(2, device="sinter", requires_grad=True)
        (x * x).sum().backward()
        if child == 0:
            print(x.grad.tolist(), flush=True)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(x.grad.tolist(), status)
        """,
        timeout=60,
    )
    assert outcome.lines == ["[2.0, 2.0]", "[2.0, 2.0] 0"]


@pytest.mark.parametrize("module", ["torch_sinter._src.runtime", "torch_sinter._src.device_module"])
def test_fork_in_the_middle_of_another_threads_first_use(module: str) -> None:
    """A lock or an import of that thread would be held for ever in the child, which does not have the thread."""
    outcome = scripts.run(
        f"""
        import os, sys, threading, time, torch
        begun = threading.Event()
        class Slow:
            def find_spec(self, name, path=None, target=None):
                if name == "{module}":
                    begun.set()
                    time.sleep(0.3)
        sys.meta_path.insert(0, Slow())
        thread = threading.Thread(target=lambda: torch.ones(3, device="sinter").sum().item())
        thread.start()
        assert begun.wait(20)
        child = os.fork()
        if child == 0:
            os._exit(int(torch.ones(3, device="sinter").sum().item()))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
        """,
        timeout=60,
    )
    assert outcome.lines == ["3"]


def test_big_parallel_work_in_the_child() -> None:
    """More elements than one thread takes, after the parent's threads have been used. (On the CPU the child hangs.)"""
    outcome = scripts.run(
        TRAIN
        + """
x = torch.ones(1 << 18, device="sinter")
(x + 1).sum().item()
print(in_child(lambda: (x + 2).sum().item()))
""",
        timeout=60,
    )
    assert outcome.lines == [str(3.0 * (1 << 18))]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_travel_between_processes(method: str) -> None:
    outcome = scripts.run(
        """
        import sys, torch, torch.multiprocessing as mp
        def work(there, back, received, weight):
            x = there.get()
            back.put([x * 2 + weight, x.cpu(), torch.nn.Parameter(x)])
            received.wait()  # shared memory is handed over by a thread of this process
        if __name__ == "__main__":
            context = mp.get_context(sys.argv[1])
            there, back, received = context.Queue(), context.Queue(), context.Event()
            weight = torch.ones(2, device="sinter") * 10
            process = context.Process(target=work, args=(there, back, received, weight))
            process.start()
            there.put(torch.arange(2.0, device="sinter") + 1)
            y, on_cpu, parameter = back.get()
            received.set()
            process.join()
            print(y.tolist(), y.device, on_cpu.tolist(), on_cpu.device, type(parameter).__name__, parameter.device)
            print(process.exitcode)
        """,
        method,
        timeout=120,
    )
    assert outcome.lines == ["[12.0, 14.0] sinter:0 [1.0, 2.0] cpu Parameter sinter:0", "0"]


def test_tensors_of_the_cpu_are_still_shared() -> None:
    outcome = scripts.run(
        """
        import torch, torch.multiprocessing as mp
        def work(x):
            x.add_(1)
        if __name__ == "__main__":
            torch.sinter.init()
            x = torch.ones(2).share_memory_()
            process = mp.get_context("spawn").Process(target=work, args=(x,))
            process.start()
            process.join()
            print(x.tolist())
        """
    )
    assert outcome.lines == ["[2.0, 2.0]"]
