"""A model from its file."""

import os
from typing import Any

from qsgp.files import FileError, read_model
from qsgp.memory import budget
from qsgp.models.classifier import QSGPClassifier, QSRVMClassifier
from qsgp.models.keywords import device as usable_device
from qsgp.models.regressor import QSGPRegressor, QSRVMRegressor
from qsgp.models.stored import restore

ESTIMATORS = {cls.__name__: cls for cls in (QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier)}


def load(path: str | os.PathLike[str], device: str = "cpu", max_memory: int | str = "auto") -> Any:
    """Read a model that `save` wrote. Nothing in the file is run.

    Parameters
    ----------
    path : str or path
        The file.
    device : str, default="cpu"
        Where the model will predict: "cpu", "cuda" or "auto", which takes a GPU if there is one.
    max_memory : int or str, default="auto"
        Bytes, or a string such as "4GB", that the model may take; a larger one is refused before it is made. "auto" is
        half of what is free, and less for a small file that describes a large model.

    Returns
    -------
    QSGPRegressor, QSGPClassifier, QSRVMRegressor or QSRVMClassifier
        The fitted model.
    """
    device = usable_device(device)
    limit = min(budget(max_memory, place) for place in {"cpu", device})
    about, tensors = read_model(path, device, limit)
    match about:
        case {"estimator": str(name), "parameters": dict(parameters)} if name in ESTIMATORS:
            try:
                model = ESTIMATORS[name](**parameters)
            except TypeError as error:
                raise FileError(f"Expected keywords of {name} in {path}, got others: {error}.") from error
        case _:
            raise FileError(f"Expected a model of {', '.join(ESTIMATORS)} in {path}, got something else.")
    restore(model, about, tensors, limit, trusted=max_memory != "auto")
    return model
