"""Who may import whom. The table is the architecture: a module reads only what stands in its line."""

import ast
import graphlib
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "qsgp"

# One line a room, from the ground up: a room may import those in its line, all of which stand above it.
GROUND = {"interfaces", "checks", "factor", "atomic", "files", "memory", "interrupt", "metrics"}
MAY_IMPORT: dict[str, set[str]] = {
    # ground: single modules, which may read each other
    **dict.fromkeys(GROUND, GROUND),
    "datasets": GROUND,
    "ranks": GROUND,
    "engine": GROUND,
    "kernels": GROUND | {"engine"},
    "bases": GROUND | {"engine"},
    "likelihoods": GROUND,
    "data": GROUND,
    # methods
    "paper": GROUND | {"ranks", "engine", "bases", "likelihoods"},
    "solvers": GROUND | {"ranks", "engine", "kernels", "bases", "likelihoods", "data"},
    "hyperparameters": GROUND | {"ranks", "engine", "kernels", "likelihoods", "data", "solvers", "paper"},
    "posteriors": GROUND | {"ranks", "engine", "kernels", "bases", "likelihoods", "data", "solvers", "paper"},
    "training": GROUND
    | {"ranks", "kernels", "bases", "likelihoods", "data", "paper", "solvers", "hyperparameters", "posteriors"},
    # door
    "models": GROUND | {"ranks", "kernels", "likelihoods", "data", "posteriors", "training"},
    # judges
    "evaluation": GROUND | {"likelihoods", "data"},
    "plots": GROUND | {"evaluation", "data"},
    "report": GROUND | {"kernels", "likelihoods", "evaluation", "plots", "data"},
    "reproduce": GROUND
    | {
        "datasets",
        "engine",
        "kernels",
        "bases",
        "likelihoods",
        "data",
        "paper",
        "solvers",
        "hyperparameters",
        "models",
    },
    "cli": GROUND | {"ranks", "likelihoods", "models", "data", "datasets", "evaluation", "reproduce"},
    "__main__": {"cli"},
}

# Packages beyond the project's own dependencies, for modules that stand at the door.
EXTRAS: dict[str, set[str]] = {
    "cli": {"typer", "rich", "pyarrow"},
    "data": {"pyarrow"},
    "plots": {"matplotlib"},
    "report": {"matplotlib"},
    "posteriors": {"onnxscript"},
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


def test_rooms_stand_above_all_they_import() -> None:
    """Read from the top, the table names no room before its own line; the modules of the ground have no cycle."""
    rooms = [room for room in MAY_IMPORT if room not in GROUND]
    for number, room in enumerate(rooms):
        assert not MAY_IMPORT[room] - GROUND - set(rooms[:number]), room
    imports = {
        name: {used.split(".")[1] for used in read(PACKAGE / f"{name}.py")[2] if used.startswith("qsgp.")}
        for name in GROUND
    }
    assert set(graphlib.TopologicalSorter(imports).static_order()) == GROUND


def test_every_room_has_a_line_and_every_line_a_room() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert there - {"__init__"} == set(MAY_IMPORT)


def test_at_most_a_dozen_modules_stand_at_the_top() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 12


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


# Rooms that use fitted models from outside.
USERS = {"data", "evaluation", "plots", "report", "cli", "__main__"}


def private_reads(tree: ast.AST) -> list[str]:
    """Attributes with a leading underscore that are read of anything but ``self``, ``cls`` and modules of Python."""
    return [
        f"{ast.unparse(node)} at line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", "os", "sys"})
    ] + [
        f"{ast.unparse(node)} at line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"getattr", "hasattr", "setattr"}
        and isinstance(node.args[1], ast.Constant)
        and str(node.args[1].value).startswith("_")
    ]


@each_source
def test_models_are_used_by_their_public_surface(path: Path) -> None:
    """What plots, scores and the command line need of a model, a user may need too."""
    tree, layer, _ = read(path)
    if layer in USERS:
        assert not private_reads(tree), f"{module_name(path)}: give the model a public attribute or method for it."


def test_a_private_read_is_seen() -> None:
    source = "model._a\nself._b\nof.model._c.d\nhasattr(model, '_e')\nmodel.f_\nmodel.__class__"
    assert [words.split(" at ")[0] for words in private_reads(ast.parse(source))] == [
        "model._a",
        "of.model._c",
        "hasattr(model, '_e')",
    ]


def test_files_are_written_by_one_module() -> None:
    """`atomic` alone: whole or not at all."""
    for path in SOURCES:
        if path.stem == "atomic":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called.split(".")[-1] not in {"write_text", "write_bytes"}, f"{path.name}: {called}"
                assert called not in {"os.replace", "os.rename"}, f"{path.name}: {called}"
                if called == "open" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                    writes = set(str(node.args[1].value)) & set("wax+")
                    assert not writes or "devnull" in ast.unparse(node.args[0]), f"{path.name}: {ast.unparse(node)}"
