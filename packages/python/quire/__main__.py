"""The command `quire`: the program itself takes the place of Python."""

import os
import sys

from ._server import binary


def main() -> None:
    program = binary()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
