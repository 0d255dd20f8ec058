"""A limit on money that holds while several calls are under way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class BudgetReachedError(Exception):
    """The next call could pass the limit; nothing more is asked."""


class Reservation:
    """The most that one call may cost; ``spent`` is set when it is known what it did cost."""

    def __init__(self, most: float) -> None:
        self.spent = 0.0
        self.most = most


class Budget:
    """So many US dollars, or no limit.

    The worst case of a call is put aside before it is made, so that all calls under way together cannot pass the limit.
    A call that does not fit waits for those under way to cost less than feared; when none is left, the budget is
    reached, for all calls.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._spent = 0.0
        self._reserved = 0.0
        self._under_way = 0
        self._is_reached = False
        self.refused = 0.0
        """What the first call that was refused might have cost."""
        self._changed = threading.Condition()

    @property
    def is_reached(self) -> bool:
        """Whether a call was refused."""
        return self._is_reached

    @contextmanager
    def reserve(self, most: float, stopped: threading.Event) -> Iterator[Reservation]:
        """Put ``most`` aside for the time of a call; raises ``BudgetReachedError`` when it does not fit."""
        with self._changed:
            while not self._is_reached and not self._fits(most):
                if not self._under_way or stopped.is_set():
                    self._is_reached, self.refused = True, most
                    self._changed.notify_all()
                    break
                self._changed.wait(0.5)
            if self._is_reached:
                raise BudgetReachedError
            self._reserved += most
            self._under_way += 1
        reservation = Reservation(most)
        try:
            yield reservation
        finally:
            with self._changed:
                self._reserved -= most
                self._under_way -= 1
                self._spent += reservation.spent
                self._changed.notify_all()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until no call is under way, but so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, seconds)

    def _fits(self, most: float) -> bool:
        return self.limit is None or self._spent + self._reserved + most <= self.limit
