"""What the drop-in does for an unmodified PyTorch on a GPU: one scene a process, with and without.

    python tests/gpu/dropin_torch.py            all scenes, each with and without the drop-in
    python tests/gpu/dropin_torch.py large      one scene in this process, as it was started

Needs torch. Prints figures; `all` compares what both runs of a scene print as "same".
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

SCENES = ("resnet", "resnet-v7", "large")


def timed(action, *arguments):
    """Seconds until the GPU is done, and what the action returns."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = action(*arguments)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def large(repeats: int = 3) -> None:
    """A convolution of [1, 64, 16384, 16384] in core, in TF32: time, memory, and its rows against
    float64."""
    import torch
    from torch.nn.functional import conv2d, pad

    torch.backends.cudnn.allow_tf32 = True
    side, channels = 16384, 64
    x = torch.empty(1, channels, side, side, device="cuda").uniform_(-1, 1)
    w = torch.randn(channels, channels, 3, 3, device="cuda")
    y = torch.empty(0)
    for _ in range(repeats):
        y = torch.empty(0)
        torch.cuda.reset_peak_memory_stats()
        seconds, y = timed(lambda: conv2d(x, w, padding=1))
        beyond = torch.cuda.max_memory_allocated() - 4 * (x.numel() + w.numel() + y.numel())
        print(f"seconds {seconds:.3f}, beyond x + w + y {beyond / 2**30:.2f} GiB", flush=True)
    weights = w.double().permute(2, 3, 1, 0).reshape(-1, channels)
    worst = 0.0
    torch.manual_seed(0)
    chosen = torch.randint(0, side, (24,)).tolist()
    for row in [0, 1, side // 2 - 1, side // 2, side - 1, *chosen]:
        above, below = int(row == 0), int(row == side - 1)
        rows = x[:, :, row - 1 + above : row + 2 - below].double()
        rows = pad(rows, (1, 1, above, below))[0]
        taps = [rows[:, r, s : s + side] for r in range(3) for s in range(3)]
        columns = torch.cat(taps)
        exact = weights.t() @ columns
        scale = weights.abs().t() @ columns.abs()
        worst = max(worst, float(((y[0, :, row].double() - exact).abs() / scale).max()))
    print(f"worst error / sum of magnitudes {worst:.2e} (TF32 rounds by 4.9e-04)", flush=True)


def bottleneck(inputs: int, width: int, stride: int):
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            outputs = 4 * width
            self.path = nn.Sequential(
                nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
                nn.ReLU(), nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip
            same = inputs == outputs and stride == 1
            self.side = nn.Identity() if same else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )  # fmt: skip

        def forward(self, x):
            return (self.path(x) + self.side(x)).relu()

    return Block()


def resnet50():
    from torch import nn

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnet(steps: int = 20) -> None:
    """Training steps of ResNet-50 in deterministic mode: the losses to their last bit, the time."""
    import torch
    from torch.nn.functional import cross_entropy

    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    net = resnet50().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x = torch.randn(64, 3, 224, 224, device="cuda")
    target = torch.randint(0, 1000, (64,), device="cuda")
    digest = hashlib.sha256()

    def step() -> None:
        optimizer.zero_grad()
        loss = cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        digest.update(repr(loss.item()).encode())

    times = [timed(step)[0] for _ in range(steps)]
    print(f"same losses {digest.hexdigest()[:16]}")
    print(f"median step {sorted(times)[steps // 2] * 1e3:.2f} ms", flush=True)


def run(scene: str, preload: str) -> list[str]:
    environment = os.environ | {"OOCDNN_LOG": "info"}
    if preload:
        environment["LD_PRELOAD"] = preload
    if scene == "resnet-v7":
        environment["TORCH_CUDNN_V8_API_DISABLED"] = "1"
    print(f"== {scene}, {'with' if preload else 'without'} the drop-in", flush=True)
    done = subprocess.run(
        [sys.executable, __file__, scene.split("-")[0]],
        env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    print(done.stdout + done.stderr[-2000:], flush=True)
    return [line for line in done.stdout.splitlines() if line.startswith("same ")]


def main() -> int:
    if len(sys.argv) > 1:
        {"large": large, "resnet": resnet}[sys.argv[1]]()
        return 0
    from oocdnn import cudnn

    failed = [s for s in SCENES if run(s, str(cudnn.dropin_path())) != run(s, "")]
    print(f"DIFFERENT: {failed}" if failed else "SAME")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
