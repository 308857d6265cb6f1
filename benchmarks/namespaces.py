"""Two machines on one: a rank in each of two network namespaces, and what happens when the link between them is cut.

    sudo python benchmarks/namespaces.py --json namespaces.json

It needs Linux, the program `ip` and the rights of root. Each rank is a process with an address that only these two
namespaces have. Nothing else is touched, and both are removed in the end. `--torchrun` starts the ranks by torchrun
with the command of the guide.
"""

import argparse
import ctypes
import functools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qsgp import QSGPRegressor
from qsgp.models import keywords
from qsgp.ranks import LostRanks, leads
from qsgp.reproduce.records import write
from qsgp.training import options

ADDRESSES, PORT = ("10.203.77.1", "10.203.77.2"), 29400
SMALL = {"block": 250, "exact_rows": 500, "variance_points": 200, "held_out": 200, "draws": 4}
SHORT_CUT, PATIENT = 2.0, 30.0  # seconds: that the link is away, that ranks wait where nobody is lost
LONGEST = 600.0  # seconds, of one fit
NEW = 500  # rows predicted
CLONE_NEWNET = 0x40000000  # of Linux


# --- a rank -----------------------------------------------------------------------------------------------------------


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n + NEW, 4))
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.5 * X[:, 2] + 0.3 * rng.normal(size=len(X))


def fit(n: int, folder: Path) -> None:
    """What one rank runs. Sizes do not depend on the clock and each epoch is stored, so that runs can be compared."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options.PACES["cpu"] = replace(options.PACES["cpu"], **SMALL)  # type: ignore[arg-type]
    keywords.Options = functools.partial(options.Options, checkpoint_seconds=0.0)  # type: ignore[misc, assignment]
    X, y = data(n)
    model = QSGPRegressor(
        kernel="rbf",
        metric="ard",
        learn_hyperparameters=False,
        target_map="none",
        random_state=0,
        dtype="float64",
        device="cpu",
        checkpoint=folder / "run",
    )
    rank = os.environ.get("RANK", "0")
    try:
        model.fit(X[:n], y[:n])
        mean, std = model.predict(X[n:], return_std=True)
    except LostRanks as error:
        (folder / f"lost{rank}.json").write_text(json.dumps({"at": time.time(), "words": str(error)}))
        raise
    if leads():
        np.savez(folder / "result.npz", mean=mean, std=std, epochs=model.history_[-1]["iteration"])


def rank_in(name: str, rank: int, n: int, folder: Path, seconds: float) -> None:
    """A forked process moves into the namespace and finds the other rank by its address."""
    words = os.open(folder / f"rank{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(words, 1)
    os.dup2(words, 2)
    with open(f"/run/netns/{name}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"Expected to enter the namespace {name}")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT)}
    os.environ |= environment(seconds)
    fit(n, folder)


def environment(seconds: float) -> dict[str, str]:
    """Gloo takes the address of the machine's name unless it is told a device; both namespaces have the same name."""
    return {"QSGP_RANKS_TIMEOUT": f"{seconds:g}", "GLOO_SOCKET_IFNAME": "wire", "OMP_NUM_THREADS": "1"}


