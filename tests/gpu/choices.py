"""What the device's engines answer to a few convolutions, one line of JSON each.

python tests/gpu/choices.py LIBRARY DEVICE
"""

from __future__ import annotations

import json
import sys

from checks import sized_op
from core import (
    BACKWARD_BIAS,
    BACKWARD_DATA,
    BACKWARD_FILTER,
    BF16,
    F16,
    F32,
    F64,
    FORWARD,
    NAMES,
    CoreError,
    Op,
    Rig,
    W,
    X,
    Y,
)


def cases() -> dict[str, Op]:
    made = {}
    for dtype in (F32, F64, F16, BF16):
        for direction in (FORWARD, BACKWARD_DATA, BACKWARD_FILTER):
            op = sized_op(direction, 2, 4, 6, 5, 3, dtype)
            made[f"{NAMES[dtype]} {direction} sums"] = op
    for dtype in (F16, BF16):
        op = sized_op(FORWARD, 2, 4, 6, 5, 3, dtype)
        op.out_dtype = dtype
        made[f"{NAMES[dtype]} native"] = op
    tf32 = sized_op(FORWARD, 2, 4, 6, 5, 3)
    tf32.math = 1
    made["tf32"] = tf32
    for direction in (FORWARD, BACKWARD_FILTER):
        fast = sized_op(direction, 2, 4, 6, 5, 3)
        fast.math = 3
        made[f"fp32_fast {direction}"] = fast
    tight = sized_op(FORWARD, 2, 4, 6, 5, 3)
    tight.workspace_limit = 1 + 100
    made["tight"] = tight
    picky = sized_op(FORWARD, 2, 4, 6, 5, 3)
    picky.workspace_limit, picky.first_choice = tight.workspace_limit, 1
    made["tight first choice"] = picky
    tf32_picky = sized_op(FORWARD, 2, 4, 6, 5, 3)
    tf32_picky.math = tf32_picky.first_choice = 1
    made["tf32 first choice"] = tf32_picky
    mixed = sized_op(BACKWARD_FILTER, 64, 512, 512, 34, 3, BF16)
    mixed.accumulates = 1
    made["bf16 large filter"] = mixed
    for direction in (FORWARD, BACKWARD_DATA):
        mixed = sized_op(direction, 2, 8, 16, 5, 3, BF16)
        mixed.may_compile = 1
        made[f"bf16 {direction} compiled sums"] = mixed
    depthwise = sized_op(FORWARD, 2, 1, 1, 5, 3)
    depthwise.g = 6
    made["depthwise"] = depthwise
    made["bias"] = sized_op(BACKWARD_BIAS, 2, 4, 6, 5, 3)
    # 2^31 elements in x, few in y
    made["large"] = sized_op(FORWARD, 1, 8, 1, 1 << 14, 1 << 14)
    return made


def main() -> int:
    library, device = sys.argv[1:]
    try:
        rig = Rig(library, device)
    except CoreError as error:
        print(json.dumps({"open": str(error)}))
        return 0
    for name, op in cases().items():
        for engine in rig.engines:
            line = {"case": name, "engine": engine}
            try:
                _, layouts, workspace = rig.prepare(op, engine)
            except CoreError as error:
                print(json.dumps({**line, "code": error.code, "text": str(error)}))
                continue
            tiles = {
                tile: {"dtype": NAMES[layouts[operand].dtype], "stride": list(lay.stride)}
                for tile, operand in (("x", X), ("w", W), ("y", Y))
                if (lay := layouts[operand]).bytes
            }
            line |= {"taken": rig.taken, "workspace": workspace, "tiles": tiles}
            print(json.dumps(line))
    rig.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
