"""The tasks of the pipeline, to be imported into your own flow: a module for each step, and what all tasks share.

| modules | what |
|---|---|
| ``corpus``, ``ground_truth``, ``chunk``, ``embed``, ``index``, ``retrieve``, ``score`` | the steps, in their order |
| ``conclude``, ``artifacts`` | the outcome of a run; its report, and what it shows and publishes |
| ``caching`` | the cache policy, the storage of results, and locks |
| ``network``, ``runners``, ``current_folder`` | retries, task runners, and which settings of Prefect are read |

Prefect caches the tasks only in a flow with ``with_options(result_storage=result_storage(workspace))``.
"""

STEPS = ("corpus", "ground-truth", "chunk", "embed", "index", "retrieve", "score")
"""Tags that tell to which step a task run belongs, in the order of the pipeline."""
