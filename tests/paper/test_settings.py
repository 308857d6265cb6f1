"""Which hyperparameters a step may move."""

from dataclasses import replace

import pytest

from problems import make_problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start


def test_what_is_learned_is_chosen_by_words():
    names = ["kernel.log_lengthscale", "kernel.log_variance", "likelihood.log_noise_variance", "likelihood.log_scale"]
    for learned, wanted in [
        (None, [True, True, True, True]),
        (("lengthscale", "noise"), [True, False, True, True]),
        (("kernel",), [True, True, False, False]),
        (("likelihood",), [False, False, True, True]),
        (("variance", "scale"), [False, True, False, True]),
        (("kernel.log_variance",), [False, True, False, False]),
    ]:
        assert [Settings(learned=learned).learns(name) for name in names] == wanted


@pytest.mark.usefixtures("without_shape_checks")
def test_a_word_alone_is_refused():
    with pytest.raises(ValueError, match="tuple of words, got 'noise'. Write .'noise',.."):
        Settings(learned="noise")


def test_unknown_words_are_named():
    problem = make_problem()
    settings = Settings(8, 6, learn_hyperparameters=True, learned=("noise", "smoothness"))
    with pytest.raises(ValueError, match="learned among.*'lengthscale'.*'noise'.*got 'smoothness'"):
        start(problem, settings)
    assert start(problem, replace(settings, learn_hyperparameters=False)).t == 0
