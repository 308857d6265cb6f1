"""One of the processes that `spread` starts: ``python -m qsgp.models.one_rank FOLDER``."""

import json
import os
import pickle
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.atomic import written
from qsgp.models.loading import ESTIMATORS
from qsgp.models.spread import HEARD, MODEL, PARTS
from qsgp.ranks import end_with_parent, leads


def learned(folder: Path, about: dict[str, Any]) -> Any:
    """The model of these rows, which are mapped from files: ranks share the memory of what they only read."""
    model: Any = ESTIMATORS[about["name"]](**about["keywords"])
    vars(model).update(about["fitted"])
    X, Y, weight = (np.asarray(np.load(folder / f"{part}.npy", mmap_mode="c")) for part in PARTS)
    given = X, Y, weight
    return model._fit(*given, given, scale_y=about["scale_y"], options=about["options"])


def main() -> int:
    about = pickle.load(sys.stdin.buffer)  # from the process that has started this one
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores Ctrl-C
    folder = Path(sys.argv[1])
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            learned(folder, about).save(folder / MODEL)
        if leads():
            _write(folder / HEARD, [(warning.category.__name__, str(warning.message)) for warning in heard])
    except Exception as error:
        _write(folder / f"error-{os.environ['RANK']}.json", (type(error).__name__, str(error)))
        return 1
    return 0


def _write(path: Path, what: Any) -> None:
    with written(path) as file:
        file.write(json.dumps(what).encode())


if __name__ == "__main__":
    sys.exit(main())
