"""What `help` says of the estimators: every keyword, attribute and argument, the same words for the same thing."""

import doctest
import inspect
import re
from typing import Any

import numpy as np
import pytest

import qsgp
from qsgp.models import ESTIMATORS

each_estimator = pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS)
# An estimator may say something of its own about these; all else is the same text in all four.
OWN = {"basis", "n_features", "covariance", "dense_columns", "likelihood", "mean", "optimizer", "signal_variance_"}
OWN |= {"noise", "target_map", "likelihood_", "devices"}


def sections(thing: Any) -> dict[str, str]:
    """The sections of a numpydoc docstring by their titles."""
    text = inspect.getdoc(thing) or ""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(section: str) -> dict[str, str]:
    """What a section says of each name; `X, y` names two."""
    found = re.findall(r"^(\w[\w, ]*?)( : .*)?\n((?:    .*\n?)+)", section + "\n", re.MULTILINE)
    return {name: f"{kind}\n{text}".strip() for names, kind, text in found for name in names.split(", ")}


def fitted(cls: Any) -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 2))
    y = np.sin(3 * X[:, 0])
    return cls(kernel="rbf", random_state=0, max_iter=5).fit(X, y > 0 if cls.__name__.endswith("Classifier") else y)


@each_estimator
def test_every_keyword_is_documented_with_its_default(cls: Any) -> None:
    documented = entries(sections(cls)["Parameters"])
    keywords = inspect.signature(cls).parameters
    assert list(documented) == list(keywords)
    for name, keyword in keywords.items():
        default = f'"{keyword.default}"' if isinstance(keyword.default, str) else keyword.default
        assert documented[name].splitlines()[0].endswith(f"default={default}"), name


@each_estimator
def test_every_fitted_attribute_is_documented(cls: Any) -> None:
    there = {name for name in [*vars(fitted(cls)), *dir(cls)] if name.endswith("_") and not name.startswith("_")}
    assert "kernel_" in there
    assert not there - set(entries(sections(cls)["Attributes"]))


def test_the_same_words_for_the_same_thing() -> None:
    for title in ("Parameters", "Attributes"):
        texts: dict[str, set[str]] = {}
        for cls in ESTIMATORS.values():
            for name, text in entries(sections(cls)[title]).items():
                texts.setdefault(name, set()).add(text)
        assert {name for name, versions in texts.items() if len(versions) > 1} <= OWN


@each_estimator
def test_every_method_documents_its_arguments(cls: Any) -> None:
    methods = {
        name: getattr(cls, name)
        for name in dir(cls)
        if not name.startswith("_")
        and getattr(getattr(cls, name, None), "__module__", "").startswith("qsgp.")
        and not isinstance(getattr(cls, name), property)
    }
    assert {"fit", "predict", "calibrate", "save", "export", "report", "log_density"} <= set(methods)
    for name, method in methods.items():
        arguments = set(inspect.signature(method).parameters) - {"self", "args", "kwargs"}
        assert arguments <= set(entries(sections(method).get("Parameters", ""))), name


def test_load_documents_its_arguments() -> None:
    assert list(entries(sections(qsgp.load)["Parameters"])) == list(inspect.signature(qsgp.load).parameters)


@each_estimator
def test_the_example_prints_what_it_shows(cls: Any) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(cls, cls.__name__)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
