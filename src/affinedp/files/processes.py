"""Which process this is, also where two have the same number.

A number is given again when its process is gone, and the first process of every container is
number 1.  What must not be used on both sides of a fork asks here.
"""

from __future__ import annotations

import os

_since_the_fork = [object()]  # another object in every process that Python forks


def _renew() -> None:
    _since_the_fork[0] = object()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew)


def this_process() -> tuple[object, int]:
    """Return what is equal within one process, and for no two of which one forked the other.

    Examples
    --------
    >>> this_process() == this_process()
    True
    """
    return _since_the_fork[0], os.getpid()
