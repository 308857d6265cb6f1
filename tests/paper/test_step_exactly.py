"""What a step differentiates, term by term: the site objectives, the control variates, the settings, O(1) time."""

import math
from dataclasses import replace
from itertools import combinations, product

import pytest
import torch
from test_step import dense_loss, descended, leaves, sampled_loss
from torch.utils._python_dispatch import TorchDispatchMode

import qsgp.paper.fitting as fit_module
from enumeration import all_draws
from problems import make_problem, shake
from qsgp.data.arrays import Arrays
from qsgp.paper import control_variates
from qsgp.paper.fitting import fit
from qsgp.paper.implicit import implicit_step
from qsgp.paper.objective import loss, support_values
from qsgp.paper.prediction import predict, relevance_vectors
from qsgp.paper.sampling import Batch, draw, sample, step_generator
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.stepping import Info, step
from qsgp.paper.support import Support


def batch_of(l, draws, dense=None):
    drawn = torch.cat(draws)
    return Batch(l, tuple(draws), drawn, *drawn.unique(return_inverse=True, return_counts=True), dense)


def every_batch(n, m, n_tilde, m_tilde, sets, replacement=False, columns=(None,)):
    """``columns`` are all draws of dense columns."""
    i = all_draws(m, m_tilde, replacement)
    for l, *draws in product(all_draws(n, n_tilde, replacement), *[i] * sets):
        for dense in columns:
            yield batch_of(l, draws, dense)


def prepared(basis="fourier", likelihood="logistic", settings=None, *, outputs=1, weight=None, **sizes):
    problem = make_problem(basis, likelihood, **sizes)
    y = problem.source.y
    y = torch.stack([y, -y.flip(0)], 1) if outputs == 2 else y
    weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    problem = replace(problem, source=Arrays(problem.source.x, y, weight))
    return problem, shake(start(problem, settings), problem)


def moved(state):
    """Leaves away from the initial hyperparameters, where the control variates were made."""
    table, theta = leaves(state)
    with torch.no_grad():
        for value in theta.values():
            value += 0.2 * torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(3))
    return table, theta


# --- gradients of the sites ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "replacement"), [(0, False), (1, True), (4, False)])
@pytest.mark.parametrize("bound", ["B", "Q"])
@pytest.mark.parametrize("likelihood", ["laplace", "logistic"])
def test_kriged_sites_have_the_gradient_of_their_mean(monkeypatch, likelihood, bound, k, replacement):
    """Every row and hyperparameter: the path of a on r must average to that of a = Phi_p V, arms of C included."""
    settings = Settings(n_tilde=1, m_tilde=1, control="kriging", bound=bound, replacement=replacement)
    problem, state = prepared("fourier", likelihood, settings, n=2, m=4, k=k, n_bar=2, outputs=2, weight=[0.5, 1.7])
    table, theta = moved(state)
    everything, variables = torch.arange(4), [table, *theta.values()]

    rows = state.named(table)
    V = torch.cat([rows.mu, problem.covariance.dense_columns(everything, rows.L, rows.log_c)], 1)
    live = replace(state, a=problem.basis.features(problem.support.U, problem.basis.columns(everything)) @ V)

    def mean_gradient(state):
        batches = list(every_batch(2, 4, 1, 1, 3, replacement))
        total = sum(sampled_loss(problem, state, batch, settings, table, theta) for batch in batches)
        return torch.autograd.grad(total / len(batches), variables)

    got = mean_gradient(state)
    monkeypatch.setattr(
        control_variates, "kriged_in_site", lambda F_l, F_p, _, a, W: control_variates.kriged(F_l, F_p, a, W)
    )
    for g, w in zip(got, mean_gradient(live), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-10)


