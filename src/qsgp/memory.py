"""How much memory there is, how much a fit or a prediction will take, and the block sizes that stay inside."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import torch

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
SHARE = 0.5  # of the free memory may be used unless somebody says otherwise
LEAST = 16 * 2**20  # below this no block size helps


@dataclass(frozen=True)
class Need:
    """Bytes by what they are for; printed before the work begins."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {readable(size)}" for name, size in self.parts.items())
        return f"{readable(self.total)} ({parts})"


def parse(value: int | float | str) -> int:
    """Bytes of 4000000000, "4GB", "3.5 GiB" or "500 MB"."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]I?)?B?\s*", str(value).upper())
    try:
        size = int(float(found[1]) * UNITS[found[2] or ""]) if found else -1
    except ValueError:
        size = -1
    if size < LEAST:
        raise ValueError(
            f"Expected max_memory to be at least {readable(LEAST)}, as bytes or text such as '4GB', got {value!r}. "
            "Leave it at 'auto' for half of what is free."
        )
    return size


def budget(max_memory: int | float | str, device: str) -> int:
    """What may be taken on ``device``: the user's word, or half of what is free now."""
    return int(SHARE * free(device)) if isinstance(max_memory, str) and max_memory == "auto" else parse(max_memory)


def free(device: str) -> int:
    """Free bytes of a GPU, or of this machine; a container's limit counts where there is one."""
    if torch.device(device).type == "cuda":
        # what torch keeps for its next tensors is taken for the driver, and free for us
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    found = [_meminfo(), _container()]
    known = [size for size in found if size is not None]
    if known:
        return max(LEAST, min(known))
    try:  # macOS and other systems: the whole memory is known, not what is free of it
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30


def _meminfo(path: Path = Path("/proc/meminfo")) -> int | None:
    if not path.exists():
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", path.read_text())
    return int(found[1]) * 1024 if found else None


def _container(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Limit less usage of the control group, version 2 or 1; None without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most, now = (folder / limit).read_text().strip(), int((folder / used).read_text())
        except (OSError, ValueError):
            continue
        if most.isdigit() and int(most) < 2**60:
            return max(0, int(most) - now)
    return None


def block_rows(budget_bytes: int, bytes_per_row: int, rows: int, most: int) -> int:
    """Rows at a time: as many as fit into half the budget, at most ``most``, at least one."""
    return max(1, min(rows, most, budget_bytes // (2 * max(1, bytes_per_row))))


def check_fits(need: Need, limit: int, remedy: str) -> None:
    if need.total > limit:
        raise ValueError(
            f"Expected to need at most max_memory = {readable(limit)}, got {need}. {remedy} Or raise max_memory."
        )


def readable(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} B"
