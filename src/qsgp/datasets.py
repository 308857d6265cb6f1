"""Data sets by name, and generated robot-arm data of any size.

`load` looks in the folder named by the environment variable QSGP_DATA, then in the user's cache, then fetches
the set and checks every file against its git object id before it is read.
"""

import gzip
import hashlib
import io
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from qsgp.atomic import written

Rows = Float[np.ndarray, "n d"]

# The regression sets and 10 train-test splits of Yang et al. (2015), as published by T. W. Evans (MIT licence).
SOURCE = (
    "https://raw.githubusercontent.com/treforevans/uci_datasets/f0737523712fe66a1640e4b980b927e8490b58eb/uci_datasets"
)

# name -> git object ids of test_mask.csv.gz, data.csv.gz (and data1.csv.gz) at that commit
OBJECTS = {
    "3droad": ("ada36f749883bda57c12146a32edc25d0db8a93f", "5dd7bcf3ee14eb8de41ddea4059d1424bb0b5d81"),
    "airfoil": ("af61cd826dc8c751fec9d7f344a4355c553b148e", "4b8d0b8319b5e8b975cf48b97542c7a35f22467f"),
    "autompg": ("33a6bd0f160a35a00049cad8288b514504c49d99", "29d9ac103cb061af5ecac73636770ec4370c4b60"),
    "autos": ("0695e94063001b023024772420fb36c33fe5228b", "a8088c5b3c12b564e04f83ec43409921a9bf7523"),
    "bike": ("e524f618c826a556ad52b36e297b7c129b613163", "bb3fee10c69767d7184d09dd9351b21416d1f935"),
    "breastcancer": ("071ef04c68b48cb85f2c43523bc9fe6f4348371c", "ed39e81dfd45757eb794d693b42806f9e7dcd4e0"),
    "buzz": ("d89691ab8d3cde3b838fc86122af5377b08e47c8", "8eb0b112fe8ca2f868fcf2adb644605b740e722a"),
    "challenger": ("95d922ff56c1f1c66f9eee9619d59802f1d884de", "997298b918fc4862ed9c51c321acac247de248bc"),
    "concrete": ("090023a05f36267653dae2fed0d46bfe14315fc2", "05e1c7b6310253ea1a4d50c31ca136f8a126e5b1"),
    "concreteslump": ("adf75e2b47ea5c9205572526784452d68349d496", "653f4cfb203f16bfaa3a63d02fec24f952b594c3"),
    "elevators": ("86f3dc4b4c9b117e0c59d5af6538ba13eccc8beb", "3f04e2f948e37371cdc6ffd1ba14cd894ba1eaf7"),
    "energy": ("4d7a7e2b6786770c2147ec0766ea4fa34cc2abc6", "27e11614956f7a7b6596885c559c69e0313f0cac"),
    "fertility": ("b7879b02c7424cc6577f51466c2a11f13138588a", "9786cc288c0160010fcdcdc5f09cc973be26d498"),
    "forest": ("ecf39e83ccc40f535ff619c0c59fef4b47b4d6db", "2e4b14c7883a312bfcaf08b167874b65cefaaa58"),
    "gas": ("893c3ed0528b41e1bdfd78389f868eafbbe04f12", "49ec58c7bf5c77452b31387c86eb2273de53a898"),
    "houseelectric": ("ce59ee3dd5b7001259cfca8a2da1dbdc9dae275a", "d8979c231b99d34009ca8a82b2fef4aea7fe5363"),
    "housing": ("6dec20c81eb7b475488e04ff8dd0369a9e8e635c", "4ebabafaf0b2a8f45e913669072ed50ee5950e87"),
    "keggdirected": ("9773642fbc825e495ca1f132d74fa0e2d66d9304", "5638988a7714f4f3933bb22d75e7df55f0cdd24f"),
    "keggundirected": ("e2674d4279f54e37baa7293f8e0ed0ac9c387bd9", "652c12ad7fcde4ea7cf5c2dec688fb8feffa15d4"),
    "kin40k": ("deeadb6b874caa523ee2141ea3b9c40dfd9711d1", "2546f292c4d306ae27112654071fb588430b0e63"),
    "machine": ("997c511f8a3a5cd3156e14f544becd6ef0037de5", "040f0e55d47e5cec651d60b89d58a925836789ad"),
    "parkinsons": ("1e37adf75c29d1c8c4910d28522c07ff40403a61", "864e7efac8065c3765c3aac7c094ffa9f52e05e4"),
    "pendulum": ("6a4237540f28c72e67168fe91de64887d8474faa", "668c2db79a8070348955195d107ac246744ea394"),
    "pol": ("d2d1679b24ef1ae8f4aa4d6f1debbd42c4cf5e22", "9552fbeaa81ec935735553fa24f0bc1ba1e5c908"),
    "protein": ("c5dba3a8a0c2798a266d0d010e1104462a205068", "01103e262448735870f7990949c3320be7461fec"),
    "pumadyn32nm": ("5e88c31f01573318bb0b274570513c20279d3161", "0e96580952cfa6b856c8744602966695a4d7905e"),
    "servo": ("29e0d18f53635200b6444fda73bef95ff6e54d8d", "8b9b273c3180c0e685398c4d74514de15b82b0e1"),
    "skillcraft": ("00049bfb002616717e904d08160b142ade484c85", "812115d287c943156830fed42c9d78f71f01e5ab"),
    "slice": ("323305504bc653f68d9a21b98626bcaf6d2bdef9", "5fb2005f4f6042b2ebde52de3828a589b0c80718"),
    "sml": ("29285bb033144ebb5100b39ff8f2a18951624ff4", "41023007c1b3ede0ff5171f9d6a5deafd5363e94"),
    "solar": ("5e2b47a1d6ad14b04dd82a5a965f23b0642f2040", "c5c8b6a446362d60f29f2c054cb45f4df4cded66"),
    "song": (
        "6f9367bbf9a422e030f6aa0086ef70be0d8f77af",
        "5910ee3acb64aeb87570a4523fd6ad6fd7bf1f18",
        "9fe898cc92b9d3fd1e8690a027de05befea13428",
    ),
    "stock": ("beaeec73b9a84937508050e6de19070b7089071e", "c691350e377e7552d1f7382247e439b91929df26"),
    "tamielectric": ("fabd02f57b55844f4359b75ca09faef950ac5be2", "97c0078be247b52ab0c6870db74a910ea404c808"),
    "wine": ("3b45fc1070d697b4484e72df234acd890646ad05", "5145e16957a129103c384649495b55f83734c048"),
    "yacht": ("33b42e1e142d19bd4acfae501a781358b263defd", "b74a00e22ea61b3ff8c9fb1e7d310cef2819897f"),
}

