"""Several Python threads on one device."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from support import device as under_test
from support import process, scripts
from support.device import counted, counter
from support.training import Trainer, batch, mlp

pytestmark = pytest.mark.lazy


def in_threads(work: Callable[[int], None], count: int = 6) -> None:
    """Runs work(0) … work(count - 1) at the same time; the first exception of any is raised here."""
    problems: list[BaseException] = []
    gate = threading.Barrier(count)

    def body(i: int) -> None:
        try:
            gate.wait()
            work(i)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive(), "a thread hangs"
    if problems:
        raise problems[0]


def test_each_thread_computes_its_own() -> None:
    def work(i: int) -> None:
        host = torch.randn(16, 16, generator=torch.Generator().manual_seed(i))
        x, want = host.to(under_test.NAME), host
        for step in range(30):
            x, want = torch.tanh(x @ x.t() * 0.1), torch.tanh(want @ want.t() * 0.1)
            if step % 7 == i % 7:
                assert torch.equal(x.cpu(), want)
        assert torch.equal(x.cpu(), want)

    in_threads(work)


def test_one_records_while_another_reads() -> None:
    shared = torch.arange(8.0).to(under_test.NAME)

    def work(i: int) -> None:
        for _ in range(40):
            y = shared * (i + 1)
            if i % 2:
                assert y.tolist() == [v * (i + 1) for v in range(8)]
            else:
                under_test.sync()

    in_threads(work)


def test_each_thread_trains_its_own_model() -> None:
    want = Trainer("cpu", torch.optim.SGD, foreach=False)
    losses = [want.step(i).item() for i in range(6)]
    trainers = [Trainer(under_test.NAME, torch.optim.SGD, foreach=False) for _ in range(3)]

    def work(i: int) -> None:
        assert [trainers[i].step(s).item() for s in range(6)] == losses

    in_threads(work, 3)


def test_in_place_writes_of_threads_add_up() -> None:
    """Operators of several threads interleave in one order; none is lost."""
    total = torch.zeros(4).to(under_test.NAME)

    def work(i: int) -> None:
        for _ in range(50):
            total.add_(1)

    in_threads(work, 4)
    assert total.tolist() == [200] * 4


def test_operators_of_threads_interleave_in_one_graph_in_call_order() -> None:
    x = torch.ones(3).to(under_test.NAME)
    under_test.sync()

    def course() -> list[float]:
        for write in (lambda: x.add_(1), lambda: x.mul_(10), lambda: x.sub_(5)):
            thread = threading.Thread(target=write)
            thread.start()
            thread.join()
        return x.tolist()

    values, rose = counted(course, "graphs_ended", "ops_recorded")
    assert values == [15, 15, 15]
    assert rose == {"graphs_ended": 1, "ops_recorded": 3}


def test_recording_goes_on_while_another_thread_waits_for_its_graph() -> None:
    """Nobody waits while holding the lock that recording takes."""
    x = y = torch.eye(700).to(under_test.NAME)
    under_test.sync()
    for _ in range(20):
        y = y @ x
    before = counter("library_calls")
    waiting = threading.Thread(target=y.cpu)
    waiting.start()
    while counter("library_calls") == before:
        time.sleep(0.001)
    z = torch.ones(3, device=under_test.NAME)
    for _ in range(10):
        z = z + 1
    ran = counter("library_calls") - before
    waiting.join()
    assert ran < 20, "the wait was over before the recording was"
    assert z.tolist() == [11] * 3


def test_a_graph_runs_on_the_thread_that_ends_it() -> None:
    """Each thread's own clock says who computed."""
    process.output(
        """
        import threading, time

        x = torch.eye(500).to(D)
        (x @ x).cpu()
        spent = {}

        def end(name, y):
            start = time.thread_time()
            y.cpu()
            spent[name] = time.thread_time() - start

        def chain():
            y = x
            for _ in range(20):
                y = y @ x
            return y

        for here, there in (("recorder", "idle"), ("idle", "other")):
            spent.clear()
            recorded, start = chain(), time.process_time()
            other = threading.Thread(target=end, args=("other", recorded))
            if there == "other":
                other.start()
                other.join()
            else:
                end("recorder", recorded)
            whole = time.process_time() - start
            (share,) = spent.values()
            assert share > 0.8 * whole, (spent, whole)
        """,
        SINTER_ASYNC=0,
        OMP_NUM_THREADS=1,
    )