# --- sampled columns of C -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "r_tilde"), [(2, 1), (4, 1), (4, 3)])
@pytest.mark.parametrize("control", ["none", "gram", "kriging"])
@pytest.mark.parametrize("basis", ["fourier", "inducing"])
def test_sampled_columns_leave_the_objective_unbiased(basis, control, k, r_tilde):
    """Theorem 2 with its third draw, control variates included: loss and gradient over all draws of l, i, j and r."""
    settings = Settings(n_tilde=1, m_tilde=2, r_tilde=r_tilde, control=control)
    problem, state = prepared(basis, "gaussian", settings, n=2, m=4, k=k, n_bar=2)
    table, theta = moved(state) if basis == "fourier" else leaves(state)
    batches = list(every_batch(2, 4, 1, 2, 2, columns=all_draws(k, r_tilde, False)))
    got = sum(sampled_loss(problem, state, batch, settings, table, theta) for batch in batches) / len(batches)
    wanted = dense_loss(problem, table, theta, k)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    variables = [table, *theta.values()] if basis == "fourier" else [table]
    for g, w in zip(torch.autograd.grad(got, variables), torch.autograd.grad(wanted, variables), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("r_tilde", [1, 3])
@pytest.mark.parametrize("control", ["none", "kriging"])
@pytest.mark.parametrize("likelihood", ["laplace", "logistic"])
def test_sampled_columns_leave_bound_q_as_it_is(likelihood, control, r_tilde):
    """Over all draws of r: value and gradient of bound Q with all columns, and bound B no higher than with them."""
    settings = Settings(n_tilde=2, m_tilde=1, r_tilde=r_tilde, control=control)
    problem, state = prepared("fourier", likelihood, settings, n=2, m=4, k=4, n_bar=2, outputs=2, weight=[0.5, 1.7])
    table, theta = moved(state)
    found = {}
    for bound, columns in product("BQ", ([None], all_draws(4, r_tilde, False))):
        own = replace(settings, bound=bound)
        batches = list(every_batch(2, 4, 2, 1, 2, columns=columns))
        if control == "kriging":  # r is independent of the third draw of functions: a part of its draws serves
            thirds = torch.tensor([[0], [3]])
            batches = [batch_of(b.l, (*b.draws, third), b.dense) for b in batches for third in thirds]
        mean = sum(sampled_loss(problem, state, batch, own, table, theta) for batch in batches) / len(batches)
        found[bound, columns[0] is not None] = mean
    assert float(found["B", True].detach()) > float(found["B", False].detach())
    torch.testing.assert_close(found["Q", True], found["Q", False], rtol=1e-10, atol=1e-10)
    sampled, whole = (torch.autograd.grad(found["Q", own], [table, *theta.values()]) for own in (True, False))
    for g, w in zip(sampled, whole, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-10)


def test_what_needs_whole_rows_of_c_refuses_sampled_columns():
    with pytest.raises(ValueError, match="bound='A' needs whole rows of C.*r_tilde=None"):
        start(make_problem("fourier", "logistic"), Settings(r_tilde=1, bound="A"))
    with pytest.raises(ValueError, match="whole rows of C.*r_tilde = 1.*relevance"):
        start(make_problem("rvm"), Settings(r_tilde=1))
    with pytest.raises(ValueError, match="r_tilde.*got 0.*None for all"):
        Settings(r_tilde=0)


# --- values of the sites -------------------------------------------------------------------------------------------


def by_hand(problem, state):
    """Phi mu, v, the kriged moments and the prior part of -ELBO from their definitions, all points and functions."""
    everything = torch.arange(problem.basis.m)
    rows, x, U = state.rows, problem.source.x, problem.support.U
    C = problem.covariance.to_dense(rows.L, rows.log_c)
    Phi, Phi_p = (problem.basis.features(z, problem.basis.columns(everything)) for z in (x, U))
    K = problem.support.factor @ problem.support.factor.mT
    W = problem.support.kernel(x, U) @ torch.linalg.inv(K)
    at_p = (Phi_p @ C).square().sum(1)
    about = (at_p.mean() + W @ (at_p - at_p.mean())).clamp(0.5 * at_p.min(), 2 * at_p.max())
    s = rows.log_s.exp() if rows.log_s is not None else torch.ones(len(everything), dtype=torch.float64)
    o = rows.mu.shape[1]
    prior = (s[:, None] * rows.mu.square()).sum() + o * ((s[:, None] * C.square()).sum() - 2 * rows.log_c.sum())
    prior = prior - o * (s.log().sum() + len(s))
    return Phi @ rows.mu, (Phi @ C).square().sum(1)[:, None], W @ Phi_p @ rows.mu, about[:, None], 0.5 * prior


SITE_CASES = list(product(["laplace", "logistic"], ["none", "kriging"], ["fourier", "rvm"], [0, 1, 4]))


@pytest.mark.parametrize(("likelihood", "control", "basis", "k"), SITE_CASES)
def test_bound_q_averages_to_its_full_batch(likelihood, control, basis, k):
    settings = Settings(n_tilde=1, m_tilde=1, control=control, bound="Q")
    problem, state = prepared(basis, likelihood, settings, n=2, m=4, k=k, n_bar=2, outputs=2, weight=[0.5, 1.7])
    batches = list(every_batch(2, 4, 1, 1, 3 if control == "kriging" else 2))
    got = sum(sampled_loss(problem, state, batch, settings, state.table, state.theta) for batch in batches) / len(
        batches
    )
    f, v, mean, variance, prior = by_hand(problem, state)
    y, site = problem.source.y, problem.likelihood
    constant, linear, quadratic = site.quadratic_bound(y, site.optimal_xi(y, mean, mean.square() + variance))
    sites = constant + linear * f + quadratic * (f.square() + v)
    torch.testing.assert_close(got, prior - (problem.source.weight[:, None] * sites).sum(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("likelihood", "control", "basis", "k"), SITE_CASES)
def test_full_batches_of_a_and_b_have_the_value_of_the_definition(likelihood, control, basis, k):
    """A is the exact expectation; B reads h at (eta + v / eta) / 2 with eta^2 kriged from the support points."""
    settings = Settings(n_tilde=2, m_tilde=4, control=control)
    problem, state = prepared(basis, likelihood, settings, n=2, m=4, k=k, n_bar=2, outputs=2, weight=[0.5, 1.7])
    batch = draw(2, 4, 2, 4, torch.Generator(), sets=3 if control == "kriging" else 2)
    f, v, _, variance, prior = by_hand(problem, state)
    deviation = {"A": v.sqrt(), "B": 0.5 * (variance.sqrt() + v / variance.sqrt())}
    for bound in ("A", "B"):
        got = sampled_loss(problem, state, batch, replace(settings, bound=bound), state.table, state.theta)
        sites = problem.likelihood.expected_log_site(problem.source.y, f, deviation[bound].expand_as(f))
        torch.testing.assert_close(got, prior - (problem.source.weight[:, None] * sites).sum(), rtol=1e-9, atol=1e-9)


def test_repeats_share_their_noise_in_bound_a():
    """A function drawn twice counts (2 phi c)^2, not 2 (phi c)^2."""
    settings = Settings(n_tilde=2, m_tilde=2, control="none", bound="A", replacement=True)
    problem, state = prepared("fourier", "logistic", settings, n=2, m=4, k=1, n_bar=2)
    twice = torch.tensor([2, 2])
    got = sampled_loss(problem, state, batch_of(torch.arange(2), [twice, twice]), settings, state.table, state.theta)
    Phi = problem.basis.features(problem.source.x, problem.basis.columns(torch.tensor([2])))[:, 0]
    row = problem.covariance.to_dense(state.rows.L, state.rows.log_c)[2]
    mu, log_c = state.rows.mu[2, 0], state.rows.log_c[2]
    site = problem.likelihood.expected_log_site(problem.source.y, 4 * Phi * mu, 4 * Phi.abs() * row.norm())
    prior = 4 * (mu.square() + row.square().sum() - 2 * log_c) - 4
    torch.testing.assert_close(got, 0.5 * prior - site.sum())


@pytest.mark.parametrize("likelihood", ["laplace", "logistic"])
def test_kriging_tightens_bound_b(likelihood):
    losses = {}
    for control in ("none", "kriging"):
        settings = Settings(n_tilde=3, m_tilde=2, control=control)
        problem, state = prepared("fourier", likelihood, settings, n=3, m=4, k=1, n_bar=3)
        batches = list(every_batch(3, 4, 3, 2, 3 if control == "kriging" else 2))
        values = [sampled_loss(problem, state, batch, settings, state.table, state.theta) for batch in batches]
        losses[control] = float(sum(values) / len(values))
    assert float(dense_loss(problem, state.table, state.theta, 1)) < losses["kriging"] < losses["none"]


# --- control variates do something ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("basis", "likelihood", "control", "dense"),
    [
        ("fourier", "gaussian", "gram", None),
        ("fourier", "gaussian", "kriging", None),
        ("inducing", "gaussian", "gram", None),
        ("fourier", "logistic", "kriging", None),
        ("fourier", "gaussian", "gram", [1]),
        ("fourier", "gaussian", "kriging", [1]),
        ("inducing", "gaussian", "gram", [1]),
    ],
)
def test_control_variates_remove_the_noise_they_know(basis, likelihood, control, dense):
    """Support points = the data, each twice (and = the centres): over all draws hardly any noise is left, apart from
    that of a diagonal prior and of the log-determinant, which have no control variate. So for any drawn columns too."""
    k, dense = (1, None) if dense is None else (2, torch.tensor(dense))
    variance = {}
    for used in ("none", control):
        settings = Settings(n_tilde=4, m_tilde=2, control=used)
        problem = make_problem(basis, likelihood, n=4, m=4, k=k)
        x, y = problem.source.x, problem.source.y
        made = replace(problem.basis, Z=x) if basis == "inducing" else problem.basis
        support = Support.build(problem.basis.kernel, torch.cat([x, x]), jitter=1e-9)
        source = Arrays(x, torch.zeros_like(y) if likelihood == "gaussian" else y)
        problem = replace(problem, basis=made, support=support, source=source)
        state = shake(start(problem, settings), problem, scale=1.0)
        state.rows.log_c[k:] = -20.0  # the arms have no control variate
        shake(state, problem, scale=0.0)
        sets = 3 if likelihood == "logistic" and used == "kriging" else 2
        losses = []
        for batch in every_batch(4, 4, 4, 2, sets, columns=[dense]):
            rows = state.gather(batch.touched, dense)[0]
            terms = loss(problem, state, batch, rows, state.theta, settings).terms
            losses.append(sum(terms.values()) - without_control(problem, state, batch))
        variance[used] = float(torch.stack(losses).var())
    assert variance[control] < 1e-6 * variance["none"]


def without_control(problem, state, batch):
    """The sampled log-determinant, and the quadratic form of S where it is diagonal (here S = I)."""
    rows = state.named(state.table[batch.drawn])
    C = problem.covariance.dense_columns(batch.drawn, rows.L, rows.log_c)
    C = C if batch.dense is None else C[:, batch.dense] * (state.k / len(batch.dense)) ** 0.5
    V = torch.cat([rows.mu, C], 1)
    quadratic = V.square().sum() if problem.basis.diagonal else 0.0
    return problem.basis.m / len(batch.drawn) * (quadratic - 2 * rows.log_c.sum())


# --- the step does what the enumeration tests ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replacement", "r_tilde", "update"), [(False, None, "row"), (True, 3, "row"), (True, 3, "entry")]
)
@pytest.mark.parametrize("control", ["none", "gram", "kriging"])
@pytest.mark.parametrize(
    ("likelihood", "bound"), [("gaussian", "B"), ("laplace", "A"), ("laplace", "B"), ("logistic", "Q")]
)
def test_steps_follow_their_settings(likelihood, bound, control, replacement, r_tilde, update):
    """Five steps by hand: draws of (seed, t), decayed AdaGrad on the touched rows, torch's Adam after the freeze."""
    r_tilde = None if bound == "A" else r_tilde
    settings = Settings(
        6,
        4,
        r_tilde,
        covariance_update=update,
        iterations=7,
        rate=0.2,
        hyper_rate=0.03,
        final=0.1,
        frozen=0.25,
        learn_hyperparameters=True,
        control=control,
        bound=bound,
        replacement=replacement,
        seed=11,
    )
    weight = torch.linspace(0.2, 2, 30).tolist()
    problem, state = prepared("fourier", likelihood, settings, k=5, weight=weight)
    sets = 3 if likelihood != "gaussian" and control == "kriging" else 2
    hyper = {name: value.clone().requires_grad_() for name, value in state.theta.items()}
    optimiser = torch.optim.Adam(hyper.values(), lr=0.03)
    for t in range(5):
        generator = step_generator(11, t)
        batch = draw(30, 12, 6, 4, generator, replacement=replacement, sets=sets)
        batch = replace(batch, dense=sample(5, 3, generator)) if r_tilde else batch
        table = state.table.clone().requires_grad_()
        loss = sampled_loss(problem, state, batch, settings, table, hyper)
        gradient, *others = torch.autograd.grad(loss, [table, *hyper.values()])
        wanted, sums = descended(table.detach(), state.sums.clone(), gradient, settings, 5, 0.1 ** (t / 7))
        if t >= 2:  # 0.25 of 7 iterations have passed
            for group in optimiser.param_groups:
                group["lr"] = 0.03 * 0.1 ** (t / 7)
            for value, other in zip(hyper.values(), others, strict=True):
                value.grad = other
            optimiser.step()
        state, info = step(problem, state, settings)
        assert info.elbo() == pytest.approx(-float(loss.detach()), rel=1e-9)
        torch.testing.assert_close(state.table, wanted, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(state.sums, sums, rtol=1e-9, atol=1e-9)
        for name in hyper:
            torch.testing.assert_close(state.theta[name], hyper[name].detach(), rtol=1e-7, atol=1e-9)


class LargestInput(TorchDispatchMode):
    """The largest tensor that any operation reads or writes, apart from gathering and scattering rows."""

    def __init__(self):
        super().__init__()
        self.largest = (0, "")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func._schema.name not in ("aten::index", "aten::index_copy_", "aten::index_select", "aten::detach"):
            for value in (*args, out):
                if isinstance(value, torch.Tensor):
                    self.largest = max(self.largest, (value.numel(), func._schema.name))
        return out


@pytest.mark.parametrize(("mean_update", "control"), [("adagrad", "gram"), ("newton", "gram"), ("implicit", "kriging")])
def test_no_operation_reads_n_or_m_elements(mean_update, control):
    problem = make_problem("rvm", n=60_000, m=50_000, n_bar=20, dtype=torch.float32)
    settings = Settings(30, 20, mean_update=mean_update, control=control, learn_hyperparameters=True, frozen=0.0)
    state = start(problem, settings)
    with LargestInput() as watch:
        step(problem, state, settings)
    assert watch.largest[0] < 25_000, watch.largest


def test_newton_of_a_block_is_the_exact_conditional_mean():
    """No noise in the residual (kriging from the data itself): the touched block ends at its optimum given the rest."""
    settings = Settings(30, 5, control="kriging", mean_update="newton", frozen=1.0)
    problem, _ = prepared("fourier", "gaussian", settings, outputs=2, weight=[2.0, 0.5] * 15)
    problem = replace(problem, support=Support.build(problem.basis.kernel, problem.source.x, jitter=1e-10))
    state = shake(start(problem, settings), problem)
    mu, x = state.rows.mu.clone(), problem.source.x
    u = draw(30, 12, 30, 5, step_generator(0, 0)).touched
    Phi = problem.basis.features(x, problem.basis.columns(torch.arange(12)))
    w, sigma2 = problem.source.weight[:, None] / problem.likelihood.noise_variance, torch.eye(len(u), dtype=x.dtype)
    residual = problem.source.y - Phi @ mu + Phi[:, u] @ mu[u]
    wanted = torch.linalg.solve(Phi[:, u].mT @ (w * Phi[:, u]) + sigma2, Phi[:, u].mT @ (w * residual))
    state, _ = step(problem, state, settings)
    torch.testing.assert_close(state.rows.mu[u], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("basis", ["fourier", "rvm"])
def test_an_implicit_step_ends_where_the_gradient_of_mu_and_of_dense_columns_vanishes(basis):
    """All points and functions, rate 1: mu is the exact mean, L the best there is below the diagonal at hand."""
    problem = make_problem(basis, k=3)
    settings = Settings(30, 12, control="none", mean_update="implicit", rate=1.0, frozen=1.0)
    state = shake(start(problem, settings), problem)
    log_c = state.rows.log_c.clone()
    state, _ = step(problem, state, settings)
    state.rows.log_c[:] = log_c
    table, theta = leaves(state)
    (gradient,) = torch.autograd.grad(dense_loss(problem, table, theta, state.k), [table])
    torch.testing.assert_close(gradient[:, :4], torch.zeros(12, 4, dtype=torch.float64), rtol=0, atol=1e-8)


def test_an_implicit_step_is_that_of_the_dense_gradient_in_the_mean_over_j():
    """i is fixed, all points are seen: the average over every j is -H^-1 times the rows i of the gradient."""
    problem, state = prepared("rvm", "gaussian", Settings(6, 2), n=6, m=5, k=2, n_bar=3)
    settings = Settings(6, 2, control="none", mean_update="implicit")
    table, theta = leaves(state)
    (gradient,) = torch.autograd.grad(dense_loss(problem, table, theta, 2), [table])
    i, changes = torch.tensor([1, 3]), []
    for j in all_draws(5, 2, False):
        batch = batch_of(torch.arange(6), [i, j])
        estimate = loss(problem, state, batch, table[batch.touched], theta, settings)
        (of_drawn,) = torch.autograd.grad(estimate.loss, [estimate.drawn.V])
        changes.append(implicit_step(estimate, of_drawn, 2, 0.3))
    rows, Phi = state.rows, problem.basis.features(problem.source.x, problem.basis.columns(i))
    H = torch.diag(rows.log_s[i].exp()) + Phi.mT @ Phi / problem.likelihood.noise_variance / 0.3
    wanted = -torch.linalg.solve(H, gradient[i, :3])
    # column 0 holds row 0 alone, which was not drawn; column 1 holds row 1, so that row 3 moves by itself
    wanted[:, 2] = torch.stack([torch.zeros(()), -gradient[3, 2] / H[1, 1]])
    torch.testing.assert_close(torch.stack(changes).mean(0), wanted)


@pytest.mark.parametrize("likelihood", ["laplace", "logistic"])
def test_a_newton_step_of_sites_uses_their_quadratic_curvature(likelihood):
    """Full batch, bound Q: one step ends at the optimum of the quadratic sites tightened by the support set."""
    settings = Settings(30, 12, control="none", bound="Q", mean_update="newton")
    problem, state = prepared("fourier", likelihood, settings, k=0)
    _, _, mean, variance, _ = by_hand(problem, state)
    y, site = problem.source.y[:, None], problem.likelihood
    _, linear, quadratic = site.quadratic_bound(y, site.optimal_xi(y, mean, mean.square() + variance))
    Phi = problem.basis.features(problem.source.x, problem.basis.columns(torch.arange(12)))
    H = torch.eye(12, dtype=torch.float64) - 2 * Phi.mT @ (quadratic * Phi)
    state, _ = step(problem, state, settings)
    torch.testing.assert_close(state.rows.mu, torch.linalg.solve(H, Phi.mT @ linear), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eta_stays_positive(dtype):
    """No variance at all at the support points; far points whose kriging weights are negative."""
    settings = Settings(8, 5, bound="B")
    problem = make_problem("fourier", "logistic", dtype=dtype)
    state = start(problem, settings)
    state.rows.log_c[:] = -60.0
    shake(state, problem, scale=0.0)
    _, info = step(problem, state, settings)
    assert all(torch.isfinite(term) for term in info.terms.values()) and torch.isfinite(state.table).all()
    values = support_values(problem, state, problem.basis.columns(torch.arange(3)))
    values = replace(values, variance=torch.tensor([4.0, 1e-4, 1e-4, 1e-4, 1e-4], dtype=dtype))
    W = torch.tensor([[-1.0, 0, 0, 0, 0], [9.0, 0, 0, 0, 0]], dtype=dtype)
    variance = values.site_moments(W, 1)[1]
    assert variance.tolist() == pytest.approx([0.5e-4, 8.0], rel=1e-5)


def test_own_precisions_of_two_outputs_maximise_the_elbo():
    settings = Settings(30, 12, frozen=0.0)
    problem, state = prepared("rvm", "gaussian", settings, outputs=2)
    state, _ = step(problem, state, settings)
    table, theta = leaves(state)
    batch = draw(30, 12, 30, 12, torch.Generator())
    (gradient,) = torch.autograd.grad(sampled_loss(problem, state, batch, settings, table, theta), [table])
    torch.testing.assert_close(gradient[:, -1], torch.zeros(12, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace", "logistic"])
def test_weights_are_repeats_whatever_their_mean(likelihood):
    """As test_weights_are_repeats, with weights that do not average to 1, and two outputs."""
    settings = Settings(n_tilde=8, m_tilde=3, control="none")
    weight = [3.0, 1, 0, 2, 1, 2, 1, 1]
    problem, state = prepared("fourier", likelihood, settings, n=8, m=6, k=1, outputs=2, weight=weight)
    keep = torch.repeat_interleave(torch.arange(8), problem.source.weight.long())
    repeated = replace(problem, source=Arrays(problem.source.x[keep], problem.source.y[keep]))
    draws = [torch.tensor([0, 2, 3]), torch.tensor([1, 2, 5])]
    losses = [
        sampled_loss(p, state, batch_of(torch.arange(len(p.source.x)), draws), settings, state.table, state.theta)
        for p in (problem, repeated)
    ]
    torch.testing.assert_close(*losses)


def test_the_first_c_is_proposition_1():
    """Support points = data: phi_r^T phi_r is exact, and the gradient of log c vanishes for every arm."""
    settings = Settings(30, 12)
    problem = make_problem(n=30, k=0, n_bar=30)
    state = start(problem, settings)
    table, theta = leaves(state)
    (gradient,) = torch.autograd.grad(dense_loss(problem, table, theta, 0), [table])
    torch.testing.assert_close(gradient[:, -1], torch.zeros(12, dtype=torch.float64), rtol=0, atol=1e-9)


# --- support, coefficient ------------------------------------------------------------------------------------------


def test_jitter_grows_until_the_factor_exists():
    problem = make_problem()
    U = torch.zeros(20, 2, dtype=torch.float64)
    factor = Support.build(problem.basis.kernel, U, jitter=1e-18).factor
    torch.testing.assert_close(factor @ factor.mT, problem.basis.kernel(U, U), rtol=1e-8, atol=1e-8)


def test_float32_support_points_keep_their_small_jitter():
    """Factored in float32, 300 close points would need ten times more."""
    kernel = make_problem(dtype=torch.float32).basis.kernel
    U = 0.1 * torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    factor = Support.build(kernel, U, jitter=1e-6).factor.double()
    added = (factor @ factor.mT).diagonal().mean() - 1.5
    assert float(added) < 5e-6


def test_the_optimal_coefficient_is_the_best():
    g = torch.Generator().manual_seed(0)
    control = torch.randn(50, generator=g, dtype=torch.float64)
    estimate = 3 * control + torch.randn(50, generator=g, dtype=torch.float64)
    best = control_variates.optimal_coefficient(estimate, control)
    variance = [float((estimate - c * best * control).var()) for c in (0.95, 1.0, 1.05)]
    assert variance[1] < min(variance[0], variance[2])


# --- fit, draws, predictions ---------------------------------------------------------------------------------------


def test_a_record_holds_the_mean_elbo_since_the_last():
    problem, settings = make_problem(), Settings(8, 5, iterations=6, every=3)
    records = fit(problem, settings).history
    state, elbos = start(problem, settings), []
    for _ in range(6):
        state, info = step(problem, state, settings)
        elbos.append(info.elbo())
    assert [r["elbo"] for r in records] == pytest.approx([sum(elbos[:3]) / 3, sum(elbos[3:]) / 3])


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_a_loss_that_is_not_finite_stops_the_run(monkeypatch, bad):
    def broken(problem, state, settings):
        state.t += 1
        return state, Info({"fit": torch.tensor(bad)})

    monkeypatch.setattr(fit_module, "step", broken)
    with pytest.raises(FloatingPointError, match="diverged"):
        fit(make_problem(), Settings(8, 5, iterations=5, every=2))


def test_all_draws_of_a_batch_are_independent_and_follow_the_seed():
    """Overlaps of every pair of sets are hypergeometric; every point is drawn at some step; seeds differ."""
    overlaps, points = dict.fromkeys(combinations(range(3), 2), 0), set()
    for t in range(200):
        batch = draw(100, 1000, 10, 300, step_generator(0, t), sets=3)
        points |= set(batch.l.tolist())
        for a, b in overlaps:
            overlaps[a, b] += 2 * 300 - len(torch.cat([batch.draws[a], batch.draws[b]]).unique())
    assert all(abs(total / 200 - 90) < 6 * 6.6 / math.sqrt(200) for total in overlaps.values()), overlaps
    assert points == set(range(100))
    first, other = (draw(1000, 1000, 10, 10, step_generator(seed, 0)).drawn for seed in (0, 1))
    assert not torch.equal(first, other)


def test_the_relevance_threshold_is_the_one_given():
    problem = make_problem("rvm")
    state = start(problem, Settings(8, 5))
    state.rows.log_s[:] = torch.linspace(0, math.log(1e6), 12, dtype=torch.float64)
    state.rows.mu[:] = 1.0
    assert len(relevance_vectors(state)) == 8 and len(relevance_vectors(state, 10.0)) == 2
    few = predict(problem, state, problem.source.x[:3], relevant=10.0).mean
    Phi = problem.basis.features(problem.source.x[:3], problem.basis.columns(torch.arange(2)))
    torch.testing.assert_close(few, Phi.sum(1))
