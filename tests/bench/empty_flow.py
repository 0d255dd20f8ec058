"""A Prefect flow with the subflows and tasks of the sample's benchmark, which do nothing, on a temporary server."""

import sys

from rag_eval.cli.prefect_api import prefect_api
from rag_eval.pipeline.workspace import Workspace

CHAIN = ("chunk", "embed", "index_vectors", "sum_vectors", "index_words", "sum_words", "prepare", "search", "search")
"""The task runs of a chunking before its configurations, each of which is retrieved and scored."""
SUBFLOWS, CONFIGURATIONS, SHARED = 2, 6, 7
"""Subflows, configurations of each, and the task runs that all share."""


def main(folder: str) -> None:
    with prefect_api(Workspace.at(folder)) as server:
        server.wait()
        from prefect import flow, task
        from prefect.cache_policies import NO_CACHE
        from prefect.task_runners import ThreadPoolTaskRunner

        @task(cache_policy=NO_CACHE)
        def nothing(*before: object) -> int:
            return 1_000

        @flow(task_runner=ThreadPoolTaskRunner(max_workers=2), persist_result=False)
        def subflow() -> None:
            last = nothing.submit()
            for _ in CHAIN[1:]:
                last = nothing.submit(last)
            for _ in range(CONFIGURATIONS):
                nothing.submit(nothing.submit(last)).wait()

        @task(cache_policy=NO_CACHE)
        def evaluate(_: int) -> None:
            subflow()

        @flow(task_runner=ThreadPoolTaskRunner(max_workers=2), persist_result=False)
        def empty() -> None:
            for _ in range(SHARED):
                nothing()
            evaluate.map(range(SUBFLOWS)).wait()

        empty()


if __name__ == "__main__":
    main(sys.argv[1])
