"""``python -m dreamrsi`` is the command ``dreamrsi``."""

from dreamrsi.cli import main

main()
