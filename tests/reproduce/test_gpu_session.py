"""The list of what is measured on a GPU: every command can be run, and a session that is cut goes on."""

import json
import os
import shlex
import subprocess
import sys
import time
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import gpu_session
from gpu_session import JOBS, Job, Ledger, session
from peer_models import MODELS
from qsgp.reproduce import EXPERIMENTS
from qsgp.reproduce.experiment import Choice, picked

ROOT = Path(__file__).parents[2]


def test_a_dry_run_names_every_command_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "benchmarks/gpu_session.py", "--dry-run", "--out", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    for job in JOBS:
        assert f"{job.name}: not begun" in done.stdout
    assert done.stdout.count(str(folder)) >= len(JOBS) - 1 and not folder.exists()
    minutes = round(sum(job.seconds for job in JOBS) / 60)
    assert f"{minutes} minutes are needed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_every_command_is_understood(job: Job, tmp_path: Path) -> None:
    """As far as the names of its options, and of data and models; nothing is measured."""
    words = shlex.split(job.command.format(out=tmp_path))
    known = help_of(*(words[:3] if words[1] == "qsgp" else words[:2] if words[0] == "-m" else words[:1]))
    assert [word for word in words if word.startswith("--") and word not in known] == []
    if words[1] == "qsgp":
        only = [value for name, value in pairwise(words) if name == "--only"]
        assert picked(EXPERIMENTS[words[3]].cases(Choice(device="cuda")), only)
    if "--models" in words and "peers" in words[0]:
        assert set(words[words.index("--models") + 1 : words.index("--json")]) <= set(MODELS)


@cache
def help_of(*words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, *words, "--help"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def python(name: str, code: str, seconds: float = 60.0, writes: bool = True) -> Job:
    return Job(name, seconds, f"-c {shlex.quote(code.replace('{', '{{').replace('}', '}}'))}", writes)


@pytest.mark.slow
def test_a_session_goes_on_where_it_was_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_session, "GRACE", 5.0)
    monkeypatch.setattr(gpu_session, "LEAST", 0.5)
    mark = tmp_path / "begun"
    note = f"from pathlib import Path; Path({str(mark)!r}).open('a').write"
    keeps = (
        "import time\ntry: time.sleep(60)\n"
        f"except KeyboardInterrupt: {note}('kept '); print('kept')\n"
    )  # fmt: skip
    jobs = [
        python("quick", f"{note}('quick '); print('1 passed')", writes=False),
        python("fails", f"{note}('fails '); print('no GPU'); raise SystemExit(3)"),
        python("long", keeps, seconds=6.0),  # Python itself may take one or two to begin
        python("last", f"{note}('last ')"),
    ]
    assert not session(jobs, tmp_path, 1.0)
    assert mark.read_text() == "quick fails kept last "
    found = json.loads((tmp_path / "session.json").read_text())
    assert {name: entry["state"] for name, entry in found.items()} == {
        "quick": "done",
        "fails": "failed",
        "long": "ended",
        "last": "done",
    }
    assert found["fails"]["last_line"] == "no GPU" and 6.0 <= found["long"]["seconds"] < 30
    (row,) = json.loads((tmp_path / "quick.json").read_text())["rows"]
    assert row["last_line"] == "1 passed" and row["state"] == "done"
    session(jobs, tmp_path, 1.0)
    assert mark.read_text() == "quick fails kept last kept fails ", "what fails waits for what was ended"


def test_what_there_is_no_time_for_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert not session([python("any", "print(1)")], tmp_path, 0.5)  # less than what ends a job cleanly, and a job
    assert time.monotonic() - began < 5 and "the same command goes on" in capsys.readouterr().out
    assert Ledger(tmp_path).state(JOBS[0]) == "not begun"


def test_a_job_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_session, "GRACE", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    state, seconds, _ = gpu_session.run(python("deaf", deaf), tmp_path, 1.5)
    assert state == "ended" and seconds < 10
