"""torch.distributed, once the device is in use: a default backend exists, and CPU tensors still work."""

from __future__ import annotations

from support import scripts


def test_init_without_a_backend() -> None:
    outcome = scripts.run(
        """
        import torch, torch.distributed as dist
        x = torch.ones(2, device="sinter")
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        y = torch.ones(2)
        dist.all_reduce(y)
        print(y.tolist(), dist.get_backend_config())
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        print(dist.get_backend_config())
        """
    )
    assert "cpu:gloo" in outcome.lines[0] and "sinter:gloo" in outcome.lines[1]
    assert outcome.lines[0].startswith("[1.0, 1.0]")
