"""oocdnn info: what was found, what is missing, and the command that helps."""

import json
import platform
from importlib import metadata, util
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from oocdnn import __version__
from oocdnn._core import loading
from oocdnn._shown import bytes_text
from oocdnn.cli.common import console, device_option, json_option, plain_errors
from oocdnn.context import Context

# Distribution, module, what it is for, the command that installs it.
_PACKAGES = (
    ("numpy", "numpy", "arrays", "pip install numpy"),
    ("cffi", "cffi", "the core library", "pip install cffi"),
    ("ml_dtypes", "ml_dtypes", "bfloat16", "pip install ml_dtypes"),
    (
        "matplotlib",
        "matplotlib",
        "the demo and pictures of plans",
        "pip install 'oocdnn[demo]'",
    ),
    ("torch", "torch", "torch tensors as arguments", "pip install 'oocdnn[torch]'"),
)


_ONEDNN = "pip install onednn-cpu-gomp==2023.2.0"


def gather(device: str | None) -> dict[str, Any]:
    """Everything that `oocdnn info` shows."""
    with Context(device) as context:
        core: dict[str, Any] = json.loads(context.info())
    from oocdnn.perfmodel import profiles

    packages = [
        {"name": name, "version": _version(name, module), "for": purpose}
        for name, module, purpose, _ in _PACKAGES
    ]
    return {
        "version": __version__,
        "library": str(loading.library_path()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": packages,
        "profiles": profiles.names(),
        "core": core,
        "missing": _missing(core),
    }


def _version(distribution: str, module: str) -> str | None:
    """The installed version, None where the package is missing."""
    if util.find_spec(module) is None:
        return None
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def _missing(core: dict[str, Any]) -> list[dict[str, str]]:
    """What is not here, why, and what helps."""
    absent = [
        {"name": part["name"], "reason": part["text"], "remedy": part["remedy"]}
        for part in (*core["backends"], *core["components"])
        if not part["available"]
    ]
    engines = {engine["name"] for engine in core["engines"]}
    if core["device"] == "cpu" and "onednn" not in engines:
        reason = "without it the CPU computes with the slower built-in engines"
        absent.append({"name": "onednn", "reason": reason, "remedy": _ONEDNN})
    for name, module, purpose, remedy in _PACKAGES:
        if util.find_spec(module) is None:
            reason = f"not installed, needed for {purpose}"
            absent.append({"name": name, "reason": reason, "remedy": remedy})
    return absent


@click.command()
@device_option
@json_option
@plain_errors
def info(device: str | None, as_json: bool) -> None:
    """Show what was found and what is missing; paste it into bug reports."""
    found = gather(device)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    out = console()
    core = found["core"]
    out.print(f"oocdnn {found['version']}, Python {found['python']}, {found['system']}")
    out.print(f"core library {core['version']}: {found['library']}")
    out.print(f"device {core['device']}: {core['description']}")
    if core["driver"]:
        out.print(f"driver {core['driver']}")
    for part in core["components"]:
        if part["available"]:
            out.print(f"{part['name']}: {part['text']}", markup=False)
    out.print(f"default budget {bytes_text(core['budget_bytes'])}")
    out.print(f"profiles of other machines: {', '.join(found['profiles'])}")
    _print_tables(out, core, found["packages"])
    for item in found["missing"]:
        remedy = f"; try {item['remedy']}" if item["remedy"] else ""
        out.print(f"missing {item['name']}: {item['reason']}{remedy}", markup=False)


def _print_tables(out: Console, core: dict[str, Any], packages: list[dict[str, Any]]) -> None:
    engines = Table("engine", "library", "exact", "invariant", "deterministic", "nan local")
    for engine in core["engines"]:
        properties = ("exact", "invariant", "deterministic", "nan_local")
        engines.add_row(
            engine["name"],
            engine["library"] or "oocdnn",
            *("yes" if engine[name] else "no" for name in properties),
        )
    out.print(engines)
    parts = Table("package", "version", "for")
    for package in packages:
        parts.add_row(package["name"], package["version"] or "missing", package["for"])
    out.print(parts)
    variables = Table("variable", "set to", "default", "meaning")
    for variable in core["variables"]:
        variables.add_row(
            variable["name"], variable["set"] or "", variable["default"], variable["meaning"]
        )
    out.print(variables)