@pytest.mark.exact
def test_one_graph_runs_at_a_time() -> None:
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    # Each thread has a matrix of its own: equal products of several threads that meet in one graph are computed once.
    matrices = [torch.eye(100).to(under_test.NAME) for _ in range(4)]

    def work(i: int) -> None:
        x = matrices[i]
        for _ in range(10):
            (x @ x * (i + 1)).cpu()

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        in_threads(work, 4)
    ran = sorted(
        (e.time_range.start, e.time_range.end) for e in prof.events() if e.device_type == DeviceType.PrivateUse1
    )
    assert len(ran) == 4 * 10 * 2
    for (_, end), (start, _) in itertools.pairwise(ran):
        assert end <= start + 1


def test_an_error_reaches_the_thread_that_waits() -> None:
    def work(i: int) -> None:
        if i == 0:
            for _ in range(10):
                bad = torch.ones(3).to(under_test.NAME)[torch.tensor([7]).to(under_test.NAME)]
                with pytest.raises(IndexError):
                    bad.cpu()
        else:
            for _ in range(30):
                with contextlib.suppress(IndexError):  # this thread ended the graph that held the other's mistake
                    assert (torch.ones(3).to(under_test.NAME) + i).tolist() == [i + 1.0] * 3

    in_threads(work, 3)


def test_a_value_read_in_a_backward_hook() -> None:
    seen: list[float] = []

    def course(device: str) -> list[torch.Tensor]:
        model = mlp().to(device)
        for p in model.parameters():
            p.register_hook(lambda g: seen.append(g.abs().sum().item()))
        x, y = (t.to(device) for t in batch(0))
        nn.functional.cross_entropy(model(x), y).backward()
        return [p.grad.cpu() for p in model.parameters()]

    want = course("cpu")
    count = len(seen)
    got = course(under_test.NAME)
    assert seen[:count] == seen[count:]
    for a, b in zip(want, got, strict=True):
        assert torch.equal(a, b)


def test_backward_in_another_thread() -> None:
    model = mlp().to(under_test.NAME)
    x, y = (t.to(under_test.NAME) for t in batch(0))
    loss = nn.functional.cross_entropy(model(x), y)
    in_threads(lambda i: loss.backward(), 1)
    reference = mlp()
    nn.functional.cross_entropy(reference(batch(0)[0]), batch(0)[1]).backward()
    for a, b in zip(reference.parameters(), model.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad.cpu())


def test_a_run_on_autograds_thread_starts_no_second_pool() -> None:
    """Where the engine has a thread for the device (as without Python), kernels that it ends use one thread."""
    outcome = scripts.run(
        """
        import os, torch
        from torch_sinter._src import runtime

        runtime.prime_autograd = lambda: None  # so the engine starts when the device is there
        torch.set_num_threads(4)
        x = torch.randn(1 << 20).to("sinter").requires_grad_()
        torch.tanh(x.detach()).sum().item()  # the pool of this thread

        def read(grad):
            with open("/proc/thread-self/comm") as name:
                print(name.read().strip())
            before = len(os.listdir("/proc/self/task"))
            torch.tanh(grad).sum().item()
            print(len(os.listdir("/proc/self/task")) - before)

        y = torch.tanh(x * 2)
        y.register_hook(read)
        total = y.sum()
        engine = type(torch.autograd.Variable._execution_engine).__mro__[1]()
        engine.run_backward((total,), (torch.ones_like(total),), False, False, (), accumulate_grad=True)
        """
    )
    assert outcome.lines == ["pt_autograd_0", "0"]


def test_the_failure_of_one_thread_skips_nothing_of_another() -> None:
    """Eager's other threads would have gone on."""
    kept = torch.ones(17).to(under_test.NAME)
    table, bad = torch.randn(5, 3).to(under_test.NAME), torch.tensor([99]).to(under_test.NAME)
    under_test.sync()
    found = []
    failing = threading.Thread(target=lambda: found.append(torch.nn.functional.embedding(bad, table).sum()))
    failing.start()
    failing.join()
    kept.add_(1)
    with pytest.raises(IndexError):
        found[0].item()
    assert kept.tolist() == [2.0] * 17
