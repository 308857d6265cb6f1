"""Where rows come from: `n`, `d` and `take(index)`."""

from qsgp.sources.arrays import Arrays

__all__ = ["Arrays"]
