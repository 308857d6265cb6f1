"""Rows that are too many for the memory: each once, a uniform sample, the scales of all, errors that name a file."""

import gzip
import itertools
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from qsgp.data.columns import Columns
from qsgp.data.mixing import mixed
from qsgp.data.moments import Moments
from qsgp.data.prefetch import Ahead
from qsgp.data.reading import pa_table
from qsgp.data.row_groups import held_bytes, parts_of
from qsgp.data.scaling import Scaling
from qsgp.data.scanning import Sample, survey
from qsgp.data.sources import ArraySource, Piece, Without, of_files

N = 1000


def frame(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"size": rng.normal(50, 3, n), "kind": rng.choice(["flat", "house"], n), "new": rng.random(n) < 0.5}
    )
    rows.loc[n - 1, "kind"] = "villa"  # a level that shows at the end
    return rows.assign(price=rows["size"] + 5 * (rows["kind"] == "house"), count=rng.integers(1, 4, n))


def written(folder: Path, kind: str = "parquet", files: int = 2) -> list[Path]:
    """The rows of `frame` in some files; Parquet in row groups of 100."""
    found, whole = list[Path](), pa.Table.from_pandas(frame(), preserve_index=False)
    for k in range(files):
        part, path = whole.slice(k * N // files, N // files), folder / f"part{k}.{kind}"
        if kind == "parquet":
            parquet.write_table(part, path, row_group_size=100)
        elif kind == "csv":
            part.to_pandas().to_csv(path, index=False)
        else:
            feather.write_feather(part, path)
        found.append(path)
    return found


def piece(numbers: list[int]) -> Piece:
    at = np.array(numbers)
    return Piece(at, at[:, None].astype(float), at.astype(float), np.ones(len(at)))


# --- a sample ---------------------------------------------------------------------------------------------------


def test_every_set_of_rows_is_as_likely_as_any_other() -> None:
    """Of 6 rows that come in pieces of 1, 3 and 2, each of the 20 sets of 3: within five deviations of chance."""
    draws, found = 8000, Counter[tuple[int, ...]]()
    for seed in range(draws):
        sample = Sample(3, seed)
        for numbers in ([0], [1, 2, 3], [4, 5]):
            sample.add(piece(numbers))
        found[tuple(sorted(sample.rows().number.tolist()))] += 1
    sets = list(itertools.combinations(range(6), 3))
    assert set(found) == set(sets)
    expected, deviation = draws / len(sets), np.sqrt(draws * (1 / 20) * (19 / 20))
    assert max(abs(found[each] - expected) for each in sets) < 5 * deviation


def test_a_sample_is_that_of_the_smallest_keys_however_many_rows_come() -> None:
    """Rows are given up on the way; a single look at all keys finds the same ones in the same order."""
    sample, keys = Sample(50, 7), np.random.default_rng(7).random(20_000)
    for start in range(0, 20_000, 512):
        sample.add(piece(list(range(start, min(start + 512, 20_000)))))
    assert sample.rows().number.tolist() == np.argsort(keys)[:50].tolist()


def test_a_sample_of_more_rows_than_there_are_is_all_of_them() -> None:
    sample = Sample(10, 0)
    sample.add(piece([3, 4]))
    assert sorted(sample.rows().number.tolist()) == [3, 4]


# --- every row once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "csv", "feather"])
def test_files_are_read_as_the_table_they_hold(kind: str, tmp_path: Path) -> None:
    source = of_files(written(tmp_path, kind), "price", "count")
    rows = [each for part in source.parts for each in source.pieces(part)]
    whole, wanted = Piece(*(np.concatenate(parts) for parts in zip(*rows, strict=True))), frame()
    assert source.names == ["size", "kind=flat", "kind=house", "kind=villa", "new"]
    inputs = np.column_stack(
        [wanted["size"], *(wanted["kind"] == k for k in ("flat", "house", "villa")), wanted["new"]]
    )
    np.testing.assert_allclose(whole.X, inputs, rtol=1e-12)
    np.testing.assert_allclose(whole.y, wanted["price"], rtol=1e-12)
    np.testing.assert_array_equal(whole.weight, wanted["count"])
    assert len(set(whole.number)) == N
    if kind != "csv":  # of texts the number of rows is a guess until they are read
        assert source.n == N
        np.testing.assert_array_equal(whole.number, np.arange(N))


def test_an_order_close_to_random_has_every_row_once(tmp_path: Path) -> None:
    source = of_files(written(tmp_path), "price")
    first = np.concatenate([rows.number for rows in mixed(source, 0)])
    other = np.concatenate([rows.number for rows in mixed(source, 1)])
    assert sorted(first) == sorted(other) == list(range(N))
    assert (first != other).any()
    groups = first[:50] // 100
    assert len(set(groups)) > 4  # several row groups at a time


def test_rows_that_are_left_out_never_come() -> None:
    X = np.arange(30.0)[:, None]
    left_out = np.array([29, 0, 7])
    source = Without(ArraySource(X, X[:, 0]), left_out)
    found = np.concatenate([rows.number for rows in mixed(source, 0)])
    assert sorted(found) == sorted(set(range(30)) - set(left_out.tolist()))
    assert source.n == 27


def test_rows_of_no_weight_are_left_out() -> None:
    X, weight = np.arange(6.0)[:, None], np.array([1.0, 0, 2, 0, 1, 1])
    source = ArraySource(X, X[:, 0], weight)
    found = survey(source, 10, 0, labels=False)
    assert (found.n, found.total, found.weighted) == (4, 5.0, True)
    assert sorted(found.sample.number) == [0, 2, 4, 5]


# --- scales -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [0, 0.3, 1])
@pytest.mark.parametrize("size", [1.0, 1e-200, 1e150])
def test_scales_of_one_pass_are_those_of_all_rows_at_once(size: float, gaps: float) -> None:
    rng = np.random.default_rng(0)
    X = size * np.column_stack([rng.normal(1000, 1, 400), rng.exponential(1, 400), np.full(400, 0.1), np.zeros(400)])
    X[:, 1] = np.where(rng.random(400) < gaps, np.nan, X[:, 1])
    weight = rng.uniform(0.5, 3, 400)
    wanted = Scaling.of(X, X[:, :1], weight, scale_y=True)
    for sizes in ([400], [1, 199, 200], [50] * 8):
        moments, at = Moments(4), 0
        for rows in sizes:
            moments.add(X[at : at + rows], weight[at : at + rows])
            at += rows
        mean, deviation = moments.found()
        np.testing.assert_allclose(mean, wanted.x_mean, rtol=1e-12)
        np.testing.assert_allclose(deviation, wanted.x_scale, rtol=1e-9)


def test_a_gap_in_a_row_that_hardly_counts_leaves_the_scales_alone() -> None:
    X, weight = np.random.default_rng(0).normal(size=(50, 2)), np.append(np.ones(49), 1e-14)
    whole = Scaling.of(X, X[:, :1], weight, scale_y=True)
    X[-1, 0] = np.nan
    found = Scaling.of(X, X[:, 1:], weight, scale_y=True)
    np.testing.assert_allclose(found.x_mean, whole.x_mean, rtol=1e-9)
    np.testing.assert_allclose(found.x_scale, whole.x_scale, rtol=1e-9)


def test_a_survey_counts_labels_by_their_weight() -> None:
    y = np.array(["a", "b", "a", "c"], dtype=object)
    found = survey(ArraySource(np.arange(4.0)[:, None], y, np.array([1.0, 2, 3, 4]), labels=True), 4, 0, labels=True)
    assert found.labels == {"a": 4.0, "b": 2.0, "c": 4.0}


# --- reading ahead ----------------------------------------------------------------------------------------------


def test_reading_ahead_keeps_the_order_and_brings_errors_where_they_belong() -> None:
    def items() -> "itertools.chain[int]":
        yield from (0, 1, 2)
        raise OSError("the disk is gone")

    with Ahead(items()) as ahead:
        assert [next(ahead) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OSError, match="the disk is gone"):
            next(ahead)
        with pytest.raises(StopIteration):
            next(ahead)


def test_a_reader_that_nobody_wants_ends() -> None:
    ahead = Ahead(iter(itertools.count()))
    next(ahead)
    ahead.close()
    assert not ahead._thread.is_alive()


def test_waiting_is_measured() -> None:
    def slow() -> "itertools.chain[int]":
        for k in range(3):
            time.sleep(0.03)
            yield k

    with Ahead(slow()) as ahead:
        assert list(ahead) == [0, 1, 2]
    assert 0.05 < ahead.waited < 2


# --- files that are not what they should be ---------------------------------------------------------------------


def read_all(files: list[Path]) -> int:
    source = of_files(files, "price")
    return survey(source, 10, 0, labels=False).n


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    files = written(tmp_path)
    files[1].write_bytes(files[1].read_bytes()[:-500])
    with pytest.raises(ValueError, match="part1.parquet, got one that cannot be read"):
        read_all(files)


def test_a_file_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    files = written(tmp_path)
    content = bytearray(files[1].read_bytes())
    content[4:2000] = os.urandom(1996)
    files[1].write_bytes(content)
    with pytest.raises(ValueError, match="part1.parquet"):
        read_all(files)


@pytest.mark.parametrize("change", [{"size": str}, {"size": bool}])
def test_a_schema_that_changes_names_both_files_and_the_column(change: dict[str, type], tmp_path: Path) -> None:
    files = written(tmp_path)
    frame(100).astype(change).to_parquet(files[1])
    with pytest.raises(ValueError, match=r"column 'size' in .*part1.parquet as in .*part0.parquet"):
        read_all(files)


@pytest.mark.parametrize("change", [{"size": str}, {"new": str}])
def test_of_files_read_whole_the_one_with_another_schema_is_named(change: dict[str, type], tmp_path: Path) -> None:
    files = written(tmp_path, files=3)
    frame(100).astype(change).to_parquet(files[2])
    name, kind = next(iter(change)), "double" if "size" in change else "bool"
    with pytest.raises(ValueError, match=rf"column '{name}' in .*part2.parquet as in .* \({kind}\), got .*string"):
        pa_table(files)


def test_a_column_that_is_lost_is_named(tmp_path: Path) -> None:
    files = written(tmp_path)
    frame(100).drop(columns="new").to_parquet(files[1])
    with pytest.raises(ValueError, match=r"part1.parquet, got others: no \['new'\]"):
        read_all(files)


@pytest.mark.parametrize("how", ["vanished", "changed"])
def test_a_file_that_does_not_stay_is_named(how: str, tmp_path: Path) -> None:
    """Between the listing of its parts and their reading."""
    files = written(tmp_path)
    source = of_files(files, "price")
    assert source.n == N
    if how == "vanished":
        files[1].unlink()
    else:
        frame(400).to_parquet(files[1])
    with pytest.raises((ValueError, FileNotFoundError), match=f"part1.parquet to stay.* has {how}"):
        survey(source, 10, 0, labels=False)


def test_missing_values_are_none_or_an_error_that_names_the_file_and_the_column(tmp_path: Path) -> None:
    files = written(tmp_path)
    rows = frame(200)
    rows.loc[3, "size"] = np.nan
    rows.to_parquet(files[1])
    source = of_files(files, "price")
    found = survey(source, 2 * N, 0, labels=False)
    assert np.isnan(found.sample.X[:, 0]).sum() == 1 and found.inputs.known[0] == found.n - 1
    with pytest.raises(ValueError, match=r"part1.parquet.*'size' \(1\)"):
        survey(replace(source, columns=replace(source.columns, missing="error")), 10, 0, labels=False)


def test_a_level_that_only_the_last_row_has_is_known(tmp_path: Path) -> None:
    columns: Columns = of_files(written(tmp_path, files=1), "price").columns
    assert columns.inputs[1].values == ("flat", "house", "villa")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_dates_span_what_all_rows_span(kind: str, tmp_path: Path) -> None:
    """The first 16,384 rows span half a year, all of them more than one."""
    rows = pd.DataFrame({"when": pd.date_range("2015-01-01", periods=40_000, freq="15min"), "y": 1.0})
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_parquet(path, row_group_size=5000)
    (column,) = of_files([path], "y").columns
    assert column.parts == ("trend", "year", "week", "day")


def test_what_reading_takes_is_known_without_reading(tmp_path: Path) -> None:
    assert held_bytes(written(tmp_path)) == 24 * N * 5


def test_packed_arrays_are_read_whole_and_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "rows.npz", X=np.zeros((5, 2)), y=np.zeros(5))
    monkeypatch.setattr("qsgp.data.reading.pa", None)
    assert held_bytes([tmp_path / "rows.npz"]) == 0


def test_packed_text_is_as_long_as_it_is_unpacked(tmp_path: Path) -> None:
    """So a small file of many rows is not taken for one that fits into the memory, and no two rows get one number."""
    text, packed = b"a,b\n" + b"1,2\n" * 100_000, tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(text))
    assert held_bytes([packed]) == 3 * len(text)
    found, _ = parts_of([packed, packed], ["a", "b"])
    assert found[1].first >= 100_000
