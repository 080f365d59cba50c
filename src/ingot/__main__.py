"""`python -m ingot`: the command line, where the `ingot` command is not on the path."""

from ingot.cli import main

if __name__ == "__main__":
    main()
