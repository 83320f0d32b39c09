"""A command of the product that kills itself in the middle: `killed.py FUNCTION CALLS ARGUMENT…`.

It ends as by `kill -9` at that call of a function of the product, counted from the first call of
the named one: each step of a use case can be the last.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import aegish_dist
from aegish_dist.cli import main

_FOLDER = str(Path(aegish_dist.__file__).parent)


def _kill_at(function: str, calls: int) -> None:
    begun = 0

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal begun
        if event == "call" and frame.f_code.co_filename.startswith(_FOLDER):
            begun += begun > 0 or frame.f_code.co_name == function
            if begun > calls:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


if __name__ == "__main__":
    _kill_at(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:])
