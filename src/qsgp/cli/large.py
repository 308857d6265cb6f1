"""Files that are too large for the memory as rows to learn from: what `preparing` decides, decided from few rows."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.cli.targets import decide
from qsgp.data.choosing import Wanted, choose
from qsgp.data.columns import Columns
from qsgp.data.encoding import Encoded
from qsgp.data.learning import ON_THE_COMMAND_LINE, quoted
from qsgp.data.row_groups import check_alike, parts_of, tables
from qsgp.data.scanning import Sample
from qsgp.data.sources import FileSource, Piece, Without
from qsgp.data.witnesses import head, learned_from
from qsgp.data.words import count

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

MOST_APART = 100_000  # rows that judge, or calibrate
_LOOKED = 64  # parts of the files whose first rows tell what the target holds


@dataclass(frozen=True)
class Large:
    """A source of rows, what was decided about its columns, and the words that say so."""

    source: FileSource
    categories: list[str]  # that were said to be categories
    task: str
    target: str
    missing: str
    notes: list[str]

    def apart(self, shares: dict[str, float], seed: int) -> dict[str, Any]:
        """Rows drawn for each of these names, as (inputs, targets, weights), and a source of the others."""
        sizes = {name: min(MOST_APART, max(1, round(s * self.source.n))) if s else 0 for name, s in shares.items()}
        if not sum(sizes.values()):
            return {"train": (self.source, None, None)} | dict.fromkeys(sizes, (None, np.zeros(0), None))
        sample = Sample(sum(sizes.values()), seed)
        for part in self.source.parts:
            for piece in self.source.pieces(part):
                sample.add(piece)
        drawn, at, found = sample.rows(), 0, dict[str, Any]()
        for name, size in sizes.items():
            found[name], at = self._rows(drawn.take(slice(at, at + size))), at + size
        return found | {"train": (Without(self.source, drawn.number), None, None)}

    def _rows(self, piece: Piece) -> tuple[Encoded, np.ndarray, np.ndarray]:
        return Encoded(piece.X), piece.y, piece.weight


def prepare_large(paths: list[Path], wanted: Wanted, task: str, missing: str) -> Large:
    """The columns and the task; only columns of texts are read whole."""
    if missing == "mean":
        raise ValueError(
            "Expected --missing auto, error or drop for files larger than max_memory, got mean. Fill the gaps before, "
            "or raise --max-memory."
        )
    chosen, target = choose(paths, wanted, head), str(wanted.target)
    check_alike(paths, chosen.inputs)
    task, why = decide(target, _some_targets(paths, target), task)
    columns: Columns = learned_from(paths, chosen.inputs, chosen.categories, ON_THE_COMMAND_LINE)
    columns = replace(columns, target=target, missing=missing)
    source = FileSource(paths, columns, target, wanted.weight, task == "classification", known=missing != "error")
    where = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    notes = [
        f"About {count(source.n)} in {where}: {count(len(chosen.inputs), 'input')}, target {target!r}.",
        "Read whole, they would take more than --max-memory: they are read a piece at a time.",
        *chosen.left_out("; --columns takes it in"),
        f"The target holds {why}.",
    ]
    notes += [
        f"Column {name!r} numbers the rows: --drop {quoted(name)} if it means nothing else." for name in chosen.suspects
    ]
    return Large(source, chosen.categories, task, target, missing, notes + columns.notes())


def _some_targets(paths: list[Path], target: str) -> Any:
    """From all over the files."""
    parts, _ = parts_of(paths, [target])
    chosen = [parts[k] for k in np.unique(np.linspace(0, len(parts) - 1, _LOOKED).round().astype(int))]
    found = [next(tables(part, [target], {}, 8192), None) for part in chosen]
    whole = pa.concat_tables([table for table in found if table is not None], promote_options="permissive")
    return whole.column(target)
