"""Several ranks on one machine: equal predictions, bytes a step, and speed against one rank of one core.

    python benchmarks/ranks.py --json ranks.json
    python benchmarks/ranks.py --road features --json features.json

Each rank is a process with one thread. Speeds are those of visits of blocks alone, in one run: rounds of one rank and
of two take turns, so that a machine that is busy is so for both. Seconds of a core are told beside those of the clock:
on a machine that others use, ranks wait for whichever of them has not been given its core.
"""

import argparse
import math
import multiprocessing
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows
from qsgp.interrupt import Halt
from qsgp.kernels import Matern32, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper import Chevron, Problem, Settings, State, Support, fit
from qsgp.paper.block_training import BlockSteps
from qsgp.paper.problem import initial_hyperparameters
from qsgp.ranks import Ranks, Together, present
from qsgp.reproduce.records import write
from qsgp.solvers.system import Ahead, System
from qsgp.training import road_rows
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.road_steps import posterior_of
from qsgp.training.rows_epochs import Limits
from qsgp.training.task import Task

D = 8  # inputs
STEPS_OF_A_FIT = 200
STEPS = Settings(1000, 2048, draws="blocks", control="kriging", every=100)
BLOCK, COLUMNS = {"cpu": 2000, "cuda": 8000}, {"cpu": 17, "cuda": 64}  # of a fit there


