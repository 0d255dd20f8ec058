"""The command line: starts the flows and shows what they found."""

import os

# Threads that multiplied something sleep at once: by default they turn in circles for a while, in case there is more.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