# Names that papers use for the same sets.
ALIASES = {
    "automobile": "autos",
    "cancer": "breastcancer",
    "ctslice": "slice",
    "electric": "houseelectric",
    "hardware": "machine",
    "kegg": "keggdirected",
    "keggu": "keggundirected",
    "poletele": "pol",
    "pumadyn": "pumadyn32nm",
    "slump": "concreteslump",
}


@dataclass(frozen=True)
class Dataset:
    """One split. Inputs float32; targets in the unit of the file (class labels stay integers)."""

    name: str
    x_train: Float[np.ndarray, "n d"]
    y_train: Shaped[np.ndarray, " n"]
    x_test: Float[np.ndarray, "t d"]
    y_test: Shaped[np.ndarray, " t"]


_ARRAYS = {"X", "y", "test_mask", "X_train", "y_train", "X_test", "y_test"}


def load(name: str, split: int = 0) -> Dataset:
    """Split ``split`` of the set ``name``, neither centred nor scaled (see `standardise`).

    Files are ``NAME.npz`` with ``X``, ``y`` and ``test_mask`` (splits x rows, True for a test row), or with
    ``X_train``, ``y_train``, ``X_test``, ``y_test`` for a set with one standard split, as MNIST has
    (its images come as rows of 784 pixels between 0 and 1).
    """
    name = ALIASES.get(name, name)
    with np.load(_find(name), allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files if key in _ARRAYS}  # others may hold names as objects
    masks = arrays.get("test_mask")
    _check_split(name, split, 1 if masks is None else len(masks))
    if masks is None:
        return Dataset(name, _flat(arrays["X_train"]), arrays["y_train"], _flat(arrays["X_test"]), arrays["y_test"])
    x, y, test = arrays["X"], arrays["y"], masks[split]
    return Dataset(name, x[~test], y[~test], x[test], y[test])


