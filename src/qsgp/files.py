"""Model files: one safetensors file of tensors and a JSON header, written atomically and checked to the last bit.

The layout is that of safetensors (length, JSON, data), so any safetensors reader opens it. Ours is stricter: it
accepts only the bytes `write_model` itself would write, under a SHA-256 over the whole file. It reads through
one open file, never through a memory map: a file cut short by somebody else would end the process with a signal.
The checksum finds damage, not forgery: anyone can compute it. Hence a forged file is checked just as hard.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qsgp.atomic import written

FORMAT = 1

HEADER_LIMIT = 16 * 2**20
DEPTH_LIMIT = 50
RANK_LIMIT = 32
NO_DIGEST = "0" * 64  # stands in the place of the digest while it is computed

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}

Layout = dict[str, tuple[str, list[int]]]  # name -> dtype code, shape


class FileError(ValueError):
    """A file that is not what it should be, or content that a file cannot hold."""


def write_model(
    path: str | os.PathLike[str], header: dict[str, Any], tensors: dict[str, Tensor], mark: str = ""
) -> None:
    """Write all or nothing: whatever ``path`` held before stays until the new file is safely on disk.

    ``header`` holds what JSON gives back unchanged: dict with str keys, list, str, int, finite float, bool, None.
    Tensors may live on any device in any memory order. ``mark`` is that of `atomic.written`.
    """
    if fault := _fault(header):
        raise FileError(
            f"Expected str, int, finite float, bool, None, list and dict in the header of {path}, got header{fault}. "
            "Convert it first, or store it as a tensor."
        )
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    layout = {name: (CODES.get(tensor.dtype, str(tensor.dtype)), list(tensor.shape)) for name, tensor in held.items()}
    _check_layout(path, layout)
    about = json.dumps({"format": "qsgp", "version": FORMAT, "versions": versions(), "header": header})
    names = _order(layout)

    digest = hashlib.sha256(_start(about, NO_DIGEST, layout))
    for name in names:
        digest.update(_bytes(held[name]))
    start = _start(about, digest.hexdigest(), layout)
    if len(start) - 8 > HEADER_LIMIT:
        raise FileError(
            f"Expected a header of at most {HEADER_LIMIT} bytes for {path}, got {len(start) - 8}. "
            "Store long lists as tensors."
        )

    with written(path, mark) as file:
        file.write(start)
        for name in names:
            file.write(_bytes(held[name]))


def read_model(
    path: str | os.PathLike[str], device: str | torch.device = "cpu", most: int | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(header, tensors on ``device``) of a file of `write_model`; `FileError` for anything else. Runs no code.

    Nothing is allocated on the word of the file: its declared sizes must first add up to its real size, and that be at
    most ``most`` bytes (a file with holes can be larger than the disk it lies on).
    """
    if Path(path).exists() and not Path(path).is_file():
        raise _refusal(path, "a folder or device", "Name the file itself.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or not 0 < length <= min(HEADER_LIMIT, size - 8):
            raise _refusal(
                path,
                f"{size} bytes that begin with {prefix!r}, no length of a header" if size else "an empty file",
                "It is cut short, altered or the file of another program; name a file written by save.",
            )
        raw = file.read(length)
        about, header, stored_digest, layout = _parse(path, raw)
        if prefix + raw != _start(about, stored_digest, layout):
            raise _altered(path, "a table of tensors that qsgp would not write")
        expected = 8 + length + sum(_size(code, shape) for code, shape in layout.values())
        if size != expected:
            raise _altered(path, f"{size} bytes instead of {expected}")
        if most is not None and size > most:
            raise _refusal(path, f"one of {size} bytes, more than max_memory = {most}", "Raise max_memory.")

        digest = hashlib.sha256(_start(about, NO_DIGEST, layout))
        tensors = {}
        for name in _order(layout):
            code, shape = layout[name]
            tensors[name] = torch.empty(shape, dtype=DTYPES[code])
            data = _bytes(tensors[name])
            if file.readinto(data) != data.nbytes:
                raise _altered(path, f"an end inside tensor {name!r}: the file changed while it was read")
            # other bytes are no booleans: what torch makes of them is not defined
            if code == "BOOL" and (tensors[name].view(torch.uint8) > 1).any():
                raise _altered(path, f"bytes other than 0 and 1 in the boolean tensor {name!r}")
            digest.update(data)
    if digest.hexdigest() != stored_digest:
        raise _altered(path, "content that does not match its SHA-256")
    return header, {name: tensor.to(device) for name, tensor in tensors.items()}


def _parse(path: str | os.PathLike[str], raw: bytes) -> tuple[str, dict[str, Any], str, Layout]:
    """Our metadata, the user's header in it, the digest and the tensors declared.

    The version comes first: a later one may change all that follows.
    """
    entries = _json(path, raw.decode("utf-8", "replace"))
    match entries:
        case {"__metadata__": {"qsgp": str(about), **others}}:
            header = _header(path, about)
        case _:
            raise _refusal(path, "a file without qsgp's metadata", "It was written by another program, or altered.")
    layout: Layout = {}
    for name, entry in entries.items():
        match entry:
            case _ if name == "__metadata__":
                pass
            case {"dtype": str(code), "shape": list(shape)} if all(type(length) is int for length in shape):
                layout[name] = (code, shape)
            case _:
                raise _altered(path, f"no dtype and whole shape for tensor {name!a:.80}")
    _check_layout(path, layout)
    return about, header, str(others.get("sha256")), layout


def _header(path: str | os.PathLike[str], about: str) -> dict[str, Any]:
    """The user's header, out of a format that this version reads."""
    match _json(path, about):
        case {"format": "qsgp", "version": int(version), "versions": dict(versions)} if version > FORMAT:
            raise FileError(
                f"Expected a qsgp file of format {FORMAT} or lower, got format {version!r:.20} in {path}. "
                f"It was written by qsgp {versions.get('qsgp')!a:.40}: read it with that version or a later one."
            )
        case {"format": "qsgp", "version": int(version), "header": dict(header)} if 1 <= version:
            if fault := _fault(header):
                raise _altered(path, f"header{fault}")
            return header
        case _:
            raise _altered(path, "metadata that is not qsgp's")


def _json(path: str | os.PathLike[str], text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _altered(path, f"a header that is not JSON ({type(error).__name__})") from error


def _check_layout(path: str | os.PathLike[str], layout: Layout) -> None:
    """Names, dtypes and shapes that torch can hold without overflow."""
    for name, (code, shape) in layout.items():
        if not (name.isascii() and name.isprintable()) or name == "__metadata__":
            raise FileError(f"Expected printable ASCII names of tensors in {path}, got {name!a:.80}. Rename it.")
        if code not in DTYPES:
            raise FileError(
                f"Expected one of the dtypes {', '.join(DTYPES)} for tensor {name!a:.80} in {path}, got {code!a:.40}. "
                "Convert the tensor, or get an unaltered file."
            )
        # zeros count as one: torch multiplies the other lengths into its strides all the same
        overflows = len(shape) > RANK_LIMIT or math.prod(max(length, 1) for length in shape) >= 2**58
        if overflows or min(shape, default=0) < 0:
            raise FileError(
                f"Expected at most {RANK_LIMIT} lengths >= 0 with a product below 2^58 as shape of tensor {name!a:.80} "
                f"in {path}, got {shape!r:.80}. Get an unaltered file."
            )


def _start(about: str, digest: str, layout: Layout) -> bytes:
    """All bytes before the data, as safetensors wants them; equal content gives equal bytes."""
    entries: dict[str, Any] = {"__metadata__": {"qsgp": about, "sha256": digest}}
    end = 0
    for name in _order(layout):
        code, shape = layout[name]
        begin, end = end, end + _size(code, shape)
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    raw = json.dumps(entries, separators=(",", ":")).encode("ascii")
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw


def _order(layout: Layout) -> list[str]:
    """Wide dtypes first: every tensor then lies at a multiple of its item size, as memory-mapping readers need."""
    return sorted(layout, key=lambda name: (-DTYPES[layout[name][0]].itemsize, name))


def _size(code: str, shape: list[int]) -> int:
    return DTYPES[code].itemsize * math.prod(shape)


def _bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor."""
    if sys.byteorder != "little":
        raise FileError("Expected a little-endian machine, got a big-endian one. Files would hold wrong numbers here.")
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _fault(value: Any, depth: int = 0) -> str:
    """Where and why JSON would not give ``value`` back unchanged; empty if it does."""
    if depth > DEPTH_LIMIT:
        return f": nested deeper than {DEPTH_LIMIT}"
    if type(value) is dict or type(value) is list:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and type(key) is not str:
                return f": key {key!a:.80} of type {type(key).__name__}"
            if inner := _fault(item, depth + 1):
                return f"[{key!a:.80}]{inner}"
        return ""
    if type(value) is float:
        return "" if math.isfinite(value) else f" = {value}"
    if type(value) is int:  # Python itself refuses to parse more than 4300 digits
        return "" if value.bit_length() <= 4096 else f": an integer of {value.bit_length()} bits"
    return "" if value is None or type(value) in (str, bool) else f" of type {type(value).__name__}"


def versions() -> dict[str, str]:
    try:
        own = importlib.metadata.version("qsgp")
    except importlib.metadata.PackageNotFoundError:  # run from the source tree
        own = "unknown"
    return {"qsgp": own, "torch": str(torch.__version__), "python": platform.python_version()}


def _refusal(path: str | os.PathLike[str], came: str, remedy: str) -> FileError:
    return FileError(f"Expected a qsgp model file at {path}, got {came}. {remedy}")


def _altered(path: str | os.PathLike[str], came: str) -> FileError:
    return _refusal(path, came, "It is cut short or altered: copy it again or save the model anew.")
