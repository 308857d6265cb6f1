"""One step: the dense gradient at the full batch, the dense gradient on average, O(1) memory, running products."""

from dataclasses import fields, replace
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from enumeration import WITHOUT, all_draws
from problems import BASES, LIKELIHOODS, make_problem, shake
from qsgp.bases import Grid
from qsgp.data.arrays import Arrays
from qsgp.kernels import Matern32, Separable
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.objective import loss
from qsgp.paper.optimisers import adagrad
from qsgp.paper.problem import Problem, at_hyperparameters
from qsgp.paper.sampling import Batch
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.state import Rows
from qsgp.paper.stepping import step
from qsgp.paper.support import Support

CONTROLS = ["none", "gram", "kriging"]


def dense_loss(problem, table, theta, k):
    """The exact negative ELBO of the whole table, Eq. (2) or Eq. (5) with the prior terms."""
    basis, likelihood = at_hyperparameters(problem, theta)
    x, y = problem.source.x, problem.source.y
    everything = torch.arange(basis.m)
    columns = basis.columns(everything)
    Phi, rows = basis.features(x, columns), Rows.of(table, 1, k)
    S = torch.diag(basis.precision_diag(everything)) if basis.diagonal else basis.precision(columns, columns)
    if rows.log_s is not None:
        S = torch.diag(rows.log_s.exp())
    C = problem.covariance.to_dense(rows.L, rows.log_c)
    if isinstance(likelihood, Gaussian):
        total = dense.mean_loss(y, Phi, S, rows.mu[:, 0], likelihood.noise_variance)
        total = total + dense.covariance_loss(Phi, S, C, likelihood.noise_variance)
        total = total + dense.constant_loss(y, S, likelihood.noise_variance) if basis.diagonal else total
        return 0.5 * total
    prior = rows.mu[:, 0] @ S @ rows.mu[:, 0] + (dense.prior_quadratic(S, C) - 2 * C.diagonal().log()).sum()
    prior = prior - torch.logdet(S) - len(S) if basis.diagonal else prior
    return 0.5 * prior - dense.expected_log_likelihood(likelihood, y, Phi, rows.mu[:, 0], C)


def sampled_loss(problem, state, batch, settings, table, theta):
    """What `step` differentiates, for a given batch; ``table`` is the whole table."""
    rows = table[batch.touched]
    rows = rows if batch.dense is None else rows[:, state.columns(batch.dense)]
    return loss(problem, state, batch, rows, theta, settings).loss


def descended(table, sums, g, settings, k, decay=1.0):
    """AdaGrad by hand: one rate for every entry, or for L one sum a row and a rate in the unit of its c_rr."""
    if settings.covariance_update == "entry":
        return adagrad(table, sums, g, settings.rate * decay)
    L = slice(1, 1 + k)
    squares = torch.cat([g[:, :1] ** 2, (g[:, L] ** 2).sum(1, keepdim=True), g[:, 1 + k :] ** 2], 1)
    sums = sums + squares
    length = torch.full_like(table, settings.rate)
    length[:, L] = settings.covariance_rate * table[:, 1 + k].exp()[:, None]
    under = torch.cat([sums[:, :1], sums[:, 1:2].expand(-1, k), sums[:, 2:]], 1).sqrt() + 1e-10
    return table - decay * length * g / under, sums


def every_batch(n, m, n_tilde, m_tilde, sets):
    i = all_draws(m, m_tilde, WITHOUT)
    for l, *draws in product(all_draws(n, n_tilde, WITHOUT), *[i] * sets):
        drawn = torch.cat(draws)
        touched, at, repeats = drawn.unique(return_inverse=True, return_counts=True)
        yield Batch(l, tuple(draws), drawn, touched, at, repeats)


