"""Data by name from three places, and robot-arm rows that do not depend on how they are asked for."""

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import qmc

from qsgp import datasets

N, D = 40, 3


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A data folder, a cache and a source of our own, all empty: no test touches the user's or the network."""
    folders = {name: tmp_path / name for name in ("data", "cache", "source")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setenv("QSGP_DATA", str(folders["data"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders["cache"]))
    monkeypatch.setattr(datasets, "SOURCE", folders["source"].as_uri())
    return folders


def small_set(seed: int = 0) -> dict[str, np.ndarray]:
    """Rows that five significant digits hold exactly, as the published files do."""
    numbers = np.random.default_rng(seed).integers(-9999, 9999, (N, D + 1)) / 1000
    mask = np.arange(10)[:, None] == np.arange(N) % 10
    return {"X": numbers[:, :-1].astype(np.float32), "y": numbers[:, -1].astype(np.float32), "test_mask": mask}


def published(folder: Path, name: str, arrays: dict[str, np.ndarray], parts: int = 1) -> tuple[str, ...]:
    """Writes a set in the form of the source; returns the git object ids of its files."""
    rows = np.column_stack([arrays["X"], arrays["y"]])
    tables = {"test_mask.csv.gz": (arrays["test_mask"].T, "%d")}
    for part, piece in enumerate(np.array_split(rows, parts)):
        tables[f"data{part or ''}.csv.gz"] = (piece, "%.5g")
    (folder / name).mkdir()
    ids = []
    for file, (table, pattern) in tables.items():
        with gzip.open(folder / name / file, "wt") as text:
            np.savetxt(text, table, delimiter=",", fmt=pattern)
        content = (folder / name / file).read_bytes()
        ids.append(hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
    return tuple(ids)


def assert_is_split(data: datasets.Dataset, arrays: dict[str, np.ndarray], split: int) -> None:
    test = np.flatnonzero(arrays["test_mask"][split])
    train = np.setdiff1d(np.arange(N), test)
    np.testing.assert_array_equal(data.x_train, arrays["X"][train])
    np.testing.assert_array_equal(data.y_train, arrays["y"][train])
    np.testing.assert_array_equal(data.x_test, arrays["X"][test])
    np.testing.assert_array_equal(data.y_test, arrays["y"][test])


# --- load -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [0, 9])
def test_the_data_folder_comes_first(places: dict[str, Path], split: int) -> None:
    (places["cache"] / "qsgp").mkdir()
    np.savez(places["cache"] / "qsgp" / "toy.npz", **small_set(seed=1))
    np.savez(places["data"] / "toy.npz", **small_set(seed=0))
    assert_is_split(datasets.load("toy", split), small_set(seed=0), split)


def test_the_cache_comes_second(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (places["cache"] / "qsgp").mkdir()
    np.savez(places["cache"] / "qsgp" / "toy.npz", **small_set(seed=1))
    assert_is_split(datasets.load("toy"), small_set(seed=1), 0)
    monkeypatch.delenv("QSGP_DATA")
    assert_is_split(datasets.load("toy"), small_set(seed=1), 0)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_published_set_is_fetched_once(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    ids = published(places["source"], "toy", small_set(), parts)
    monkeypatch.setattr(datasets, "OBJECTS", {"toy": ids})
    data = datasets.load("toy", 3)
    assert_is_split(data, small_set(), 3)
    assert data.x_train.dtype == data.y_train.dtype == np.float32
    (places["source"] / "toy" / "data.csv.gz").unlink()
    assert_is_split(datasets.load("toy", 4), small_set(), 4)
    assert [path.name for path in (places["cache"] / "qsgp").iterdir()] == ["toy.npz"]


def test_papers_names_are_understood(places: dict[str, Path]) -> None:
    np.savez(places["data"] / "pol.npz", **small_set())
    assert datasets.load("poletele").name == "pol"
    assert set(datasets.ALIASES.values()) <= set(datasets.OBJECTS)


def test_a_changed_file_is_refused_and_not_stored(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    mask_id, data_id = published(places["source"], "toy", small_set())
    monkeypatch.setattr(datasets, "OBJECTS", {"toy": (mask_id, "0" * 40)})
    with pytest.raises(ValueError, match=rf"git object 0{{40}}, got {data_id}.*nothing was stored"):
        datasets.load("toy")
    assert not list(places["cache"].iterdir())


def test_object_ids_are_those_of_git(tmp_path: Path) -> None:
    """What `git hash-object` answers for a file holding "hello" and a line end."""
    (tmp_path / "hello").write_bytes(b"hello\n")
    url = (tmp_path / "hello").as_uri()
    assert datasets._fetch(url, "ce013625030ba8dba906f756967f9e9ca394464a") == b"hello\n"


def test_no_network_says_what_to_do(places: dict[str, Path]) -> None:
    with pytest.raises(FileNotFoundError, match=r"No kin40k.npz in .*download failed.*Put kin40k.npz.*QSGP_DATA"):
        datasets.load("kin40k")


@pytest.mark.parametrize("name", ["mnist", "no_such_set"])
def test_a_set_without_a_download_says_what_to_do(places: dict[str, Path], name: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"No {name}.npz in .*no download is known.*set the .*QSGP_DATA"):
        datasets.load(name)


def test_a_standard_split_is_kept_and_images_become_rows(places: dict[str, Path]) -> None:
    images = np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2) * 12
    labels = np.arange(5, dtype=np.uint8)
    np.savez(places["data"] / "mnist.npz", X_train=images[:3], y_train=labels[:3], X_test=images[3:], y_test=labels[3:])
    data = datasets.load("mnist")
    assert data.x_train.dtype == np.float32
    np.testing.assert_allclose(data.x_test, images[3:].reshape(2, 4) / 255, rtol=1e-6)
    np.testing.assert_array_equal(data.y_train, [0, 1, 2])
    with pytest.raises(ValueError, match="split of mnist from 0 to 0, got 1"):
        datasets.load("mnist", 1)


@pytest.mark.parametrize("split", [-1, 10])
def test_a_split_that_is_not_there(places: dict[str, Path], split: int) -> None:
    np.savez(places["data"] / "toy.npz", **small_set())
    with pytest.raises(ValueError, match=rf"split of toy from 0 to 9, got {split}"):
        datasets.load("toy", split)


def test_pickles_are_not_read(places: dict[str, Path]) -> None:
    np.savez(places["data"] / "toy.npz", X=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        datasets.load("toy")


@pytest.mark.skipif(
    not Path(os.environ.get("QSGP_DATA", ""), "kin40k.npz").is_file(), reason="needs kin40k.npz in QSGP_DATA"
)
def test_kin40k_is_the_published_set() -> None:
    """Shape, deviation of y, and the error of ridge regression on split 0 as recorded with the data."""
    data = datasets.load("kin40k")
    assert (data.x_train.shape, data.x_test.shape) == ((36000, 8), (4000, 8))
    x, x_test = datasets.standardise(data.x_train, data.x_test)
    y = data.y_train - data.y_train.mean()
    weights = np.linalg.solve((x.T @ x + np.eye(8)).astype(float), x.T @ y)
    error = np.sqrt(np.mean((data.y_test - data.y_train.mean() - x_test @ weights) ** 2))
    assert error == pytest.approx(0.9709, abs=5e-5)


# --- standardise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training_rows_get_mean_0_and_deviation_1(dtype: type) -> None:
    rows = np.random.default_rng(0).normal([3e2, -1e-3, 0.1], [3e2, 2e-6, 0.0], (500, 3)).astype(dtype)
    train, test = datasets.standardise(rows[:400], rows[400:])
    assert train.dtype == test.dtype == dtype
    np.testing.assert_allclose(train.mean(0, dtype=float), 0, atol=2e-4)
    np.testing.assert_allclose(train.std(0, dtype=float), [1, 1, 0], atol=1e-5)
    mean, deviation = rows[:400].mean(0, dtype=float), rows[:400].std(0, dtype=float)
    np.testing.assert_allclose(test[:, :2], (rows[400:] - mean)[:, :2] / deviation[:2], rtol=1e-5)
    np.testing.assert_allclose(test[:, 2], 0, atol=1e-7)


def test_targets_are_standardised_too() -> None:
    (y,) = datasets.standardise(np.array([1.0, 3.0]))
    np.testing.assert_array_equal(y, [-1.0, 1.0])


# --- robot arm ------------------------------------------------------------------------------------------------------


def distance_by_matrices(angles: np.ndarray) -> float:
    """The arm link by link, with explicit rotation matrices."""
    rotation, tip = np.eye(3), np.zeros(3)
    for k, angle in enumerate(angles):
        c, s = np.cos(angle), np.sin(angle)
        about_z, about_y = [[c, -s, 0], [s, c, 0], [0, 0, 1]], [[c, 0, s], [0, 1, 0], [-s, 0, c]]
        rotation = rotation @ np.array(about_y if k % 2 else about_z)
        tip = tip + rotation @ [1.0, 0.0, 0.0]
    return float(np.linalg.norm(tip - [2.0, 1.0, 1.0]))


def test_distance_equals_the_product_of_rotations() -> None:
    angles = np.random.default_rng(0).uniform(-np.pi / 2, np.pi / 2, (20, 8))
    expected = [distance_by_matrices(row) for row in angles]
    np.testing.assert_allclose(datasets.tip_distance(angles), expected, rtol=1e-13)
    np.testing.assert_allclose(datasets.tip_distance(torch.tensor(angles), torch), expected, rtol=1e-13)
    assert datasets.tip_distance(np.zeros((1, 8)))[0] == pytest.approx(np.sqrt(6**2 + 1 + 1))


def test_constants_are_the_moments_of_the_distance() -> None:
    angles = (qmc.Sobol(8, seed=0).random_base2(16) - 0.5) * np.pi
    distance = datasets.tip_distance(angles)
    assert distance.mean() == pytest.approx(datasets.DISTANCE_MEAN, abs=5e-4)
    assert distance.std() == pytest.approx(datasets.DISTANCE_DEVIATION, abs=5e-4)


def test_constants_match_the_exact_second_moment() -> None:
    """E cos = 2 / pi and E sin = 0 give E tip and E |tip|^2 joint by joint, hence E distance^2 in closed form."""
    target = np.array([2.0, 1.0, 1.0])
    tip, square = np.zeros(3), 0.0
    for k in reversed(range(8)):
        square += 2 * tip[0] + 1
        tip = (tip + [1.0, 0.0, 0.0]) * ([2 / np.pi, 1, 2 / np.pi] if k % 2 else [2 / np.pi, 2 / np.pi, 1])
    moment = datasets.DISTANCE_MEAN**2 + datasets.DISTANCE_DEVIATION**2
    assert moment == pytest.approx(square - 2 * tip @ target + target @ target, rel=1e-5)


@pytest.mark.parametrize("chunk", [1000, datasets.BLOCK, 12345, 10**6])
def test_any_chunking_gives_the_same_rows(chunk: int) -> None:
    n = 2 * datasets.BLOCK + 777
    x, y = datasets.make_robot_arm(n, random_state=3)
    pieces = list(datasets.robot_arm_chunks(n, random_state=3, chunk=chunk))
    assert [len(piece) for piece, _ in pieces[:-1]] == [chunk] * ((n - 1) // chunk)
    np.testing.assert_array_equal(np.concatenate([piece for piece, _ in pieces]), x)
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in pieces]), y)


def test_more_rows_begin_with_the_same_rows() -> None:
    few, many = datasets.make_robot_arm(100), datasets.make_robot_arm(datasets.BLOCK + 5)
    np.testing.assert_array_equal(few[0], many[0][:100])
    np.testing.assert_array_equal(few[1], many[1][:100])


def test_seeds_and_blocks_differ() -> None:
    x, _ = datasets.make_robot_arm(datasets.BLOCK + 1)
    other, _ = datasets.make_robot_arm(1, random_state=1)
    assert np.unique(np.concatenate([x[:1], x[-1:], other]), axis=0).shape == (3, 8)


def test_rows_are_float32_angles_and_their_standardised_distance() -> None:
    x, y = datasets.make_robot_arm(1000, noise=0.0)
    assert x.shape == (1000, 8)
    assert x.dtype == y.dtype == np.float32
    assert np.abs(x).max() <= np.float32(np.pi / 2)
    distance = np.array([distance_by_matrices(row) for row in x.astype(float)])
    np.testing.assert_allclose(y, (distance - datasets.DISTANCE_MEAN) / datasets.DISTANCE_DEVIATION, atol=2e-7)


def test_noise_has_the_deviation_asked_for() -> None:
    """50,000 draws know a deviation to 0.3 %: five of these are allowed."""
    x, clean = datasets.make_robot_arm(50_000, noise=0.0)
    same_x, noisy = datasets.make_robot_arm(50_000)
    np.testing.assert_array_equal(same_x, x)
    residual = noisy.astype(float) - clean
    assert residual.std() == pytest.approx(0.05, rel=0.016)
    assert abs(residual.mean()) < 5 * 0.05 / np.sqrt(50_000)


@pytest.mark.parametrize(
    ("n", "noise", "message"), [(0, 0.1, "n >= 1"), (-1, 0.1, "n = -1"), (5, -0.1, "noise >= 0"), (5, np.nan, "noise")]
)
def test_bad_requests_are_named(n: int, noise: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        datasets.make_robot_arm(n, noise)
