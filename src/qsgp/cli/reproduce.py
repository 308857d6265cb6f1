"""`qsgp reproduce`: the paper's tables and figures, measured here, beside what the paper says."""

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from qsgp.atomic import check_folder, written
from qsgp.cli.talk import AsJson, Device, Quiet, say, show
from qsgp.reproduce import EXPERIMENTS
from qsgp.reproduce.experiment import Asked, Bound, Case, Choice, Control, Draws, Experiment, Row, picked
from qsgp.reproduce.records import Records, columns, write_csv


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all.")],
    fast: Annotated[bool, typer.Option("--fast", help="Smaller sizes: a minute or two each on two cores.")] = False,
    device: Device = "auto",
    splits: Annotated[str, typer.Option(metavar="NUMBERS", help="Train-test splits, such as 0,1,2.")] = "0",
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Only data or models with this word; as often as you like.")
    ] = None,
    control: Annotated[Control | None, typer.Option(help="In place of the printed control variate.")] = None,
    bound: Annotated[Bound | None, typer.Option(help="The likelihood bound of MNIST, in place of all four.")] = None,
    rate: Annotated[float | None, typer.Option(help="AdaGrad's first rate, in place of the printed one.")] = None,
    draws: Annotated[Draws | None, typer.Option(help="How functions are drawn: by blocks where that works.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder for JSON, CSV and pictures.")] = Path(
        "results"
    ),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure a table or figure of the paper, and print it beside what the paper says.

    Every row is written to the folder as soon as it is measured. The same command again goes on where a run was
    ended, inside a row that is trained by steps too; remove the file to begin anew.
    """
    if name != "all" and name not in EXPERIMENTS:
        raise typer.BadParameter(f"Expected one of {', '.join(EXPERIMENTS)} or all, got {name!r}.")
    experiments = list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]
    choice = Choice(
        fast,
        _device(device),
        _numbers(splits),
        seed,
        lambda words: say(words, quiet),
        tuple(only or ()),
        _asked(experiments, control=control, bound=bound, rate=rate, draws=draws),
        output / "unfinished",
    )
    for each in experiments:
        _cases(each, choice)  # a word that nothing has is said before the work
    output.mkdir(parents=True, exist_ok=True)
    check_folder(output)
    found: dict[str, Any] = {}
    for each in experiments:
        rows = measured(each, choice, output, quiet)
        summary = each.summary(rows) if each.summary else ""
        found[each.name] = {"paper": each.paper, "rows": rows, "summary": summary}
        if not as_json:
            show({}, False, f"{_table(each.title, rows)}\nThe paper: {each.paper}\n{summary}\n")
        _draw(each, rows, output / f"{_stem(each, choice)}.png", quiet)
    if as_json:
        show(found, True, "")


def measured(experiment: Experiment, choice: Choice, folder: Path, quiet: bool) -> list[Row]:
    """All rows of this choice, those of earlier runs included; what cannot be measured has a row that says why."""
    cases = _cases(experiment, choice)
    path = folder / f"{_stem(experiment, choice)}.json"
    records = Records(path, experiment=experiment.name, seed=choice.seed)
    for number, case in enumerate(cases, 1):
        label, began = " ".join(str(value) for value in case.key.values()), time.monotonic()
        try:
            row = records.add(case.key, case.measure)
        except KeyboardInterrupt:
            say(f"Interrupted. {path} has the rows so far, and the same command goes on from there.", quiet)
            raise typer.Exit(130) from None
        spent = "was there already" if row is None else f"{time.monotonic() - began:.0f} s"
        say(f"{experiment.name}: {number} of {len(cases)}, {label}: {spent}", quiet)
    wanted = [case.key for case in cases]
    rows = [row for row in records.rows if any(all(row.get(k) == v for k, v in key.items()) for key in wanted)]
    write_csv(path.with_suffix(".csv"), records.rows)
    say(f"Rows: {path} and {path.with_suffix('.csv').name}", quiet)
    return rows


def _cases(experiment: Experiment, choice: Choice) -> list[Case]:
    try:
        return picked(experiment.cases(choice), choice.only)
    except ValueError as error:
        raise typer.BadParameter(f"{error} These are what {experiment.name} measures.", param_hint="--only") from error


def _asked(experiments: Sequence[Experiment], **options: Any) -> Asked:
    """Options that an experiment does not heed are refused: its rows would look as if it had."""
    for each in experiments:
        if ignored := [name for name, value in options.items() if value is not None and name not in each.takes]:
            heeding = [other.name for other in EXPERIMENTS.values() if ignored[0] in other.takes]
            raise typer.BadParameter(
                f"--{ignored[0]} is for {', '.join(heeding) or 'none'}, got {each.name}.", param_hint=f"--{ignored[0]}"
            )
    return Asked(**options)


def _stem(experiment: Experiment, choice: Choice) -> str:
    return experiment.name + ("-fast" if choice.fast else "")


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"Expected a device that is there, got {name}, and PyTorch sees no GPU. Use --device cpu.")
    return name


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"Expected numbers with commas between them, such as 0,1,2, got {text!r}.") from None


def _table(title: str, rows: Sequence[Row]) -> str:
    table = Table(title=title, title_justify="left")
    names = columns(rows)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(_entry(row.get(name)) for name in names))
    console = Console(width=max(80, 14 * len(names)), no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def _entry(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _draw(experiment: Experiment, rows: Sequence[Row], place: Path, quiet: bool) -> None:
    if experiment.picture is None:
        return
    try:
        figure = importlib.import_module("matplotlib.figure").Figure(figsize=(8, 4), layout="constrained")
    except ImportError:
        say("No picture: matplotlib is not installed (pip install 'qsgp[plots]' brings it).", quiet)
        return
    experiment.picture(rows, figure)
    with written(place) as file:
        figure.savefig(file, format="png", dpi=150)
    say(f"Picture: {place}", quiet)
