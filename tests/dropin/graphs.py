"""Descriptors of the graph API for tests, as cuDNN's frontend sets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dropin.calls import TYPES

# C types of elements, and cuDNN's names of their types.
ELEMENTS = {
    "INT64": "int64_t",
    "INT32": "int32_t",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BOOLEAN": "bool",
    "VOID_PTR": "void *",
    "HANDLE": "cudnnHandle_t",
    "BACKEND_DESCRIPTOR": "cudnnBackendDescriptor_t",
    "DATA_TYPE": "int",
    "CONVOLUTION_MODE": "int",
    "POINTWISE_MODE": "int",
    "HEUR_MODE": "int",
    "NUMERICAL_NOTE": "int",
    "BEHAVIOR_NOTE": "int",
    "KNOB_TYPE": "int",
    "CHAR": "char",
}
DIRECTIONS = {
    "FORWARD": ("FORWARD", "X", "W", "Y"),
    "BACKWARD_DATA": ("BWD_DATA", "DX", "W", "DY"),
    "BACKWARD_FILTER": ("BWD_FILTER", "X", "DW", "DY"),
}


@dataclass
class Graphs:
    """The descriptors of one test."""

    lib: Any
    handle: Any
    _made: list[Any] = field(default_factory=list)

    def make(self, kind: str):
        place = self.lib.ffi.new("cudnnBackendDescriptor_t *")
        kind = getattr(self.lib, f"CUDNN_BACKEND_{kind}_DESCRIPTOR")
        self.lib.check(self.lib.cudnnBackendCreateDescriptor(kind, place))
        self._made.append(place[0])
        return place[0]

    def close(self) -> None:
        for descriptor in self._made:
            self.lib.check(self.lib.cudnnBackendDestroyDescriptor(descriptor))

    def try_set(self, descriptor, name: str, kind: str, values: list) -> int:
        array = self.lib.ffi.new(f"{ELEMENTS[kind]}[]", values)
        return self.lib.cudnnBackendSetAttribute(
            descriptor,
            getattr(self.lib, f"CUDNN_ATTR_{name}"),
            getattr(self.lib, f"CUDNN_TYPE_{kind}"),
            len(values),
            array,
        )

    def set(self, descriptor, name: str, kind: str, *values) -> None:
        self.lib.check(self.try_set(descriptor, name, kind, list(values)))

    def get(self, descriptor, name: str, kind: str, room: int = 8, into=None) -> list:
        """The elements, of which there may be `room`; descriptors are read `into` one."""
        ffi, count = self.lib.ffi, self.lib.ffi.new("int64_t *", -1)
        array = ffi.new(f"{ELEMENTS[kind]}[{room}]") if into is None else ffi.new(
            "cudnnBackendDescriptor_t[]", [into])  # fmt: skip
        self.lib.check(
            self.lib.cudnnBackendGetAttribute(
                descriptor,
                getattr(self.lib, f"CUDNN_ATTR_{name}"),
                getattr(self.lib, f"CUDNN_TYPE_{kind}"),
                room if into is None else 1,
                count,
                array,
            )
        )
        return list(array)[: count[0]]

    def finalize(self, descriptor):
        self.lib.check(self.lib.cudnnBackendFinalize(descriptor))
        return descriptor

    def tensor(self, uid: int, array: np.ndarray, virtual: bool = False):
        made = self.make("TENSOR")
        dtype = getattr(self.lib, TYPES[array.dtype])
        self.set(made, "TENSOR_DATA_TYPE", "DATA_TYPE", dtype)
        self.set(made, "TENSOR_DIMENSIONS", "INT64", *array.shape)
        strides = [stride // array.itemsize for stride in array.strides]
        self.set(made, "TENSOR_STRIDES", "INT64", *strides)
        self.set(made, "TENSOR_UNIQUE_ID", "INT64", uid)
        self.set(made, "TENSOR_BYTE_ALIGNMENT", "INT64", 16)
        if virtual:
            self.set(made, "TENSOR_IS_VIRTUAL", "BOOLEAN", True)
        return self.finalize(made)

    def window(self, rank: int, *, stride=1, padding=0, dilation=1, groups=1, flip=False):
        assert groups >= 1  # a graph has them in its channels
        made = self.make("CONVOLUTION")
        mode = "CUDNN_CONVOLUTION" if flip else "CUDNN_CROSS_CORRELATION"
        self.set(made, "CONVOLUTION_COMP_TYPE", "DATA_TYPE", self.lib.CUDNN_DATA_FLOAT)
        self.set(made, "CONVOLUTION_CONV_MODE", "CONVOLUTION_MODE", getattr(self.lib, mode))
        self.set(made, "CONVOLUTION_SPATIAL_DIMS", "INT64", rank)

        def per_axis(value):
            return [value] * rank if isinstance(value, int) else list(value)

        pads = [pad if isinstance(pad, tuple) else (pad, pad) for pad in per_axis(padding)]
        self.set(made, "CONVOLUTION_PRE_PADDINGS", "INT64", *(before for before, _ in pads))
        self.set(made, "CONVOLUTION_POST_PADDINGS", "INT64", *(after for _, after in pads))
        self.set(made, "CONVOLUTION_DILATIONS", "INT64", *per_axis(dilation))
        self.set(made, "CONVOLUTION_FILTER_STRIDES", "INT64", *per_axis(stride))
        return self.finalize(made)

    def convolution(self, direction: str, x, w, y, window, alpha=1.0, beta=0.0):
        part, x_name, w_name, y_name = DIRECTIONS[direction]
        made = self.make(f"OPERATION_CONVOLUTION_{direction}")
        prefix = f"OPERATION_CONVOLUTION_{part}"
        for name, tensor in ((x_name, x), (w_name, w), (y_name, y), ("CONV_DESC", window)):
            self.set(made, f"{prefix}_{name}", "BACKEND_DESCRIPTOR", tensor)
        self.set(made, f"{prefix}_ALPHA", "FLOAT", alpha)
        self.set(made, f"{prefix}_BETA", "FLOAT", beta)
        return self.finalize(made)

    def pointwise(self, mode: str, x, y, b=None, alpha2=None, **numbers: float):
        how = self.make("POINTWISE")
        mode = getattr(self.lib, f"CUDNN_POINTWISE_{mode}")
        self.set(how, "POINTWISE_MODE", "POINTWISE_MODE", mode)
        self.set(how, "POINTWISE_MATH_PREC", "DATA_TYPE", self.lib.CUDNN_DATA_FLOAT)
        for name, number in numbers.items():
            self.set(how, f"POINTWISE_{name}", "DOUBLE", number)
        self.finalize(how)
        made = self.make("OPERATION_POINTWISE")
        self.set(made, "OPERATION_POINTWISE_PW_DESCRIPTOR", "BACKEND_DESCRIPTOR", how)
        self.set(made, "OPERATION_POINTWISE_XDESC", "BACKEND_DESCRIPTOR", x)
        self.set(made, "OPERATION_POINTWISE_YDESC", "BACKEND_DESCRIPTOR", y)
        if b is not None:
            self.set(made, "OPERATION_POINTWISE_BDESC", "BACKEND_DESCRIPTOR", b)
        if alpha2 is not None:
            self.set(made, "OPERATION_POINTWISE_ALPHA1", "FLOAT", 1.0)
            self.set(made, "OPERATION_POINTWISE_ALPHA2", "FLOAT", alpha2)
        return self.finalize(made)

    def graph(self, *operations):
        made = self.make("OPERATIONGRAPH")
        self.set(made, "OPERATIONGRAPH_OPS", "BACKEND_DESCRIPTOR", *operations)
        return made

    def heuristics(self, graph, mode: str = "A"):
        made = self.make("ENGINEHEUR")
        self.set(made, "ENGINEHEUR_OPERATION_GRAPH", "BACKEND_DESCRIPTOR", graph)
        number = getattr(self.lib, f"CUDNN_HEUR_MODE_{mode}")
        self.set(made, "ENGINEHEUR_MODE", "HEUR_MODE", number)
        return self.finalize(made)

    def count(self, descriptor, name: str, kind: str, room: int = 0) -> int:
        """The number of elements, read without a place for them, whatever room is claimed."""
        count = self.lib.ffi.new("int64_t *", -1)
        self.lib.check(
            self.lib.cudnnBackendGetAttribute(
                descriptor,
                getattr(self.lib, f"CUDNN_ATTR_{name}"),
                getattr(self.lib, f"CUDNN_TYPE_{kind}"),
                room,
                count,
                self.lib.ffi.NULL,
            )
        )
        return count[0]

    def configurations(self, graph, most: int, mode: str = "A") -> list:
        """Up to so many that heuristics give; their own count where `most` is 0."""
        heuristics = self.heuristics(graph, mode)
        if most == 0:
            most = self.count(heuristics, "ENGINEHEUR_RESULTS", "BACKEND_DESCRIPTOR")
        found = [self.make("ENGINECFG") for _ in range(most)]
        ffi, count = self.lib.ffi, self.lib.ffi.new("int64_t *")
        array = ffi.new("cudnnBackendDescriptor_t[]", found)
        self.lib.check(
            self.lib.cudnnBackendGetAttribute(
                heuristics,
                self.lib.CUDNN_ATTR_ENGINEHEUR_RESULTS,
                self.lib.CUDNN_TYPE_BACKEND_DESCRIPTOR,
                most,
                count,
                array,
            )
        )
        return found[: count[0]]

    def configuration(self, graph):
        """The first that heuristics give."""
        return self.configurations(graph, 0)[0]

    def described(self, config) -> dict[str, list]:
        """Everything that cuDNN's frontend reads from a configuration and its engine."""
        lib, one = self.lib, "BACKEND_DESCRIPTOR"
        (engine,) = self.get(config, "ENGINECFG_ENGINE", one, into=self.make("ENGINE"))
        told = {
            "engine": self.get(engine, "ENGINE_GLOBAL_INDEX", "INT64"),
            "workspace": self.get(config, "ENGINECFG_WORKSPACE_SIZE", "INT64"),
            "shared": self.get(config, "ENGINECFG_SHARED_MEMORY_USED", "INT32"),
            "knobs": [],
        }
        for note in ("NUMERICAL_NOTE", "BEHAVIOR_NOTE"):
            told[note] = self.get(engine, f"ENGINE_{note}", note, room=32)
            assert self.count(engine, f"ENGINE_{note}", note, room=32) == len(told[note])
        places = [self.make("KNOB_CHOICE") for _ in range(40)]
        count, array = lib.ffi.new("int64_t *"), lib.ffi.new("cudnnBackendDescriptor_t[]", places)
        name, kind = lib.CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, lib.CUDNN_TYPE_BACKEND_DESCRIPTOR
        read = lib.cudnnBackendGetAttribute
        lib.check(read(config, name, kind, len(places), count, array))
        for knob in places[: count[0]]:
            (type_of_knob,) = self.get(knob, "KNOB_CHOICE_KNOB_TYPE", "KNOB_TYPE", room=1)
            (value,) = self.get(knob, "KNOB_CHOICE_KNOB_VALUE", "INT64", room=1)
            told["knobs"].append((type_of_knob, value))
        size, nowhere = lib.ffi.new("int64_t *", -1), lib.ffi.NULL
        int64 = lib.CUDNN_TYPE_INT64
        lib.check(read(config, lib.CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, int64, 1, nowhere, size))
        assert [size[0]] == told["workspace"]
        return told

    def plan(self, config):
        made = self.make("EXECUTION_PLAN")
        self.set(made, "EXECUTION_PLAN_HANDLE", "HANDLE", self.handle)
        self.set(made, "EXECUTION_PLAN_ENGINE_CONFIG", "BACKEND_DESCRIPTOR", config)
        return self.finalize(made)

    def pack(self, arrays: dict[int, np.ndarray | int], workspace: int = 0):
        """Arrays, or addresses."""
        made = self.make("VARIANT_PACK")
        addresses = [
            a if isinstance(a, int) else a.__array_interface__["data"][0] for a in arrays.values()
        ]
        pointers = [self.lib.ffi.cast("void *", address) for address in addresses]
        self.set(made, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", *pointers)
        self.set(made, "VARIANT_PACK_UNIQUE_IDS", "INT64", *arrays)
        place = self.lib.ffi.cast("void *", workspace)
        self.set(made, "VARIANT_PACK_WORKSPACE", "VOID_PTR", place)
        return self.finalize(made)

    def run(self, operations: list, arrays: dict[int, np.ndarray]) -> None:
        """Builds and executes a graph; `arrays` by the names of their tensors."""
        plan = self.plan(self.configuration(self.finalize(self.graph(*operations))))
        self.lib.check(self.lib.cudnnBackendExecute(self.handle, plan, self.pack(arrays)))
