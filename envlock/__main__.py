"""``python -m envlock``: the same as the command, where no script is on the PATH."""

from envlock.cli import main

main()
