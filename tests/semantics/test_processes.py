"""Exit, interruption, fork; the asynchronous worker."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from support import process

pytestmark = pytest.mark.lazy

STEP = """
from support.training import Trainer
t = Trainer(D, torch.optim.AdamW)
for i in range(3):
    t.step(i)
"""
MODES = pytest.mark.parametrize("asynchronous", (0, 1), ids=("deferred", "worker"))


@MODES
@pytest.mark.parametrize(
    "tail",
    {
        "nothing pending": "under_test.sync()",
        "pending": "x = torch.ones(100, 100).to(D); y = x @ x",
        "queued": "x = torch.ones(800, 800).to(D)\nfor _ in range(30): x = x @ x * 0.001\ntorch.ops.sinter._end_graph('t')",
        "a failure pending": "y = torch.ones(3).to(D)[torch.tensor([9]).to(D)]",
        "globals alive": "import builtins; builtins.kept = [torch.ones(3).to(D) + i for i in range(10)]",
        "a cycle": "a = []; a.append(a); a.append(torch.ones(3).to(D) + 1)",
        "a thread that ended": (
            "import threading\n"
            "thread = threading.Thread(target=lambda: (torch.ones(3).to(D) + 1).sum().item())\n"
            "thread.start(); thread.join()"
        ),
        "sys.exit": "y = torch.ones(3).to(D) + 1; sys.exit(0)",
    }.items(),
    ids=lambda pair: pair[0],
)
def test_exit(tail: tuple[str, str], asynchronous: int) -> None:
    process.output(STEP + tail[1] + "\n", timeout=60, SINTER_ASYNC=asynchronous)


@MODES
def test_exit_after_an_exception(asynchronous: int) -> None:
    done = process.run(STEP + "t.loss(0)\nraise KeyError('mine')\n", timeout=60, SINTER_ASYNC=asynchronous)
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr


@contextlib.contextmanager
def training(script: str, **settings: int) -> Iterator[subprocess.Popen[str]]:
    """A child that has said it is ready. It takes interrupts also where its parents were told to ignore them (nohup)."""
    child = subprocess.Popen(
        process.command(script),
        env=process.environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


@MODES
def test_an_interrupt_in_the_middle_of_training(asynchronous: int) -> None:
    """Ctrl-C raises KeyboardInterrupt soon; the process goes on if it catches it, with weights that are whole."""
    script = STEP + (
        "import time\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    i = 0\n"
        "    while True:\n"
        "        t.step(i); i += 1\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "assert all(p.isfinite().all() for p in t.model.parameters())\n"
        "t.step(0).item()\n"
        "print((torch.ones(2).to(D) + 1).tolist())\n"
    )
    with training(script, SINTER_ASYNC=asynchronous) as child:
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        text, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    assert text == "interrupted\n[2.0, 2.0]\n"


@MODES
def test_an_uncaught_interrupt_ends_the_process(asynchronous: int) -> None:
    script = STEP + "print('ready', flush=True)\nwhile True: t.step(0)\n"
    with training(script, SINTER_ASYNC=asynchronous) as child:
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    assert child.returncode in (-signal.SIGINT, 130, 1)
    assert "KeyboardInterrupt" in errors


@MODES
def test_fork_with_pending_work(asynchronous: int) -> None:
    """Parent and child each get the value; neither hangs."""
    text = process.output(
        """
import os
x = torch.arange(4.0).to(D)
y = x * 2
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(write, repr((y.tolist(), (y + 1).sum().item())).encode())
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(os.read(read, 1000).decode())
print((y.tolist(), (y + 1).sum().item()))
""",
        timeout=60,
        SINTER_ASYNC=asynchronous,
    )
    assert text.splitlines() == ["([0.0, 2.0, 4.0, 6.0], 16.0)"] * 2


@MODES
def test_fork_after_training(asynchronous: int) -> None:
    """Backward and thread pools have been used; the child may train on."""
    text = process.output(
        STEP
        + """
