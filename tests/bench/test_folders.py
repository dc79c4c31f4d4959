"""Folders and files that are to hold results, and do not."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oocdnn.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments], env={"COLUMNS": "200"})


def test_files_without_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"set": "s"}\n', encoding="utf-8")
    (tmp_path / "b").write_text("nonsense\n", encoding="utf-8")
    for name, text in (("a", "line 1: no result, budget, "), ("b", "line 1: no JSON")):
        done = invoke("compare", str(tmp_path / name), str(tmp_path / name))
        assert done.exit_code == 1
        assert text in done.output


@pytest.mark.parametrize(
    ("files", "command", "text"),
    [
        (
            {},
            ("page", "{}"),
            "Error: there is no {}/results.jsonl; `oocdnn bench --out {}`",
        ),
        ({}, ("table", "{}"), "Error: there is no {}/results.jsonl; "),
        ({}, ("picture", "{}", "--out", "{}/p.svg"), "Error: there is no {}/results.jsonl; "),
        ({}, ("compare", "{}", "{}"), "Error: there is no {}/results.jsonl; "),
        ({"results.jsonl": ""}, ("page", "{}"), "Error: there is no {}/about.json; "),
        (
            {"results.jsonl": "", "about.json": "{"},
            ("page", "{}"),
            "Error: {}/about.json: no JSON: ",
        ),
        (
            {"results.jsonl": "", "about.json": "[]"},
            ("page", "{}"),
            "Error: {}/about.json: all missing",
        ),
        (
            {"file": ""},
            ("conv2d:fwd x1x1x8x8 w1x1x3x3", "--out", "{}/file/out"),
            "Error: {}/file/out: Not a directory",
        ),
    ],
)
def test_a_folder_that_holds_no_results_is_said_in_a_line(
    tmp_path: Path, files: dict[str, str], command: tuple[str, ...], text: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    done = invoke(*(word.replace("{}", str(tmp_path)) for word in command))
    assert done.exit_code == 1
    assert done.output.startswith(text.replace("{}", str(tmp_path)))
    assert len(done.output.splitlines()) == 1
