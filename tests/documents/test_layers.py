"""Who may import whom. The table is the architecture: a module reads only what stands in its line."""

import ast
import graphlib
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "qsgp"

FAMILIES = {"kernels", "bases", "covariances", "likelihoods", "control_variates", "sources"}
FAMILY_MAY = {"interfaces", "estimators", "support", "counter_rng", "engine", "checks", "factor"}
# The loss terms of a step are assembled from these; bases, kernels and sources always arrive as arguments.
LOSS_FAMILIES = {"covariances", "likelihoods", "control_variates"}

# module or family -> the qsgp modules it may import (files of one family may import each other)
MAY_IMPORT: dict[str, set[str]] = {
    "checks": set(),
    "factor": set(),
    "rows": set(),
    "anchor": {"dual", "factor", "posteriors", "row_sites", "spread", "interfaces", "likelihoods"},
    "interfaces": {"checks"},
    "estimators": {"checks"},
    "sampling": {"checks"},
    "counter_rng": {"checks"},
    "optimisers": {"checks"},
    "metrics": {"checks"},
    "evaluation": {"metrics", "likelihoods", "keywords", "tables"},
    "plots": {"evaluation", "metrics"},
    "report": {"plots", "evaluation", "atomic", "files", "memory", "reading"},
    "datasets": {"atomic", "checks"},
    "dense": {"interfaces", "checks"},
    "support": {"interfaces", "checks"},
    "state": {"interfaces", "optimisers", "checks"},
    "bounds": {"interfaces", "estimators", "checks"},
    **dict.fromkeys(FAMILIES, FAMILY_MAY),
    "atomic": set(),
    "locks": set(),
    "files": {"atomic", "checks"},
    "checkpoints": {"atomic", "files", "locks", "checks"},
    "scaling": {"checks"},
    "memory": set(),
    "interrupt": set(),
    "callbacks": set(),
    "tables": set(),
    "dialects": set(),
    "npz": set(),
    "entries": set(),
    "reading": {"tables", "dialects", "npz", "entries"},
    "columns": {"entries"},
    "options": {"memory"},
    "keywords": {"options", "memory"},
    "pathwise": {"engine", "counter_rng", "interfaces"},
    "evidence": {"engine", "interfaces"},
    "posteriors": {
        "predict",
        "closed_form",
        "counter_rng",
        "dual",
        "pathwise",
        "spread",
        "interfaces",
        "checks",
        *FAMILIES,
    },
    "trained": {"posteriors"},
    "refinement": {"defaults", "dual", "evidence", "optimisers", "pathwise", "trained", "interfaces"},
    "lengthscale_trend": {"closed_form", "defaults", "dual", "interfaces", "likelihoods"},
    "dual_training": {
        "anchor",
        "factor",
        "rows",
        "lengthscale_trend",
        "many_inputs",
        "defaults",
        "dual",
        "held_out",
        "interrupt",
        "options",
        "posteriors",
        "row_sites",
        "spread",
        "trained",
        "interfaces",
        "likelihoods",
    },
    "row_sites": {"pathwise", "interfaces", "likelihoods"},
    "streaming": {"posteriors", "closed_form", "factor", "state", "options", "memory", "interfaces", *FAMILIES},
    "serving": {"posteriors", "spread", "pathwise", "scaling", "state", "interfaces", "bases", "atomic"},
    "many_inputs": {"closed_form", "row_sites", "interfaces", "kernels"},
    "screening": set(),
    "small_tables": {"closed_form", "screening", "interfaces", "kernels", "likelihoods"},
    "defaults": {
        "screening",
        "many_inputs",
        "small_tables",
        "options",
        "closed_form",
        "step",
        "problem",
        "interfaces",
        "checks",
        *FAMILIES,
    },
    "training": {
        "anchor",
        "rows",
        "files",
        "defaults",
        "options",
        "posteriors",
        "checkpoints",
        "dual_training",
        "feature_training",
        "safeguard",
        "weights_training",
        "trained",
        "interrupt",
        "fit",
        "start",
        "state",
        "predict",
        "problem",
        "support",
        "interfaces",
        *FAMILIES,
    },
    "estimator": {
        "training",
        "trained",
        "keywords",
        "options",
        "memory",
        "posteriors",
        "streaming",
        "serving",
        "scaling",
        "reading",
        "tables",
        "files",
        "stored",
        "callbacks",
        "likelihoods",
    },
    "stored_parts": {"files", "memory", "options"},
    "stored": {"files", "posteriors", "scaling", "stored_parts"},
    "models": {"estimator", "conformal", "files", "memory", "stored", "callbacks", "keywords", "tables"},
    "conformal": {"checks", "metrics"},
    "engine": {"atomic", "checks", "counter_rng", "interfaces"},
    "sites": {"checks"},
    "blocks": {"engine", "support", "bases", "sites", "checks"},
    "preconditioned": {"blocks", "engine"},
    "feature_dual": {"engine", "bases", "checks"},
    "feature_newton": {"feature_dual", "sites", "bases", "checks"},
    "support_variance": {"interfaces", "checks"},
    "feature_posterior": {"feature_dual", "pathwise", "posteriors", "spread", "counter_rng", "bases", "likelihoods"},
    "feature_training": {
        "feature_posterior",
        "defaults",
        "dual",
        "held_out",
        "interrupt",
        "options",
        "safeguard",
        "sources",
        "spread",
        "trained",
        "interfaces",
        "bases",
        "likelihoods",
    },
    "safeguard": {
        "interrupt",
        "options",
        "posteriors",
        "rows",
        "spread",
        "trained",
        "interfaces",
        "likelihoods",
        "sources",
    },
    "weights_training": {
        "held_out",
        "interrupt",
        "options",
        "posteriors",
        "rows",
        "safeguard",
        "streaming",
        "trained",
        "interfaces",
        "likelihoods",
    },
    "held_out": {"pathwise", "posteriors", "trained", "interfaces", "likelihoods"},
    "spread": {"factor", "pathwise", "interfaces", "bases"},
    "dual": {"engine", "factor", "interfaces", "checks"},
    "closed_form": {"factor", "interfaces", "kernels", "likelihoods", "checks"},
    "hyperparameters": {"closed_form", "interfaces", "likelihoods", "checks"},
    "problem": {"support", "interfaces", "checks", *LOSS_FAMILIES},
    "start": {"step", "problem", "state", "optimisers", "estimators", *LOSS_FAMILIES},
    "predict": {"problem", "state", "estimators", "bases", "covariances", "interfaces", "checks"},
    "objective": {"estimators", "bounds", "sampling", "support", "state", "interfaces", "checks", *LOSS_FAMILIES},
    "step": {
        "problem",
        "objective",
        "sampling",
        "optimisers",
        "support",
        "state",
        "interfaces",
        "checks",
        *LOSS_FAMILIES,
    },
    "fit": {
        "interrupt",
        "step",
        "start",
        "problem",
        "state",
        "sampling",
        "support",
        "hyperparameters",
        "interfaces",
        "checks",
    },
    "cli": {
        "models",
        "columns",
        "entries",
        "reading",
        "atomic",
        "callbacks",
        "keywords",
        "memory",
        "metrics",
        "datasets",
    },
    "__main__": {"cli"},
}

