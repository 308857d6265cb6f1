"""One of the processes that `spread` starts: ``python -m qsgp.models.one_rank FOLDER``."""

import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.atomic import written
from qsgp.models.loading import ESTIMATORS
from qsgp.models.spread import ABOUT, HEARD, MODEL, PARTS
from qsgp.ranks import end_with_parent, leads


def learned(folder: Path) -> Any:
    """The model of these rows, which are mapped from files: ranks share the memory of what they only read."""
    about = pickle.loads((folder / ABOUT).read_bytes())
    model: Any = ESTIMATORS[about["name"]](**about["keywords"])
    vars(model).update(about["fitted"])
    X, Y, weight = (np.asarray(np.load(folder / f"{part}.npy", mmap_mode="c")) for part in PARTS)
    given = X, Y, weight
    return model._fit(*given, given, scale_y=about["scale_y"], options=about["options"])


def main() -> int:
    end_with_parent()
    folder = Path(sys.argv[1])
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            learned(folder).save(folder / MODEL)
        if leads():
            said = [(warning.category, str(warning.message)) for warning in heard]
            with written(folder / HEARD) as file:
                pickle.dump(said, file)
    except Exception as error:
        with written(folder / f"error-{os.environ['RANK']}.pickle") as file:
            file.write(_pickled(error))
        return 1
    return 0


def _pickled(error: Exception) -> bytes:
    """Some errors cannot be made again from what they hold."""
    try:
        found = pickle.dumps(error)
        pickle.loads(found)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return found


if __name__ == "__main__":
    sys.exit(main())
