"""Studies: what one comparison on one machine shows, each a command of `oocdnn bench study`.

A study is a module of its name with a `command`, made by `study.study`.
"""

STUDIES = {
    "cpu": "what a budget costs on the CPU device, next to plain oneDNN",
    "planning": "how long plans take to find, and to find again",
    "wires": "calls with operands in pinned and in pageable memory, with the wires of a GPU",
    "floor": "calls with operands in pinned memory, with the floor of wires and arithmetic",
    "in-core": "single tensors of many GiB with every operand on the GPU, with torch",
    "fused": "a convolution with bias, relu and pool in one pass, with a call for each",
    "chain": "the convolutions of a network depth first, with layer by layer and with in core",
    "samples": "a slide and a volume that do not fit through a chain of layers, with the floor",
    "peers": "calls with operands in host memory, with zero copy and managed memory",
    "workspace": "batches in parts within a limit of workspace, with the best that is undivided",
    "shares": "one workspace for all convolutions of a network, with equal shares of it",
    "passes": "the rates of passes over tiles that calibration found, with a copy's",
    "copies": "what keeps a GPU's copy engines from their full rate",
}
