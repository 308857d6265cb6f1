"""Whatever writes a file: it appears whole, keeps its rights, and no device, link or other program's file is harmed."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from programs import ENVIRONMENT
from qsgp import QSGPRegressor, atomic
from qsgp.datasets import _store
from qsgp.files import write_model

Write = Callable[[Path], Any]


@pytest.fixture(scope="module")
def model() -> QSGPRegressor:
    X = np.linspace(-1, 1, 20)[:, None]
    return QSGPRegressor(random_state=0, learn_hyperparameters=False).fit(X, X[:, 0])


@pytest.fixture(params=["write_model", "save", "report", "export", "data set"])
def write(request: pytest.FixtureRequest, model: QSGPRegressor, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Every road by which the library writes a file. Exporting itself takes seconds: a few bytes stand in for it."""
    if request.param == "report":
        pytest.importorskip("matplotlib")
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: None)
    monkeypatch.setattr(torch.export, "save", _few_bytes)
    X = np.linspace(-1, 1, 20)[:, None]
    roads: dict[str, Write] = {
        "write_model": lambda path: write_model(path, {}, {}),
        "save": model.save,
        "report": lambda path: model.report(X, X[:, 0], path),
        "export": model.export,
        "data set": lambda path: _store(path, {"X": X}),
    }
    return roads[request.param]


def _few_bytes(program: Any, file: Any) -> None:
    if isinstance(file, Path):
        file.write_bytes(b"program")
    else:
        file.write(b"program")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def make_special(path: Path, kind: str) -> int:
    """Its type, as the system tells it."""
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            pytest.skip("device nodes need the superuser")
    return stat.S_IFMT(path.stat().st_mode)


@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device"])
def test_devices_pipes_and_sockets_are_refused(write: Write, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    type_before = make_special(path, kind)
    (tmp_path / "link.pt2").symlink_to(path)
    for name in ("m.pt2", "link.pt2"):
        with pytest.raises(ValueError, match=rf"Expected a place for a file at .*{name}, got {kind}\. Name another"):
            write(tmp_path / name)
    assert stat.S_IFMT(path.stat().st_mode) == type_before and names(tmp_path) == ["link.pt2", "m.pt2"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_a_pipe_without_a_name_is_refused() -> None:
    """/dev/stdout leads to a name that does not exist when it is a pipe."""
    for descriptor in os.pipe():
        with pytest.raises(ValueError, match="got a FIFO"):
            atomic.place_for(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)


@pytest.mark.parametrize("mode", [0o400, 0o640])
def test_a_file_keeps_its_rights(write: Write, mode: int, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.touch()
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.stat().st_size > 0
    write(tmp_path / "new.pt2")
    (tmp_path / "plain").touch()
    assert (tmp_path / "new.pt2").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert names(tmp_path) == ["m.pt2", "new.pt2", "plain"]


def test_rights_are_narrow_from_the_first_byte(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(0o600)
    with atomic.written(tmp_path / "secret") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


def test_a_planted_link_is_not_followed(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its name was guessed; what it points to and the link itself stay."""
    victim, path = tmp_path / "victim", tmp_path / "m.pt2"
    victim.write_text("precious")
    (tmp_path / f".{path.name}.unfinished.pt2").symlink_to(victim)
    write(path)
    assert victim.read_text() == "precious" and not path.is_symlink()
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda size: "guessed")
    planted = tmp_path / ".qsgp-guessed.tmp"
    planted.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write(path)
    assert victim.read_text() == "precious" and planted.is_symlink()


SIGNALS = """
import os, signal, sys, time
from pathlib import Path
from qsgp import atomic
from qsgp.files import write_model

folder = Path(sys.argv[1])
(folder / "m").write_text("older")
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # whoever began the tests may ignore them, as nohup does


def names():
    return sorted(entry.name for entry in folder.iterdir())


def forked(work):
    # a process that is in the middle of its work, where it calls what it is given, when this returns
    begin, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        assert os.read(begin, 1) == b"x"
        return child
    try:
        work(lambda *_: (os.write(told, b"x"), time.sleep(20)))
    finally:
        os._exit(1)


def write(wait):
    os.fsync = wait
    write_model(folder / "m", {}, {})


for number in (signal.SIGTERM, signal.SIGHUP):
    child = forked(write)
    assert len(names()) == 2, "it has begun"
    os.kill(child, number)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -number, "it ends as it would without us"
    assert names() == ["m"] and (folder / "m").read_text() == "older", names()

# a handler of the program's own, and signals it ignores, are its own affair
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with atomic.written(folder / "m") as file:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGHUP)
    file.write(b"newer")
assert told == [1] and (folder / "m").read_text() == "newer"
signal.signal(signal.SIGTERM, signal.SIG_DFL)

# a fork that is ended leaves the file its parent writes
with atomic.written(folder / "m") as file:
    child = forked(lambda wait: wait())
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert len(names()) == 2
    file.write(b"newest")
assert (folder / "m").read_text() == "newest" and names() == ["m"]
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_signals_that_end_the_process_leave_no_temporary_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SIGNALS, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "done\n", done.stderr


def test_other_threads_write_too(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=write_model, args=(tmp_path / "m", {}, {}))
    thread.start()
    thread.join()
    assert names(tmp_path) == ["m"] and signal.getsignal(signal.SIGTERM) == before


def test_an_output_that_is_an_input_is_found_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    table = tmp_path / "t.csv"
    table.write_text("x")
    Path("soft.csv").symlink_to("t.csv")
    Path("hard.csv").hardlink_to("t.csv")
    for name in ("t.csv", "./t.csv", "sub/../t.csv", "soft.csv", "hard.csv", str(table)):
        with pytest.raises(ValueError, match="Expected another file to write than those to read"):
            atomic.refuse_inputs(name, ["other.csv", table])
    atomic.refuse_inputs("new.csv", [table])
