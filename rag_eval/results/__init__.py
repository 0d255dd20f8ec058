"""The store of runs over time: reading them, comparing two, the baseline and the gate.

The store is the workspace's folder of runs. Each run writes a folder of its own, under a name nobody else has, and
never touches another's, so any number of writers add to it at once; names sort by time. There is no index to keep in
step: a thousand summaries are read in about a second.
"""
