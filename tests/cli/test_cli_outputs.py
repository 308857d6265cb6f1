"""What the program writes never costs what was there: inputs, devices, a fitted model, the terminal."""

import errno
import io
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from test_cli_files import Run, fails, run

from qsgp import QSGPRegressor, load
from qsgp.cli import fit as cli_fit
from qsgp.cli.progress import train
from qsgp.cli.talk import printable
from qsgp.data.columns import Column, Columns
from qsgp.models.callbacks import SUPPORTED

__all__ = ["run"]  # a fixture


@pytest.fixture
def table(tmp_path: Path) -> str:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    lines = [f"{x:.3f},{y:.3f}" for x, y in rows]
    text = "\n".join(["x,y", *lines, ""])
    (tmp_path / "t.csv").write_text(text)
    return text


def test_an_input_is_never_overwritten(run: Run, table: str) -> None:
    Path("soft.csv").symlink_to("t.csv")
    Path("hard.csv").hardlink_to("t.csv")
    Path("sub").mkdir()
    assert run("fit t.csv -t y -q --kernel rbf -o m.csv").exit_code == 0
    model = Path("m.csv").read_bytes()
    for name in ("t.csv", "./sub/../t.csv", "soft.csv", "hard.csv"):
        for line in (f"fit t.csv -t y -o {name}", f"fit {name} -t y -o t.csv", f"predict m.csv t.csv -o {name}"):
            fails(run(line), 1, "another file to write than those to read")
    fails(run("predict m.csv t.csv -o m.csv"), 1, "another file to write than those to read")
    fails(run("fit *.csv -t y -o t.csv"), 1, "another file to write than those to read")
    fails(run("report m.csv t.csv -o t.csv"), 1, "another file to write than those to read")
    assert Path("t.csv").read_text() == table and Path("m.csv").read_bytes() == model


def test_a_report_does_not_overwrite_the_rows_it_is_made_of(table: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    X = np.linspace(-1, 1, 30)[:, None]
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="another file to write than those to read"):
        model.report(tmp_path / "t.csv", X[:, 0], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == table


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO")
def test_a_pipe_is_refused_and_not_waited_for(run: Run, table: str) -> None:
    os.mkfifo("pipe.csv")
    fails(run("fit t.csv -t y -o pipe.csv"), 1, "got a FIFO")
    assert Path("pipe.csv").is_fifo()


def test_a_model_outlives_a_disk_that_is_full(run: Run, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save, asked = QSGPRegressor.save, []

    def full_here(model: QSGPRegressor, path: Path) -> None:
        asked.append(Path(path))
        if len(asked) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save(model, path)

    monkeypatch.setattr(QSGPRegressor, "save", full_here)
    monkeypatch.setattr(cli_fit.tempfile, "tempdir", str(Path.cwd()))
    done = run("fit t.csv -t y --kernel rbf -o m.qsgp")
    fails(done, 1, "m.qsgp", "No space left", "The model is kept at")
    assert load(re.findall(r"kept at (\S+): move it", done.stderr)[0]).n_features_in_ == 1


def test_names_from_a_file_cannot_command_the_terminal(run: Run) -> None:
    """A title, a colour, a line that looks like one of ours, letters that turn the direction."""
    name, target = "\x1b]0;owned\x07\x1b[31mred", "y\u202e\x9b1m\nestimator  QSGPClassifier"
    X = np.linspace(-1, 1, 20)[:, None]
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False).fit(X, X[:, 0])
    model.feature_names_in_ = np.array([name], dtype=object)
    model.columns_ = Columns((Column(name, "number"),), target, "error", 20)
    model.save("m.qsgp")
    done = run("info m.qsgp")
    assert done.exit_code == 0, done.output
    assert r"\x1b]0;owned\x07\x1b[31mred" in done.stdout and r"y\u202e\x9b1m\nestimator" in done.stdout
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout)
    assert len(re.findall(r"^estimator", done.stdout, re.MULTILINE)) == 1


def test_printable_leaves_letters_alone() -> None:
    assert printable("größe 大きさ é\n\t") == "größe 大きさ é\n\\t"


class ClosedTerminal(io.StringIO):
    """As it is after its window was closed."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.skipif(not SUPPORTED, reason="no callbacks in this scikit-learn")
def test_a_model_outlives_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", ClosedTerminal())
    X = np.linspace(-1, 1, 20)[:, None]
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False)
    assert not train(model, X, X[:, 0])
    assert model.score(X, X[:, 0]) > 0.9


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP")
@pytest.mark.filterwarnings("ignore:Interrupted")
@pytest.mark.parametrize(("handler", "stops"), [(signal.SIG_DFL, True), (signal.SIG_IGN, False)])
def test_the_end_of_the_terminal_is_a_request_to_stop(
    handler: signal.Handlers, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is ignored, as under nohup."""
    model, X = QSGPRegressor(random_state=0, learn_hyperparameters=False), np.linspace(-1, 1, 20)[:, None]
    fit = model.fit
    monkeypatch.setattr(model, "fit", lambda *a, **k: (os.kill(os.getpid(), signal.SIGHUP), fit(*a, **k)))
    before = signal.signal(signal.SIGHUP, handler)
    try:
        assert train(model, X, X[:, 0], quiet=True) == stops
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)
    assert model.score(X, X[:, 0]) > 0.9
