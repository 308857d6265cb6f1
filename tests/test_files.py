"""A file is read back bit for bit or refused; a write that fails or is killed leaves the old file."""

import base64
import errno
import hashlib
import json
import math
import os
import pickle
import re
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qsgp import files
from qsgp.files import FORMAT, HEADER_LIMIT, FileError, read_model, write_model

ROOT = Path(__file__).parent.parent

HEADER: dict[str, Any] = {
    "kernel": "matern32",
    "floats": [0.1, 1 / 3, 5e-324, -0.0, 1.7976931348623157e308, 1e22, 2.0],
    "ints": [0, -1, 2**63, -(2**200)],
    "nothing": None,
    "flags": {"ard": True, "whiten": False},
    "text": 'é "quoted" \\ \n \ud800 \U0001f600',
    "": {},
    "empty": [],
}


def example() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "mu": torch.randn(5, 3, dtype=torch.float64, generator=generator),
        "C": torch.tensor([[1.0, math.nan], [-math.inf, -0.0]]),
        "half": torch.randn(3, generator=generator).to(torch.float16),
        "brain": torch.randn(7, generator=generator).to(torch.bfloat16),
        "count": torch.tensor(2**62 + 1),
        "index": torch.arange(4, dtype=torch.int32),
        "short": torch.arange(-2, 2, dtype=torch.int16),
        "tiny": torch.tensor([-128, 127], dtype=torch.int8),
        "byte": torch.arange(5, dtype=torch.uint8),
        "mask": torch.tensor([True, False, True]),
        "no_rows": torch.empty(0, 3),
        "no_columns": torch.empty(2, 0, dtype=torch.int64),
    }


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype and one[name].shape == other[name].shape, name
        assert bits(one[name]) == bits(other[name]), name


