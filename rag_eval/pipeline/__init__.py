"""The steps of the pipeline, and where their results are stored.

From a task to a file, in the order of the calls:

| where | what |
|---|---|
| ``tasks/chunk.py`` | ``chunk``: a Prefect task of one line. It takes and returns references |
| ``step.py`` | ``Step.run``: read the tables of the references, call the step, write its result |
| ``document_steps.py`` | ``chunk``: the step, a function from a table and a part to a table and its effort |
| ``references.py`` | ``ChunksRef``: place, digest and size of a table; Prefect stores it under the cache key |
| ``workspace.py`` | ``write_table``: an Arrow file named by its sha256, which is checked when it is read |

A step has the parameters of its task, with tables in the place of references. In memory it is called like any function.
``caches.py`` and ``document_caches.py`` keep what a step does not compute or pay for twice, such as vectors and cuts.
``plan.py`` says which searches the configurations of a chunker share.
"""
