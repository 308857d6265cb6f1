"""Sites: concavity, expectations, bounds and predictive densities against independent integration."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr, roots_hermitenorm
from scipy.stats import laplace, norm
from torch import Tensor

from qsgp.interfaces import Likelihood
from qsgp.likelihoods import BY_NAME, Gaussian, LabelsAsNumbers, Laplace, Logistic, Mixture, sufficient_points
from qsgp.likelihoods.laplace import expected_absolute
from qsgp.likelihoods.logistic import jaakkola_jordan
from qsgp.likelihoods.quadrature import gauss_hermite


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


SITES = {"gaussian": Gaussian(scalar(0.3)), "laplace": Laplace(scalar(0.7)), "logistic": Logistic()}
TARGETS = {"gaussian": [-1.2, 0.4], "laplace": [-1.2, 0.4], "logistic": [-1.0, 1.0]}
each_name = pytest.mark.parametrize("name", SITES)
CASES = [(SITES[name], y) for name in SITES for y in TARGETS[name]]
each_case = pytest.mark.parametrize(("site", "y"), CASES, ids=lambda value: str(value)[:8])


def site_by_hand(site: Likelihood, y: float, f: float) -> float:
    """log g(f) from scipy, apart from the library's own formula."""
    if isinstance(site, Gaussian):
        return float(norm.logpdf(y, f, math.sqrt(float(site.noise_variance))))
    if isinstance(site, Laplace):
        return float(laplace.logpdf(y, f, float(site.scale)))
    return -float(np.logaddexp(0.0, -y * f))


def integrate(function, mean: float, deviation: float, kink: float) -> float:
    """E function(f), f ~ N(mean, deviation^2), adaptively, split where the integrand bends."""
    density = norm(mean, abs(deviation)).pdf
    inside = sorted({mean + k * abs(deviation) for k in (-3, 0, 3)} | {kink + k for k in (-12, -3, 0, 3, 12)})
    low, high = mean - 12 * abs(deviation), mean + 12 * abs(deviation)
    edges = [low, *(p for p in inside if low < p < high), high]
    pieces = zip(edges[:-1], edges[1:], strict=True)
    return sum(quad(lambda f: function(f) * density(f), a, b, epsabs=1e-13, epsrel=1e-12)[0] for a, b in pieces)


def kink_of(site: Likelihood, y: float) -> float:
    return 0.0 if isinstance(site, Logistic) else y


def test_every_registered_likelihood_is_tested_and_builds_with_defaults() -> None:
    # these two are tested in models/test_log_odds and test_mixture
    assert set(BY_NAME) == {*SITES, LabelsAsNumbers.name, Mixture.name}
    assert all(isinstance(build(), Likelihood) for build in BY_NAME.values())


@each_name
def test_parameters_survive_the_round_trip(name: str) -> None:
    site = SITES[name]
    parameters = {key: value.clone().requires_grad_() for key, value in site.parameters().items()}
    copy = site.with_parameters(parameters)
    y, f = tensor(*TARGETS[name]), tensor(0.3, 0.9)
    torch.testing.assert_close(copy.log_site(y, f), site.log_site(y, f))
    for key, value in parameters.items():
        (gradient,) = torch.autograd.grad(copy.log_site(y, f).sum(), value, retain_graph=True)
        step = 1e-6
        up, down = (
            site.with_parameters({**site.parameters(), key: site.parameters()[key] + sign * step}).log_site(y, f).sum()
            for sign in (1, -1)
        )
        torch.testing.assert_close(gradient, (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


@each_case
def test_sites_are_the_published_log_densities(site: Likelihood, y: float) -> None:
    f = torch.linspace(-6, 6, 41, dtype=torch.float64)
    expected = tensor(*(site_by_hand(site, y, float(v)) for v in f))
    torch.testing.assert_close(site.log_site(scalar(y), f), expected, rtol=1e-12, atol=1e-14)


@each_case
def test_sites_are_log_concave(site: Likelihood, y: float) -> None:
    f = torch.linspace(-20, 20, 2001, dtype=torch.float64)
    second_difference = site.log_site(scalar(y), f).diff(n=2)
    assert second_difference.max() <= 1e-12
    assert second_difference.min() < -1e-6


@each_case
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1.3, -0.5), (-4.0, 2.0), (0.41, 0.01), (25.0, 3.0)])
def test_expected_site_equals_integration(site: Likelihood, y: float, mean: float, deviation: float) -> None:
    value = site.expected_log_site(tensor(y), tensor(mean), tensor(deviation))
    expected = integrate(lambda f: site_by_hand(site, y, f), mean, deviation, kink_of(site, y))
    torch.testing.assert_close(value, tensor(expected), rtol=1e-9, atol=1e-9)


