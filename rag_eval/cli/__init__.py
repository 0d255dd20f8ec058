"""Command line: start the flows and show their results."""

import os

# By default, idle threads of matrix multiplications spin for a while instead of sleeping.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