def bits(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.qsgp"


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# --- round trips


def test_every_dtype_and_shape_comes_back_bit_for_bit(path: Path, device: torch.device) -> None:
    tensors = {name: tensor.to(device) for name, tensor in example().items()}
    write_model(path, HEADER, tensors)
    header, read = read_model(path, device)
    assert repr(header) == repr(HEADER)  # repr tells 1 from 1.0 and True, and -0.0 from 0.0
    assert list(header) == list(HEADER)
    assert all(tensor.device.type == device.type for tensor in read.values())
    assert_same_bits(read, example())
    assert names(path.parent) == [path.name]


@pytest.mark.gpu
def test_a_file_moves_between_devices(path: Path) -> None:
    write_model(path, {}, {name: tensor.cuda() for name, tensor in example().items()})
    assert_same_bits(read_model(path)[1], example())
    moved = read_model(path, "cuda")[1]
    assert all(tensor.is_cuda for tensor in moved.values())
    assert_same_bits(moved, example())


def test_memory_order_and_gradients_do_not_matter(path: Path) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    odd = {
        "transposed": base.permute(2, 0, 1),
        "strided": base[:, ::2, 1::2],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "trained": torch.ones(2, requires_grad=True),
        "shared": base,
        "channels_last": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    }
    write_model(path, {}, odd)
    read = read_model(path)[1]
    assert_same_bits(read, {name: tensor.detach().clone() for name, tensor in odd.items()})
    assert all(tensor.is_contiguous() and not tensor.requires_grad for tensor in read.values())


def test_equal_models_give_equal_bytes(path: Path) -> None:
    write_model(path, HEADER, example())
    first = path.read_bytes()
    write_model(path, HEADER, dict(reversed(example().items())))
    assert path.read_bytes() == first


def test_other_programs_read_it_as_safetensors(path: Path) -> None:
    write_model(path, HEADER, example())
    assert_same_bits(load_file(path), example())
    entries = table(path.read_bytes())
    for name, tensor in example().items():  # aligned, so that it can be mapped into memory
        assert entries[name]["data_offsets"][0] % tensor.itemsize == 0, name


def test_the_file_is_hardly_larger_than_its_weights(path: Path) -> None:
    weights = torch.zeros(100_000)
    write_model(path, HEADER, {"mu": weights})
    assert path.stat().st_size < 1.01 * weights.nbytes


def test_versions_are_in_the_metadata(path: Path) -> None:
    write_model(path, {"a": 1}, {})
    about = json.loads(table(path.read_bytes())["__metadata__"]["qsgp"])
    assert about["format"] == "qsgp" and about["version"] == FORMAT and about["header"] == {"a": 1}
    assert about["versions"]["torch"] == torch.__version__
    assert about["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert about["versions"].keys() == {"qsgp", "torch", "python"}


# Format 1 as first written. It must be readable for ever; never regenerate it.
GOLDEN = (
    "iAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJxc2dwIjoie1wiZm9ybWF0XCI6IFwicXNncFwiLCBcInZlcnNpb25cIjogMSwgXCJ2"
    "ZXJzaW9uc1wiOiB7XCJxc2dwXCI6IFwiMC4xLjBcIiwgXCJ0b3JjaFwiOiBcIjIuMTMuMFwiLCBcInB5dGhvblwiOiBcIjMuMTEu"
    "N1wifSwgXCJoZWFkZXJcIjoge1wia2VybmVsXCI6IFwicmJmXCIsIFwic2lnbWEyXCI6IDAuMX19Iiwic2hhMjU2IjoiZjJjMmQ1"
    "NzNiZWQyNmYyY2NkYWFkNGI2MmFiOTQzMmIxYWQ3OWY0NjVkODE2NWEzN2ZjOWUxMGU3MDgzN2U1ZCJ9LCJ3ZWlnaHRzIjp7ImR0"
    "eXBlIjoiRjMyIiwic2hhcGUiOlsyXSwiZGF0YV9vZmZzZXRzIjpbMCw4XX0sIm9uIjp7ImR0eXBlIjoiQk9PTCIsInNoYXBlIjpb"
    "XSwiZGF0YV9vZmZzZXRzIjpbOCw5XX19IAAAwD8AAADAAQ=="
)


def test_the_first_format_stays_readable(path: Path) -> None:
    path.write_bytes(base64.b64decode(GOLDEN))
    header, tensors = read_model(path)
    assert header == {"kernel": "rbf", "sigma2": 0.1}
    assert_same_bits(tensors, {"weights": torch.tensor([1.5, -2.0]), "on": torch.tensor(True)})


# --- what cannot be written


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": [0.0, math.nan]}, r"header\['a'\]\[1\] = nan"),
        ({"a": {"b": math.inf}}, r"header\['a'\]\['b'\] = inf"),
        ({"a": -math.inf}, r"header\['a'\] = -inf"),
        ({"a": (1, 2)}, r"header\['a'\] of type tuple"),
        ({"a": np.float64(1.0)}, r"header\['a'\] of type float64"),
        ({"a": torch.ones(1)}, r"header\['a'\] of type Tensor"),
        ({"a": {1: "one"}}, r"header\['a'\]: key 1 of type int"),
        ({"a": 1 << 5000}, r"header\['a'\]: an integer of 5001 bits"),
        ({"a": "x" * (HEADER_LIMIT + 1)}, r"header of at most \d+ bytes"),
    ],
)
def test_a_header_that_json_would_change_is_refused(path: Path, header: dict[str, Any], message: str) -> None:
    with pytest.raises(FileError, match=message):
        write_model(path, header, {})
    assert names(path.parent) == []


def test_a_header_that_holds_itself_is_refused(path: Path) -> None:
    header: dict[str, Any] = {}
    header["self"] = header
    with pytest.raises(FileError, match="nested deeper"):
        write_model(path, header, {})


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": torch.ones(1, dtype=torch.complex64)}, r"dtypes .*'a'.*got 'torch.complex64'"),
        ({"__metadata__": torch.ones(1)}, "names of tensors"),
        ({"naïve": torch.ones(1)}, "printable ASCII"),
    ],
)
def test_tensors_that_a_file_cannot_hold_are_refused(path: Path, tensors: dict[str, Tensor], message: str) -> None:
    with pytest.raises(FileError, match=message):
        write_model(path, {}, tensors)
    assert names(path.parent) == []


# --- damaged and hostile files


def table(content: bytes) -> dict[str, Any]:
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])


def forge(entries: dict[str, Any] | str, data: bytes) -> bytes:
    """A file with a correct digest wherever the table has a place for it: only its other faults can give it away."""
    text = entries if isinstance(entries, str) else json.dumps(entries, separators=(",", ":"))

    def start(digest: str) -> bytes:
        raw = text.replace("DIGEST", digest).encode()
        raw += b" " * (-len(raw) % 8)
        return len(raw).to_bytes(8, "little") + raw

    return start(hashlib.sha256(start("0" * 64) + data).hexdigest()) + data


def about(**changes: Any) -> str:
    versions = {"qsgp": "7.5", "torch": "2", "python": "3"}
    return json.dumps({"format": "qsgp", "version": FORMAT, "versions": versions, "header": {}} | changes)


