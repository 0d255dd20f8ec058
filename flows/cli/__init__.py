"""The command line: starts the flows and shows what they found."""

import gc
import os

# Threads that multiplied something sleep at once: by default they turn in circles for a while, in case there is more.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# What is imported stays: looking through it for garbage again and again is a tenth of a short command.
gc.set_threshold(100_000, 20, 100)