@each_case
def test_expected_site_is_even_and_reduces_to_the_site(site: Likelihood, y: float) -> None:
    mean = torch.linspace(-8, 8, 33, dtype=torch.float64)
    for deviation in (1e-9, 0.1, 2.0, 30.0):
        s = torch.full_like(mean, deviation)
        forward, mirrored = (site.expected_log_site(scalar(y), mean, sign * s) for sign in (1, -1))
        torch.testing.assert_close(forward, mirrored, rtol=1e-14, atol=1e-14)
    at_zero = site.expected_log_site(scalar(y), mean, torch.zeros_like(mean))
    torch.testing.assert_close(at_zero, site.log_site(scalar(y), mean), rtol=1e-14, atol=1e-14)


@each_case
def test_gradients_of_the_expectation(site: Likelihood, y: float) -> None:
    """First and second derivatives against finite differences, deviation 0 and negative included."""
    mean = tensor(-3.0, -0.2, 0.3, 1.7, 40.0).requires_grad_()
    for deviation in ([0.5, 1.0, 2.0, 0.1, 1.0], [-0.5, -1.0, -0.3, -0.7, -2.0], [0.0] * 5):
        s = tensor(*deviation).requires_grad_()

        def h(a: Tensor, s: Tensor) -> Tensor:
            return site.expected_log_site(scalar(y), a, s)

        assert torch.autograd.gradcheck(h, (mean, s))
        if all(deviation):  # |f| has no second derivative at deviation 0
            assert torch.autograd.gradgradcheck(h, (mean, s))


def test_laplace_gradient_at_the_kink_is_a_subgradient() -> None:
    r, s = tensor(0.0, 0.0, 1e-200, 3.0).requires_grad_(), tensor(0.0, 1e-150, 0.0, 0.0).requires_grad_()
    value = expected_absolute(r, s)
    torch.testing.assert_close(value, tensor(0.0, 1e-150 * math.sqrt(2 / math.pi), 1e-200, 3.0))
    gradients = torch.autograd.grad(value.sum(), (r, s))
    torch.testing.assert_close(gradients[0], tensor(0.0, 0.0, 1.0, 1.0))
    torch.testing.assert_close(gradients[1], tensor(0.0, math.sqrt(2 / math.pi), 0.0, 0.0))


@each_case
def test_quadratic_bound_lies_below_and_touches(site: Likelihood, y: float) -> None:
    f = torch.linspace(-30, 30, 1201, dtype=torch.float64)
    centre = kink_of(site, y)
    for xi in (0.0, 1e-4, 0.009, 0.011, 0.5, 3.0, 40.0):
        constant, linear, quadratic = site.quadratic_bound(scalar(y), scalar(xi))
        gap = site.log_site(scalar(y), f) - (constant + linear * f + quadratic * f.square())
        assert gap.min() >= -1e-9
        if isinstance(site, Laplace) and xi < 7e-4:
            continue  # below the smallest xi of the Laplace site: a bound that touches elsewhere
        touching = tensor(centre - xi, centre + xi)
        value = constant + linear * touching + quadratic * touching.square()
        torch.testing.assert_close(value, site.log_site(scalar(y), touching), rtol=1e-11, atol=1e-11)


