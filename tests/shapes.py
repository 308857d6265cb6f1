"""The type checker of the tests, which jaxtyping asks of every function of the library."""

from collections.abc import Callable
from typing import Any

from beartype import beartype


def checked(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` with checks, unless it stands in another function: that one makes it anew in every call, and making the
    checks takes longer than all the rest."""
    return f if "<locals>" in f.__qualname__ else beartype(f)
