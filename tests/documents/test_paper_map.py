"""`docs/paper_map.md` is complete and true: every result has a row, every function and test in it exists."""

import ast
import functools
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from used import use_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "qsgp"
MAP = (ROOT / "docs" / "paper_map.md").read_text()

# All that the paper numbers, in the paper's order, and what we add to it.
PAPER = [
    *(f"Theorem {number}" for number in (1, 2, 3)),
    *(f"Proposition {number}" for number in (1, 2, 3, 4)),
    *(f"Remark {number}" for number in (1, 2)),
    *(f"Eq. ({number})" for number in (1, 2, 3, 4, 5)),
    *(f"Appendix {letter}" for letter in "ABCDEFGHI"),
    *(f"Appendix {letter}.{number}" for letter in "FHI" for number in (1, 2, 3)),
    *(f"{kind} {number}" for kind in ("Table", "Figure") for number in (1, 2, 3)),
]
OURS = ["bound (A)", "bound (B)", "bound (Q)", "U-statistic", "kriging control variate"]


class Row(NamedTuple):
    result: str
    says: str
    function: str
    used: str
    test: str

    @property
    def functions(self) -> list[str]:
        return re.findall(r"`(qsgp\.[\w.]+)`", self.function)

    @property
    def uses(self) -> dict[str, str]:
        """The word for every function: "step; function only: `a`, `b`" is step for all others."""
        first, *others = self.used.split("; ")
        found = dict.fromkeys(self.functions, first)
        for word, _, names in (part.partition(": ") for part in others):
            for name in re.findall(r"`([\w.]+)`", names):
                found |= {path: word for path in self.functions if path.endswith(f".{name}")}
        return found

    @property
    def tests(self) -> list[tuple[str, str]]:
        return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", self.test)


def read(text: str) -> list[Row]:
    """The rows of all tables."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|---", "| result"))]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


# --- what can be wrong with a map; each returns the complaints -------------------------------------------------------


def results_amiss(rows: list[Row]) -> list[str]:
    named = [row.result for row in rows]
    missing = [f"{result} has no row" for result in PAPER + OURS if result not in named]
    return missing + [f"{result} has several rows" for result in set(named) if named.count(result) > 1]


def cells_amiss(rows: list[Row]) -> list[str]:
    """Each row says something, and names a function and a test or gives the reason why there is none."""
    complaints = [f"{row.result} says nothing" for row in rows if not row.says]
    for row in rows:
        for cell, found in ((row.function, row.functions), (row.test, row.tests)):
            if not found and not re.match(r"not yet: \S.{9,}", cell):
                complaints.append(f"{row.result}: {cell!r} names nothing and gives no reason")
            # `not yet: ...` may name a script; any other cell is nothing but names
            elif found and re.sub(r"`[\w./:]+`", "", cell).strip(", "):
                complaints.append(f"{row.result}: {cell!r} is not a list of names")
    return complaints


def absent_functions(rows: list[Row]) -> list[str]:
    return [f"{row.result}: no {path}" for row in rows for path in row.functions if resolve(path) is None]


def absent_tests(rows: list[Row]) -> list[str]:
    return [
        f"{row.result}: no {file}::{name}"
        for row in rows
        for file, name in row.tests
        if name not in names_of_tests(file)
    ]


def uses_amiss(rows: list[Row]) -> list[str]:
    """What is said to be used in training is called there, and the other way round."""
    return [
        f"{row.result}: {path} is {use_of(resolve(path))!r}, not {word!r}"
        for row in rows
        for path, word in row.uses.items()
        if resolve(path) is not None and use_of(resolve(path)) != word
    ]


def citations_amiss(rows: list[Row]) -> list[str]:
    """A docstring that opens with a result belongs to a function of that result's row."""
    mapped = {(row.result, full_name(path)) for row in rows for path in row.functions}
    return [f"{name} cites {result} and is not in its row" for name, result in cited() if (result, name) not in mapped]


