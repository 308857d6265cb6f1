"""How ranks find each other: by the environment of torchrun, or by a process group that somebody else has started."""

import atexit
import functools
import os
from datetime import timedelta

import torch
import torch.distributed as dist

try:
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous
except ImportError:  # a torch without process groups: `asked_for` says that there is one process
    PrefixStore = rendezvous = None  # type: ignore[assignment, misc]

from qsgp.ranks.alone import ALONE
from qsgp.ranks.protocol import Ranks
from qsgp.ranks.together import LostRanks, Together

SECONDS = 45.0  # that a rank waits for others


def asked_for() -> int:
    """How many ranks this process was started with, by the environment alone."""
    if not dist.is_available():
        return 1
    if dist.is_initialized():
        return dist.get_world_size()
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if "RANK" in os.environ and size.isdecimal() else 1


def neighbours() -> int:
    """Ranks of this machine, which share its memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if asked_for() > 1 else 1


def leads() -> bool:
    """Whether this process is the one that speaks and writes: rank 0, or the only one."""
    return asked_for() == 1 or (dist.get_rank() if dist.is_initialized() else int(os.environ["RANK"])) == 0


def present() -> Ranks:
    """All ranks, which are started on the first call; this process alone where there are no others."""
    return _started() if asked_for() > 1 else ALONE


@functools.cache
def _started() -> Together:
    seconds = _seconds()
    backend = _backend()
    if dist.is_initialized():  # with a timeout of its own
        return Together(dist.new_group(backend=backend, timeout=timedelta(seconds=seconds)), seconds)
    rank, size, wait = os.environ["RANK"], os.environ["WORLD_SIZE"], timedelta(seconds=seconds)
    where = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    try:
        store, own, all_ = next(rendezvous("env://", timeout=wait))
        # torchrun may keep its store over restarts, with the addresses of processes that are gone
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=own, world_size=all_, timeout=wait)
    except (RuntimeError, ValueError) as error:  # of torch's store and rendezvous
        raise LostRanks(
            f"Rank {rank} of {size} has waited {seconds:g} s for the others at {where}, in vain "
            f"({str(error).splitlines()[0][:200]}). Start all {size} with the same MASTER_ADDR and MASTER_PORT, as "
            "torchrun does; a port that is taken or blocked by a firewall looks the same. QSGP_RANKS_TIMEOUT=300 waits "
            "longer. For a fit by one process alone, unset WORLD_SIZE."
        ) from None
    atexit.register(_end)
    ranks = Together(None, seconds)
    ranks.barrier()
    return ranks


def _seconds() -> float:
    given = os.environ.get("QSGP_RANKS_TIMEOUT", str(SECONDS))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"Expected QSGP_RANKS_TIMEOUT in seconds, got {given!r}. Leave it out for {SECONDS:g} s.")
    return seconds


def _backend() -> str:
    """NCCL where each rank has a GPU of its own, which is made the one that "cuda" means; Gloo everywhere else."""
    if not torch.cuda.is_available():
        return "gloo"
    count, local = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local % count)
    own = int(os.environ.get("LOCAL_WORLD_SIZE", asked_for())) <= count
    return "cpu:gloo,cuda:nccl" if own else "gloo"


def _end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
