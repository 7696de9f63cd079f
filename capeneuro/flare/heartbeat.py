"""Who is there: beats between the processes of a job, and a wait that heeds them.

A site's process answers a beat at once, whatever it is working on. One that has been
silent for :data:`GONE` seconds is not waited for any longer, however much time its
answer was given; one that beats again is asked again from the next round on. Where a
site was silent for less, its line was broken and what was under way may be lost, so it
is asked the same once more, which it answers with the same bytes. A beat
carries nothing and is believed by nobody else: it decides whom to wait for, never who
is in a sum. One hub takes so many messages a second and no more, so with many sites
each beats less often, and all that is measured in beats takes as much longer
(:func:`pace`).
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from typing import Any

# Seconds: between beats of a site; without one, after which its line may have been
# broken; after which it counts as gone.
BEAT, QUIET, GONE = 2.0, 3.5, 10.0
# Sites up to which it stays at that: so a hub takes 20 beats a second of all together.
FEW = 40


def pace(n_sites: int) -> float:
    """How many times longer beats, and waits for them, are than with few sites."""
    return max(1.0, n_sites / FEW)


class Presence:
    """When each site was heard of last.

    Parameters
    ----------
    names
        The sites.
    beat
        ``(name, seconds) -> bool``: whether it answers within so long.

    Attributes
    ----------
    pace
        How many times longer beats, and waits for them, are than with few sites.
    """

    def __init__(
        self, names: Iterable[str], beat: Callable[[str, float], bool]
    ) -> None:
        names = list(names)
        self.pace, self._heard = pace(len(names)), dict[str, float]()
        self._beat, self._over = beat, threading.Event()
        for name in names:
            threading.Thread(target=self._listen, args=(name,), daemon=True).start()

    def heard(self, name: str) -> None:
        """Note that a site was heard of."""
        self._heard[name] = time.monotonic()

    def since(self, name: str) -> float:
        """Seconds since a site was heard of; 0 before it ever was."""
        return time.monotonic() - self._heard.get(name, time.monotonic())

    def stop(self) -> None:
        """Listen no more."""
        self._over.set()

    def wait(
        self,
        name: str,
        seconds: float,
        call: Callable[[], Any],
        give_up: Callable[[], None],
    ) -> Any:
        """Return the result of a call to a site, as long as the site is there.

        Parameters
        ----------
        name
            The site that is called.
        seconds
            Longest time for the call.
        call
            Called in a thread of its own; once more where the site was silent for a
            while.
        give_up
            Ends the calls, where nobody waits for them any more.

        Raises
        ------
        TimeoutError
            If it did not return in time.
        ConnectionError
            If the site is gone.
        """
        answer: Future = Future()

        def run() -> None:
            with suppress(InvalidStateError):  # another call was answered before
                try:
                    answer.set_result(call())
                except Exception as error:
                    answer.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        n_calls, was_quiet, end = 1, False, time.monotonic() + seconds
        while not wait([answer], timeout=0.5).done:
            silence = self.since(name)
            late, gone = time.monotonic() > end, silence > GONE * self.pace
            if late or gone:
                give_up()
                raise ConnectionError(name) if gone else TimeoutError(name)
            was_quiet = was_quiet or silence > QUIET * self.pace
            if was_quiet and silence < BEAT * self.pace:
                n_calls, was_quiet = n_calls + 1, False
                threading.Thread(target=run, daemon=True).start()
        if n_calls > 1:
            give_up()
        self.heard(name)
        return answer.result()

    def _listen(self, name: str) -> None:
        while not self._over.is_set():
            if self._beat(name, GONE / 2 * self.pace):
                self.heard(name)
            self._over.wait(BEAT * self.pace)
