"""A training as people write it, with workers: losses, and the most bytes that the driver counted.

python planned_program.py METHOD    (fork or spawn)
"""

import ctypes
import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, STEPS, SIDE = 64, 16, 128


class Images(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 8, 8, generator=generator), index % 10


def network():
    layers, channels = [], 3
    for _ in range(4):
        layers += [nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        channels = 32
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def driver_used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library = ctypes.CDLL("libcuda.so.1")
    assert library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value


def main(method):
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    net = network().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses, used = [], []
    loader = DataLoader(Images(), BATCH, num_workers=2, multiprocessing_context=method)
    for x, target in loader:
        optimizer.zero_grad()
        x = nn.functional.interpolate(x.cuda(), (SIDE, SIDE))
        loss = nn.functional.cross_entropy(net(x), target.cuda())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        used.append(driver_used())
    print(json.dumps({"losses": losses, "used": used}))


if __name__ == "__main__":
    main(sys.argv[1])
