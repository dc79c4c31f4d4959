"""python -m oocdnn: the same as the command oocdnn."""

from oocdnn.cli import main

if __name__ == "__main__":
    main()