def leaves(state):
    return state.table.clone().requires_grad_(), {k: v.clone().requires_grad_() for k, v in state.theta.items()}


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("basis", BASES)
def test_the_assembled_objective_is_unbiased(basis, control):
    """Gaussian likelihood: loss and gradient of every row and hyperparameter, averaged over all batches."""
    problem = make_problem(basis, n=4, m=4, k=1, n_bar=2)
    settings = Settings(n_tilde=2, m_tilde=2, control=control)
    state = shake(start(problem, settings), problem)
    table, theta = leaves(state)
    batches = list(every_batch(4, 4, 2, 2, sets=2))
    got = sum(sampled_loss(problem, state, batch, settings, table, theta) for batch in batches) / len(batches)
    wanted = dense_loss(problem, table, theta, state.k)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    variables = [table, *theta.values()] if problem.basis.diagonal else [table]
    for g, w in zip(torch.autograd.grad(got, variables), torch.autograd.grad(wanted, variables), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bound", ["A", "B", "Q"])
@pytest.mark.parametrize("control", ["none", "kriging"])
@pytest.mark.parametrize("likelihood", ["laplace", "logistic"])
def test_the_assembled_site_objective_is_a_bound(likelihood, control, bound):
    """The average over all batches is never below the exact negative ELBO; kriging tightens B."""
    problem = make_problem("fourier", likelihood, n=3, m=4, k=1, n_bar=2)
    settings = Settings(n_tilde=3, m_tilde=2, control=control, bound=bound)
    state = shake(start(problem, settings), problem)
    table, theta = leaves(state)
    sets = 3 if control == "kriging" else 2
    losses = [
        sampled_loss(problem, state, batch, settings, table, theta).detach() for batch in every_batch(3, 4, 3, 2, sets)
    ]
    assert torch.stack(losses).mean() > dense_loss(problem, table, theta, state.k).detach()


@pytest.mark.parametrize("update", ["row", "entry"])
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("basis", BASES)
def test_a_full_batch_step_is_a_dense_gradient_step(basis, control, update):
    problem = make_problem(basis)
    settings = Settings(n_tilde=30, m_tilde=12, control=control, covariance_update=update, frozen=1.0)
    state = shake(start(problem, settings), problem)
    table, theta = leaves(state)
    (gradient,) = torch.autograd.grad(dense_loss(problem, table, theta, state.k), [table])
    wanted, sums = descended(table.detach(), state.sums.clone(), gradient, settings, state.k)
    state, _ = step(problem, state, settings)
    if problem.basis.learned_precision:  # own precisions move by another rule
        wanted[:, -1] = table[:, -1].detach()
    torch.testing.assert_close(state.table, wanted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state.sums, sums, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("basis", ["fourier", "rvm"])
def test_a_full_newton_step_reaches_the_exact_mean(basis, control):
    """All points and functions, a quadratic objective: one full step of mu ends at the posterior mean."""
    problem = make_problem(basis)
    settings = Settings(n_tilde=30, m_tilde=12, control=control, mean_update="newton", frozen=1.0)
    state = shake(start(problem, settings), problem)
    Phi = problem.basis.features(problem.source.x, problem.basis.columns(torch.arange(12)))
    s = torch.ones(12, dtype=torch.float64) if state.rows.log_s is None else state.rows.log_s.exp()
    wanted, _ = dense.posterior(problem.source.y, Phi, torch.diag(s), problem.likelihood.noise_variance)
    state, _ = step(problem, state, settings)
    torch.testing.assert_close(state.rows.mu[:, 0], wanted, rtol=1e-7, atol=1e-7)


def test_own_precisions_maximise_the_elbo():
    """After a step the gradient of the dense ELBO with respect to every log s vanishes."""
    problem = make_problem("rvm")
    settings = Settings(n_tilde=30, m_tilde=12, frozen=0.0)
    state, _ = step(problem, shake(start(problem, settings), problem), settings)
    table, theta = leaves(state)
    (gradient,) = torch.autograd.grad(dense_loss(problem, table, theta, state.k), [table])
    torch.testing.assert_close(gradient[:, -1], torch.zeros(12, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("control", ["gram", "kriging"])
@pytest.mark.parametrize(
    ("replacement", "k", "r_tilde"), [(False, 2, None), (True, 2, None), (True, 5, 2), (False, 12, 3)]
)
def test_running_products_equal_their_definition(basis, likelihood, control, replacement, k, r_tilde):
    """Proposition 3 in the step: a, its Nystrom twin and the variance after many steps, hyperparameters moving.

    With sampled columns the diagonal of a touched row moves a column of a that was not drawn.
    """
    if r_tilde and basis == "rvm":
        pytest.skip("own precisions need whole rows of C")
    problem = make_problem(basis, likelihood, k=k)
    steps = 40 if basis == "grid" else 60
    settings = Settings(
        r_tilde=r_tilde,
        n_tilde=8,
        m_tilde=5,
        control=control,
        replacement=replacement,
        iterations=200,
        rate=0.01,
        hyper_rate=1e-3,
        learn_hyperparameters=problem.basis.diagonal,
    )
    state = start(problem, settings)
    for _ in range(steps):
        state, _ = step(problem, state, settings)
    held = [value for value in (state.a, state.a_prior, state.variance) if value is not None]
    shake(state, problem, scale=0.0)
    defined = [value for value in (state.a, state.a_prior, state.variance) if value is not None]
    assert len(held) == 1 + (not problem.basis.diagonal) + (likelihood != "gaussian")
    for got, wanted in zip(held, defined, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


class LargestNewTensor(TorchDispatchMode):
    """Remembers the largest storage that an operation made."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, value.untyped_storage().nbytes() // value.element_size())
        return out


@pytest.mark.parametrize("basis", ["fourier", "inducing"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("update", ["row", "entry"])
def test_a_step_of_a_full_covariance_makes_no_tensor_of_m_elements(basis, likelihood, update):
    """With sampled columns: not even a row of C, nor one of a."""
    m = 3000
    problem = make_problem(basis, likelihood, n=m, m=m, k=m, n_bar=8, dtype=torch.float32)
    settings = Settings(10, 8, r_tilde=6, control="kriging", covariance_update=update)
    state = start(problem, settings)
    known = [state.table, state.sums, state.a, problem.source.x, problem.source.y]
    known += [state.a_prior, problem.basis.Z] if basis == "inducing" else []
    with LargestNewTensor(known) as watch:
        state, _ = step(problem, state, settings)
    assert 0 < watch.largest < m / 2


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("basis", [basis for basis in BASES if basis != "grid"])
@pytest.mark.parametrize("control", ["gram", "kriging"])
def test_a_step_makes_no_tensor_of_n_or_m_elements(basis, likelihood, control):
    n, m = 60_000, 50_000
    problem = make_problem(basis, likelihood, n=n, m=m, k=2, n_bar=20, dtype=torch.float32)
    settings = Settings(
        n_tilde=30, m_tilde=20, control=control, learn_hyperparameters=problem.basis.diagonal, frozen=0.0
    )
    state = start(problem, settings)
    known = [state.table, state.sums, problem.source.x, problem.source.y]
    known += [problem.basis.Z] if hasattr(problem.basis, "Z") else []
    with LargestNewTensor(known) as watch:
        state, _ = step(problem, state, settings)
    assert 0 < watch.largest < min(n, m) / 2


def test_a_step_over_a_grid_makes_no_tensor_of_n_or_m_elements():
    """Nothing is larger than the Gram matrix of one input, here of 40 points, though all lengthscales are learned."""
    kernel = Separable(torch.full((5,), 0.8), torch.tensor(1.5), Matern32)
    x = torch.randn(60_000, 5, generator=torch.Generator().manual_seed(0))
    basis = Grid.build(kernel, [torch.linspace(-2, 2, 40)] * 5, 50_000)
    source, support = Arrays(x, x.sin().sum(1)), Support.build(kernel, x[:20])
    problem = Problem(source, basis, Gaussian(torch.tensor(0.1)), Chevron(50_000, 2), support)
    settings = Settings(30, 20, learn_hyperparameters=True, frozen=0.0)
    state = start(problem, settings)
    before = {name: value.clone() for name, value in state.theta.items()}
    with LargestNewTensor([state.table, state.sums, source.x, source.y, basis.positions]) as watch:
        state, _ = step(problem, state, settings)
    assert 0 < watch.largest <= 40 * 40
    assert not any((state.theta[name] == before[name]).any() for name in before)


def test_hyperparameters_stay_frozen_at_first():
    problem = make_problem()
    settings = Settings(8, 6, iterations=20, frozen=0.5, hyper_rate=0.01, learn_hyperparameters=True)
    state = start(problem, settings)
    before = {name: value.clone() for name, value in state.theta.items()}
    for _ in range(10):
        state, _ = step(problem, state, settings)
    assert all(torch.equal(state.theta[name], before[name]) for name in before)
    state, _ = step(problem, state, settings)
    assert not any(torch.equal(state.theta[name], before[name]) for name in before)


def test_learning_can_be_confined_to_the_likelihood():
    problem = make_problem()
    settings = Settings(8, 6, frozen=0.0, hyper_rate=0.01, learn_hyperparameters=True, learned=("likelihood",))
    state = start(problem, settings)
    before = {name: value.clone() for name, value in state.theta.items()}
    state, _ = step(problem, state, settings)
    moved = {name for name in before if not torch.equal(state.theta[name], before[name])}
    assert moved == {"likelihood.log_noise_variance"}


def test_float32_stays_float32_for_every_combination():
    for basis, likelihood, control in product(BASES, LIKELIHOODS, CONTROLS):
        problem = make_problem(basis, likelihood, dtype=torch.float32)
        settings = Settings(8, 5, control=control)
        state, info = step(problem, start(problem, settings), settings)
        assert state.table.dtype == torch.float32 and torch.isfinite(state.table).all()
        assert all(torch.isfinite(term) for term in info.terms.values())


@pytest.mark.gpu
def test_cpu_and_cuda_agree():
    for basis, likelihood, control in product(BASES, LIKELIHOODS, CONTROLS):
        tables = []
        for device in ("cpu", "cuda"):
            problem = to_device(make_problem(basis, likelihood), device)
            settings = Settings(30, 12, control=control)  # the full batch: generators differ between devices
            state = start(problem, settings)
            for _ in range(3):
                state, _ = step(problem, state, settings)
            tables.append(state.table.cpu())
        torch.testing.assert_close(*tables, rtol=1e-8, atol=1e-8)


def to_device(problem, device):
    def move(thing):
        return replace(thing, **{name: there(value) for name, value in vars(thing).items() if name in fields_of(thing)})

    def there(value):
        if isinstance(value, tuple):
            return tuple(part.to(device) for part in value)
        return value.to(device) if isinstance(value, torch.Tensor) else value

    def fields_of(thing):
        return {field.name for field in fields(thing)}

    kernel = move(problem.basis.kernel)
    return replace(
        problem,
        source=move(problem.source),
        basis=replace(move(problem.basis), kernel=kernel),
        likelihood=move(problem.likelihood),
        support=replace(move(problem.support), kernel=kernel),
    )


def test_a_dense_prior_cannot_learn_hyperparameters():
    with pytest.raises(ValueError, match="Inducing has a dense S.*determinant_rows.*learn_hyperparameters=False"):
        start(make_problem("inducing"), Settings(learn_hyperparameters=True))


def test_a_covariance_of_another_size_is_refused():
    problem = make_problem()
    with pytest.raises(ValueError, match="m = 12 basis functions, got one over 7"):
        start(replace(problem, covariance=type(problem.covariance)(7, 2)), Settings())


def with_data(problem, y, weight=None):
    return replace(problem, source=type(problem.source)(problem.source.x, y, weight))


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_outputs_share_features_and_covariance(likelihood, control):
    """The loss of two outputs is the sum of the losses of each alone, at equal C."""
    problem = make_problem("fourier", likelihood, n=12, m=6, k=2)
    Y = torch.stack([problem.source.y, -problem.source.y.flip(0)], 1)
    settings = Settings(n_tilde=5, m_tilde=3, control=control)
    both = with_data(problem, Y)
    state = shake(start(both, settings), both)
    sets = 3 if likelihood != "gaussian" and control == "kriging" else 2
    batch = next(every_batch(12, 6, 5, 3, sets))
    together = sampled_loss(both, state, batch, settings, state.table, state.theta)
    alone = 0.0
    for q in (0, 1):
        single = with_data(problem, Y[:, q])
        part = start(single, settings)
        part.table[:] = state.table[:, [q, 2, 3, 4]]
        shake(part, single, scale=0.0)
        alone = alone + sampled_loss(single, part, batch, settings, part.table, part.theta)
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("control", ["none", "kriging"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_weights_are_repeats(likelihood, control):
    """At the full batch of points, weights 2 and 0 give the loss of rows given twice and left out."""
    problem = make_problem("fourier", likelihood, n=8, m=6, k=1)
    weight = torch.tensor([2.0, 1, 0, 1, 1, 2, 1, 0], dtype=torch.float64)
    keep = torch.repeat_interleave(torch.arange(8), weight.long())
    x, y = problem.source.x, problem.source.y
    weighted = with_data(problem, y, weight)
    repeated = replace(problem, source=type(problem.source)(x[keep], y[keep]))
    settings = Settings(n_tilde=8, m_tilde=3, control=control)
    state = shake(start(problem, settings), problem)
    sets = 3 if likelihood != "gaussian" and control == "kriging" else 2
    batch = next(every_batch(8, 6, 8, 3, sets))
    losses = [
        sampled_loss(p, state, b, settings, state.table, state.theta)
        for p, b in ((weighted, batch), (repeated, replace(batch, l=torch.arange(len(keep)))))
    ]
    torch.testing.assert_close(*losses)
