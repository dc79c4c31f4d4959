"""Two GPUs in one process: a context on each, arrays of each, and what lies on the wrong one.

Needs two GPUs and torch; run.sh asks for both.
"""

from __future__ import annotations

import contextlib
import gc
import threading

import oracle
import pytest
from python.support import assert_equal, integers

import oocdnn
from oocdnn.perfmodel.profile import parse

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs"),
]
X, W = integers((3, 8, 64, 65)), integers((12, 8, 3, 3))
REFERENCE = oracle.forward(X, W, padding=1)


def on(device: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(X).to(f"cuda:{device}"), torch.from_numpy(W).to(f"cuda:{device}")


@pytest.fixture(params=["256KiB", "64MiB"])
def contexts(request):
    with oocdnn.Context("cuda:0", request.param) as a, oocdnn.Context("cuda:1", request.param) as b:
        yield a, b


def test_each_serves_its_own_arrays(contexts):
    assert [context.device for context in contexts] == ["cuda:0", "cuda:1"]
    for current in (0, 1):
        with torch.cuda.device(current):
            for _ in range(3):
                for device, context in enumerate(contexts):
                    y = context.conv2d(*on(device), padding=1)
                    assert y.device.index == device
                    assert_equal(y.cpu().numpy(), REFERENCE)
                    assert_equal(context.conv2d(X, W, padding=1), REFERENCE)
            assert torch.cuda.current_device() == current


def test_both_at_once(contexts):
    """From a thread each, in place and from the host, with torch's current device as it happens."""
    failures: list[BaseException] = []

    def work(device: int) -> None:
        try:
            for _ in range(50):
                y = contexts[device].conv2d(*on(device), padding=1)
                assert_equal(y.cpu().numpy(), REFERENCE)
                assert_equal(contexts[device].conv2d(X, W, padding=1), REFERENCE)
        except BaseException as error:  # the main thread tells of it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_pinned_memory_serves_both(contexts):
    with contexts[0]:
        x = oocdnn.empty(X.shape, X.dtype)
    x[...] = X
    for context in contexts:
        assert_equal(context.conv2d(x, W, padding=1), REFERENCE)


def test_the_wires_are_measured_beside_the_other(tmp_path):
    file = tmp_path / "profile.txt"

    def stop(done, total):
        raise KeyboardInterrupt

    with (
        oocdnn.Context("cuda:0", "256MiB", profile=file) as context,
        pytest.raises(KeyboardInterrupt),
    ):
        context.calibrate(stop)
    profile = parse(file.read_text(encoding="utf-8"))
    for rate in ("fetch", "drain", "both"):
        assert profile.wires[f"beside/1/{rate}"] > 1e9
        assert profile.mark(f"wire beside/1/{rate}").startswith("samples 8 ")


def test_the_wrong_gpu_is_refused_and_nothing_breaks(contexts):
    for device, context in enumerate(contexts):
        with pytest.raises(oocdnn.Unsupported, match="GPU"):
            context.conv2d(*on(1 - device), padding=1)
        assert_equal(context.conv2d(*on(device), padding=1).cpu().numpy(), REFERENCE)


def test_what_leaves_one_gpu_is_in_the_memory_of_the_other():
    pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")
    from oocdnn.errors import OutOfMemory
    from oocdnn.torch import memory_limit

    def trained(limit):
        torch.manual_seed(1)
        layers = [
            one for _ in range(12) for one in (torch.nn.Linear(1024, 1024), torch.nn.Softsign())
        ]
        net = torch.nn.Sequential(*layers).to("cuda:0")
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        x = torch.randn(8192, 1024, device="cuda:0")
        losses, lent = [], 0
        with limit:
            for _ in range(12):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                lent = max(lent, free - torch.cuda.mem_get_info(1)[0])
        return losses, lent

    torch.zeros(1, device="cuda:1")
    free = torch.cuda.mem_get_info(1)[0]
    plain, _ = trained(contextlib.nullcontext())
    used = torch.cuda.max_memory_reserved(0)
    total = torch.cuda.mem_get_info(0)[1] - torch.cuda.mem_get_info(0)[0]
    others = total - torch.cuda.memory_reserved(0)
    torch.cuda.empty_cache()
    limit = memory_limit(others + used * 7 // 10, borrow={"cuda:1": "4GiB"})
    losses, lent = trained(limit)
    assert losses == plain
    assert lent >= 32 << 20
    assert limit.links[0].name == "cuda:1"
    assert limit.links[0].to_host > limit.links[1].to_host
    del limit
    gc.collect()
    assert abs(free - torch.cuda.mem_get_info(1)[0]) < 64 << 20
    with pytest.raises(OutOfMemory, match="are to be borrowed of cuda:1"):
        memory_limit("16GiB", borrow={"cuda:1": "1024GiB"})
