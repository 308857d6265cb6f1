"""The program `qsgp`: its commands, and how it speaks when something goes wrong."""

import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from qsgp.cli.bench import bench
from qsgp.cli.demo import demo
from qsgp.cli.evaluate import evaluate, report
from qsgp.cli.fit import fit
from qsgp.cli.info import info
from qsgp.cli.predict import predict
from qsgp.cli.reproduce import reproduce
from qsgp.cli.talk import complain, own_version, say, speak_safely
from qsgp.ranks import leads

EXAMPLES: dict[Callable[..., None], list[str]] = {
    fit: [
        "qsgp fit train.csv --target price -o model.qsgp",
        "qsgp fit train.csv --target price --drop id --missing mean --holdout 0.2 --max-time 60",
        "qsgp fit train.csv --target sold --task classification --calibrate -o sold.qsgp",
    ],
    predict: [
        "qsgp predict model.qsgp new.csv -o prices.parquet --keep id --interval 0.95",
        "qsgp predict model.qsgp new.csv --quantiles 0.1,0.5,0.9 > prices.csv",
    ],
    evaluate: ["qsgp evaluate model.qsgp test.csv", "qsgp evaluate model.qsgp test.csv --target price --json"],
    report: ["qsgp report model.qsgp test.csv -o report.html"],
    info: ["qsgp info model.qsgp", "qsgp info model.qsgp --json"],
    demo: ["qsgp demo", "qsgp demo --rows 20000 --seconds 5 --folder demo"],
    bench: ["qsgp bench", "qsgp bench small --json small.json"],
    reproduce: ["qsgp reproduce figure-1 --fast", "qsgp reproduce table-2 --splits 0,1 --device cuda -o results"],
}


class Commands(TyperGroup):
    """Errors as one paragraph on stderr; ``--debug`` may stand anywhere and shows where they come from."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = "--debug" in args
        return super().parse_args(ctx, [arg for arg in args if arg != "--debug"])

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place, **more: say(f"Note: {message}")
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                say("Interrupted. Nothing was written.")
                raise typer.Exit(130) from None
            except Exception as error:
                # typer's own know their exit code; a closed pipe is how `| head` ends a program
                if hasattr(error, "exit_code") or isinstance(error, BrokenPipeError):
                    raise
                if ctx.obj:
                    traceback.print_exc()
                complain(f"{'' if leads() else 'On another rank: '}Error: {' '.join(_words(error).split())}")
                raise typer.Exit(1) from error


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"The memory is not enough. {error} Give a smaller --max-memory, or fewer columns."
    if isinstance(error, OSError) and error.strerror:
        return (
            f"Expected to read or write {error.filename}, got {error.strerror.lower()}. Check the path and the rights."
        )
    if isinstance(error, ValueError | ImportError | OSError | ArithmeticError):
        return str(error)
    return f"{type(error).__name__}: {error}. This was not foreseen: run again with --debug to see where it happened."


app = typer.Typer(
    cls=Commands,
    name="qsgp",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"qsgp {own_version()}")
        raise typer.Exit
    return wanted


@app.callback(no_args_is_help=True, invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from (may stand anywhere).")
    ] = False,
) -> None:
    """Gaussian processes for tables of any size: predictions with honest uncertainty.

    Exit codes: 0 done, 1 error in data or model, 2 wrong usage, 130 interrupted.
    """


def _register() -> None:
    for command, examples in EXAMPLES.items():
        shown = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
        app.command(epilog=shown)(command)


_register()
speak_safely()
