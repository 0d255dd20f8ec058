import cloudpickle
from rich.console import Console

from flows.cli.benchmark import StartedRun


def test_the_hook_of_a_run_goes_to_other_processes_without_the_terminal() -> None:
    hook = cloudpickle.loads(cloudpickle.dumps(StartedRun(Console(stderr=True)).notice))
    assert vars(hook.__self__) == vars(StartedRun())
