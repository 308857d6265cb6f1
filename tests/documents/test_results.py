"""The results page: it is what the files say now, its figures are those of rows, and losses are shown as losses."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import results
from results_kinds import Run, sections
from results_pictures import draw, drawable
from results_scores import OURS, entries_of, front

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "results.md").read_text()
Row = dict[str, Any]


def score(data: str, model: str, split: int = 0, **more: Any) -> Row:
    return {"data": data, "split": split, "model": model, "seconds": 20.0, "device": "cpu", **more}


def page_of(rows: Sequence[Row], name: str = "peers_made_up", **about: Any) -> str:
    return results.page([Run(name, list(rows), about)])


def line_of(page: str, begins: str) -> str:
    (line,) = [line for line in page.splitlines() if line.startswith(begins)]
    return line


# --- the page of the checkout


def test_the_page_is_what_the_files_say() -> None:
    assert results.page(results.read(DOCS / "results")) == PAGE, "Run make results, and commit what it writes."


def test_every_file_is_on_the_page() -> None:
    files = {path.name for path in (DOCS / "results").glob("*.json")}
    assert len(files) > 10
    assert set(re.findall(r"\]\(results/([\w.-]+\.json)\)", PAGE)) == files


def test_pictures_of_the_page_are_there_and_no_others() -> None:
    named = set(re.findall(r"\]\(images/results/([\w.-]+)\)", PAGE))
    assert named == {path.name for path in (DOCS / "images" / "results").iterdir()}
    assert "uci_cpu.svg" in named


def test_make_results_runs_the_script_and_the_site_has_the_page() -> None:
    makefile = (DOCS.parent / "Makefile").read_text()
    assert "\nresults: $(READY)\n\t$(BIN)/python benchmarks/results.py\n" in makefile
    assert "<results>" in (DOCS / "index.md").read_text()


NUMBER = re.compile(r"−?\d+(?:,\d{3})*(?:\.\d+)?(?:e[−+]?\d+)?")


def numbers(text: str) -> set[str]:
    return set(NUMBER.findall(text))


def texts(value: Any) -> set[str]:
    """A value as the page may write it."""
    if value is None or isinstance(value, bool | str | list | dict):
        return numbers(str(value).replace("-", "−"))
    whole = {f"{value:,}", str(value)} if isinstance(value, int) else {f"{value:.4g}", f"{value:,.0f}"}
    return {text.replace("-", "−") for text in whole | {f"{value:,.{digits}f}" for digits in range(5)}}


def allowed(rows: Sequence[Row]) -> set[str]:
    """What may stand on the page: values of rows, and means and deviations of rows that share names but their split."""
    found = {text for row in rows for value in row.values() for text in texts(value)}
    found |= {str(count) for count in range(len(rows) + 1)}
    for over, kept in {"split": ("data", "seconds", "model"), "seed": ("data", "m", "m_tilde")}.items():
        groups: dict[str, list[Row]] = {}
        for row in rows:
            named = [row.get(name) for name in kept]
            groups.setdefault(str(named), []).append(row)
        for group in groups.values():
            if len({row.get(over) for row in group}) < 2:
                continue
            for name in group[0]:
                values = [row[name] for row in group if isinstance(row.get(name), float)]
                if len(values) > 1:
                    found |= texts(float(np.mean(values))) | texts(float(np.std(values, ddof=1)))
    return found


def figures(part: str) -> str:
    """Tables and sentences, without where they come from, the names of columns and models, and the picture."""
    lines = [line for line in part.splitlines()[1:] if not re.match(r"\s*- (file|[\w ]+): |!\[|\*\w|## ", line)]
    body = re.sub(r"(^\|[^\n]*\n)(?=\| -)", "", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(r"`[^`]*`|95 % coverage", "", body).replace("-", "−")


def check_every_figure(page: str, rows_of: dict[str, list[Row]]) -> int:
    parts = page.split("\n### ")[1:]
    count = 0
    for part in parts:
        part = part.split("\n## ")[0]
        rows = [row for name in re.findall(r"\(results/([\w.-]+)\.json\)", part) for row in rows_of[name]]
        shown = numbers(figures(part))
        assert not shown - allowed(rows), f"{part.splitlines()[0]}: {sorted(shown - allowed(rows))}"
        count += len(shown)
    return count


def test_every_figure_of_the_page_is_one_of_a_row_or_a_mean_or_deviation_of_rows() -> None:
    rows_of = {path.stem: json.loads(path.read_text())["rows"] for path in (DOCS / "results").glob("*.json")}
    assert check_every_figure(PAGE, rows_of) > 1000


def test_a_figure_of_no_row_is_seen() -> None:
    rows = [score("pol", model, rmse=rmse, mnlp=-1.0) for model, rmse in (("qsgp", 0.0715), ("svgp", 0.1095))]
    page = page_of(rows)
    assert check_every_figure(page, {"peers_made_up": rows}) > 3
    with pytest.raises(AssertionError, match="0.0714"):
        check_every_figure(page.replace("0.0715", "0.0714"), {"peers_made_up": rows})


# --- made-up files


def test_a_loss_is_shown_as_plainly_as_a_win() -> None:
    rows = [
        score("pol", "qsgp", rmse=0.0715, mnlp=-1.262),
        score("pol", "lightgbm", rmse=0.0601, mnlp=-0.9),
        score("pol", "histgb", rmse=0.0602, mnlp=-0.8),
        score("bike", "qsgp", rmse=0.2, mnlp=0.1),
        score("bike", "lightgbm", rmse=0.3, mnlp=0.1),
    ]
    page = page_of(rows)
    lost, won = line_of(page, "- pol"), line_of(page, "- bike")
    assert "**`lightgbm` (0.0601) and `histgb` (0.0602) are ahead in RMSE** (`qsgp` has 0.0715)" in lost
    assert "**`qsgp` is ahead in MNLP** (−1.262; next is `lightgbm` with −0.900)" in lost
    assert "**`qsgp` is ahead in RMSE** (0.2000; next is `lightgbm` with 0.3000)" in won
    assert "`qsgp` and `lightgbm` are level in MNLP (0.100)" in won
    assert "RMSE: `qsgp` is ahead or level in 1 of 2 comparisons, and behind on pol." in page
    assert "MNLP: `qsgp` is ahead or level in 2 of 2 comparisons." in page
    assert "| pol | `lightgbm` | 20 | **0.0601** | −0.900 | 1 |" in page
    assert "| pol | `qsgp` | 20 | 0.0715 | **−1.262** | 1 |" in page


def test_means_and_deviations_are_those_of_all_splits() -> None:
    values = {"qsgp": [0.10, 0.20, 0.60], "svgp": [0.25, 0.30, 0.32]}
    rows = [
        score("pol", model, k, rmse=v, coverage95=0.9 + k / 100)
        for model in values
        for k, v in enumerate(values[model])
    ]
    page = page_of(rows)
    mean, deviation = np.mean(values["qsgp"]), np.std(values["qsgp"], ddof=1)
    assert f"| pol | `qsgp` | 20 | {mean:.4f} ± {deviation:.4f} | **0.910 ± 0.010** | 3 |" in page
    assert (
        "**`svgp` (0.2900) is ahead in RMSE** (`qsgp` has 0.3000; `qsgp` has less than `svgp` on 2 of 3 splits)" in page
    )


def test_models_with_other_splits_are_not_compared() -> None:
    rows = [score("pol", "qsgp", 0, rmse=0.2), score("pol", "qsgp", 1, rmse=0.4), score("pol", "svgp", 0, rmse=0.25)]
    assert "ahead" not in line_of(page_of(rows), "- pol")
    rows.append(score("pol", "svgp", 1, rmse=None, note="no result after 90 s"))
    page = page_of(rows)
    assert "ahead" not in line_of(page, "- pol")
    assert "no result on 1 of 2 splits; no result after 90 s" in line_of(page, "| pol | `svgp`")


def test_a_fit_that_failed_is_shown() -> None:
    rows = [
        score("pol", "qsgp", rmse=None, mnlp=None, note="MemoryError: no"),
        score("pol", "svgp", rmse=0.2, mnlp=0.1),
    ]
    page = page_of(rows)
    assert "**`qsgp` has no result**" in line_of(page, "- pol")
    assert line_of(page, "| pol | `qsgp`").startswith("| pol | `qsgp` | 20 | — | — |")
    assert "MemoryError: no" in line_of(page, "| pol | `qsgp`")


def test_who_took_longer_than_its_time_is_named() -> None:
    rows = [score("pol", "qsgp", rmse=0.2, fit_s=21.9), score("pol", "gpboost", rmse=0.1, fit_s=64.25)]
    assert "over the budget by more than a tenth: `gpboost` 64.2 s." in line_of(page_of(rows), "- pol")


def test_coverage_is_best_near_its_level() -> None:
    rows = [score("pol", "qsgp", rmse=0.2, coverage95=0.99), score("pol", "svgp", rmse=0.2, coverage95=0.94)]
    page = page_of(rows)
    assert "| **0.940** |" in line_of(page, "| pol | `svgp`") and "| 0.990 |" in line_of(page, "| pol | `qsgp`")


def test_only_files_of_one_machine_and_version_are_compared() -> None:
    about = {"machine": {"processor": "A", "cores": 2}, "versions": {"torch": "2"}, "commit": "abc"}
    ours = Run("uci_a", [score("pol", "qsgp", rmse=0.2)], about)
    peer = [score("pol", "svgp", rmse=0.1)]
    assert "ahead in RMSE" in results.page([ours, Run("uci_b", peer, about)])
    for name, other in {"machine": {"processor": "B", "cores": 2}, "versions": {"torch": "3"}, "commit": "abd"}.items():
        assert "ahead in RMSE" not in results.page([ours, Run("uci_b", peer, about | {name: other})])


def test_a_split_that_is_there_twice_is_no_spread() -> None:
    """Two versions of one model, in two files or in one."""
    ours = score("pol", "qsgp", rmse=0.2)
    again = score("pol", "qsgp", rmse=0.3)
    page = results.page([Run("uci_a", [ours], {}), Run("uci_b", [again], {})])
    assert page.count("\n### ") == 2 and "| 0.2000 | 1 |" in page and "| 0.3000 | 1 |" in page
    assert "±" not in "".join(page_of([ours, again]).split("\n### ")[1:])


def test_an_unknown_file_has_a_table_and_says_where_it_comes_from() -> None:
    rows = [{"depth": k, "growth": 0.5**k, "mode": "deep", "when": "a|b", "curve": [k, 4711]} for k in range(3)]
    page = page_of(rows, "roots", command="python roots.py", seed=7, commit="abc+", note="the machine was shared")
    assert "## Other runs\n\n### roots\n" in page
    assert "- command: `python roots.py`" in page and "- seed: 7" in page and "- commit: abc+" in page
    assert "**Mind: the machine was shared.**" in page and "- machine: not recorded" in page
    assert "In all rows: mode deep, when a\\|b." in page and "| 2 | 0.25 |" in page
    assert "In the file alone: curve." in page and "4711" not in page


def test_files_of_the_command_reproduce_have_a_section() -> None:
    rows = [score("pol", "steps", k, rate=0.1, rmse=0.1 + k / 5) for k in range(2)]
    page = page_of(rows, "table-2", experiment="table-2", title="Table 2")
    assert "## Tables and figures of the paper" in page and "### Table 2" in page
    assert "rmse |" in page and "0.2 ± 0.1414" in page


def test_seeds_are_averaged_only_where_nothing_else_differs() -> None:
    rows = [{"m": m, "seed": seed, "loss": m + seed / 2} for m in (10, 100) for seed in (0, 1)]
    assert "| 10 | 10.25 ± 0.3536 |" in page_of(rows, "other")
    rows = [{"rate": rate, "seed": seed, "loss": rate + seed} for rate in (0.1, 0.2) for seed in (0, 1)]
    assert "±" not in page_of(rows, "other").split("\n### ")[1]


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"rows": None},
        {"rows": [], "machine": None, "versions": None, "command": None, "commit": None, "seed": None},
        {"rows": [{}], "machine": {}, "versions": {}},
        {"rows": [{"data": "pol"}, {"model": "qsgp"}, {"rmse": 0.1}]},
        {"rows": [{"data": "pol", "model": "qsgp"}]},
        {"rows": [{"data": "pol", "model": "qsgp", "rmse": 0.1}, {"data": "pol", "model": "svgp", "mnlp": 0.1}]},
        {"rows": [{"data": "pol", "model": "qsgp", "rmse": float("nan")}, {"data": "pol", "model": "b", "rmse": "?"}]},
        {"rows": [{"verdict": "ok"}, {"verdict": "rmse", "problem": "sine"}]},
        {"rows": [1, 2], "machine": "a laptop", "versions": "new"},
        [{"a": [1, 2], "b": {"c": None}}, {"a": None}],
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["peers_a", "uci_a", "small", "battery_a", "robot_arm", "new"])
def test_files_with_missing_fields_are_shown(content: Any, name: str, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / f"{name}.json").write_text(json.dumps(content))
    results.write(tmp_path)
    page = (tmp_path / "results.md").read_text()
    assert f"(results/{name}.json)" in page and "commit: not recorded" in page


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"rows": [')
    with pytest.raises(ValueError, match=r"half\.json"):
        results.read(tmp_path)


# --- pictures


def test_the_front_has_what_nobody_beats_in_no_more_time() -> None:
    assert front([(3.0, 0.1), (1.0, 0.5), (2.0, 0.6), (2.0, 0.3), (4.0, 0.1)]) == [(1.0, 0.5), (2.0, 0.3), (3.0, 0.1)]


RACED = [
    score("pol", model, rmse=rmse, mnlp=np.log(rmse), fit_s=seconds)
    for model, rmse, seconds in (("qsgp", 0.07, 19.0), ("svgp", 0.11, 20.0), ("lightgbm", 0.06, 2.0))
]


def test_a_picture_is_the_same_file_again_on_white_with_every_model_and_the_front(tmp_path: Path) -> None:
    races = entries_of(RACED)
    draw(tmp_path / "a.svg", races)
    draw(tmp_path / "b.svg", races)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "fill: #ffffff" in text
    assert all(f">{word}<" in text for word in ("qsgp", "svgp", "lightgbm", "front", "pol: RMSE", "pol: MNLP"))


def test_pictures_show_this_library_beside_a_peer_with_the_same_time() -> None:
    assert drawable(entries_of(RACED))
    assert not drawable(entries_of([row for row in RACED if row["model"] in OURS]))
    assert not drawable(entries_of([row | {"seconds": None} for row in RACED]))
    assert not drawable(entries_of([row | {"fit_s": None} for row in RACED]))


def test_a_new_file_brings_its_picture_and_takes_it_away_again(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    file = tmp_path / "results" / "peers_new.json"
    file.write_text(json.dumps({"rows": RACED}))
    results.write(tmp_path)
    assert (tmp_path / "images" / "results" / "peers_new.svg").exists()
    assert "](images/results/peers_new.svg)" in (tmp_path / "results.md").read_text()
    file.unlink()
    results.write(tmp_path)
    assert not list((tmp_path / "images" / "results").iterdir())


def test_sections_stand_in_a_fixed_order() -> None:
    titles = [section.title for section in sections(results.read(DOCS / "results"))]
    assert titles[-1] == "Other runs" and titles.index("MNIST") < titles.index("The battery")
