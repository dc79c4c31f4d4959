"""Studies: what one comparison on one machine shows, each a command of `oocdnn bench study`.

A study is a module of its name with a `command`, made by `study.study`.
"""

STUDIES = {
    "cpu": "what a budget costs on the CPU device, beside plain oneDNN",
    "planning": "how long plans take to find, and to find again",
    "call-cost": "what Python does around a call of the core, hot and with cold caches",
    "spatial": "layers and training steps split over GPUs, beside one GPU",
    "devices": "one call on several devices, beside each alone and a context on each by hand",
    "links": "calls over the links of other GPUs too, beside the own link and bare copies",
    "arithmetic": "the error and the speed of each arithmetic of float32",
    "wires": "calls with operands in pinned and in pageable memory, beside the wires of a GPU",
    "floor": "calls with operands in pinned memory, beside the floor of wires and arithmetic",
    "in-core": "single tensors of many GiB with every operand on the GPU, beside torch",
    "fused": "a convolution with bias, relu and pool in one pass, beside a call for each",
    "chain": "the convolutions of a network depth first, beside layer by layer and in core",
    "samples": "a slide and a volume that do not fit through a chain of layers, beside the floor",
    "peers": "calls with operands in host memory, beside zero copy and managed memory",
    "workspace": "batches in parts within a limit of workspace, beside the best that is undivided",
    "shares": "one workspace for all convolutions of a network, beside equal shares of it",
    "passes": "the rates of passes over tiles that calibration found, beside a copy's",
    "copies": "what keeps a GPU's copy engines from their full rate",
}
