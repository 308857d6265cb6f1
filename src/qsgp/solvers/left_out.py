"""Labels taken for numbers: hyperparameters by the probability of every label, told from all other rows.

As numbers, labels are no Gaussian variables, and the evidence of their columns leads astray: of 26 letters described by
16 numbers it drops half of the numbers, and the error doubles. Leaving out every row costs little more than the
evidence does. With B = K + D and A = B^-1 Y the mean at row i without it is y_i - A_i / (B^-1)_ii (Rasmussen and
Williams, section 5.4.2).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.functional import logsigmoid

from qsgp.data.rows import Rows
from qsgp.factor import cholesky
from qsgp.likelihoods import LabelsAsNumbers

_STEPS = 12  # of Newton for the scale of the log odds
_LARGEST = 100.0


def log_probability(Gram: Float[Tensor, "n n"], likelihood: LabelsAsNumbers, rows: Rows) -> Float[Tensor, ""]:
    """The sum over rows of the log probability of their class for a model of all others, at the best scale of log odds.

    Its slope in the scale is 0 there, so the scale counts as fixed.
    """
    _, Y, weight = rows
    A, diagonal = _Solved.apply(Gram, likelihood.noise_variance / weight, Y)
    mean, label = Y - A / diagonal[:, None], Y.sign()
    with torch.no_grad():
        scale = best_scale(label, mean + label - Y, weight)
    return (weight * _log_class(label, scale * (mean + label - Y))).sum()


def density_of_classes(mean: Float[Tensor, "h o"], others: Rows) -> float:
    """The mean log probability of the classes of new rows, at the best scale."""
    _, Y, weight = others
    label = Y.sign()
    odds = mean + label - Y
    return float(weight @ _log_class(label, best_scale(label, odds, weight) * odds) / weight.sum())


def scaled_to_labels(Gram: Float[Tensor, "n n"], likelihood: LabelsAsNumbers, rows: Rows) -> float:
    """By how much kernel and noise are to be multiplied: means of rows left out say nothing of it, evidence does."""
    _, Y, weight = rows
    B = Gram.clone()
    B.diagonal().add_(likelihood.noise_variance / weight)
    return float((Y * torch.cholesky_solve(Y, cholesky(B)[0])).mean())


def best_scale(
    label: Float[Tensor, "n o"], odds: Float[Tensor, "n o"], weight: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Of the odds, by Newton's method in its logarithm."""
    log_scale = torch.zeros((), dtype=odds.dtype, device=odds.device)
    for _ in range(_STEPS):
        with torch.enable_grad():
            at = log_scale.detach().requires_grad_()
            total = (weight * _log_class(label, at.exp() * odds)).sum()
            (slope,) = torch.autograd.grad(total, at, create_graph=True)
            (bend,) = torch.autograd.grad(slope, at)
        step = torch.where(bend < 0, -slope / bend.clamp(max=-1e-12), slope.sign())
        log_scale = (log_scale + step.detach().clamp(-1, 1)).clamp(-2, _log(_LARGEST))
    return log_scale.exp()


def _log(value: float) -> float:
    return float(torch.tensor(value).log())


def _log_class(label: Float[Tensor, "n o"], odds: Float[Tensor, "n o"]) -> Float[Tensor, " n"]:
    """As `LabelsAsNumbers.density_of_class` has it where nothing varies."""
    if label.shape[1] == 1:
        return logsigmoid(label * odds)[:, 0]
    logs = logsigmoid(odds)
    return (logs - logs.logsumexp(1, keepdim=True)).gather(1, label.argmax(1, keepdim=True))[:, 0]


class _Solved(torch.autograd.Function):
    """B^-1 Y and the diagonal of B^-1 for B = K + diag(noise); with slopes G and g of these, dL/dB is
    -(B^-1 G) A^T - B^-1 diag(g) B^-1."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, Gram: Float[Tensor, "n n"], noise: Float[Tensor, " n"], Y: Float[Tensor, "n o"]
    ) -> tuple[Float[Tensor, "n o"], Float[Tensor, " n"]]:
        B = Gram.clone()
        B.diagonal().add_(noise)
        inverse = torch.cholesky_inverse(cholesky(B)[0])
        A = inverse @ Y
        ctx.save_for_backward(inverse, A)
        return A, inverse.diagonal().clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Float[Tensor, "n o"], g: Float[Tensor, " n"]) -> tuple[Tensor, Tensor, None]:
        inverse, A = ctx.saved_tensors
        slope = torch.addmm((inverse @ G) @ A.mT, inverse * g, inverse).neg_()
        return slope, slope.diagonal().clone(), None