@each_case
def test_optimal_xi_gives_the_highest_quadratic_bound(site: Likelihood, y: float) -> None:
    f_mean, f_second = scalar(0.8), scalar(0.8**2 + 1.5)
    best = site.optimal_xi(scalar(y), f_mean, f_second)
    xi = torch.cat([best[None], best * torch.linspace(0.5, 2.0, 301, dtype=torch.float64)])
    constant, linear, quadratic = site.quadratic_bound(scalar(y), xi)
    value = constant + linear * f_mean + quadratic * f_second
    assert value[0] >= value.max() - 1e-12
    if not isinstance(site, Gaussian):
        assert value[0] > value[1] + 1e-4
    exact = integrate(lambda f: site_by_hand(site, y, f), 0.8, math.sqrt(1.5), kink_of(site, y))
    assert value[0] <= exact + 1e-12


def test_gaussian_quadratic_bound_is_the_site() -> None:
    site, f = Gaussian(scalar(0.3)), torch.linspace(-5, 5, 11, dtype=torch.float64)
    for xi in (0.0, 2.0):
        constant, linear, quadratic = site.quadratic_bound(scalar(0.4), scalar(xi))
        torch.testing.assert_close(constant + linear * f + quadratic * f.square(), site.log_site(scalar(0.4), f))


def test_jaakkola_jordan_curvature_is_smooth_at_zero() -> None:
    xi = tensor(0.0, 1e-9, 0.00999, 0.01001, -2.0, 50.0).requires_grad_()
    exact = [0.125 if v == 0 else math.tanh(v / 2) / (4 * v) for v in xi.tolist()]
    torch.testing.assert_close(jaakkola_jordan(xi), tensor(*exact), rtol=1e-14, atol=1e-16)
    (gradient,) = torch.autograd.grad(jaakkola_jordan(xi).sum(), xi)
    torch.testing.assert_close(gradient[:3], -xi.detach()[:3] / 48, rtol=1e-3, atol=1e-12)


@each_case
@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (1.3, 1e-4), (-3.0, 4.0), (6.0, 0.3)])
def test_predictive_density_equals_integration(site: Likelihood, y: float, mean: float, variance: float) -> None:
    value = site.log_density(tensor(y), tensor(mean), tensor(variance))
    expected = integrate(lambda f: math.exp(site_by_hand(site, y, f)), mean, math.sqrt(variance), kink_of(site, y))
    torch.testing.assert_close(value.exp(), tensor(expected), rtol=1e-8, atol=1e-12)


@each_name
def test_predictive_density_sums_to_one_and_has_the_moments(name: str) -> None:
    """Integrates over y; for classes sums over the two labels."""
    site = SITES[name]
    mean, variance = scalar(0.7), scalar(1.9)
    expected_mean, expected_variance = site.moments(mean, variance)
    if isinstance(site, Logistic):
        y, weight = tensor(-1.0, 1.0), tensor(1.0, 1.0)
        label = (y + 1) / 2
    else:
        y = torch.linspace(-60, 60, 240_001, dtype=torch.float64)
        weight, label = torch.full_like(y, 120 / 240_000), y
    density = site.log_density(y, mean, variance).exp() * weight
    torch.testing.assert_close(density.sum(), scalar(1.0), rtol=1e-9, atol=0)
    torch.testing.assert_close((density * label).sum(), expected_mean, rtol=1e-9, atol=0)
    spread = (density * (label - expected_mean).square()).sum()
    torch.testing.assert_close(spread, expected_variance, rtol=1e-7, atol=0)


def test_class_probability_averages_the_sigmoid() -> None:
    """MNLP needs E sigmoid(f); the sigmoid of the median only tells the class."""
    mean, variance = tensor(2.0, -2.0), tensor(9.0, 9.0)
    probability, spread = Logistic().moments(mean, variance)
    expected = [integrate(lambda f: 1 / (1 + math.exp(-f)), m, 3.0, 0.0) for m in (2.0, -2.0)]
    torch.testing.assert_close(probability, tensor(*expected), rtol=0, atol=1e-8)
    torch.testing.assert_close(spread, probability * (1 - probability), rtol=1e-12, atol=0)
    assert (probability - torch.sigmoid(mean)).abs().min() > 0.1
    torch.testing.assert_close(Logistic().log_density(tensor(1.0, 1.0), mean, variance), probability.log())
    assert ((probability > 0.5) == (mean > 0)).all()


