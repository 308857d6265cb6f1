"""Ranks that a process starts itself: their environment, and how they end."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from qsgp.ranks import spawned, spawning


@pytest.fixture
def starting(tmp_path, monkeypatch):
    """Start ranks that behave in these ways."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(spawning, "_WORDS", 0.2)

    def start(how, pressed=None):
        (tmp_path / "how.txt").write_text(how)
        return spawned("one_of_several", tmp_path, len(how.split()), pressed or threading.Event())

    return start


def test_ranks_get_the_environment_of_torchrun(starting, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 9)
    assert starting("ends ends") == [0, 0]
    for rank in (0, 1):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        wanted = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 4}
        assert {name: int(found[name]) for name in wanted} == wanted
        assert found["MASTER_ADDR"] == "127.0.0.1" and int(found["MASTER_PORT"]) > 0
        assert found["PYTHONPATH"].split(os.pathsep)[0] == str(Path(spawning.__file__).parents[2])


@pytest.mark.parametrize(("how", "code"), [("fails", 3), ("killed", -signal.SIGKILL)])
def test_a_rank_that_fails_ends_the_others(how, code, starting):
    began = time.monotonic()
    assert starting(f"waits {how}") == [-signal.SIGKILL, code]
    assert time.monotonic() - began < 30


def test_ctrl_c_reaches_rank_0_alone(starting, tmp_path):
    pressed = threading.Event()

    def press():
        while not (tmp_path / "rank0.json").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        pressed.set()

    threading.Thread(target=press).start()
    assert starting("waits ends", pressed) == [0, 0]
    assert (tmp_path / "pressed0").exists() and not (tmp_path / "pressed1").exists()


@pytest.mark.slow
def test_a_rank_ends_with_the_process_that_has_started_it(starting, tmp_path):
    child = os.fork()
    if child == 0:
        starting("watches")
        os._exit(0)
    try:
        _until((tmp_path / "watching0").exists)
        rank = json.loads((tmp_path / "rank0.json").read_text())["pid"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _until(lambda: not _runs(rank))


def _until(true):
    end = time.monotonic() + 50
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(process):
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
