"""Back-off: how long the scheduler waits after a failed refresh before it tries the stream table
again.

    failed tries in a row     1      2      3      4     ...    9     10
    at most                   1 s    2 s    4 s    8 s   ...  256 s   300 s, and so on
    at least                  half of that

Each wait is drawn at random between the two, so that stream tables that failed together are not all
tried again together. A wait is about as long as the error has lasted already: a short outage costs
little time, a long one few tries.

The wait ends after its time, by a success, `alter`, a requested refresh, or a change of the
definitions under the query.

A refresh that was skipped because of another process, a lock or another stream table, or whose
query is not valid, is tried again after `LONGEST_SKIP` at the latest, since such a try is cheap.

>>> [delay(tries, jitter=1.0).total_seconds() for tries in (1, 2, 3, 9, 10, 1000)]
[1.0, 2.0, 4.0, 256.0, 300.0, 300.0]
>>> delay(1, jitter=0.0).total_seconds()
0.5
"""

from __future__ import annotations

import random
from datetime import timedelta

FIRST = timedelta(seconds=1)
LONGEST = timedelta(minutes=5)
LONGEST_SKIP = timedelta(seconds=10)


def delay(failed_tries: int, *, jitter: float, longest: timedelta = LONGEST) -> timedelta:
    """Return the wait after so many failed tries in a row; `jitter` is between 0 and 1."""
    if failed_tries < 1 or not 0.0 <= jitter <= 1.0:
        raise ValueError(f"no delay after {failed_tries} failed tries with jitter {jitter}")
    # Limited, since two to the power of a large number overflows a float.
    doubled = FIRST * (1 << min(failed_tries - 1, 30))
    return min(doubled, longest) * (0.5 + jitter / 2)


def random_delay(failed_tries: int, *, longest: timedelta = LONGEST) -> timedelta:
    """Return the wait after so many failed tries in a row, with jitter."""
    return delay(failed_tries, jitter=random.random(), longest=longest)