# --- reading code ----------------------------------------------------------------------------------------------------


@functools.cache
def resolve(path: str) -> Any:
    """What a dotted path leads to, or None; of a property its function. A package's function may hide a module of the
    same name."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = functools.reduce(getattr, parts[cut:], importlib.import_module(".".join(parts[:cut])))
            return found.fget if isinstance(found, property) else found
        except (ModuleNotFoundError, AttributeError):
            continue
    return None


def full_name(path: str) -> str:
    """The name by its file: `qsgp.bases.Fourier` is `qsgp.bases.fourier.Fourier`."""
    thing = resolve(path)
    return path if thing is None else f"{thing.__module__}.{thing.__qualname__}"


@functools.cache
def names_of_tests(file: str) -> set[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text() if path.is_file() else "")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


ITEM = r"(?:\(\d\)|[A-I]\.\d|[A-I]|\d)(?![\w(])"
CITATION = re.compile(rf"\b(Theorem|Proposition|Remark|Table|Figure|Appendix|Eq)s?\.? ({ITEM}(?:(?:, | and ){ITEM})*)")


def opening_citations(docstring: str) -> list[str]:
    """Results named in the first line before its first colon: "Theorems 1 and 2, one-draw form: ..."."""
    head = re.split("[:;]", docstring.splitlines()[0])[0]
    found = CITATION.findall(head)
    return [f"{kind}{'.' * (kind == 'Eq')} {item}" for kind, items in found for item in re.findall(ITEM, items)]


def documented(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Full names and docstrings of all functions and classes inside, methods included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            own = f"{name}.{child.name}"
            yield own, ast.get_docstring(child) or "-"
            yield from documented(child, own)


@functools.cache
def cited() -> list[tuple[str, str]]:
    """(function, result) for every docstring of the package that opens with a result.

    Experiments say which results they measure; that makes them no implementation.
    """
    found = []
    for path in sorted(set(PACKAGE.rglob("*.py")) - set((PACKAGE / "reproduce").rglob("*.py"))):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for name, docstring in documented(ast.parse(path.read_text()), module):
            found += [(name, result) for result in opening_citations(docstring)]
    return found


# --- the map ---------------------------------------------------------------------------------------------------------

USES = {"step": 40, "fit": 3, "prediction": 1, "another road": 5, "function only": 20}  # so many at least
CHECKS = [results_amiss, cells_amiss, absent_functions, absent_tests, uses_amiss, citations_amiss]


@pytest.mark.parametrize("check", CHECKS)
def test_the_map_holds(check: Callable[[list[Row]], list[str]]) -> None:
    assert not check(read(MAP))


def test_citations_are_seen() -> None:
    """Were the docstrings not read, no citation could be amiss."""
    assert len(cited()) > 30
    assert {result for _, result in cited()} >= {"Theorem 1", "Proposition 3", "Eq. (5)", "Appendix F.2"}


def test_runs_and_reach_are_seen() -> None:
    """Were nothing traced, or everything reached, no word could be wrong."""
    words = [word for row in read(MAP) for word in row.uses.values()]
    assert all(words.count(word) >= few for word, few in USES.items())
    assert set(words) == set(USES)


@pytest.mark.parametrize("result", PAPER + OURS)
def test_a_lost_row_is_seen(result: str) -> None:
    lost = [row for row in read(MAP) if row.result != result]
    assert results_amiss(lost) == [f"{result} has no row"]


@pytest.mark.parametrize(
    ("old", "new", "check", "complaint"),
    [
        (
            "`qsgp.paper.theorems.mean_loss`",
            "`qsgp.paper.theorems.mean_los`",
            absent_functions,
            "no qsgp.paper.theorems.mean_los",
        ),
        (
            "`qsgp.paper.dense.log_evidence`",
            "`qsgp.exact.log_evidence`",
            absent_functions,
            "no qsgp.exact.log_evidence",
        ),
        (
            "`qsgp.paper.control_variates.gram`",
            "`qsgp.paper.control_variates.gram.x`",
            absent_functions,
            "no qsgp.paper.control",
        ),
        ("::test_theorem_1_is_unbiased", "::test_theorem_1_holds", absent_tests, "Theorem 1: no tests/paper/test_theo"),
        ("tests/paper/test_predict.py", "tests/test_prediction.py", absent_tests, "no tests/test_prediction.py::"),
        ("::test_chevron_pattern", "::problems", absent_tests, "no tests/paper/test_chevron.py::problems"),
        ("`qsgp.paper.theorems.mean_loss`, ", "", citations_amiss, "theorems.mean_loss cites Theorem 1"),
        (", `qsgp.paper.stepping._advance`", "", citations_amiss, "qsgp.paper.stepping._advance cites Proposition 3"),
        (
            "`qsgp.paper.dense.constant_loss`",
            "`qsgp.paper.dense.posterior`",
            citations_amiss,
            "dense.constant_loss cites Eq. (2)",
        ),
        (
            "`qsgp.paper.implicit.free_newton` | step |",
            "`qsgp.paper.implicit.free_newton` | function only |",
            uses_amiss,
            "free_newton is 'step', not 'function only'",
        ),
        (
            "`qsgp.paper.control_variates.exact_target` | function only |",
            "`qsgp.paper.control_variates.exact_target` | step |",
            uses_amiss,
            "exact_target is 'function only', not 'step'",
        ),
        ("; function only: `target`", "", uses_amiss, "target is 'function only', not 'step'"),
        ("| fit |", "| prediction |", uses_amiss, "optimal_diagonal is 'fit', not 'prediction'"),
        (
            "`qsgp.solvers.feature_dual.Nystrom` | another road |",
            "`qsgp.solvers.feature_dual.Nystrom` | function only |",
            uses_amiss,
            "Nystrom is 'another road', not 'function only'",
        ),
        ("| Remark 2 |", "| Remark 1 |", results_amiss, "Remark 1 has several rows"),
        (
            "`qsgp.paper.log_determinant.log_determinant`",
            "not yet",
            cells_amiss,
            "gives no reason",
        ),
        ("`qsgp.paper.dense.gaussian_process`", "K", cells_amiss, "names nothing"),
        ("`qsgp.paper.stepping.step`", "`qsgp.paper.stepping.step` and more", cells_amiss, "not a list of names"),
        ("augmentation never lowers the variance", "", cells_amiss, "Remark 1 says nothing"),
    ],
)
def test_a_stale_map_is_seen(old: str, new: str, check: Callable[[list[Row]], list[str]], complaint: str) -> None:
    assert old in MAP
    assert any(complaint in found for found in check(read(MAP.replace(old, new))))


@pytest.mark.parametrize(
    ("docstring", "results"),
    [
        ("Theorem 1: unbiased estimate of L_mu, Eq. (2).", ["Theorem 1"]),
        ("Second term of Theorems 1 and 2, times sigma2: v", ["Theorem 1", "Theorem 2"]),
        ("Propositions 1, 2 and 4: pure", ["Proposition 1", "Proposition 2", "Proposition 4"]),
        ("L_mu of Eq. (2).", ["Eq. (2)"]),
        ("Eqs. (1), (2) at full n", ["Eq. (1)", "Eq. (2)"]),
        ("Proposition 3 with Appendix F.1: value", ["Proposition 3", "Appendix F.1"]),
        ("Proposition 2; for other likelihoods, Theorem 3", ["Proposition 2"]),
        ("Decay to ``final`` (Appendix I.1).", ["Appendix I.1"]),
        ("Appendix F. Details\nTheorem 1", ["Appendix F"]),
        ("Mean score (Gneiting & Raftery 2007, Eq. 21)", []),
        ("Root mean squared error.", []),
    ],
)
def test_every_way_to_cite_is_read(docstring: str, results: list[str]) -> None:
    assert opening_citations(docstring) == results
