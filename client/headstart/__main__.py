"""`python -m headstart`: the console script, where none is installed."""

from headstart.cli import main

main()
