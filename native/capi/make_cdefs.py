"""Writes oocdnn/_core/cdefs.py from oocdnn.h: declarations for cffi, the enums, the version.

Run it after every change of the header: python native/capi/make_cdefs.py
It reads the subset of C that the header uses and stops at anything else in an enum.
"""

import re
from pathlib import Path

HEADER = Path(__file__).resolve().with_name("oocdnn.h")
TARGET = Path(__file__).resolve().parents[2] / "oocdnn" / "_core" / "cdefs.py"

OPENING = '''\
"""The C interface as cffi and Python see it.

Written by native/capi/make_cdefs.py from native/capi/oocdnn.h: change the header, then run that.
"""

import enum
'''

# Python names of the enums: the C name in camel case, but for these.
CLASS_NAMES = {"dtype": "DType"}


def declarations(header: str) -> str:
    """The header without comments, preprocessor lines and what only a C++ compiler sees."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\bOOCDNN_API\s+", "", text)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def enums(text: str) -> dict[str, dict[str, int]]:
    """Values by short name, of each `typedef enum oocdnn_NAME` by NAME."""
    found: dict[str, dict[str, int]] = {}
    for name, body in re.findall(r"typedef enum oocdnn_(\w+) \{(.*?)\}", text, re.DOTALL):
        members = {}
        for item in filter(None, (part.strip() for part in body.split(","))):
            match = re.fullmatch(r"OOCDNN_(\w+) = (\d+)", item)
            if match is None:
                raise SystemExit(f"enum oocdnn_{name}: cannot read {item!r}")
            members[match[1].removeprefix(f"{name.upper()}_")] = int(match[2])
        found[name] = members
    return found


def class_text(name: str, members: dict[str, int]) -> str:
    title = CLASS_NAMES.get(name, name.title().replace("_", ""))
    body = "\n".join(f"    {member} = {value}" for member, value in members.items())
    return f'class {title}(enum.IntEnum):\n    """oocdnn_{name}."""\n\n{body}\n'


def generate(header: str) -> str:
    """The text of cdefs.py."""
    text = declarations(header)
    version = ".".join(re.findall(r"#define OOCDNN_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    parts = [f'{OPENING}\nVERSION = "{version}"\n']
    parts += [class_text(name, members) for name, members in enums(text).items()]
    parts.append(f'CDEF = """\n{text}\n"""\n')
    return "\n\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(generate(HEADER.read_text(encoding="utf-8")), encoding="utf-8")
