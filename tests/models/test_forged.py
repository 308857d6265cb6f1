"""Files made up by somebody who knows the checksum: whatever they claim, `load` refuses them or gives a whole model."""

import copy
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import qsgp
from forging import Parts, greedy
from golden.make import FOLDER
from qsgp.files import FileError, read_model, write_model
from qsgp.models import stored_parts

GOLDEN = {path.name: read_model(path) for path in sorted(FOLDER.glob("*.qsgp"))}
NUMBERS = [0.0, -1.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 5e-324, 1e39, 1e30, 1e-30, 2.0**31]
VALUES = [None, 0, -1, 1, 2, 3, 10**9, 2**31, 2**63, 2**70, 0.0, 1e300, "", "x", "matern32", [], {}, [1], ["a"], True]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]


@contextmanager
def little_memory(more: int) -> Iterator[None]:
    """The system gives this process no more than so many further bytes."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.fixture(scope="module")
def greedy_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return greedy(tmp_path_factory.mktemp("greedy"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
@pytest.mark.usefixtures("without_shape_checks")
def test_a_small_file_cannot_ask_for_gigabytes(greedy_files: dict[str, Path]) -> None:
    """Each of them made `load` reach gigabytes or work for minutes."""
    for name, path in greedy_files.items():
        assert path.stat().st_size < 8e6
        with (
            little_memory(400 * 10**6),
            pytest.raises(FileError, match=r"asks for [\d.]+ GB|\d+ (draws|points)") as caught,
        ):
            qsgp.load(path)
        assert "allocate" not in str(caught.value), name


@pytest.mark.usefixtures("without_shape_checks")
def test_a_large_model_is_loaded_by_whoever_names_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 support points take 40 MB; a limit of 1 MB for small files stands in for the one of 1 GB."""
    monkeypatch.setattr(stored_parts, "_LITTLE", 10**6)
    about, tensors = GOLDEN["format1-weights.qsgp"]
    tensors = tensors | {"U": torch.zeros(1000, 2), "noise": torch.ones(1000, 1)}
    write_model(tmp_path / "m.qsgp", about, tensors)
    with pytest.raises(FileError, match=r"asks for 40\.\d MB .* If you trust it, load it with max_memory='1GB'"):
        qsgp.load(tmp_path / "m.qsgp")
    with pytest.raises(FileError, match="at most 20 MB of memory, got a file of"):
        qsgp.load(tmp_path / "m.qsgp", max_memory="20MB")
    qsgp.load(tmp_path / "m.qsgp", max_memory="100MB")
    write_model(tmp_path / "long.qsgp", about, tensors | {"more": torch.zeros(5 * 10**6)})
    with pytest.raises(FileError, match="more than max_memory = 17000000"):
        qsgp.load(tmp_path / "long.qsgp", max_memory="17MB")


# --- thousands of forgeries


class Forger:
    """One to three alterations of a sound file, anywhere in it."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def _one(self, choices: Any) -> Any:
        return choices[int(self._rng.integers(len(choices)))]

    def __call__(self) -> tuple[str, Parts]:
        name = self._one(sorted(GOLDEN))
        about, tensors = copy.deepcopy(GOLDEN[name][0]), dict(GOLDEN[name][1])
        alter: list[Callable[[dict[str, Any], dict[str, Tensor]], None]]
        alter = [self._number, self._number, self._shape, self._type, self._header, self._header, self._swap]
        for _ in range(int(self._rng.integers(1, 4))):
            self._one(alter)(about, tensors)
        return name, (about, tensors)

    def _number(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        key = self._one(sorted(tensors))
        changed = tensors[key].contiguous().clone()
        if changed.dtype.is_floating_point and changed.numel():
            at = slice(None) if self._rng.random() < 0.3 else int(self._rng.integers(changed.numel()))
            changed.view(-1)[at] = torch.tensor(self._one(NUMBERS), dtype=torch.float64).to(changed.dtype)
        tensors[key] = changed

    def _shape(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        key = self._one(sorted(tensors))
        old = tensors[key]
        rows = [old[:-1], old[:0], torch.cat([old, old])] if old.ndim else [old.expand(3)]
        turned = old.mT if old.ndim == 2 else old[None]
        tensors[key] = self._one([*rows, turned, old[None], old.flatten(), old.sum()])

    def _type(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        key = self._one(sorted(tensors))
        tensors[key] = tensors[key].to(self._one(DTYPES))

    def _swap(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        one, other = self._one(sorted(tensors)), self._one(sorted(tensors))
        tensors[one], tensors[other] = tensors[other], tensors[one]
        if self._rng.random() < 0.3:
            del tensors[one]

    def _header(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        inner: Any = about[self._one(["posterior", "fitted", "history"])]
        while isinstance(inner, dict | list) and inner:
            key = self._one(sorted(inner) if isinstance(inner, dict) else range(len(inner)))
            if isinstance(inner[key], dict | list) and inner[key] and self._rng.random() < 0.7:
                inner = inner[key]
                continue
            if self._rng.random() < 0.1:
                del inner[key]
            else:
                inner[key] = self._one(VALUES)
            return


def check_whole(model: Any, folder: Path) -> None:
    """All its numbers are numbers, it predicts numbers, and it can be saved and loaded again."""
    scaling = model._scaling
    assert (scaling.y_scale > 0).all() and (scaling.x_scale > 0).all()
    tensors = [*model._posterior.parts()[1].values(), *map(torch.tensor, scaling.arrays().values())]
    assert all(bool(torch.isfinite(tensor.double()).all()) for tensor in tensors)
    learned = [model.signal_variance_, getattr(model, "noise_variance_", 1.0)]
    assert np.isfinite(model.lengthscale_).all()
    # squares of numbers beyond 1e150 are infinite also in an honest model
    assert scaling.y_scale.max() > 1e150 or all(np.isfinite(part).all() for part in learned)
    X = (scaling.x_mean + np.array([[0.5], [-1.5]]) * scaling.x_scale).clip(-1e300, 1e300)
    if hasattr(model, "feature_names_in_"):
        model.feature_names_in_ = np.array([str(name) for name in model.feature_names_in_], dtype=object)
    found = [model.predict_proba(X)] if hasattr(model, "predict_proba") else model.predict(X, return_std=True)
    assert all(np.isfinite(part).all() for part in found)
    model.save(folder / "again.qsgp")
    qsgp.load(folder / "again.qsgp")


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [100, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.bench])])
def test_random_forgeries_are_refused_or_make_a_whole_model(count: int, tmp_path: Path) -> None:
    forge, refused = Forger(105), 0  # among its first hundred is one that was loaded once
    for number in range(count):
        name, parts = forge()
        write_model(tmp_path / "forged.qsgp", *parts)
        try:
            model = qsgp.load(tmp_path / "forged.qsgp")
        except FileError as error:
            refused += 1
            assert str(error).startswith("Expected "), (number, name)
            continue
        try:
            check_whole(model, tmp_path)
        except Exception as error:
            raise AssertionError(f"forgery {number} of {name} was loaded and is no whole model: {error!r}") from error
    assert count / 2 < refused < count


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("part", ["scaling.y_scale", "scaling.x_scale"])
def test_a_scale_of_zero_is_refused(part: str, tmp_path: Path) -> None:
    for about, tensors in GOLDEN.values():
        write_model(tmp_path / "forged.qsgp", about, tensors | {part: 0 * tensors[part]})
        with pytest.raises(FileError, match=rf"{part} is not positive"):
            qsgp.load(tmp_path / "forged.qsgp")
