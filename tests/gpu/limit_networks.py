"""Networks trained plain and within limits: seconds of a step, bytes, and whether losses are equal.

    python3 tests/gpu/limit_networks.py resnet50 --batch 512 --bf16 --last --limit 16 --limit 10

Models are torchvision's by name, or timm's as timm:NAME. One line of JSON for each way of training;
bytes are those allocated, reserved, and counted by the driver for all of the device. Set
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oocdnn.torch import memory_limit

GIB = 1 << 30
STEPS = 20  # the first ones are recorded, measured, and watched for gaps between tensors
TIMED = 5


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name.startswith("timm:"):
        import timm

        made: nn.Module = timm.create_model(name.removeprefix("timm:"), drop_path_rate=0.0)
        return made
    import torchvision

    if name.startswith("deeplab"):
        made = torchvision.models.segmentation.get_model(name, weights=None, weights_backbone=None)
    else:
        made = torchvision.models.get_model(name, weights=None)
    return made


def step(
    net: nn.Module, x: torch.Tensor, target: torch.Tensor, optimizer: Any, bf16: bool
) -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        y = net(x)
        loss = F.cross_entropy(y["out"] if isinstance(y, dict) else y, target)
    del y
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(given: argparse.Namespace, limit: float | None) -> tuple[dict[str, Any], list[float]]:
    torch.cuda.empty_cache()
    net = model_of(given.model).cuda().train()
    x = torch.randn(given.batch, 3, given.size, given.size, device="cuda")
    if given.last:
        net, x = (
            net.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    shape = (given.batch, given.size, given.size) if "deeplab" in given.model else (given.batch,)
    target = torch.randint(0, 20, shape, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    losses, seconds = [], []
    run = None if limit is None else memory_limit(int(limit * GIB), planning=given.planning)
    with contextlib.nullcontext() if run is None else run:
        for number in range(8 if run is None else STEPS):
            if number == (8 if run is None else STEPS) - TIMED:
                torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            began = time.perf_counter()
            losses.append(step(net, x, target, optimizer, given.bf16))
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        free, total = torch.cuda.mem_get_info()
        row = {
            "limit_gib": limit,
            "seconds": sorted(seconds[-TIMED:])[TIMED // 2],
            "all_seconds": [round(one, 4) for one in seconds],
            "allocated_gib": torch.cuda.max_memory_allocated() / GIB,
            "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
            "driver_gib": (total - free) / GIB,
        }
        if run is not None and run.plan is not None:
            told = run.plan.explain()
            row |= {
                "predicted_seconds": told.step,
                "floor_seconds": told.floor,
                "predicted_gib": told.peak / GIB,
                "policies_gib": {policy.value: n / GIB for policy, n in told.nbytes.items()},
                "computed_again_seconds": told.recomputing,
                "waiting_seconds": told.waiting,
            }
    return row, [loss.item() for loss in losses]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--last", action="store_true", help="channels last in memory")
    parser.add_argument("--limit", type=float, action="append", default=[], help="GiB")
    parser.add_argument("--planning", type=float, default=4.0, help="seconds")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    about = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "model": given.model,
        "batch": given.batch,
        "size": given.size,
        "bf16": given.bf16,
        "channels_last": given.last,
    }
    plain, expected = train(given, None)
    print(json.dumps(about | plain), flush=True)
    for limit in given.limit:
        row, losses = train(given, limit)
        row["of_plain"] = row["seconds"] / plain["seconds"]
        row["losses_equal"] = losses[: len(expected)] == expected
        print(json.dumps(about | row), flush=True)


if __name__ == "__main__":
    main()
