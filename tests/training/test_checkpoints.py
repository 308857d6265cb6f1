"""The newest sound checkpoint is found, whatever happened to the others; another run's is never taken."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qsgp import QSGPRegressor, files
from qsgp.files import FileError
from qsgp.training import checkpoints, locks
from qsgp.training import train as training
from qsgp.training.checkpoints import Checkpoints, fingerprint_array


def saved(folder: Path, *steps: int, keep: int = 2) -> Checkpoints:
    """A folder with a checkpoint per step, each holding its own number twice."""
    run = Checkpoints(folder, keep)
    for step in steps:
        run.save({"step": step}, {"mu": torch.full((4,), float(step))}, step)
    return run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    run = saved(tmp_path / "new" / "folder", 0, 5, 123, 10**9, 10**9 + 1)  # as numbers, not as text
    assert names(run.folder) == ["step-1000000000.qsgp", "step-1000000001.qsgp"]
    assert names(saved(tmp_path / "three", 1, 2, 3, 4, keep=3).folder) == [f"step-00000000{k}.qsgp" for k in (2, 3, 4)]
    latest = run.latest()
    assert latest is not None
    header, tensors = latest
    assert header == {"step": 10**9 + 1}
    assert torch.equal(tensors["mu"], torch.full((4,), float(10**9 + 1)))


def test_latest_puts_tensors_on_the_device(tmp_path: Path, device: torch.device) -> None:
    latest = saved(tmp_path, 3).latest(device)
    assert latest is not None and latest[1]["mu"].device.type == device.type


def test_a_fresh_folder_has_no_latest(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).latest() is None
    assert Checkpoints(tmp_path / "none").latest() is None
    assert names(tmp_path) == []


@pytest.mark.parametrize("damage", ["torn", "altered", "empty", "a folder"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, damage: str) -> None:
    run = saved(tmp_path, 10, 20)
    newest = tmp_path / "step-000000020.qsgp"
    if damage == "torn":
        newest.write_bytes(newest.read_bytes()[:-3])
    elif damage == "altered":
        flip(newest, -1)
    elif damage == "empty":
        newest.write_bytes(b"")
    else:
        newest.unlink()
        newest.mkdir()
    with pytest.warns(UserWarning, match=r"step-000000020\.qsgp: Expected .* Going on from step-000000010\.qsgp"):
        latest = run.latest()
    assert latest is not None and latest[0] == {"step": 10}


def test_a_resumed_run_replaces_the_damaged_checkpoint(tmp_path: Path) -> None:
    """Steps 10 and 20, 20 damaged; resumed at 10, saved at 15: both sound ones stay, the damaged one goes."""
    run = saved(tmp_path, 10, 20)
    flip(tmp_path / "step-000000020.qsgp", 100)
    run.save({"step": 15}, {}, 15)
    assert names(tmp_path) == ["step-000000010.qsgp", "step-000000015.qsgp"]
    latest = run.latest()
    assert latest is not None and latest[0] == {"step": 15}


def test_all_damaged_is_an_error_that_names_each(tmp_path: Path) -> None:
    run = saved(tmp_path, 10, 20)
    for path in tmp_path.iterdir():
        flip(path, 50)
    with pytest.raises(FileError, match=r"sound checkpoint.*step-000000020\.qsgp.*step-000000010\.qsgp.*Empty the"):
        run.latest()


def test_a_failed_save_deletes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = saved(tmp_path, 10, 20)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="disk full"):
        patched.setattr(os, "fsync", fail)
        run.save({"step": 30}, {}, 30)
    assert names(tmp_path) == ["step-000000010.qsgp", "step-000000020.qsgp"]


def test_the_new_file_is_safe_before_an_old_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = saved(tmp_path, 10, 20)
    present = []
    unlink = Path.unlink

    def spy(path: Path, missing_ok: bool = False) -> None:
        present.append(names(tmp_path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", spy)
    run.save({"step": 30}, {}, 30)
    assert present == [["step-000000010.qsgp", "step-000000020.qsgp", "step-000000030.qsgp"]]
    assert names(tmp_path) == ["step-000000020.qsgp", "step-000000030.qsgp"]


def test_other_files_stay_and_unfinished_checkpoints_go(tmp_path: Path) -> None:
    """Of a run that was killed; a file that another program is writing in the same folder is not ours."""
    others = [".qsgp-0123.tmp", "notes.txt", "step-000000001.qsgp.bak", "step-12.qsgp"]
    for name in [*others, ".qsgp-checkpoint-0123.tmp"]:
        (tmp_path / name).touch()
    with Checkpoints(tmp_path).claimed():
        run = saved(tmp_path, 1, 2, 3)
    assert names(tmp_path) == sorted([*others, "step-000000002.qsgp", "step-000000003.qsgp"])
    assert run.latest() is not None


def test_two_runs_in_one_folder_are_kept_apart(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "run").claimed():
        for folder in (tmp_path / "run", tmp_path / "." / "run"):
            with (
                pytest.raises(
                    ValueError, match=rf"no other run uses, .*process {os.getpid()} on .*name another folder"
                ),
                Checkpoints(folder).claimed(),
            ):
                pass
        with Checkpoints(tmp_path / "other").claimed():
            pass
    assert names(tmp_path / "run") == []
    (tmp_path / "run" / locks.NAME).write_text("process 1 on another machine")  # as a killed run leaves it
    with Checkpoints(tmp_path / "run").claimed():
        pass
    assert names(tmp_path / "run") == []


def test_a_lock_that_its_owner_removes_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, open_file = [], os.open

    def removed_at_first(path: Path, *more: Any) -> int:
        descriptor = open_file(path, *more)
        opened.append(path)
        if len(opened) == 1:
            Path(path).unlink()
        return descriptor

    monkeypatch.setattr(locks.os, "open", removed_at_first)
    with locks.only_run(tmp_path):
        assert len(opened) == 2 and names(tmp_path) == [locks.NAME]


def test_a_planted_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / locks.NAME).symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="Expected a checkpoint folder"), Checkpoints(tmp_path).claimed():
        pass
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_a_folder_that_cannot_be_made_is_noticed_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody, not even the superuser, can make a folder there."""
    monkeypatch.setattr(training, "learn", lambda *_: pytest.fail("it has begun to learn"))
    model = QSGPRegressor(checkpoint="/proc/run", n_features=20, max_iter=3)
    with pytest.raises(OSError, match=r"Expected a checkpoint folder that can be written to, got /proc/run \(.*Name"):
        model.fit(np.zeros((30, 1)), np.arange(30.0))


