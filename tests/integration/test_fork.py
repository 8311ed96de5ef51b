"""A forked child may use the device: what was recorded is plain data, and no thread of ours is missing there."""

from __future__ import annotations

import multiprocessing

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


def test_multiprocessing_queue_carries_tensors() -> None:
    assert multiprocessing.get_start_method() in ("fork", "forkserver", "spawn")
    outcome = scripts.run(
        """
        import torch, torch.multiprocessing as mp
        def work(queue, received, x):
            queue.put((x + 1).cpu())
            received.wait()  # the memory is handed over by a thread of this process
        if __name__ == "__main__":
            context = mp.get_context("fork")
            queue, received = context.Queue(), context.Event()
            x = torch.ones(2, device="sinter") * 2
            process = context.Process(target=work, args=(queue, received, x))
            process.start()
            print(queue.get().tolist())
            received.set()
            process.join()
            print(process.exitcode)
        """,
        timeout=60,
    )
    assert outcome.lines == ["[3.0, 3.0]", "0"]