def standardise(train: Float[np.ndarray, "n *c"], *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """(train, *others) centred and scaled by the mean and deviation of the training rows, column by column.

    A column that is constant in ``train`` is only centred. Statistics are summed in float64.
    """
    if not np.issubdtype(train.dtype, np.floating):
        raise ValueError(f"Expected train in floating point, got {train.dtype}. Convert it with astype(np.float32).")
    for rows in others:
        if rows.shape[1:] != train.shape[1:]:
            raise ValueError(
                f"Expected rows of shape {train.shape[1:]} as in train, got {rows.shape[1:]}. Pass the same columns."
            )
    mean = train.mean(0, dtype=np.float64)
    constant = train.max(0) == train.min(0)
    scale = np.where(constant, 1.0, train.std(0, dtype=np.float64))
    return tuple(((rows - mean) / scale).astype(train.dtype) for rows in (train, *others))


# --- robot arm ------------------------------------------------------------------------------------------------------

JOINTS = 8
TARGET = (2.0, 1.0, 1.0)

# Mean and deviation of the distance over the whole input space, not of a sample: rows must not depend on n.
DISTANCE_MEAN = 4.86635
DISTANCE_DEVIATION = 1.46582

# Rows are drawn in blocks of this size, each from its own counter, so any chunking gives the same rows.
BLOCK = 8192


def make_robot_arm(n: int, noise: float = 0.05, random_state: int = 0) -> tuple[Rows, Float[np.ndarray, " n"]]:
    """n rows of the robot-arm problem, float32: see `robot_arm_chunks`, whose chunks these are in one piece."""
    chunks = robot_arm_chunks(n, noise, random_state)
    x, y = np.empty((n, JOINTS), np.float32), np.empty(n, np.float32)
    start = 0
    for x_chunk, y_chunk in chunks:
        stop = start + len(x_chunk)
        x[start:stop], y[start:stop] = x_chunk, y_chunk
        start = stop
    return x, y


def robot_arm_chunks(
    n: int, noise: float = 0.05, random_state: int = 0, chunk: int = 65536
) -> Iterator[tuple[Rows, Float[np.ndarray, " n"]]]:
    """Joint angles uniform on [-pi/2, pi/2] and the standardised distance of the tip to a fixed point, with noise.

    ``noise`` is the deviation of the Gaussian noise in units of the standardised target. Row k depends on
    ``random_state`` and k alone: neither ``n`` nor ``chunk`` changes it.
    """
    if n < 1 or chunk < 1:
        raise ValueError(f"Expected n >= 1 and chunk >= 1, got n = {n} and chunk = {chunk}. Ask for one row or more.")
    if not noise >= 0:
        raise ValueError(f"Expected noise >= 0, got {noise}. It is the deviation of the noise; 0 switches it off.")
    if not 0 <= random_state < 2**128:
        raise ValueError(f"Expected 0 <= random_state < 2^128, got {random_state}. Reduce it modulo 2^128.")
    bounds = ((start, min(start + chunk, n)) for start in range(0, n, chunk))
    return (_robot_arm_rows(start, stop, noise, random_state) for start, stop in bounds)


def tip_distance(angles: Any, xp: ModuleType = np) -> Any:
    """Distance of the tip of an arm with unit links to `TARGET`, for each row of ``angles``.

    Joint k turns everything beyond it about z (k even) or y (k odd). Working from the tip inwards needs one plane
    rotation per joint instead of a product of matrices. ``xp`` is numpy or torch, whichever holds ``angles``.
    """
    x, y, z = 0.0, 0.0, 0.0
    for k in reversed(range(angles.shape[1])):
        c, s = xp.cos(angles[:, k]), xp.sin(angles[:, k])
        x = x + 1.0
        if k % 2 == 0:
            x, y = c * x - s * y, s * x + c * y
        else:
            x, z = c * x + s * z, c * z - s * x
    return xp.sqrt((x - TARGET[0]) ** 2 + (y - TARGET[1]) ** 2 + (z - TARGET[2]) ** 2)


def _robot_arm_rows(start: int, stop: int, noise: float, random_state: int) -> tuple[Rows, Float[np.ndarray, " n"]]:
    first = start // BLOCK
    blocks = [_robot_arm_block(block, noise, random_state) for block in range(first, (stop - 1) // BLOCK + 1)]
    inside = slice(start - first * BLOCK, stop - first * BLOCK)
    return np.concatenate([x for x, _ in blocks])[inside], np.concatenate([y for _, y in blocks])[inside]


def _robot_arm_block(block: int, noise: float, random_state: int) -> tuple[Rows, Float[np.ndarray, " n"]]:
    # Philox counts up from the low words: the block in a high word leaves 2^128 numbers before blocks could meet.
    generator = np.random.Generator(np.random.Philox(key=random_state, counter=[0, 0, block, 0]))
    # The target must be that of the rounded angles, else float32 would add noise of its own.
    angles = generator.uniform(-np.pi / 2, np.pi / 2, (BLOCK, JOINTS)).astype(np.float32)
    distance = (tip_distance(angles.astype(np.float64)) - DISTANCE_MEAN) / DISTANCE_DEVIATION
    return angles, (distance + noise * generator.standard_normal(BLOCK)).astype(np.float32)


# --- finding and fetching -------------------------------------------------------------------------------------------


def stored(name: str) -> Path | None:
    """The file of set ``name`` in the folder or the cache; None where it would have to be fetched."""
    places = (folder / f"{ALIASES.get(name, name)}.npz" for folder in _folders())
    return next((place for place in places if place.is_file()), None)


def _folders() -> list[Path]:
    folders = [Path(os.environ["QSGP_DATA"])] if os.environ.get("QSGP_DATA") else []
    return [*folders, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qsgp"]


def _find(name: str) -> Path:
    """The file of set ``name``, fetched into the cache when it is nowhere yet."""
    if (place := stored(name)) is not None:
        return place
    folders = _folders()
    looked = f"No {name}.npz in {' or '.join(map(str, folders))}"
    remedy = f"Put {name}.npz into a folder and set the environment variable QSGP_DATA to it."
    if name not in OBJECTS:
        raise FileNotFoundError(f"{looked}, and no download is known for it (known: {', '.join(OBJECTS)}). {remedy}")
    try:
        arrays = _download(name)
    except OSError as error:
        raise FileNotFoundError(f"{looked}, and the download failed ({error}). {remedy}") from error
    return _store(folders[-1] / f"{name}.npz", arrays)


def _download(name: str) -> dict[str, np.ndarray]:
    mask_id, *data_ids = OBJECTS[name]
    mask = _read_csv(_fetch(f"{SOURCE}/{name}/test_mask.csv.gz", mask_id))
    parts = zip(("data.csv.gz", "data1.csv.gz"), data_ids, strict=False)
    data = np.concatenate([_read_csv(_fetch(f"{SOURCE}/{name}/{file}", object_id)) for file, object_id in parts])
    return {"X": data[:, :-1], "y": data[:, -1], "test_mask": mask.T > 0}


def _fetch(url: str, object_id: str) -> bytes:
    """The file at ``url``, if it is the one expected: git names a file by the SHA-1 of its length and bytes."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
    found = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    if found != object_id:
        raise ValueError(
            f"Expected {url} to be git object {object_id}, got {found} ({len(content)} bytes). The download was cut "
            "short or the file was changed; nothing was stored. Try again, or put the set into QSGP_DATA yourself."
        )
    return content


def _read_csv(content: bytes) -> Float[np.ndarray, "rows columns"]:
    return np.loadtxt(io.BytesIO(gzip.decompress(content)), delimiter=",", dtype=np.float32, ndmin=2)


def _store(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """A reader never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return path


def _check_split(name: str, split: int, splits: int) -> None:
    if not 0 <= split < splits:
        raise ValueError(f"Expected a split of {name} from 0 to {splits - 1}, got {split}. It has {splits} in all.")


def _flat(images: Shaped[np.ndarray, "n *pixels"]) -> Rows:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
