import threading

import cloudpickle

from flows.cli.benchmark import StartedRun


def test_the_hook_of_a_run_goes_to_other_processes_without_the_terminal() -> None:
    told: list[str] = []
    terminal = threading.Lock()

    def tell(page: str) -> None:
        with terminal:
            told.append(page)

    assert callable(cloudpickle.loads(cloudpickle.dumps(StartedRun(tell).notice)))
