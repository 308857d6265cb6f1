"""How a table of functions is trained step by step: what trains best, or what the paper says."""

from dataclasses import replace
from typing import Any

from qsgp.paper.block_training import takes_blocks
from qsgp.paper.problem import Problem
from qsgp.paper.settings import PAPER, Draws, MeanUpdate, Settings
from qsgp.training.options import MOST_FEATURES, Options, Sizes

_DENSE_COLUMNS = 200  # of C that a step reads: with more its time would grow with them


def make_settings(problem: Problem, options: Options, sizes: Sizes) -> Settings:
    """``optimizer="adagrad"`` is the paper's training; "auto" takes what has trained best."""
    m_tilde = min(sizes.batch_features, problem.basis.m)
    whole = m_tilde == problem.basis.m
    sampled = problem.covariance.k > _DENSE_COLUMNS and not whole and not options.relevance
    chosen = _paper(options) if options.optimizer == "adagrad" else _best(problem, options, whole)
    learn = options.learn_hyperparameters and problem.basis.diagonal and chosen.learn_hyperparameters
    settings = replace(
        chosen,
        n_tilde=sizes.batch_points,
        m_tilde=m_tilde,
        r_tilde=_DENSE_COLUMNS if sampled else None,
        learn_hyperparameters=learn,
        seed=options.seed,
    )
    return replace(settings, draws=_draws(problem, settings))


def _draws(problem: Problem, settings: Settings) -> Draws:
    """Blocks where they apply, unless the frequencies that they keep would take more memory than the table."""
    frequencies, table = problem.source.d / 2, 2 * (problem.source.outputs + problem.covariance.k + 1)  # of a function
    return "blocks" if takes_blocks(problem, settings) and frequencies <= table else "scattered"


def _paper(options: Options) -> Settings:
    """It keeps the hyperparameters of inducing points fixed."""
    iterations = options.max_iter or PAPER.iterations
    return replace(PAPER, iterations=iterations, learn_hyperparameters=options.basis != "inducing")


def _best(problem: Problem, options: Options, whole: bool) -> Settings:
    """Newton steps over all features while they fit; beyond, a control variate, and AdaGrad or implicit steps."""
    mean_update = _mean_update(problem, options, whole)
    rate, final = (0.1, 0.01) if mean_update == "implicit" else (first_rate(problem, options), 0.05)
    iterations = options.max_iter or {"newton": 400, "implicit": 1000, "adagrad": 4000}[mean_update]
    return Settings(
        iterations=iterations,
        rate=rate,
        hyper_rate=4 / iterations,
        final=final,
        learn_hyperparameters=not options.relevance and bool(problem.likelihood.parameters()),
        learned=("noise",),  # a mean-field bound would spoil the kernel that the evidence of a subset gave
        mean_update=mean_update,
        control="none" if whole else "kriging",
    )


def first_rate(problem: Problem, options: Options) -> float:
    """AdaGrad's first step moves a weight by the rate: it must be small in the unit of the weight."""
    if options.relevance:
        return 0.3
    kernel: Any = problem.basis.kernel
    return 0.1 if problem.basis.diagonal else 0.1 / max(1.0, float(kernel.variance))


def _mean_update(problem: Problem, options: Options, whole: bool) -> MeanUpdate:
    if not problem.basis.diagonal:
        return "adagrad"
    if whole and problem.basis.m <= MOST_FEATURES:
        return "newton"
    # AdaGrad leaves differences between like functions where they are, and most precisions would stay finite.
    return "implicit" if options.relevance and not whole and not problem.needs_support else "adagrad"