# Packages beyond the project's own dependencies, for modules that stand at the door.
EXTRAS: dict[str, set[str]] = {
    "cli": {"typer", "rich", "pyarrow"},
    "columns": {"pyarrow"},
    "entries": {"pyarrow"},
    "reading": {"pyarrow"},
    "plots": {"matplotlib"},
    "report": {"matplotlib"},
    "serving": {"onnxscript"},
    "engine": {"triton"},
}


def module_name(path: Path) -> str:
    """`src/qsgp/kernels/matern.py` -> `kernels.matern`; a folder's `__init__.py` -> the folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported_names(tree: ast.AST, package: str) -> set[str]:
    """Absolute dotted names that `tree` imports; `package` resolves relative imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            # `from qsgp import dense` names a module, `from qsgp.dense import elbo` something inside one
            names |= {f"{origin}.{alias.name}" for alias in node.names} if origin == "qsgp" else {origin}
    return names


def imports_inside_functions(tree: ast.AST) -> list[int]:
    functions = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    return [
        inner.lineno for node in functions for inner in ast.walk(node) if isinstance(inner, ast.Import | ast.ImportFrom)
    ]


def read(path: Path) -> tuple[ast.AST, str, set[str]]:
    """Tree, layer and imports of one source file."""
    name = f"qsgp.{module_name(path)}"
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text())
    return tree, name.split(".")[1], imported_names(tree, package)


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
each_source = pytest.mark.parametrize("path", SOURCES, ids=module_name)