def test_laplace_predictive_density_far_from_the_data() -> None:
    """Where exp(s^2 / 2 b^2) overflows and erfc underflows; the exponents from scipy's log_ndtr."""
    b = 0.5
    r, s = np.meshgrid([0.0, 1e-8, 0.3, 10.0, 200.0], [1e-3, 0.5, 8.0, 60.0])
    sides = [s**2 / (2 * b**2) + sign * r / b + np.log(2) + log_ndtr(-sign * r / s - s / b) for sign in (1, -1)]
    expected = torch.from_numpy(np.logaddexp(*sides) - math.log(4 * b)).flatten()
    y, variance = torch.from_numpy(r).flatten(), torch.from_numpy(s).flatten().square()
    value = Laplace(scalar(b)).log_density(y, torch.zeros_like(y), variance)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    single = Laplace(torch.tensor(b)).log_density(y.float(), torch.zeros_like(y).float(), variance.float())
    torch.testing.assert_close(single.double(), value, rtol=1e-5, atol=1e-5)
    no_variance = Laplace(scalar(b)).log_density(y, torch.zeros_like(y), torch.zeros_like(y))
    torch.testing.assert_close(no_variance, Laplace(scalar(b)).log_site(y, torch.zeros_like(y)), rtol=1e-14, atol=1e-14)


@each_case
def test_gradients_of_the_predictive_density(site: Likelihood, y: float) -> None:
    mean, variance = tensor(-3.0, 0.2, 2.5, 9.0).requires_grad_(), tensor(0.01, 0.5, 3.0, 20.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: site.log_density(scalar(y), m, v), (mean, variance))


