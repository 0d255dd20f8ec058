"""``python -m flows.cli``: the command line where its script is not on the path."""

from flows.cli.main import main

if __name__ == "__main__":
    main()