def on_ranks(size: int, work: Callable[..., Any], *given: Any) -> Any:
    """What rank 0 finds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    started = [context.Process(target=_run, args=(rank, size, port, results, work, given)) for rank in range(size)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        if process.exitcode:
            raise SystemExit("A rank has failed.")
    return results.get()


def _run(rank: int, size: int, port: int, results: Any, work: Callable[..., Any], given: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    found = work(*given)
    if rank == 0:
        results.put(found)


def data(n: int, dtype: torch.dtype) -> Rows:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, D, generator=generator, dtype=dtype)
    f = torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:2]) + 0.5 * x[:, 2:3]
    return Rows(x, f + 0.1 * torch.randn(n, 1, generator=generator, dtype=dtype), torch.ones(n, dtype=dtype))


def kernel_of(dtype: torch.dtype) -> Matern32:
    return Matern32(*(value.to(dtype) for value in hyperparameters(3.0, 1.0, d=D)))


def predictions(n: int, name: str, block: int) -> tuple[list[float], list[float], list[int]]:
    """Means and deviations of f at new rows, after three epochs and the rows held out."""
    dtype, ranks = getattr(torch, name), present()
    options = Options(dtype=dtype)
    sizes = replace(make_plan(n, D, 1, options).sizes, block=block, exact_rows=2 * block, variance_points=500)
    task = Task(data(n, dtype), options, sizes, Halt(threading.Event(), math.inf), ranks=ranks)
    trained = road_rows.train(task, kernel_of(dtype), Gaussian(torch.tensor(0.01, dtype=dtype)), Limits(epochs=3))
    new = torch.randn(500, D, generator=torch.Generator().manual_seed(1), dtype=dtype)
    mean, variance = trained.posterior.latent(new)
    return mean[:, 0].tolist(), variance[:, 0].sqrt().tolist(), [len(trained.posterior.x)]


def equality(rows: list[dict[str, Any]], n: int) -> None:
    print(f"\nThe same model on 1, 2 and 4 ranks ({n:,} rows, blocks of 100 with acceleration and of 500 without):")
    print("numbers   block  ranks  own rows  mean differs by  deviation differs by")
    for name in ("float64", "float32"):
        for block in (100, 500):
            alone = on_ranks(1, predictions, n, name, block)
            for size in (2, 4):
                found = on_ranks(size, predictions, n, name, block)
                mean, deviation = (
                    max(abs(a - b) for a, b in zip(one, other, strict=True))
                    for one, other in zip(found[:2], alone[:2], strict=True)
                )
                rows.append(
                    {"task": "equality", "dtype": name, "n": n, "block": block, "ranks": size, "mean_differs": mean}
                    | {"deviation_differs": deviation}
                )
                print(f"{name:<8}{block:>7}{size:>7}{found[2][0]:>10,}{mean:>17.1e}{deviation:>22.1e}")


def system_of(n: int, ranks: Ranks, block: int, device: str) -> tuple[System, torch.Tensor]:
    """Own rows alone are made: each rank has n / R of them."""
    own, generator, columns = ranks.mine(n), torch.Generator().manual_seed(ranks.rank), COLUMNS[device]
    x, Y = (torch.randn(own, width, generator=generator).to(device) for width in (D, columns))
    A, noise = torch.zeros_like(Y), torch.full_like(Y[:, :1], 0.1)
    kernel = Matern32(*(value.to(device) for value in hyperparameters(3.0, 1.0, d=D)))
    return System(kernel, x, noise, A, None, Ahead.wanted(A, n / block), ranks), Y


def visits(n: int, count: int, block: int, device: str) -> dict[str, float]:
    """Seconds and bytes of one visit, after a first round."""
    ranks = present()
    system, Y = system_of(n, ranks, block, device)
    order = torch.randint(n, (count + 2, block), generator=torch.Generator().manual_seed(3))
    blocks = list(order.to(device).unbind())

    def some(chosen: list[torch.Tensor]) -> None:
        for each in system.blocks(chosen):
            system.visit(each, Y[each.own])
            ranks.agreed(False)  # the clock of rank 0, as in an epoch
        if device == "cuda":
            torch.cuda.synchronize()

    some(blocks[:2])
    moved = ranks.moved if isinstance(ranks, Together) else 0
    began, core = time.perf_counter(), time.process_time()
    some(blocks[2:])
    seconds, core = (time.perf_counter() - began) / count, (time.process_time() - core) / count
    core = float(ranks.total(torch.tensor(core, device=device))) / ranks.size
    moved = (ranks.moved - moved) // count if isinstance(ranks, Together) else 0
    return {"seconds": seconds, "core_seconds": core, "bytes": moved}


def traffic(rows: list[dict[str, Any]], sizes: list[int]) -> None:
    print(f"\nBytes of a step on 2 ranks (blocks of 200, {COLUMNS['cpu']} columns, {D} inputs, float32):")
    print("        n  bytes a step  of a number of b (d + c)")
    for n in sizes:
        found = on_ranks(2, visits, n, 4, 200, "cpu")["bytes"]
        rows.append({"task": "traffic", "n": n, "ranks": 2, "block": 200, "bytes_per_step": found})
        print(f"{n:>9,}{found:>14,}{found / (4 * 200 * (D + COLUMNS['cpu'])):>10.2f}")


def speed(rows: list[dict[str, Any]], n: int, rounds: int, device: str) -> None:
    each = "a core each" if device == "cpu" else "one GPU that they share"
    block, columns = BLOCK[device], COLUMNS[device]
    print(f"\nSpeed of visits at n = {n:,} (blocks of {block:,}, {columns} columns): one rank and two, {each}")
    ratios = []
    print("round  one rank, s  two ranks, s  times as fast  by seconds of a core")
    for number in range(rounds):
        one, two = (on_ranks(size, visits, n, 8, block, device) for size in (1, 2))
        by_clock, by_core = (one[unit] / two[unit] for unit in ("seconds", "core_seconds"))
        ratios.append(by_clock)
        rows.append(
            {
                "task": "speed",
                "device": device,
                "n": n,
                "round": number,
                "one_s": one["seconds"],
                "two_s": two["seconds"],
            }
            | {"ratio": by_clock, "ratio_of_core_seconds": by_core}
        )
        print(f"{number + 1:>5}{one['seconds']:>13.3f}{two['seconds']:>14.3f}{by_clock:>15.2f}{by_core:>22.2f}")
    print(f"median: {sorted(ratios)[len(ratios) // 2]:.2f} times as fast")


# --- features ------------------------------------------------------------------------------------------------------


def problem_of(n: int, m: int, dtype: torch.dtype) -> Problem:
    """Every rank has all rows and makes features of its own."""
    rows, kernel = data(n, dtype), kernel_of(dtype)
    source = Arrays(rows.x, rows.Y)
    noise, support = Gaussian(torch.tensor(0.01, dtype=dtype)), Support.build(kernel, rows.x[:500])
    problem = Problem(source, Fourier(kernel, m), noise, Chevron(m), support)
    return problem.shared(present()) if present().size > 1 else problem


def features_trained(n: int, m: int, name: str) -> tuple[list[float], list[float], int]:
    """Means and deviations of f at new rows after some steps, and the rows of the table that a rank has."""
    dtype = getattr(torch, name)
    problem = problem_of(n, m, dtype)
    settings = replace(STEPS, n_tilde=200, m_tilde=512, iterations=STEPS_OF_A_FIT, hyper_rate=0.01)
    settings = replace(settings, learn_hyperparameters=True, learned=("noise",))
    state = fit(problem, settings).state
    posterior, _ = posterior_of(problem, state, relevance=False)
    new = torch.randn(500, D, generator=torch.Generator().manual_seed(1), dtype=dtype)
    mean, variance = posterior.latent(new)
    return mean[:, 0].tolist(), variance[:, 0].sqrt().tolist(), len(state.table)


def features_steps(n: int, m: int, count: int) -> dict[str, float]:
    """Seconds and bytes of one step, after a few, and the peak of the memory. The first look at all features, which
    takes minutes of 10^8 of them, is left out: the table is filled with one number."""
    problem, ranks = problem_of(n, m, torch.float32), present()
    settings = replace(STEPS, iterations=1000)
    table = torch.full((problem.held, 2), -2.0)
    table[:, 0] = 0.0
    state = State(table, torch.full_like(table, 1e-3), 1, 0, initial_hyperparameters(problem.basis, problem.likelihood))
    state.a = torch.zeros(500, 1)
    steps = BlockSteps.of(problem, state, settings)
    for _ in range(3):
        steps()
    moved = ranks.moved if isinstance(ranks, Together) else 0
    began, core = time.perf_counter(), time.process_time()
    for _ in range(count):
        steps()
    seconds, core = (time.perf_counter() - began) / count, (time.process_time() - core) / count
    moved = (ranks.moved - moved) // count if isinstance(ranks, Together) else 0
    core = float(ranks.total(torch.tensor(core))) / ranks.size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "core_seconds": core, "bytes": moved, "rows": len(state.table), "peak_gib": peak}


def features_equality(rows: list[dict[str, Any]], n: int, m: int) -> None:
    print(f"\nThe same features on 1, 2 and 4 ranks ({n:,} rows, {m:,} features, {STEPS_OF_A_FIT} steps):")
    print("numbers  ranks  own features  mean differs by  deviation differs by")
    for name in ("float64", "float32"):
        alone = on_ranks(1, features_trained, n, m, name)
        for size in (2, 4):
            found = on_ranks(size, features_trained, n, m, name)
            mean, deviation = (
                max(abs(a - b) for a, b in zip(one, other, strict=True))
                for one, other in zip(found[:2], alone[:2], strict=True)
            )
            row = {"task": "equality of features", "dtype": name, "n": n, "m": m, "ranks": size, "mean_differs": mean}
            rows.append(row | {"deviation_differs": deviation})
            print(f"{name:<8}{size:>6}{found[2]:>14,}{mean:>17.1e}{deviation:>22.1e}")


def features_traffic(rows: list[dict[str, Any]], sizes: list[tuple[int, int]]) -> None:
    print(f"\nA step on 2 ranks ({STEPS.n_tilde:,} rows, {STEPS.m_tilde:,} features, 500 support points, {D} inputs):")
    print("        n            m  own features  bytes a step  peak of a rank, GiB")
    for n, m in sizes:
        found = on_ranks(2, features_steps, n, m, 10)
        row = {"task": "traffic of features", "n": n, "m": m, "ranks": 2, "own": found["rows"]}
        rows.append(row | {"bytes_per_step": found["bytes"], "peak_gib": found["peak_gib"]})
        print(f"{n:>9,}{m:>13,}{found['rows']:>14,}{found['bytes']:>14,}{found['peak_gib']:>21.2f}")


def features_speed(rows: list[dict[str, Any]], m: int, rounds: int) -> None:
    print(f"\nSpeed of steps at m = {m:,}: one rank and two, a core each")
    print("round  one rank, ms  two ranks, ms  times as fast  by seconds of a core")
    for number in range(rounds):
        one, two = (on_ranks(size, features_steps, 100_000, m, 50) for size in (1, 2))
        by_clock, by_core = (one[unit] / two[unit] for unit in ("seconds", "core_seconds"))
        row = {"task": "speed of features", "m": m, "round": number, "one_s": one["seconds"], "two_s": two["seconds"]}
        rows.append(row | {"ratio": by_clock, "ratio_of_core_seconds": by_core})
        one_ms, two_ms = 1e3 * one["seconds"], 1e3 * two["seconds"]
        print(f"{number + 1:>5}{one_ms:>14.1f}{two_ms:>15.1f}{by_clock:>15.2f}{by_core:>22.2f}")


def of_rows(given: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if given.only in (None, "equality"):
        equality(rows, 4000)
    if given.only in (None, "traffic"):
        traffic(rows, [100_000, 1_000_000, 10_000_000])
    if given.only in (None, "speed"):
        speed(rows, given.rows, given.rounds, given.device)


def of_features(given: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if given.only in (None, "equality"):
        features_equality(rows, 4000, 2048)
    if given.only in (None, "traffic"):
        features_traffic(rows, [(10**5, 10**5), (10**6, 10**5), (10**5, 10**7), (10**5, given.features)])
    if given.only in (None, "speed"):
        features_speed(rows, 10**6, given.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    parser.add_argument("--rows", type=int, default=100_000, help="of the comparison of speeds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the comparison of speeds")
    parser.add_argument("--only", choices=("equality", "traffic", "speed"))
    parser.add_argument("--road", choices=("rows", "features"), default="rows")
    parser.add_argument("--features", type=int, default=10**8, help="of the largest table")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if given.road == "features":
        of_features(given, rows)
    else:
        of_rows(given, rows)
    if given.json:
        write(Path(given.json), rows, seed=0)


if __name__ == "__main__":
    main()