def test_a_failed_save_does_not_lose_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    X = np.linspace(-1, 1, 30)[:, None]
    model = QSGPRegressor(
        checkpoint=tmp_path, n_features=20, max_iter=3, learn_hyperparameters=False, random_state=0, kernel="rbf"
    )
    with monkeypatch.context() as patched, pytest.warns(UserWarning, match="was not written .*No space left"):
        patched.setattr(os, "fsync", full)
        model.fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all() and names(tmp_path) == []


def test_a_failed_save_is_not_tried_again_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Checkpoints(tmp_path / "run", every_seconds=30.0)
    run._last -= 60
    assert run.due()
    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
        run.save({}, {}, 1)
    assert not run.due()


def test_due_follows_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now)
    run = Checkpoints(tmp_path, every_seconds=60.0)
    assert not run.due()
    now += 59.0
    assert not run.due()
    now += 1.0
    assert run.due() and run.due()
    run.save({}, {}, 1)
    assert not run.due()
    now += 60.0
    assert run.due()
    assert Checkpoints(tmp_path, every_seconds=0.0).due()


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"keep >= 1, got 0\. Keep 2"):
        Checkpoints(tmp_path, keep=0)
    for seconds in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="every_seconds >= 0, got"):
            Checkpoints(tmp_path, every_seconds=seconds)
    with pytest.raises(ValueError, match="step >= 0, got -1"):
        Checkpoints(tmp_path).save({}, {}, -1)


