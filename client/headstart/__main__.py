"""`python -m headstart`: the same as the console script."""

from headstart.cli import main

main()
