"""The bound of a pool: a caller may ask for more work at a time than there should be threads."""

from __future__ import annotations

import threading

from rocketstore.values.threads import POOL_THREADS_MAX, Pool


def threads_at_work(asked: int, tasks: int) -> int:
    """How many threads a pool starts for tasks that all wait."""
    most = min(asked, tasks, POOL_THREADS_MAX)
    begun, go = threading.Semaphore(0), threading.Event()

    def wait() -> str:
        begun.release()
        go.wait(60)
        return threading.current_thread().name

    with Pool(asked, "pool-test") as pool:
        try:
            done = [pool.submit(wait) for _ in range(tasks)]
            for _ in range(most):
                assert begun.acquire(timeout=60)
            found = sum(thread.name.startswith("pool-test") for thread in threading.enumerate())
        finally:
            go.set()
        assert len({one.result() for one in done}) <= most
    return found


def test_a_pool_has_as_many_threads_as_asked_for() -> None:
    assert threads_at_work(3, 10) == 3


def test_a_pool_never_has_hundreds_of_threads() -> None:
    """`rebuild` takes up to 256 workers: their parts wait for a thread."""
    assert threads_at_work(256, 256) == POOL_THREADS_MAX
