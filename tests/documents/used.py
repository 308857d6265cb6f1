"""Where functions of the package are used: what runs in a training and in a prediction, and what the estimators reach.

The first is traced: small problems are trained and predicted under a profile function that notes what is called. The
second is read from the source: a name that a function mentions, resolved through the imports of its module, is a
function that it may call. A class counts with all its methods, a registered one as reached.
"""

import ast
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from problems import BASES, LIKELIHOODS, make_problem
from qsgp import bases, kernels, likelihoods
from qsgp.paper import fitting
from qsgp.paper.log_determinant import nearest_earlier
from qsgp.paper.prediction import predict
from qsgp.paper.problem import Problem
from qsgp.paper.settings import PAPER, Settings

PACKAGE = Path(__file__).parents[2] / "src" / "qsgp"
PHASES = ("step", "fit", "prediction")
Place = tuple[str, str]  # file and qualified name


# --- what runs -------------------------------------------------------------------------------------------------------


@contextmanager
def noting(found: set[Place]) -> Iterator[None]:
    """Every call of a function of the package; a context inside this one keeps its calls to itself."""

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            found.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def runs() -> Iterator[tuple[Problem, Settings]]:
    """Every basis, likelihood, control variate, bound and way to move mu, though not all of them together."""
    few = Settings(8, 5, iterations=1, frozen=0.0, every=1, control="kriging")
    gram, none = replace(few, control="gram"), replace(few, control="none")
    for basis, likelihood in product(BASES, LIKELIHOODS):
        yield make_problem(basis, likelihood), replace(few, learn_hyperparameters=basis != "inducing")
    for basis, settings in product(BASES, (gram, none)):
        yield make_problem(basis), settings
    for bound in ("A", "Q", "printed"):
        yield make_problem("fourier", "logistic"), replace(few, bound=bound)  # type: ignore[arg-type]
    for likelihood in LIKELIHOODS:
        yield make_problem("fourier", likelihood), replace(none, mean_update="newton")
    for likelihood, settings in product(LIKELIHOODS, (few, gram)):
        blocks = replace(settings, m_tilde=6, bound="Q", draws="blocks", learn_hyperparameters=True)
        yield make_problem("fourier", likelihood), blocks
    yield make_problem("rvm"), replace(few, mean_update="implicit")
    yield make_problem("fourier"), replace(gram, r_tilde=1)
    yield make_problem("fourier"), replace(PAPER, n_tilde=8, m_tilde=5, iterations=1, every=1)
    inducing = make_problem("inducing")
    inducing = replace(inducing, earlier=nearest_earlier(inducing.basis))  # type: ignore[arg-type]
    yield inducing, replace(gram, learn_hyperparameters=True, determinant_rows=3)


@functools.cache
def traced() -> dict[str, set[Place]]:
    """What runs in a step, in `fit` outside of its steps, and in `predict`."""
    found: dict[str, set[Place]] = {phase: set() for phase in PHASES}
    stepper = fitting._stepper

    def noted(*given: Any) -> Callable[[], Any]:
        step = stepper(*given)

        def once() -> Any:
            with noting(found["step"]):
                return step()

        return once

    fitting._stepper = noted
    try:
        for problem, settings in runs():
            with noting(found["fit"]):
                state = fitting.fit(problem, settings).state
            with noting(found["prediction"]):
                predict(problem, state, problem.source.x[:3])
                if problem.basis.learned_precision:
                    predict(problem, state, problem.source.x[:3], relevant=1e4)
    finally:
        fitting._stepper = stepper
    return found


# --- what is reached -------------------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def mentions() -> dict[str, set[str]]:
    """For every function and class at the top of a module the full names of those it mentions."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree, module = ast.parse(path.read_text()), module_of(path)
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names[node.name] = f"{module}.{node.name}"
        for node in tree.body:
            inside = node if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
            own = f"{module}.{inside.name}" if inside else module
            found.setdefault(own, set()).update(mentioned(node, names))
    return found


def mentioned(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    """`f` and `module.f` by their full names."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in names:
            yield full(names[inner.id])
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in names:
            yield full(f"{names[inner.value.id]}.{inner.attr}")


@functools.cache
def full(path: str) -> str:
    """The name by the file where it is defined; a method is its class."""
    owner, _, name = path.rpartition(".")
    try:
        thing = getattr(importlib.import_module(owner), name, None)
    except ModuleNotFoundError:
        return path
    defined = getattr(inspect.unwrap(thing), "__module__", None) if callable(thing) else None
    return f"{defined}.{thing.__qualname__.partition('.')[0]}" if defined and hasattr(thing, "__qualname__") else path


@functools.cache
def reached() -> set[str]:
    """By the estimators: from anything in `qsgp.training` and `qsgp.models`."""
    graph = mentions()
    todo = [name for name in graph if name.startswith(("qsgp.training", "qsgp.models"))]
    for registry in (kernels.BY_NAME, likelihoods.BY_NAME, bases.BY_NAME):
        todo += [f"{each.__module__}.{each.__name__}" for each in registry.values()]
    found = set(todo)
    while todo:
        for name in graph.get(todo.pop(), set()) - found:
            found.add(name)
            todo.append(name)
    return found


# --- the word for a function -----------------------------------------------------------------------------------------


def use_of(thing: Callable[..., Any]) -> str:
    """The first that is true of "step", "fit", "prediction", "another road" and "function only"."""
    plain = inspect.unwrap(thing)
    file, name = str(Path(inspect.getsourcefile(plain) or "").resolve()), plain.__qualname__
    for phase in PHASES:
        if any(at == file and (of == name or of.startswith(f"{name}.")) for at, of in traced()[phase]):
            return phase
    return "another road" if f"{plain.__module__}.{name.partition('.')[0]}" in reached() else "function only"
