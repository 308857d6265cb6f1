"""What is to be measured on a GPU, in the order of its weight, in as many calls as it takes.

A machine with a GPU may be lent by the minute: a call begins nothing that it has no time for, ends what is running when
its minutes are over, and the next call with the same folder goes on there. Jobs that are done are not begun again; rows
of a job that was ended are kept, and of training by steps what was learned. Jobs that failed, or took all their time
without an end, wait for the others.

    python benchmarks/gpu_session.py --out results --minutes 9.5
    python benchmarks/gpu_session.py --out results --dry-run

A tree without .git names its commit in QSGP_COMMIT. The folder has a JSON file and the output of every job, and
session.json: what is done, and how long it took.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from qsgp import atomic
from qsgp.reproduce.records import write

ROOT = Path(__file__).resolve().parents[1]
LEDGER = "session.json"
LEAST, GRACE = 20.0, 15.0  # seconds: with fewer left nothing is begun; to write down what is there after Ctrl-C


# diamonds needs pandas, which such a machine may lack
_GEOMETRY = (
    "benchmarks/geometry.py --device cuda --models ard auto --data kin40k protein pol elevators bike "
    "--json {out}/geometry.json"
)


class Job(NamedTuple):
    """``command`` follows the name of Python; {out} is the folder. ``writes``: the command makes the JSON file."""

    name: str
    seconds: float  # that it needs, and is given, in all
    command: str
    writes: bool = True


_REPRODUCE = "-m qsgp reproduce {} --device cuda --splits 0 -o {{out}}"
_TABLE_2, _TABLE_3, _MNIST = (_REPRODUCE.format(name) for name in ("table-2", "table-3", "mnist"))
_BATTERY = "benchmarks/battery.py --device cuda --references {out}/battery_references.json --json {out}/battery.json"
_BLOCKS = "benchmarks/block_training.py --device cuda --steps 20 --calls 50 --json {out}/block_training.json"
_LARGE = "kin40k protein keggdirected keggundirected pol elevators bike beijing_pm25"
_MODELS = "qsgp svgp-512 svgp-1024 nystroem histgb sklearn-gp"
_PEERS = f"benchmarks/peers.py --device cuda --seconds 20 --data {_LARGE} --models {_MODELS} --json {{out}}/peers.json"
JOBS = [
    Job("test_gpu", 360, "-m pytest -m gpu -q", writes=False),
    Job("block_training", 240, _BLOCKS),
    Job("block_step", 60, "benchmarks/block_step.py --json {out}/block_step.json"),
    Job("geometry", 420, _GEOMETRY),
    Job("table_2_printed", 1200, f"{_TABLE_2} --only 'as printed'"),
    Job("mnist_printed", 600, f"{_MNIST} --only 'bound Q'"),
    Job("table_2_ours", 420, f"{_TABLE_2} --only ours"),
    Job("mnist_ours", 180, f"{_MNIST} --only ours"),
    Job("table_2_beside", 600, f"{_TABLE_2} --only 'exact GP' --only 'solved exactly' --only SVGP"),
    Job("table_1", 90, _REPRODUCE.format("table-1")),
    Job("uci", 1300, "benchmarks/uci.py --device cuda --models qsgp exact calibrated --json {out}/uci.json"),
    Job("peers", 1300, _PEERS),
    *(Job(f"battery_{part}", 600, f"{_BATTERY} --part {part}/3") for part in (1, 2, 3)),
    Job("table_3", 2400, f"{_TABLE_3} --only pol --only elevators --only 'as printed' --only 'exact GP'"),
    Job("mnist_other_bounds", 7200, f"{_MNIST} --only 'bound printed' --only 'bound B' --only 'bound A'"),
]


class Ledger:
    """What is known of every job, written down at once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._known: dict[str, dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def done(self, job: Job) -> bool:
        return self._known.get(job.name, {}).get("state") == "done"

    def state(self, job: Job) -> str:
        return self._known.get(job.name, {}).get("state", "not begun")

    def spent(self, job: Job) -> float:
        return self._known.get(job.name, {}).get("seconds", 0.0)

    def left(self, job: Job) -> float:
        """Seconds that it probably needs still."""
        return 0.0 if self.done(job) else max(job.seconds - self.spent(job), 2 * LEAST)

    def waits(self, job: Job) -> tuple[bool, bool]:
        """Whether others come first."""
        return self.state(job) == "failed", self.spent(job) >= job.seconds

    def put(self, job: Job, state: str, seconds: float, last: str) -> None:
        self._known[job.name] = {"state": state, "seconds": self.spent(job) + seconds, "last_line": last}
        with atomic.written(self._path) as file:
            file.write((json.dumps(self._known, indent=1) + "\n").encode())


def _listens() -> None:
    """In the child: what a shell runs in the background ignores Ctrl-C, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(job: Job, folder: Path, limit: float) -> tuple[str, float, str]:
    """ "done", "failed" or "ended", the seconds it took, and the last line of its output."""
    words = [sys.executable, *shlex.split(job.command.format(out=shlex.quote(str(folder))))]
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    log, began = folder / f"{job.name}.log", time.monotonic()
    with log.open("ab") as output:
        child = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_listens,
        )
        try:
            state = "failed" if child.wait(limit) else "done"
        except subprocess.TimeoutExpired:
            state = "ended"
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it, and what it has started
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    lines = log.read_text("utf-8", "replace").split("\n")
    return state, time.monotonic() - began, next((line.strip() for line in reversed(lines) if line.strip()), "")


def session(jobs: list[Job], folder: Path, minutes: float) -> bool:
    """Whether all is done."""
    end, ledger = time.monotonic() + 60 * minutes - GRACE, Ledger(folder)
    for job in sorted(jobs, key=ledger.waits):
        left = end - time.monotonic()
        if ledger.done(job):
            continue
        if left < LEAST:
            print(f"{minutes:g} minutes are over; the same command goes on.", flush=True)
            break
        state, seconds, last = run(job, folder, min(left, job.seconds))
        ledger.put(job, state, seconds, last)
        if not job.writes:
            row = {"job": job.name, "state": state, "seconds": seconds, "last_line": last}
            write(folder / f"{job.name}.json", [row], seed=0)
        print(f"{job.name}: {state} after {seconds:.0f} s. {last}", flush=True)
    return all(ledger.done(job) for job in jobs)


def show(jobs: list[Job], folder: Path) -> None:
    ledger = Ledger(folder)
    for job in jobs:
        print(f"{job.name}: {ledger.state(job)}, {ledger.spent(job):.0f} of {job.seconds:.0f} s")
        print(f"  python {job.command.format(out=folder)}")
    print(f"{sum(map(ledger.left, jobs)) / 60:.0f} minutes are needed for what is left.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where files go, and where to go on")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this call (default 9.5)")
    parser.add_argument("--only", nargs="+", metavar="JOB", choices=[job.name for job in JOBS], help="these jobs alone")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    chosen = parser.parse_args()
    jobs, folder = [job for job in JOBS if not chosen.only or job.name in chosen.only], chosen.out.resolve()
    if not chosen.dry_run:
        folder.mkdir(parents=True, exist_ok=True)
        session(jobs, folder, chosen.minutes)
    show(jobs, folder)


if __name__ == "__main__":
    main()