# --- two machines -----------------------------------------------------------------------------------------------------


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def why_not() -> str | None:
    """Why namespaces cannot be made here."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "Expected Linux with the program `ip` (package iproute2), which makes network namespaces."
    name = f"qsgp{os.getpid()}probe"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "wire", "type", "veth", "peer", "name", "other")
    except subprocess.CalledProcessError as error:
        return f"Expected the right to make network namespaces ({error.stderr.strip()}). Run it as root."
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return None


@dataclass
class Machines:
    """Two namespaces, the link between them, and the ranks that run there."""

    names: tuple[str, str]
    by_torchrun: bool = False
    started: list[BaseProcess] = field(default_factory=list)

    def start(self, n: int, folder: Path, seconds: float) -> None:
        work = torchrun_in if self.by_torchrun else rank_in
        context = multiprocessing.get_context("fork")
        for rank, name in enumerate(self.names):
            self.started.append(context.Process(target=work, args=(name, rank, n, folder, seconds)))
            self.started[-1].start()

    def link(self, state: str) -> None:
        ip("-n", self.names[1], "link", "set", "wire", state)

    def carried(self) -> int:
        """Bytes that have gone over the link, in both directions."""
        found = json.loads(ip("-n", self.names[0], "-s", "-j", "link", "show", "wire"))
        return sum(found[0]["stats64"][way]["bytes"] for way in ("rx", "tx"))

    def running(self) -> bool:
        return any(process.is_alive() for process in self.started)

    def ended_well(self) -> bool:
        """Waits for both."""
        end = time.monotonic() + LONGEST
        for process in self.started:
            process.join(max(0.0, end - time.monotonic()))
        codes = [process.exitcode for process in self.started]
        self.stop()
        if None in codes:
            raise SystemExit(f"Expected the ranks to end within {LONGEST:g} s.")
        return codes == [0, 0]

    def stop(self) -> None:
        """All that still runs in the namespaces, what torchrun has started there included."""
        for name in self.names:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for number in found.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.join()
        self.started.clear()


def torchrun_in(name: str, rank: int, n: int, folder: Path, seconds: float) -> None:
    """The command that the guide has for several machines, in the place of this process."""
    run = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    run += ["--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}", "--local-addr", ADDRESSES[rank]]
    run += ["--rdzv-conf", f"is_host={rank == 0}"]  # the name of the machine does not lead to this address
    words = os.open(folder / f"rank{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(words, 1)
    os.dup2(words, 2)
    os.environ |= environment(seconds)
    command = ["ip", "netns", "exec", name, sys.executable, *run, __file__, "--fit", str(folder), "--rows", str(n)]
    os.execvp("ip", command)


@contextmanager
def machines(by_torchrun: bool) -> Iterator[Machines]:
    """Names with the number of this process: two runs at a time do not meet."""
    both = Machines((f"qsgp{os.getpid()}a", f"qsgp{os.getpid()}b"), by_torchrun)
    first, second = both.names
    try:
        for name in both.names:
            ip("netns", "add", name)
        ip("-n", first, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", second)
        for name, address in zip(both.names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/30", "dev", "wire")
            for device in ("lo", "wire"):
                ip("-n", name, "link", "set", device, "up")
        yield both
    finally:
        both.stop()
        for name in both.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


# --- what is shown ----------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """Runs of one folder, beside what one process has found."""

    both: Machines
    n: int
    folder: Path
    wanted: dict[str, np.ndarray]

    def differs(self) -> float:
        found = np.load(self.folder / "result.npz")
        return max(float(np.abs(found[part] - self.wanted[part]).max()) for part in ("mean", "std"))

    def stored(self) -> int:
        """The last epoch whose checkpoint has been written, -1 before the first."""
        paths = (self.folder / "run").glob("step-*.qsgp")
        return max((int(path.stem.removeprefix("step-")) for path in paths), default=-1)

    def wait_for(self, epoch: int) -> None:
        while self.stored() < epoch:
            if not self.both.running():
                raise SystemExit(f"Expected training to reach epoch {epoch}, got {self.said()}")
            time.sleep(0.005)

    def said(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("rank*.txt")))

    def whole(self, seconds: float, cut_at: int | None = None) -> dict[str, Any]:
        """A run that comes to its end, with a link that is away for a moment or not at all."""
        before = self.both.carried()
        self.both.start(self.n, self.folder, seconds)
        if cut_at is not None:
            self.wait_for(cut_at)
            self.both.link("down")
            time.sleep(SHORT_CUT)
            self.both.link("up")
        if not self.both.ended_well():
            raise SystemExit(f"Expected both ranks to end well, got {self.said()}")
        return {"carried_bytes": self.both.carried() - before, "differs": self.differs()}

    def cut(self, seconds: float, epoch: int) -> dict[str, Any]:
        """The link is cut after the checkpoint of this epoch; restored, the same command goes on."""
        self.both.start(self.n, self.folder, seconds)
        self.wait_for(epoch)
        self.both.link("down")
        at = time.time()
        if self.both.ended_well():
            raise SystemExit("Expected a run that is still training when the link is cut, got one that had ended.")
        lost = [json.loads((self.folder / f"lost{rank}.json").read_text()) for rank in (0, 1)]
        found = {"message_s": [each["at"] - at for each in lost], "ended_s": time.time() - at}
        found |= {"words": [each["words"] for each in lost], "resumed_from": self.stored()}
        self.both.link("up")
        return found | self.whole(max(seconds, PATIENT))


def measured(given: argparse.Namespace, tell: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="qsgp-namespaces-") as name, machines(given.torchrun) as both:
        alone = Path(name) / "alone"
        alone.mkdir()
        process = multiprocessing.get_context("fork").Process(target=fit, args=(given.rows, alone))
        process.start()
        process.join()
        wanted = dict(np.load(alone / "result.npz"))
        kinds: list[tuple[str, int | None]] = [("undisturbed", None), ("link away for a moment", given.cuts[0])]
        kinds += [("link cut", epoch) for epoch in given.cuts]
        for number, (kind, epoch) in enumerate(kinds):
            folder = Path(name) / str(number)
            folder.mkdir()
            case = Case(both, given.rows, folder, wanted)
            found = case.cut(given.timeout, epoch) if kind == "link cut" and epoch is not None else None
            found = found or case.whole(max(given.timeout, PATIENT), epoch)
            rows.append({"case": kind, "cut_after_epoch": epoch, "epochs": int(wanted["epochs"])} | found)
            tell(rows[-1])
    return rows


def told(row: dict[str, Any]) -> None:
    """A line of the table."""
    cut = "" if row["cut_after_epoch"] is None else f"{row['cut_after_epoch']}"
    ended = f"{row['ended_s']:.1f}" if "ended_s" in row else ""
    resumed = f"{row['resumed_from']}" if "resumed_from" in row else ""
    moved = f"{row['carried_bytes'] / 1e6:.2f}"
    print(f"{row['case']:<24}{cut:>10}{ended:>15}{resumed:>13}{moved:>12}{row['differs']:>15.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    parser.add_argument("--rows", type=int, default=3200)
    parser.add_argument("--cuts", type=int, nargs="+", default=[0, 1, 3], help="epochs after which the link is cut")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds that ranks wait for each other")
    parser.add_argument("--torchrun", action="store_true", help="start the ranks by torchrun")
    parser.add_argument("--fit", type=Path, metavar="FOLDER", help="be one of the ranks")
    given = parser.parse_args()
    if given.fit is not None:
        fit(given.rows, given.fit)
        return
    if (reason := why_not()) is not None:
        raise SystemExit(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))  # and cleans up
    print(f"{given.rows:,} rows, ranks wait {given.timeout:g} s for each other; differences from one process")
    print("case                    cut after  both ended, s  resumed from   MB moved  differs by most")
    rows = measured(given, told)
    if any("words" in row for row in rows):
        print(f"\nRank 1 said: {next(row['words'][1] for row in rows if 'words' in row)}")
    if given.json:
        write(Path(given.json), rows, seed=0)


if __name__ == "__main__":
    main()
