"""python -m oocdnn.perfmodel: the performance model's commands, each in a module of its own."""

import click

from oocdnn.perfmodel.predecessor_table import predecessor
from oocdnn.perfmodel.report import report
from oocdnn.perfmodel.validate import validate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Judge the performance model: what it predicts, against what others plan or a machine does."""


for command in (predecessor, report, validate):
    main.add_command(command)

if __name__ == "__main__":
    main()