def test_check_same_names_every_difference(tmp_path: Path) -> None:
    run = Checkpoints(tmp_path)
    wanted = {"data": "ab12", "kernel": "rbf", "sizes": [1, 2], "seed": None}
    run.check_same(dict(wanted), wanted)
    before = {"data": "cd34", "kernel": "rbf", "sizes": [1, 3], "old": True}
    with pytest.raises(ValueError) as caught:
        run.check_same(before, wanted)
    message = str(caught.value)
    assert "data was 'cd34' and is now 'ab12'" in message
    assert "sizes was [1, 3] and is now [1, 2]" in message
    assert "old was True and is now nothing" in message
    assert "seed was nothing and is now None" in message
    assert "kernel" not in message and "empty folder" in message


# --- fingerprints


def test_equal_content_has_one_fingerprint() -> None:
    rows = np.random.default_rng(0).random((300, 200))  # several chunks
    expected = fingerprint_array(rows)
    assert len(expected) == 64
    for same in [np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2], torch.from_numpy(rows)]:
        assert fingerprint_array(same) == expected
    assert fingerprint_array(torch.from_numpy(rows.T.copy()).T) == expected


@pytest.mark.gpu
def test_the_fingerprint_does_not_depend_on_the_device() -> None:
    rows = torch.randn(300, 200)
    assert fingerprint_array(rows.cuda()) == fingerprint_array(rows)


def test_memory_mapped_files_have_the_same_fingerprint(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((30, 20)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    assert fingerprint_array(np.load(tmp_path / "rows.npy", mmap_mode="r")) == fingerprint_array(rows)


def test_shape_dtype_and_every_byte_of_a_small_array_count() -> None:
    zeros = np.zeros((100, 300))  # 240,000 bytes: four chunks, the last one not full
    seen = {
        fingerprint_array(array)
        for array in [
            zeros,
            zeros.reshape(300, 100),
            zeros.astype(np.float32),
            zeros.astype(np.int64),
            zeros[:0],
            np.zeros(()),
            np.zeros(1),
        ]
    }
    assert len(seen) == 7
    for position in range(0, zeros.size, 997):
        changed = zeros.copy()
        changed.flat[position] = 5e-324
        seen.add(fingerprint_array(changed))
    changed = zeros.copy()
    changed.flat[-1] = 5e-324
    seen.add(fingerprint_array(changed))
    assert len(seen) == 7 + len(range(0, zeros.size, 997)) + 1


def test_every_dtype_has_a_fingerprint() -> None:
    arrays = [torch.ones(3, dtype=dtype) for dtype in files.DTYPES.values()]
    assert len({fingerprint_array(array) for array in arrays}) == len(files.DTYPES)
    assert fingerprint_array(np.array(["a", "b"])) != fingerprint_array(np.array(["a", "c"]))
    with pytest.raises(ValueError, match="dtype object"):
        fingerprint_array(np.array(["a", 1], dtype=object))


def test_a_large_array_costs_no_more_than_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits stand in for large data: 4 chunks of 8 numbers out of 1,003."""
    monkeypatch.setattr(checkpoints, "CHUNK_BYTES", 64)
    monkeypatch.setattr(checkpoints, "CHUNKS", 4)
    taken = []
    flat = checkpoints._flat

    def spy(array: np.ndarray, begin: int, end: int) -> bytes:
        taken.append((begin, end))
        return flat(array, begin, end)

    monkeypatch.setattr(checkpoints, "_flat", spy)
    numbers = np.zeros(1003)
    before = fingerprint_array(numbers)
    assert taken == [(0, 8), (336, 344), (664, 672), (995, 1003)]
    for position, seen in [(0, True), (7, True), (340, True), (1002, True), (500, False)]:
        changed = numbers.copy()
        changed[position] = 1.0
        assert (fingerprint_array(changed) != before) == seen, position