def tensor(begin: int, end: int, shape: Any = (2,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def forged(*, text: str | None = None, data: bytes = bytes(8), **entries: Any) -> bytes:
    metadata = {"qsgp": about() if text is None else text, "sha256": "DIGEST"}
    return forge({"__metadata__": metadata} | entries, data)


def test_the_forger_can_forge(path: Path) -> None:
    """Without this the hostile files below could be refused for a slip of the forger."""
    path.write_bytes(forged(a=tensor(0, 8)))
    assert_same_bits(read_model(path)[1], {"a": torch.zeros(2)})


def hostile(sound: bytes) -> dict[str, bytes]:
    """Name -> content. All digests are right where the format has room for one."""
    metadata = {"qsgp": about(), "sha256": "DIGEST"}
    plain = json.dumps({"__metadata__": metadata, "a": tensor(0, 8)}, separators=(",", ":"))
    deep = "[" * 100_000 + "]" * 100_000
    return {
        "length 2^63": (2**63).to_bytes(8, "little") + sound[8:],
        "length 2^64 - 1": b"\xff" * 8 + sound[8:],
        "length 0": bytes(8) + sound[8:],
        "length of the file": len(sound).to_bytes(8, "little") + sound[8:],
        "length beyond the limit": forged(text=about(header={"a": "x" * HEADER_LIMIT}), data=b""),
        "negative offsets": forged(a=tensor(-8, 0)),
        "offsets backwards": forged(a=tensor(8, 0)),
        "offsets beyond the end": forged(a=tensor(8, 16)),
        "offsets of text": forged(a=tensor(0, 8) | {"data_offsets": "08"}),
        "no offsets": forged(a={"dtype": "F32", "shape": [2]}),
        "overlapping tensors": forged(a=tensor(0, 8), b=tensor(0, 8)),
        "a hole between tensors": forged(a=tensor(0, 8), b=tensor(16, 24), data=bytes(24)),
        "another order": forged(b=tensor(0, 8), a=tensor(8, 16), data=bytes(16)),
        "duplicate names": forge(plain[:-1] + ',"a":' + json.dumps(tensor(0, 8)) + "}", bytes(8)),
        "wrong dtype name": forged(a=tensor(0, 8, dtype="F33")),
        "dtype of another width": forged(a=tensor(0, 8, dtype="F64")),
        "dtype in a list": forged(a=tensor(0, 8, dtype=["F32"])),
        "dtype missing": forged(a={"shape": [2], "data_offsets": [0, 8]}),
        "boolean of value 2": forged(a=tensor(0, 2, dtype="BOOL"), data=bytes([1, 2])),
        "huge shape": forged(a=tensor(0, 4 * 2**40, [2**20, 2**20])),
        "shape that overflows to 8 bytes": forged(a=tensor(0, 8, [2**62 + 1, 4], "I16")),
        "huge empty shape": forged(a=tensor(0, 0, [0, 2**62, 2**62]), data=b""),
        "negative shape": forged(a=tensor(0, 8, [-1, -2])),
        "shape of floats": forged(a=tensor(0, 8, [2.0])),
        "shape of booleans": forged(a=tensor(0, 4, [True]), data=bytes(4)),
        "shape with 10,000 lengths": forged(a=tensor(0, 8, [2, *[1] * 9999])),
        "shape is a number": forged(a=tensor(0, 8, 2)),
        "entry is a number": forged(a=3),
        "blank inside the table": forge(plain.replace(":", ": ", 1), bytes(8)),
        "not JSON": forge("x" * 80, b""),
        "not text": forge(plain, bytes(8)).replace(b"qsgp", b"qs\xff\xfe", 1),
        "table is a list": forge("[1, 2]", b""),
        "table nested deep": forge(deep, b""),
        "metadata is text": forge({"__metadata__": "qsgp"}, b""),
        "metadata without qsgp": forge({"__metadata__": {"format": "pt"}, "a": tensor(0, 8)}, bytes(8)),
        "metadata of numbers": forge({"__metadata__": {"qsgp": 1, "sha256": "DIGEST"}}, b""),
        "metadata without digest": forge({"__metadata__": {"qsgp": about()}, "a": tensor(0, 8)}, bytes(8)),
        "metadata with more": forge({"__metadata__": metadata | {"more": "1"}, "a": tensor(0, 8)}, bytes(8)),
        "metadata not JSON": forged(text="{", data=b""),
        "metadata nested deep": forged(text=deep, data=b""),
        "header nested deep": forged(text=about(header={"a": json.loads("[" * 60 + "]" * 60)}), data=b""),
        "header is a list": forged(text=about(header=[]), data=b""),
        "header missing": forged(text='{"format":"qsgp","version":1,"versions":{}}', data=b""),
        "NaN in the header": forged(text=about(header={"a": math.nan}), data=b""),
        "1e999 in the header": forged(text=about(header={"a": 7}).replace("7}", "1e999}"), data=b""),
        "endless integer": forged(text=about(header={"a": 7}).replace("7}", "9" * 5000 + "}"), data=b""),
        "another format": forged(text=about(format="other"), data=b""),
        "wrong version": forged(text=about(version=FORMAT + 1), data=b""),
        "version 0": forged(text=about(version=0), data=b""),
        "version of text": forged(text=about(version="1"), data=b""),
        "name beyond ASCII": forged(**{"\ud800": tensor(0, 8)}),
    }


def foreign(tmp_path: Path) -> dict[str, bytes]:
    save_file({"a": torch.ones(3)}, tmp_path / "other")
    torch.save({"a": torch.ones(3)}, tmp_path / "torch")
    np.savez(tmp_path / "numpy.npz", a=np.ones(3))
    return {
        "empty": b"",
        "one byte": b"q",
        "PNG": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(100),
        "pickle": pickle.dumps({"a": [1.0] * 100}),
        "safetensors of another program": (tmp_path / "other").read_bytes(),
        "torch.save": (tmp_path / "torch").read_bytes(),
        "npz": (tmp_path / "numpy.npz").read_bytes(),
        "text": b"mu,C\n1.0,2.0\n" * 20,
        "zeros": bytes(4096),
    }


def damaged(sound: bytes) -> dict[str, bytes]:
    """Seeded bit flips in every region of the file, cut and extended tails."""
    generator = np.random.default_rng(1)
    start = 8 + int.from_bytes(sound[:8], "little")
    cases = {}
    for low, high, count in [(0, 8, 10), (8, start, 25), (start, len(sound), 15)]:
        for bit in generator.choice(np.arange(8 * low, 8 * high), count, replace=False).tolist():
            cases[f"bit {bit}"] = flipped(sound, bit)
    for kept in [0, 7, 8, 9, start - 1, start, len(sound) - 1, *generator.integers(10, len(sound), 8).tolist()]:
        cases[f"cut to {kept}"] = sound[:kept]
    for extra in [1, 8, 4096]:
        cases[f"{extra} zeros more"] = sound + bytes(extra)
        cases[f"{extra} random bytes more"] = sound + generator.bytes(extra)
    cases["twice"] = sound + sound
    return cases


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_hundred_mutated_files_give_a_hundred_clean_errors(path: Path) -> None:
    write_model(path, HEADER, example())
    sound = path.read_bytes()
    cases = damaged(sound) | hostile(sound) | foreign(path.parent)
    messages = {}
    for name, content in cases.items():
        path.write_bytes(content)
        try:
            read_model(path)
        except FileError as error:
            messages[name] = str(error)
    assert set(cases) - set(messages) == set()
    assert len(messages) >= 100
    for name, message in messages.items():
        assert re.fullmatch(r"Expected .*, got .*\. .*\.", message) and len(message) < 600, (name, message)
    path.write_bytes(sound)
    assert_same_bits(read_model(path)[1], example())


def test_no_single_bit_can_change_unnoticed(path: Path) -> None:
    write_model(path, {"sigma2": 0.5}, {"mu": torch.ones(2), "on": torch.tensor([True])})
    sound = path.read_bytes()
    for bit in range(8 * len(sound)):
        path.write_bytes(flipped(sound, bit))
        with pytest.raises(FileError):
            read_model(path)


def test_nothing_is_allocated_on_the_word_of_a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(path, {}, {"a": torch.ones(2)})
    allocated = []
    monkeypatch.setattr(torch, "empty", lambda shape, dtype: allocated.append(shape) or torch.zeros(shape, dtype=dtype))
    read_model(path)
    assert allocated == [[2]]  # so the spy sees what read_model allocates
    shapes: list[tuple[list[int], str]] = [([2**30], "U8"), ([2**20, 2**20], "F64"), ([3], "F32"), ([2**57], "U8")]
    for shape, dtype in shapes:
        size = math.prod(shape) * files.DTYPES[dtype].itemsize
        path.write_bytes(forged(a=tensor(0, size, shape, dtype)))
        with pytest.raises(FileError, match=rf"got \d+ bytes instead of \d{{{len(str(size)) - 1},}}\."):
            read_model(path)
    assert allocated == [[2]]


def test_a_pickle_is_not_run(path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {path.parent / 'ran'}",)

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileError, match="another program"):
        read_model(path)
    assert not (path.parent / "ran").exists()


def test_the_message_names_the_version_to_use(path: Path) -> None:
    """A later format may change everything but its name and version, the digest and the tensors included."""
    later = {"__metadata__": {"qsgp": about(version=9, header="new kind")}, "a": {"dtype": "F4", "packed": True}}
    path.write_bytes(forge(later, bytes(8)))
    with pytest.raises(FileError, match=r"format 1 or lower, got format 9 .* written by qsgp '7\.5': read it with"):
        read_model(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "none")
    with pytest.raises(FileError, match="folder"):
        read_model(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="folder or device"):  # and does not wait for a writer
        read_model(tmp_path / "pipe")


# --- writes that fail


@contextmanager
def full_disk() -> Iterator[None]:
    """The system refuses to write beyond 1000 bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file(path: Path) -> None:
    write_model(path, {"age": "old"}, {})
    with full_disk(), pytest.raises(OSError) as caught:
        write_model(path, {"age": "new"}, {"mu": torch.zeros(1000)})
    assert caught.value.errno == errno.EFBIG
    assert read_model(path)[0] == {"age": "old"}
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_at_the_end_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error("stopped")

    write_model(path, {"age": "old"}, {})
    with monkeypatch.context() as patched, pytest.raises(error, match="stopped"):
        patched.setattr(os, call, fail)
        write_model(path, {"age": "new"}, {})
    assert read_model(path)[0] == {"age": "old"}
    assert names(path.parent) == [path.name]


def test_a_read_only_folder_keeps_its_file() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model.qsgp", {"age": "old"}, {})
        folder.chmod(0o555)
        superuser = os.geteuid() == 0  # permissions do not bind it
        if superuser:
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError):
                write_model(folder / "model.qsgp", {"age": "new"}, {})
        finally:
            if superuser:
                os.seteuid(0)
            folder.chmod(0o755)
        assert read_model(folder / "model.qsgp")[0] == {"age": "old"}
        assert names(folder) == ["model.qsgp"]


def test_data_reaches_the_disk_before_the_name_and_then_the_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        calls.append("fsync folder" if is_folder else f"fsync {os.fstat(descriptor).st_size} bytes")
        fsync(descriptor)

    def spy_replace(source: Path, target: Path) -> None:
        assert Path(source).parent == Path(target).parent
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    write_model(path, {}, example())
    assert calls == [f"fsync {path.stat().st_size} bytes", "replace", "fsync folder"]


def test_a_link_stays_a_link_and_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.qsgp").symlink_to(tmp_path / "real" / "model.qsgp")
    write_model(tmp_path / "link.qsgp", {}, {})
    assert (tmp_path / "link.qsgp").is_symlink() and names(tmp_path / "real") == ["model.qsgp"]
    (tmp_path / "plain").touch()
    assert (tmp_path / "real" / "model.qsgp").stat().st_mode == (tmp_path / "plain").stat().st_mode


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from qsgp.atomic import TEMPORARY
from qsgp.files import read_model, write_model

torch.set_num_threads(1)
folder = Path(sys.argv[1])
random.seed(0)
path, size, torn, progress = folder / "model.qsgp", 2**18, 0, 0


def write(number):
    write_model(path, {"number": number}, {"w": torch.full((size,), number)})


write(0)
for turn in range(1000):
    if turn >= 60 and torn >= 5 and progress >= 5:
        break
    before = read_model(path)[0]["number"]
    child = os.fork()
    if child == 0:
        number = before
        while True:
            number += 1
            write(number)
    time.sleep(random.uniform(0.005, 0.05) * (1 + turn / 60))  # longer where the disk is slow
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    header, tensors = read_model(path)
    assert header["number"] >= before
    assert tensors["w"].shape == (size,) and (tensors["w"] == header["number"]).all()
    progress += header["number"] > before
    for unfinished in folder.glob(TEMPORARY + "*"):
        torn += 1
        unfinished.unlink()
    assert [entry.name for entry in folder.iterdir()] == ["model.qsgp"]
print(torn, progress)
"""


@pytest.mark.slow
def test_kill_minus_nine_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", KILLER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    torn, progress = map(int, run.stdout.split())
    # the kills did hit unfinished writes, and between them writes were finished: else nothing was tried
    assert torn >= 5 and progress >= 5