@each_source
def test_imports_follow_the_layers(path: Path) -> None:
    _, layer, names = read(path)
    assert layer in MAY_IMPORT, f"{layer} is new: add a line for it to MAY_IMPORT in {Path(__file__).name}."
    used = {name.split(".")[1] for name in names if name.startswith("qsgp.") and is_module(name.split(".")[1])}
    against = used - MAY_IMPORT[layer] - {layer}
    assert not against, (
        f"{module_name(path)} imports {sorted(against)}, but {layer} may import {sorted(MAY_IMPORT[layer])} only. "
        "Pass what it needs as an argument, or move the function down a layer."
    )


@each_source
def test_no_module_reads_the_package_front(path: Path) -> None:
    """`import qsgp` from inside would make every module depend on all others."""
    _, _, names = read(path)
    front = {
        name for name in names if name == "qsgp" or (name.startswith("qsgp.") and not is_module(name.split(".")[1]))
    }
    assert not front, f"{module_name(path)} imports {sorted(front)} from qsgp/__init__.py; name the module instead."


@each_source
def test_imports_stand_at_the_top(path: Path) -> None:
    tree, _, _ = read(path)
    lines = imports_inside_functions(tree)
    assert not lines, f"{path.name} imports inside a function at lines {lines}; move it to the top of the file."


@each_source
def test_only_declared_packages_are_imported(path: Path) -> None:
    _, layer, names = read(path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {requirement.split(">")[0].strip() for requirement in project["dependencies"]} | {"sklearn"}
    outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"qsgp"}
    undeclared = outside - declared - EXTRAS.get(layer, set())
    assert not undeclared, f"{module_name(path)} imports {sorted(undeclared)}, which a plain install does not bring."


def test_the_table_has_no_cycle() -> None:
    assert set(graphlib.TopologicalSorter(MAY_IMPORT).static_order()) == set(MAY_IMPORT)


def test_families_never_read_each_other() -> None:
    assert not FAMILY_MAY & FAMILIES


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import qsgp.dense", {"qsgp.dense"}),
        ("from qsgp import dense, state", {"qsgp.dense", "qsgp.state"}),
        ("from qsgp.dense import elbo", {"qsgp.dense"}),
        ("from . import matern", {"qsgp.kernels"}),
        ("from .matern import Matern32", {"qsgp.kernels.matern"}),
        ("from ..dense import elbo", {"qsgp.dense"}),
        ("from .. import dense", {"qsgp.dense"}),
        ("import torch\nfrom torch import Tensor", {"torch"}),
        ("def f():\n    import qsgp.dense", {"qsgp.dense"}),
    ],
)
def test_every_way_to_import_is_read(source: str, expected: set[str]) -> None:
    assert imported_names(ast.parse(source), "qsgp.kernels") == expected


def test_an_import_inside_a_function_is_seen() -> None:
    assert imports_inside_functions(ast.parse("import a\ndef f():\n    if True:\n        from b import c\n")) == [4]
    assert imports_inside_functions(ast.parse("import a\nclass A:\n    import b\n")) == []
