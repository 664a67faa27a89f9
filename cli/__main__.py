"""`python -m cli`: the same as `headstart`."""

from cli.main import main

if __name__ == "__main__":
    main()