import os
pid = os.fork()
if pid == 0:
    torch.set_num_threads(1)
    print(t.step(3).item(), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(t.step(3).item())
""",
        timeout=60,
        SINTER_ASYNC=asynchronous,
    )
    first, second = text.split()
    assert first == second


@MODES
def test_fork_with_graphs_that_wait(asynchronous: int) -> None:
    """What was handed to the worker has run before the fork, so that the child, which has no worker, needs none."""
    text = process.output(
        """
import os
x = torch.eye(300).to(D)
for _ in range(3):
    for _ in range(5):
        x = x @ x
    torch.ops.sinter._end_graph("test")
y = x + 1
pid = os.fork()
if pid == 0:
    torch.ops.sinter._end_graph("test")
    print(x.trace().item(), y.trace().item(), (y @ x).trace().item(), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(x.trace().item(), y.trace().item(), (y @ x).trace().item())
""",
        timeout=60,
        SINTER_ASYNC=asynchronous,
    )
    assert text.splitlines() == ["300.0 600.0 600.0"] * 2


def test_forked_loader_workers_leave_the_device_alone() -> None:
    process.output(
        """
from torch.utils.data import DataLoader, TensorDataset
w = torch.randn(300, 300).to(D)
torch.tanh(w @ w).sum().item()  # starts the thread pool before the fork
pending = w + 1
rows = torch.arange(64.0).reshape(16, 4)
loader = DataLoader(TensorDataset(rows), batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=50)
assert torch.equal(torch.cat([(x.to(D) * 2).cpu() for x, in loader]), rows * 2)
assert torch.equal(pending.cpu(), w.cpu() + 1)
""",
        timeout=100,
    )


def test_spawned_process_gets_values() -> None:
    process.output(
        """
import torch.multiprocessing as mp, tempfile, os, subprocess
x = torch.arange(3.0).to(D) + 1
path = os.path.join(tempfile.mkdtemp(), "x.pt")
torch.save(x, path)
# docs/decisions/0006: files say "cpu", so that they load where this package is not installed
for where, expected in ((None, "cpu"), (D, D), ("cpu", "cpu")):
    code = f"import torch; x = torch.load({path!r}, map_location={where!r}); "
    code += f"assert x.device.type == {expected!r} and x.tolist() == [1, 2, 3], x"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
""",
        timeout=100,
    )


# ---------------------------------------------------------------------------------------------- the asynchronous worker


def test_the_worker_computes_the_same() -> None:
    script = """
from support.training import Trainer
t = Trainer(D, torch.optim.AdamW)
losses = [t.step(i) for i in range(12)]
print([l.item() for l in losses])
print([p.double().sum().item() for p in t.model.parameters()])
"""
    assert process.output(script, SINTER_ASYNC=0) == process.output(script, SINTER_ASYNC=1)


def test_the_worker_reports_errors_at_the_next_wait_and_goes_on() -> None:
    process.output(
        """
kept = torch.arange(3.0).to(D)
under_test.sync()
for _ in range(5):
    bad = torch.ones(3).to(D)[torch.tensor([9]).to(D)]
    kept.add_(bad.sum())
    torch.ops.sinter._end_graph("test")
    try:
        under_test.sync()
        raise SystemExit("no error at the wait")
    except IndexError:
        pass
    try:
        bad.cpu()
        raise SystemExit("no error at the read")
    except IndexError:
        pass
    try:
        under_test.sync()
    except IndexError:
        pass
assert kept.tolist() == [0, 1, 2]
assert (kept + 1).tolist() == [1, 2, 3]
""",
        SINTER_ASYNC=1,
    )


def test_the_worker_takes_the_number_of_threads() -> None:
    """A sum over chunks shows how many there were."""
    process.output(
        """
x = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
for count in (1, 2, 3, 1):
    torch.set_num_threads(count)
    assert x.to(D).sum().item() == x.sum().item(), count
""",
        SINTER_ASYNC=1,
    )


def test_an_error_of_the_worker_is_raised_by_the_wait_for_it_every_time() -> None:
    process.output(
        """
silent = elsewhere = 0
for _ in range(200):
    y = torch.nn.functional.embedding(torch.full((4,), 99).to(D), torch.ones(5, 3).to(D))
    try:
        under_test.sync()
        silent += 1
    except IndexError:
        pass
    for _ in range(2):
        try:
            (torch.ones(3).to(D) + 1).tolist()
        except IndexError:
            elsewhere += 1
assert (silent, elsewhere) == (0, 0), (silent, elsewhere)
""",
        SINTER_ASYNC=1,
    )


def test_a_bound_cuts_at_repetitions_with_the_worker_too() -> None:
    process.output(
        """
under_test.set_flag("MAX_GRAPH_OPS", 97)
x = torch.ones(8).to(D)

def body(times):
    global x
    for _ in range(times):
        x = torch.tanh(x * 1.01 + 0.1) - x.mean() * 0.5

body(3)
_, rose = under_test.counted(lambda: (body(600), under_test.sync()), "graphs_planned", "graphs_ended")
assert rose["graphs_ended"] > 20
assert rose["graphs_planned"] <= 3, rose
""",
        SINTER_ASYNC=1,
    )


def test_recording_does_not_wait_for_the_worker_but_at_most_two_graphs_wait() -> None:
    """Beside those one is running, so of n graphs that were handed over all but three have run."""
    process.output(
        """
x = torch.eye(600).to(D)
under_test.sync()
before, ran = under_test.counter("library_calls"), []
for _ in range(8):
    for _ in range(15):
        x = x @ x
    torch.ops.sinter._end_graph("test")
    ran.append(under_test.counter("library_calls") - before)
assert ran[0] < 15, ran
assert all(calls >= 15 * (n - 3) for n, calls in enumerate(ran, 1)), ran
assert ran[-1] < 15 * 8, ran
assert torch.equal(x.cpu(), torch.eye(600))
""",
        SINTER_ASYNC=1,
    )


def test_only_the_worker_runs_kernels() -> None:
    """The threads' own clocks say who computed, whether the graph is ended or a value is read."""
    process.output(
        """
import time
x = torch.eye(500).to(D)
(x @ x).cpu()
whole, mine = time.process_time(), time.thread_time()
y = x
for _ in range(2):
    for _ in range(10):
        y = y @ x
    torch.ops.sinter._end_graph("test")
for _ in range(10):
    y = y @ x
y.cpu()
whole, mine = time.process_time() - whole, time.thread_time() - mine
assert mine < 0.3 * whole, (mine, whole)
""",
        SINTER_ASYNC=1,
        OMP_NUM_THREADS=1,
    )


def test_the_worker_needs_no_gil() -> None:
    """It goes on while a C function that does not let go of the GIL keeps this thread."""
    process.output(
        """
import ctypes
x = y = torch.eye(500).to(D)
under_test.sync()
for _ in range(10):
    y = y @ x
keep_the_gil = ctypes.PyDLL(None).usleep
before = under_test.counter("library_calls")
torch.ops.sinter._end_graph("test")
keep_the_gil(1_500_000)
assert under_test.counter("library_calls") - before > 5
assert y.trace().item() == 500
""",
        SINTER_ASYNC=1,
    )


def test_a_read_waits_for_the_last_write_of_its_memory_and_for_no_later_graph() -> None:
    process.output(
        """
x = torch.eye(600).to(D)
under_test.sync()
small = x[0] + 1
torch.ops.sinter._end_graph("test")
before = under_test.counter("library_calls")
y = x
for _ in range(30):
    y = y @ small.expand(600, 600)  # a later graph reads it
torch.ops.sinter._end_graph("test")
assert small[:2].tolist() == [2, 1]
ran = under_test.counter("library_calls") - before
under_test.sync()
assert ran < 30 <= under_test.counter("library_calls") - before, ran
""",
        SINTER_ASYNC=1,
    )


def test_report_at_exit() -> None:
    done = process.run(STEP, SINTER_REPORT=1)
    assert done.returncode == 0
    lines = [line for line in (done.stderr + done.stdout).splitlines() if "graph" in line]
    assert len(lines) == 1
    assert "3 steps" in lines[0] or "steps 3" in lines[0] or "steps=3" in lines[0]
    silent = process.run(STEP)
    assert "graph" not in silent.stderr + silent.stdout
