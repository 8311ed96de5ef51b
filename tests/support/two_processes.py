"""Checks of torch.distributed in two processes: each does the same on the CPU and on the device, and compares.

`python two_processes.py FOLDER` starts both; each writes {check: "" or what went wrong} to FOLDER/RANK.json. A check is
a function of the device that returns anything made of tensors and plain values; an exception is an outcome too.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from support.compare import differences

WORLD = 2
CHECKS: dict[str, Callable[[str], Any]] = {}


def check(function: Callable[[str], Any]) -> Callable[[str], Any]:
    CHECKS[function.__name__] = function
    return function


def rank() -> int:
    return dist.get_rank()


def data(device: str, *shape: int) -> torch.Tensor:
    """Different on each rank, the same on each device, and made by an op that is still pending there."""
    generator = torch.Generator().manual_seed(100 + rank())
    return torch.randn(*shape, generator=generator).to(device) * 2


# ---------------------------------------------------------------- collectives


@check
def all_reduce(device: str) -> Any:
    x = data(device, 5)
    dist.all_reduce(x)
    y = data(device, 3)
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    return x, x + 1, y


@check
def all_reduce_of_a_part(device: str) -> Any:
    x = data(device, 4, 3)
    dist.all_reduce(x[1:3])
    return x


@check
def all_reduce_of_other_types(device: str) -> Any:
    results = []
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        x = (data(device, 4).abs() * 8).to(dtype)
        dist.all_reduce(x)
        results.append(x)
    return results


@check
def all_reduce_coalesced(device: str) -> Any:
    tensors = [data(device, 2), data(device, 3, 2)]
    dist.all_reduce_coalesced(tensors)
    return tensors


@check
def broadcast(device: str) -> Any:
    x = data(device, 2, 3)
    dist.broadcast(x, 1)
    return x


@check
def reduce(device: str) -> Any:
    x = data(device, 4)
    dist.reduce(x, 0)
    return x if rank() == 0 else None


@check
def all_gather(device: str) -> Any:
    parts = [torch.empty(3, device=device) for _ in range(WORLD)]
    dist.all_gather(parts, data(device, 3))
    into = torch.empty(WORLD * 3, device=device)
    dist.all_gather_into_tensor(into, data(device, 3))
    return parts, into


@check
def gather_and_scatter(device: str) -> Any:
    x = data(device, 3)
    parts = [torch.empty(3, device=device) for _ in range(WORLD)] if rank() == 0 else None
    dist.gather(x, parts, dst=0)
    back = torch.empty(3, device=device)
    dist.scatter(back, [p * 10 for p in parts] if parts else None, src=0)
    return parts, back


@check
def reduce_scatter(device: str) -> Any:
    out = torch.empty(2, device=device)
    dist.reduce_scatter_tensor(out, data(device, 2 * WORLD))
    listed = torch.empty(2, device=device)
    dist.reduce_scatter(listed, list(data(device, 2 * WORLD).chunk(WORLD)))
    return out, listed


@check
def all_to_all(device: str) -> Any:
    out = torch.empty(2 * WORLD, device=device)
    dist.all_to_all_single(out, data(device, 2 * WORLD))
    parts = [torch.empty(2, device=device) for _ in range(WORLD)]
    dist.all_to_all(parts, list(data(device, 2 * WORLD).chunk(WORLD)))
    return out, parts


@check
def send_and_receive(device: str) -> Any:
    other = 1 - rank()
    x, got = data(device, 3), torch.empty(3, device=device)
    if rank() == 0:
        dist.send(x, other)
        dist.recv(got, other)
    else:
        dist.recv(got)  # from anybody
        dist.send(x, other)
    sent, received = dist.isend(x + 1, other), torch.empty(3, device=device)
    dist.irecv(received, other).wait()
    sent.wait()
    both = torch.empty(3, device=device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x * 3, other), dist.P2POp(dist.irecv, both, other)]):
        work.wait()
    return got, received, both


@check
def barriers(device: str) -> Any:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.monitored_barrier()


@check
def objects(device: str) -> Any:
    gathered: list[Any] = [None] * WORLD
    dist.all_gather_object(gathered, {"rank": rank()})
    sent = [{"from": rank()}]
    dist.broadcast_object_list(sent, 1)
    return gathered, sent


@check
def a_new_group(device: str) -> Any:
    group = dist.new_group([0, 1])
    x = data(device, 3)
    dist.all_reduce(x, group=group)
    alone = dist.new_group([1])
    y = data(device, 3)
    if rank() == 1:
        dist.all_reduce(y, group=alone)
    return x, y


@check
def functional_collectives(device: str) -> Any:
    import torch.distributed._functional_collectives as functional

    x = data(device, 4)
    summed = functional.all_reduce(x, "sum", [0, 1])
    gathered = functional.all_gather_tensor(x, 0, [0, 1])
    scattered = functional.reduce_scatter_tensor(data(device, 4), "sum", 0, [0, 1])
    return summed + 0, gathered + 0, scattered + 0, x


@check
def gradients_through_collectives(device: str) -> Any:
    from torch.distributed.nn import functional

    x = data(device, 4).requires_grad_()
    functional.all_reduce(x * 2).square().sum().backward()
    return x.grad


@check
def mistakes(device: str) -> Any:
    outcomes = []
    for wrong in (
        lambda: dist.all_reduce(data(device, 4, 4).t()[::2]),
        lambda: dist.all_gather([torch.empty(2, device=device)] * WORLD, data(device, 3)),
        lambda: dist.all_reduce(data(device, 3).to(torch.complex32)),
    ):
        try:
            wrong()
            outcomes.append("no error")
        except (RuntimeError, ValueError) as problem:
            outcomes.append(type(problem).__name__)
    return outcomes


# ---------------------------------------------------------------- what belongs to a lazy device


@check
def work_gives_the_callers_tensors(device: str) -> Any:
    x = data(device, 3)
    work = dist.all_reduce(x, async_op=True)
    (from_future,) = work.get_future().wait()
    work.wait()
    assert work.is_completed()
    assert from_future.device == x.device
    assert all(t.device == x.device for t in work.result())
    assert from_future.data_ptr() == x.data_ptr()
    return x, from_future


@check
def a_tensor_that_is_dropped_while_it_travels(device: str) -> Any:
    works = [dist.all_reduce(data(device, 10_000), async_op=True) for _ in range(5)]
    noise = [torch.randn(10_000, device=device).sum() for _ in range(5)]
    for work in works:
        work.wait()
    assert len(noise) == 5
    return [work.result()[0] for work in works]


@check
def recording_goes_on_while_a_collective_runs(device: str) -> Any:
    x, y = data(device, 1000), data(device, 50, 50)
    work = dist.all_reduce(x, async_op=True)
    z = (y @ y).tanh()
    work.wait()
    return x * 2, z


@check
def memory_is_lent_only_until_the_wait(device: str) -> Any:
    x = data(device, 3)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    if device == "cpu":
        return None
    torch.ops.sinter._sync("test")
    before = json.loads(torch.ops.sinter._metrics())["counters"]
    y = (x + 1).mul_(2)  # the work is still alive
    x.add_(1)
    after = json.loads(torch.ops.sinter._metrics())["counters"]
    assert after["syncs"] == before["syncs"]
    assert after["library_calls"] == before["library_calls"]
    assert y.shape == x.shape
    return None


@check
def a_failed_input_raises(device: str) -> Any:
    try:
        x = nn.functional.embedding(torch.tensor([9], device=device), torch.ones(3, 2, device=device))
        dist.all_reduce(x)
    except (IndexError, RuntimeError) as problem:
        dist.barrier()
        return type(problem).__name__
    return "no error"


# ---------------------------------------------------------------- training


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)]
    return nn.Sequential(*layers)


def train(device: str, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, steps: int = 4) -> Any:
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    generator = torch.Generator().manual_seed(rank())
    losses = []
    for _ in range(steps):
        x, y = torch.randn(6, 8, generator=generator).to(device), torch.randn(6, 4, generator=generator).to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def ddp(device: str, **options: Any) -> nn.Module:
    return nn.parallel.DistributedDataParallel(network().to(device), **options)


@check
def ddp_plain(device: str) -> Any:
    model = ddp(device)
    return train(device, model), [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]


@check
def ddp_gradients_as_views_of_the_bucket(device: str) -> Any:
    model = ddp(device, gradient_as_bucket_view=True)
    return train(device, model), [p.detach() for p in model.parameters()]


@check
def ddp_many_buckets(device: str) -> Any:
    return train(device, ddp(device, bucket_cap_mb=1e-4))


@check
def ddp_static_graph(device: str) -> Any:
    return train(device, ddp(device, static_graph=True))


@check
def ddp_unused_parameters(device: str) -> Any:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = network(), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    torch.manual_seed(0)
    return train(device, nn.parallel.DistributedDataParallel(Half().to(device), find_unused_parameters=True))


@check
def ddp_accumulates_without_sync(device: str) -> Any:
    model = ddp(device)
    with model.no_sync():
        model(data(device, 6, 8)).square().mean().backward()
    model(data(device, 6, 8)).square().mean().backward()
    return [p.grad for p in model.parameters()]


@check
def ddp_hooks(device: str) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    results = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        model = ddp(device)
        model.register_comm_hook(None, hook)
        results.append(train(device, model))
    return results


@check
def ddp_with_autocast_and_batch_norm(device: str) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 4))
    model = nn.parallel.DistributedDataParallel(net.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = model(data(device, 5, 1, 6, 6)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(net.buffers())


@check
def ddp_steps_are_recorded_whole(device: str) -> Any:
    """One graph a bucket and one for the optimizer, and nothing run at once."""
    model = ddp(device)
    train(device, model, steps=6)
    if device == "cpu":
        return None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    train(device, model, optimizer)
    before = json.loads(torch.ops.sinter._metrics())["counters"]
    train(device, model, optimizer, steps=5)
    after = json.loads(torch.ops.sinter._metrics())["counters"]
    assert after["ops_run_now"] == before["ops_run_now"]
    assert after["graphs_planned"] == before["graphs_planned"]
    assert after["graphs_ended"] - before["graphs_ended"] <= 5 * 3
    return None


@check
def zero_redundancy_optimizer(device: str) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp(device)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2, foreach=False)
    return train(device, model, optimizer), [p.detach() for p in model.parameters()]


def mesh(device: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, (WORLD,))


def sharded(device: str, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = network().to(device)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh(device), **options)
    return fully_shard(model, mesh=mesh(device), **options)


@check
def fsdp2(device: str) -> Any:
    model = sharded(device)
    return train(device, model), [p.full_tensor().detach() for p in model.parameters()]


@check
def fsdp2_without_resharding(device: str) -> Any:
    return train(device, sharded(device, reshard_after_forward=False))


@check
def fsdp2_mixed_precision(device: str) -> Any:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return train(device, sharded(device, mp_policy=policy))


@check
def fsdp2_clips_gradients(device: str) -> Any:
    model = sharded(device)
    model(data(device, 6, 8)).square().mean().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return norm.full_tensor(), [p.grad.full_tensor() for p in model.parameters()]


@check
def fsdp1(device: str) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    results = []
    for original in (False, True):
        model = FullyShardedDataParallel(network().to(device), use_orig_params=original, device_id=torch.device(device))
        results.append(train(device, model))
    return results


@check
def distributed_checkpoint(device: str) -> Any:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    model = sharded(device)
    train(device, model)
    dcp.save(get_model_state_dict(model), checkpoint_id=folder[0])
    fresh = sharded(device)
    state = get_model_state_dict(fresh)
    dcp.load(state, checkpoint_id=folder[0])
    set_model_state_dict(fresh, state)
    return [p.full_tensor().detach() for p in fresh.parameters()]


@check
def dtensor(device: str) -> Any:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    where = mesh(device)
    t = torch.arange(24.0, device=device).reshape(4, 6)
    rows = distribute_tensor(t, where, [Shard(0)])
    columns = distribute_tensor(t.t().contiguous(), where, [Shard(1)])
    product = rows @ columns.redistribute(where, [Replicate()])
    return (
        product.full_tensor(),
        rows.sum().full_tensor(),
        rows.redistribute(where, [Shard(1)]).to_local(),
        (rows.sin() + rows).to_local(),
        rows.to_local(),
    )


@check
def dtensor_random(device: str) -> Any:
    from torch.distributed.tensor import Shard, rand

    if device == "cpu":
        return None  # another generator: only that it is repeatable, and that shards differ
    torch.manual_seed(3)
    first = rand(4, 6, device_mesh=mesh(device), placements=[Shard(0)])
    torch.manual_seed(3)
    again = rand(4, 6, device_mesh=mesh(device), placements=[Shard(0)])
    assert torch.equal(first.full_tensor(), again.full_tensor())
    assert first.full_tensor().unique().numel() == 24
    return None


@check
def tensor_parallel(device: str) -> Any:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(network().to(device), mesh(device), plan)
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).to(device)
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach(), [
        p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in model.parameters()
    ]


# ---------------------------------------------------------------- running them


def plain(tree: Any) -> Any:
    """Detached, on the CPU, in memory of its own."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu().clone()
    return [plain(part) for part in tree] if isinstance(tree, (list, tuple)) else tree


def outcome(function: Callable[[str], Any], device: str) -> tuple[Any, str]:
    """What it returned, or the exception's type and traceback."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(function(device)), ""
        except Exception as problem:
            return type(problem).__name__, traceback.format_exc()


def run(rank_: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.zeros(1, device="sinter")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank_, world_size=WORLD)
    results: dict[str, str] = {}
    for name, function in CHECKS.items():
        want, got = outcome(function, "cpu"), outcome(function, "sinter")
        found = differences(want[0], got[0])
        results[name] = "\n".join([*found, want[1], got[1]]) if found else ""
        with contextlib.suppress(Exception):
            torch.ops.sinter._sync("end of check")
        pathlib.Path(folder, f"{rank_}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1],), nprocs=WORLD)
