"""Products with features and kernels that are never stored: speed, error and memory, against plain PyTorch.

    python benchmarks/engine.py --device cuda --json engine.json

``eager`` projects, takes cosine and sine, concatenates and multiplies; ``blocked`` (CPU) does so in blocks that fit the
cache, the best of three sizes. ``rel_error`` is the distance from float64 on the same float32 numbers, on part of the
output. ``extra_mb`` is the memory beyond inputs and output. Inputs are standard normal, lengthscales sqrt(d).
"""

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qsgp.engine import Drawn, k_v, phi_v, phit_r
from qsgp.engine.formulas import FORMULAS, KERNELS, RADIAL
from table import arguments, show


class Case(NamedTuple):
    op: str
    rows: int
    features: int  # of k_v: points z
    d: int
    columns: int
    precision: str = "default"
    kernel: str = "rbf"
    drawn: bool = False  # frequencies from Philox inside the product
    eager: bool = True


M = 1_000_000
CUDA = [
    Case("phi_v", 65_536, M, 16, 1),
    Case("phit_r", 65_536, M, 16, 1),
    Case("phi_v", 65_536, M, 16, 1, drawn=True),
    Case("phi_v", 65_536, M, 16, 1, drawn=True, kernel="matern32"),
    Case("phi_v", 65_536, M // 4, 16, 1, drawn=True, kernel="matern12"),
    Case("phi_v", 32_768, 131_072, 8, 64),
    Case("phit_r", 32_768, 131_072, 8, 64),
    Case("phi_v", 32_768, 131_072, 8, 256),
    Case("phit_r", 32_768, 131_072, 8, 256),
    Case("phi_v", 16_384, 131_072, 784, 1),
    Case("phit_r", 16_384, 131_072, 784, 1),
    Case("phi_v", 16_384, 131_072, 784, 1, precision="fast"),
    Case("phit_r", 16_384, 131_072, 784, 1, precision="fast"),
    Case("phi_v", 65_536, M, 16, 1, precision="fast"),
    *(Case("k_v", 65_536, 131_072, 16, 1, kernel=kernel) for kernel in KERNELS),
    Case("k_v", 32_768, 65_536, 16, 64),
    Case("k_v", 32_768, 65_536, 16, 64, kernel="matern32"),
    Case("k_v", 32_768, 65_536, 16, 64, kernel="laplacian"),
    Case("phi_v", 1_000_000, M, 16, 1, eager=False),  # a prediction of a million rows
]
CPU = [
    *(Case(op, 8192, 16_384, d, 1) for d in (8, 32) for op in ("phi_v", "phit_r")),
    *(Case(op, 8192, 16_384, 8, 16) for op in ("phi_v", "phit_r")),
    Case("phi_v", 2048, 16_384, 784, 1),
    Case("phi_v", 100_000, M, 8, 1, eager=False, drawn=True),
    *(Case("k_v", 8192, 16_384, 16, c, kernel=kernel) for kernel in ("matern32", "laplacian") for c in (1, 16)),
]


class Data:
    def __init__(self, case: Case, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, device=device, generator=generator)

        self.case, self.device = case, device
        self.x = draw(case.rows, case.d)
        self.lengthscale = torch.full((case.d,), math.sqrt(case.d), device=device)
        self.variance = torch.ones((), device=device)
        pairs = case.features if case.op == "k_v" else case.features // 2
        self.drawn = Drawn(seed=1, first=0, pairs=pairs, degrees=RADIAL.get(case.kernel, 0))
        self.omega = draw(1 if case.drawn else pairs, case.d)
        self.weights = draw(case.rows if case.op == "phit_r" else case.features, case.columns)

    def product(self) -> Tensor:
        case = self.case
        common = (self.weights, self.lengthscale, self.variance)
        if case.op == "k_v":
            return k_v(self.x, self.omega, *common, kernel=case.kernel, precision=case.precision)
        function = phi_v if case.op == "phi_v" else phit_r
        return function(self.x, self.drawn if case.drawn else self.omega, *common, precision=case.precision)

    def error(self, out: Tensor) -> float:
        """On 64 rows, or on the first 256 pairs for Phi^T R."""
        rows = slice(None) if self.case.op == "phit_r" else slice(64)
        pairs = 256 if self.case.op == "phit_r" else len(self.drawn)
        x, weights = self.x[rows].double(), self.weights.double()
        ell = self.lengthscale.double()
        if self.case.op == "k_v":
            truth = kernel_values(x / ell, self.omega.double() / ell, self.case.kernel, exact=True) @ weights
        else:
            part = self.drawn[:pairs]
            omega = part.numbers(self.case.d, self.device) if self.case.drawn else self.omega[:pairs].double()
            t = (x / ell) @ omega.mT
            Phi = torch.stack((t.cos(), t.sin()), 2).flatten(1) / math.sqrt(len(self.drawn))
            truth = Phi.mT @ weights if self.case.op == "phit_r" else Phi @ weights
        found = out[: len(truth)].double()
        return ((found - truth).norm() / truth.norm()).item()

    def eager(self, rows: int) -> Tensor:
        """All of ``rows`` rows at once."""
        x = self.x[:rows] / self.lengthscale
        if self.case.op == "k_v":
            return kernel_values(x, self.omega / self.lengthscale, self.case.kernel) @ self.weights
        t = x @ self.omega.mT
        Phi = torch.cat((t.cos(), t.sin()), 1)
        return Phi.mT @ self.weights[:rows] if self.case.op == "phit_r" else Phi @ self.weights

    def blocked(self, rows: int, pairs: int) -> Tensor:
        """``eager`` in blocks; cosine and sine weights stand in halves of the columns, so nothing is concatenated."""
        x, half = self.x / self.lengthscale, len(self.omega)
        if self.case.op == "k_v":
            z, parts = self.omega / self.lengthscale, x.split(rows)
            return torch.cat([kernel_values(part, z, self.case.kernel) @ self.weights for part in parts])
        transpose = self.case.op == "phit_r"
        out = x.new_zeros((2 * half if transpose else len(x), self.case.columns))
        for p in range(0, half, pairs):
            omega = self.omega[p : p + pairs].mT
            first, second = slice(p, p + pairs), slice(half + p, half + p + pairs)
            for r in range(0, len(x), rows):
                part = slice(r, r + rows)
                t = x[part] @ omega
                if transpose:
                    out[first] += t.cos().mT @ self.weights[part]
                    out[second] += t.sin_().mT @ self.weights[part]
                else:
                    out[part] += t.cos() @ self.weights[first]
                    out[part] += t.sin_() @ self.weights[second]
        return out


def kernel_values(x: Tensor, z: Tensor, kernel: str, exact: bool = False) -> Tensor:
    """Of scaled inputs; ``exact``: all distances by differences."""
    mode, formula = ("donot_use_mm_for_euclid_dist" if exact else "use_mm_for_euclid_dist"), FORMULAS[kernel]
    return formula.profile(torch.cdist(x, z, p=float(formula.norm), compute_mode=mode))


def seconds(run: Callable[[], Tensor], device: torch.device, repeats: int) -> float:
    """Median after one run to warm up."""
    times = []
    for _ in range(repeats + 1):
        _wait(device)
        began = time.perf_counter()
        run()
        _wait(device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:] or times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def extra_mb(run: Callable[[], Tensor], device: torch.device) -> float:
    """Peak memory during ``run`` beyond what was there before and its result."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = run()
        _wait(device)
        return (torch.cuda.max_memory_allocated() - before - out.nbytes) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _resident("VmRSS")
    out = run()
    return (_resident("VmHWM") - before - out.nbytes) / 2**20


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def row(case: Case, device: torch.device, repeats: int) -> dict[str, Any]:
    data = Data(case, device)
    work = case.rows * case.features * 1e-9
    out = data.product()
    found = {
        "device": device.type,
        "op": case.op,
        "kernel": case.kernel,
        "precision": case.precision,
        "frequencies": "-" if case.op == "k_v" else "drawn" if case.drawn else "kept",
        "rows": case.rows,
        "features": case.features,
        "d": case.d,
        "columns": case.columns,
        "gfeatures_per_s": None,
        "eager_gfeatures_per_s": None,
        "blocked_gfeatures_per_s": None,
        "rel_error": data.error(out),
        "extra_mb": extra_mb(data.product, device),
        "seconds": None,
    }
    once = not case.eager and device.type == "cpu"
    found["seconds"] = seconds(data.product, device, 0 if once else repeats)
    found["gfeatures_per_s"] = work / found["seconds"]
    if case.eager and not case.drawn:
        size = case.rows if device.type == "cpu" else min(case.rows, 2**30 // case.features)
        share = size / case.rows
        found["eager_gfeatures_per_s"] = work * share / seconds(lambda: data.eager(size), device, repeats)
        if device.type == "cpu":
            sizes = [(64, 512), (256, 512), (256, 2048)]
            best = min(seconds(lambda s=s: data.blocked(*s), device, repeats) for s in sizes)
            found["blocked_gfeatures_per_s"] = work / best
    return found


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--only", help="cases of one op, of one number of inputs such as d=16, or one case by its number"
    )
    parser.add_argument("--once", action="store_true", help="no timing, each product once: for a profiler")
    options = parser.parse_args()
    device = torch.device(options.device)
    cases = CUDA if device.type == "cuda" else CPU
    cases = [case for at, case in enumerate(cases) if options.only in (None, case.op, f"d={case.d}", str(at))]
    if options.once:
        for case in cases:
            Data(case, device).product()
        _wait(device)
        raise SystemExit
    rows = [row(case, device, options.repeats) for case in cases]
    show(rows, options.json, "Products that store no features", seed=[0, 1])
