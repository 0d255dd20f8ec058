"""Run the command line as ``python -m rag_eval.cli``, where its script is not on the path."""

from rag_eval.cli.main import main

if __name__ == "__main__":
    main()