@each_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_values_stay_finite(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Value and gradient at means up to 1e4 and deviations from 0 to 1e3 of either sign."""
    magnitudes = torch.tensor([-1e4, -30.0, -1.0, 0.0, 1.0, 30.0, 1e4])
    deviations = torch.tensor([-1e3, -1e-6, 0.0, 1e-6, 1e-3, 1.0, 1e3])
    mean = magnitudes.repeat_interleave(7).to(device, dtype).requires_grad_()
    s = deviations.repeat(7).to(device, dtype).requires_grad_()
    y = torch.ones_like(mean)
    site = SITES[name].with_parameters(
        {key: value.to(device, dtype) for key, value in SITES[name].parameters().items()}
    )
    variance = s.square()
    values = [
        site.expected_log_site(y, mean, s),
        site.log_density(y, mean, variance),
        *site.moments(mean, variance),
        *site.quadratic_bound(y, site.optimal_xi(y, mean, mean.square() + variance)),
    ]
    for value in values:
        assert value.dtype == dtype and value.device == mean.device
        assert torch.isfinite(value).all()
        if value.requires_grad:
            gradients = torch.autograd.grad(value.sum(), (mean, s), retain_graph=True, allow_unused=True)
            assert all(torch.isfinite(g).all() for g in gradients if g is not None)


@each_name
def test_float32_agrees_with_float64(name: str) -> None:
    y = tensor(*TARGETS[name], *TARGETS[name], *TARGETS[name])
    mean, s = tensor(-2.0, -0.5, 0.0, 0.7, 3.0, 12.0), tensor(0.0, 0.1, -0.8, 1.5, 2.0, 3.0)
    site = SITES[name]  # its float64 parameter must not lift float32 data
    for method in (site.expected_log_site, lambda y, m, s: site.log_density(y, m, s.square())):
        single = method(y.float(), mean.float(), s.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), method(y, mean, s), rtol=1e-5, atol=1e-5)
    assert all(part.dtype == torch.float32 for part in site.quadratic_bound(y.float(), s.float().abs()))


@pytest.mark.parametrize("points", [1, 2, 7, 101, 201])
def test_gauss_hermite_equals_scipy(points: int) -> None:
    z, log_w = gauss_hermite(points, torch.float64, torch.device("cpu"))
    nodes, weights = roots_hermitenorm(points)
    torch.testing.assert_close(z, torch.from_numpy(nodes), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(log_w.exp(), torch.from_numpy(weights / weights.sum()), rtol=1e-9, atol=1e-16)
    assert torch.equal(z, -z.flip(0))


def test_nodes_first_met_in_inference_mode_still_carry_gradients() -> None:
    site, a = Logistic(points=83), tensor(0.3).requires_grad_()
    gauss_hermite.cache_clear()
    with torch.inference_mode():
        site.moments(tensor(0.3), tensor(1.0))
    site.expected_log_site(tensor(1.0), a, a).sum().backward()
    assert a.grad is not None and torch.isfinite(a.grad).all()


@pytest.mark.parametrize(("tolerance", "largest"), [(1e-3, 0.0), (1e-6, 0.5), (1e-3, 3.0), (1e-8, 2.0), (1e-4, 8.0)])
def test_sufficient_points_are_sufficient_and_not_many_more(tolerance: float, largest: float) -> None:
    """Means and deviations off the helper's own grid, and adaptive integration instead of its trapezoidal rule."""
    points = sufficient_points(tolerance, largest)
    site, worst = Logistic(), {points: 0.0, max(points // 2, 1): 0.0}
    for fraction in (0.37, 0.83, 1.0):
        s = fraction * largest
        for mean in np.linspace(0.0, 2 * s + 2, 13):
            exact = (
                integrate(lambda f: site_by_hand(site, 1.0, f), mean, s, 0.0) if s else site_by_hand(site, 1.0, mean)
            )
            for count in worst:
                h = replace(site, points=count).expected_log_site(tensor(1.0), tensor(mean), tensor(s))
                worst[count] = max(worst[count], abs(float(h) - exact))
    assert worst[points] <= tolerance + 1e-11
    if points > 1:
        assert worst[points // 2] > tolerance


def test_impossible_tolerance_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="401 points can reach for deviations up to 100.0.*larger tolerance"):
        sufficient_points(1e-8, 100.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_scales_must_be_positive(value: float) -> None:
    with pytest.raises(ValueError, match="Expected noise_variance > 0, got .*not its logarithm"):
        Gaussian(scalar(value))
    with pytest.raises(ValueError, match="Expected scale > 0, got .*not its logarithm"):
        Laplace(scalar(value))


def test_targets_are_checked() -> None:
    with pytest.raises(ValueError, match=r"Expected labels -1 and \+1, got 0.0 \(2 such labels in all\)"):
        Logistic().check_targets(tensor(0.0, 1.0, 0.0))
    with pytest.raises(ValueError, match=r"Expected labels -1 and \+1, got nan"):
        Logistic().check_targets(tensor(1.0, math.nan))
    for site in (Gaussian(), Laplace()):
        with pytest.raises(ValueError, match="Expected finite numbers in y, got nan"):
            site.check_targets(tensor(1.0, math.nan))
    for name, site in SITES.items():
        site.check_targets(tensor(*TARGETS[name]))


def test_points_must_be_positive() -> None:
    with pytest.raises(ValueError, match="Expected points >= 1, got 0"):
        Logistic(points=0)


# --- distribution functions and quantiles of y -----------------------------------------------------------------------

RATIOS = [0.0, 1e-6, 0.03, 0.5, 1.0, 3.0, 40.0, 1e5]  # deviation of f over the scale of the noise
LEVELS = [1e-200, 1e-12, 1e-3, 0.05, 0.3, 0.5, 0.500001, 0.8, 0.95, 1 - 1e-3, 1 - 1e-12]
NOISY = {name: site for name, site in SITES.items() if name != "logistic"}
each_noisy = pytest.mark.parametrize("site", NOISY.values(), ids=NOISY)


def cdf_by_integration(site: Likelihood, y: float, mean: float, deviation: float) -> float:
    """Pr(below y) = E of the noise's own distribution function at y - f."""
    law = (
        norm(0, math.sqrt(float(site.noise_variance))) if isinstance(site, Gaussian) else laplace(0, float(site.scale))
    )
    return integrate(lambda f: float(law.cdf(y - f)), mean, deviation, y)


@each_noisy
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1.3, 0.01), (-4.0, 2.0), (6.0, 0.3), (0.4, 5.0)])
def test_distribution_function_equals_integration(site: Gaussian | Laplace, mean: float, deviation: float) -> None:
    for y in (-9.0, -1.2, 0.4, 1.3, 7.0):
        value = site.cdf(tensor(y), tensor(mean), tensor(deviation**2))
        expected = cdf_by_integration(site, y, mean, deviation)
        torch.testing.assert_close(value, tensor(expected), rtol=1e-8, atol=1e-13)


@each_noisy
def test_density_is_the_slope_of_the_distribution_function(site: Gaussian | Laplace) -> None:
    y = torch.linspace(-12, 12, 97, dtype=torch.float64).requires_grad_()
    for variance in (1e-4, 0.5, 30.0):
        (slope,) = torch.autograd.grad(site.cdf(y, scalar(0.3), scalar(variance)).sum(), y)
        density = site.log_density(y.detach(), scalar(0.3), scalar(variance)).exp()
        torch.testing.assert_close(slope, density, rtol=1e-8, atol=1e-14)


def log_tail_by_integration(y: float, s: float, b: float) -> float:
    """log Pr(below y) for f ~ N(0, s^2): the integrand is scaled by its peak, so that no tail is too small."""

    def log_integrand(f):
        return laplace.logcdf(y - f, 0, b) + norm.logpdf(f, 0, s)

    grid = np.linspace(y - 15 * s, 15 * s, 4001) if y < 0 else np.linspace(-15 * s, 15 * s, 4001)
    peak = float(grid[log_integrand(grid).argmax()])
    height = float(log_integrand(peak))
    edges = sorted({peak - 12 * s, peak - 3 * s, peak, peak + 3 * s, peak + 12 * s, y})
    pieces = zip(edges[:-1], edges[1:], strict=True)
    area = sum(quad(lambda f: math.exp(log_integrand(f) - height), *piece, epsrel=1e-11)[0] for piece in pieces)
    return height + math.log(area)


@pytest.mark.parametrize("s", [0.02, 0.7, 9.0])
def test_laplace_tail_keeps_its_digits(s: float) -> None:
    """Far below what one minus the rest could resolve, and where exp(s^2 / 2 b^2) times erfc would overflow."""
    site = Laplace(scalar(0.7))
    for y in (-1e-3, -1.0, -20.0, -150.0):
        expected = log_tail_by_integration(y, s, 0.7)
        value = site.cdf(tensor(y), tensor(0.0), tensor(s * s)).log()
        torch.testing.assert_close(value, tensor(expected), rtol=0, atol=1e-9 * max(1, -expected))


def test_laplace_quantile_equals_integration() -> None:
    """To 1e-6 of its distance from the mean: the integrated tail brackets the level on both sides."""
    b = 0.7
    for ratio in (0.03, 1.0, 12.0):
        for q in (1e-12, 1e-3, 0.3):
            y = Laplace(scalar(b)).quantile(q, tensor(0.0), tensor((ratio * b) ** 2)).item()
            low, high = (log_tail_by_integration(y * (1 + sign * 1e-6), ratio * b, b) for sign in (1, -1))
            assert low < math.log(q) < high
            upper = Laplace(scalar(b)).quantile(1 - q, tensor(0.0), tensor((ratio * b) ** 2)).item()
            assert upper == pytest.approx(-y, rel=1e-4 if q < 1e-9 else 1e-9)  # 1 - 1e-12 has lost digits


@each_noisy
@pytest.mark.parametrize("mean", [0.0, -3.0])
def test_quantile_inverts_the_distribution_function(site: Gaussian | Laplace, mean: float) -> None:
    q, ratio = tensor(*LEVELS)[:, None], tensor(*RATIOS)
    unit = site.moments(scalar(0.0), scalar(0.0))[1].sqrt()
    y = site.quantile(q, scalar(mean), (ratio * unit).square())
    assert y.shape == (len(LEVELS), len(RATIOS))
    torch.testing.assert_close(site.cdf(y, scalar(mean), (ratio * unit).square()), q.expand_as(y), rtol=1e-9, atol=0)
    alone = site.quantile(0.3, tensor(mean), (ratio[2:3] * unit).square())
    torch.testing.assert_close(alone, y[4, 2:3], rtol=1e-15, atol=0)


def test_quantiles_without_variance_are_those_of_the_noise() -> None:
    mean, variance = tensor(0.4), tensor(0.0)
    for q in (1e-6, 0.2, 0.5, 0.9):
        gaussian, double = norm(0.4, math.sqrt(0.3)), laplace(0.4, 0.7)
        torch.testing.assert_close(
            SITES["gaussian"].quantile(q, mean, variance), tensor(gaussian.ppf(q)), rtol=1e-12, atol=0
        )
        torch.testing.assert_close(
            SITES["laplace"].quantile(q, mean, variance), tensor(double.ppf(q)), rtol=1e-12, atol=0
        )


@each_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles_increase_and_stay_finite(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Means up to 1e4, deviations 0 to 1e3, levels into both tails; the level may come in another dtype."""
    site = SITES[name].with_parameters(
        {key: value.to(device, dtype) for key, value in SITES[name].parameters().items()}
    )
    q = torch.cat([tensor(1e-300, 1e-30), torch.linspace(1e-6, 1 - 1e-6, 2001).double(), tensor(1 - 1e-15)]).to(device)
    mean = torch.tensor([-1e4, -1.0, 0.0, 30.0, 1e4], dtype=dtype, device=device)
    for deviation in (0.0, 1e-6, 1e-3, 1.0, 1e3):
        y = site.quantile(q[:, None], mean, torch.full_like(mean, deviation**2))
        assert y.dtype == dtype and y.device == mean.device
        assert torch.isfinite(y).all()
        assert (y.diff(dim=0) >= 0).all()
        assert (y[-1] > y[0]).any() or (name == "logistic" and deviation < 1e-3)


def test_class_quantiles_are_those_of_the_probability() -> None:
    mean, variance = tensor(-1.0, 0.0, 2.0), tensor(0.5, 1.0, 9.0)
    draws = torch.sigmoid(
        mean + variance.sqrt() * torch.special.ndtri((torch.arange(1, 20_000).double() / 20_000)[:, None])
    )
    for q in (0.025, 0.5, 0.9):
        value = Logistic().quantile(q, mean, variance)
        torch.testing.assert_close((draws <= value).double().mean(0), torch.full_like(mean, q), rtol=0, atol=1e-4)
    torch.testing.assert_close(Logistic().quantile(0.5, mean, variance), torch.sigmoid(mean))


@each_name
@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 95.0, math.nan])
def test_a_level_outside_0_and_1_is_refused(name: str, q: float) -> None:
    with pytest.raises(ValueError, match="Expected 0 < q < 1, got .*95 % quantile"):
        SITES[name].quantile(q, tensor(0.0), tensor(1.0))


@each_noisy
@pytest.mark.parametrize(("mean", "variance"), [(0.4, 0.0), (0.0, 1e-4), (1.3, 0.5), (-4.0, 4.0), (0.2, 900.0)])
def test_crps_equals_its_integral(site: Gaussian | Laplace, mean: float, variance: float) -> None:
    """The integral of F^2 below y and (1 - F)^2 above, by the distribution function checked before."""
    unit = float(site.moments(scalar(mean), scalar(variance))[1].sqrt())
    m, v = scalar(mean), scalar(variance)
    for y in (mean, mean + 0.3 * unit, mean - 7 * unit):
        below = torch.linspace(y - 60 * unit, y, 400_001, dtype=torch.float64)
        above = 2 * y - below.flip(0)
        expected = sum(
            torch.trapezoid(tail.square(), grid)
            for tail, grid in ((site.cdf(below, m, v), below), (site.cdf(2 * m - above, m, v), above))
        )
        torch.testing.assert_close(site.crps(scalar(y), m, v), expected, rtol=1e-6, atol=0)


def test_crps_in_single_precision_far_and_near(device: torch.device) -> None:
    y = torch.tensor([0.0, 1e-3, 2.0, 1e4], device=device)
    for built in NOISY.values():
        site = built.with_parameters({key: value.to(device) for key, value in built.parameters().items()})
        for deviation in (0.0, 1e-4, 1.0, 1e4):
            v = torch.full_like(y, deviation**2)
            single, double = (site.crps(a, torch.zeros_like(a), b) for a, b in ((y, v), (y.double(), v.double())))
            assert single.dtype == torch.float32 and (single > 0).all()
            torch.testing.assert_close(single.double(), double, rtol=2e-6, atol=0)
