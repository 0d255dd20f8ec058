import threading
from concurrent.futures import ThreadPoolExecutor

from rag_eval.benchmark.running import cores, room_to_compute


def most_at_once(remote: bool, workers: int) -> int:
    """How many of the workers were inside together, each staying until all that can be are."""
    inside, most, lock = 0, 0, threading.Lock()
    full = threading.Event()
    expected = workers if remote else max(1, cores() // 2)

    def work() -> None:
        nonlocal inside, most
        with room_to_compute(remote=remote):
            with lock:
                inside += 1
                most = max(most, inside)
                if inside == expected:
                    full.set()
            full.wait(20)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return most


def test_as_many_stages_compute_at_once_as_half_the_cores_and_waiting_for_services_is_free() -> None:
    workers = cores() + 2
    assert most_at_once(remote=False, workers=workers) == max(1, cores() // 2)
    assert most_at_once(remote=True, workers=workers) == workers
