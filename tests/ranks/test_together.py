"""What ranks do together: collectives, who owns which row, and what they say when one of them is lost."""

import os
import pickle
import signal
import time

import numpy as np
import pytest
import torch

from qsgp.factor import NotPositiveDefinite
from qsgp.ranks import ALONE, LostRanks, asked_for, present, starting
from qsgp.training.store import check_same
from ranking import together


def test_without_an_environment_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert asked_for() == 1 and present() is ALONE
    monkeypatch.setenv("WORLD_SIZE", "4")  # without a rank it says nothing
    assert present() is ALONE


def collectives():
    ranks = present()
    before, every = ranks.moved, torch.arange(7)
    own = (10.0 * every[ranks.share(7)])[:, None]
    assert len(own) == ranks.mine(7)
    later = torch.arange(7, 12)[ranks.share(12, 7)]
    at, here = ranks.split(torch.tensor([6, 1, 2]))

    def work(value):
        return lambda: torch.full((2,), value) if value >= 0 else factorless()

    def factorless():
        raise NotPositiveDefinite("here alone")

    done = ranks.divided([work(1.0), work(2.0)], [torch.empty(2)] * 2, first=1)
    try:
        ranks.divided([work(-1.0)], [torch.empty(2)])
        heard = False
    except NotPositiveDefinite:
        heard = True
    return {
        "total": float(ranks.total(torch.tensor(1.0 + ranks.rank))),
        "collected": ranks.collected(own, torch.tensor([5, 0, 3]))[:, 0].tolist(),
        "own": [*own[:, 0].tolist(), *later.tolist()],
        "split": (at.tolist(), here.tolist()),
        "done": [each.tolist() for each in done],
        "heard": heard,
        "agreed": ranks.agreed(f"of {ranks.rank}"),
        "on first": ranks.on_first(lambda: os.getpid()) != os.getpid() or ranks.rank == 0,
        "moved": ranks.moved - before,
    }


def test_collectives_give_what_one_process_has():
    found = together(3, collectives)
    for each in found:
        assert each["total"] == 6 and each["collected"] == [50, 0, 30] and each["agreed"] == "of 0"
        assert each["done"] == [[1, 1], [2, 2]] and each["heard"] and each["on first"]
    assert [each["own"] for each in found] == [[0, 30, 60, 9], [10, 40, 7, 10], [20, 50, 8, 11]]
    assert [each["split"] for each in found] == [([0], [2]), ([1], [0]), ([2], [0])]
    assert found[0]["moved"] == 3 * 8 + 4 + 3 * 4 + 8  # three works, a sum, three rows, a sign of life


def never_at_the_same_place(how):
    """Rank 1 leaves in its own way while the others wait for it."""
    ranks = present()
    if ranks.rank == 1:
        if how == "fails":
            raise ValueError("a reason of its own")
        os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    began = time.monotonic()
    try:
        ranks.total(torch.ones(1))
    except LostRanks as error:
        return time.monotonic() - began, str(error)
    return None


@pytest.mark.parametrize("how", ["killed", "hangs", "fails"])
def test_a_lost_rank_ends_the_others_within_the_timeout(how):
    first, _, third = together(3, never_at_the_same_place, how, seconds=1.5)
    for seconds, words in (first, third):
        assert seconds < 4
        assert "another rank has ended, hangs for more than 1.5 s" in words
        assert "with checkpoint=folder it goes on where it was" in words


def waiting(seconds, lost):
    """Rank 0 works for longer than the timeout."""
    ranks, given_up = present(), []

    def work():
        for _ in range(int(10 * seconds)):
            time.sleep(0.1)
            if given_up:
                break
        if lost == "fails":
            raise ValueError("no such column")
        return "found"

    if lost == "killed" and ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ranks.on_first(work, lambda: given_up.append(True))


@pytest.mark.slow
def test_a_long_search_of_the_first_rank_is_no_reason_to_give_up(monkeypatch):
    monkeypatch.setattr("qsgp.ranks.together._PULSE", 0.2)
    assert together(2, waiting, 2.5, "", seconds=1.0) == ["found", "found"]


def test_a_search_that_fails_on_the_first_rank_fails_on_all():
    first, second = together(2, waiting, 0.1, "fails")
    assert first == ("ValueError", "no such column")
    assert second == ("LostRanks", "Rank 0 has failed, and the others end with it. It says: ValueError: no such column")


def test_a_rank_that_is_lost_during_a_search_ends_it(monkeypatch):
    monkeypatch.setattr("qsgp.ranks.together._PULSE", 0.1)
    began = time.monotonic()
    first, second = together(2, waiting, 30.0, "killed", seconds=2.0)
    assert second is None and first[0] == "LostRanks" and time.monotonic() - began < 10


def too_few():
    os.environ["WORLD_SIZE"] = "3"
    return present()


def test_a_rank_that_never_comes_is_named_at_the_start():
    for kind, words in together(2, too_few, seconds=1.5):
        assert kind == "LostRanks"
        assert "of 3 has waited 1.5 s for the others at 127.0.0.1:" in words and "unset WORLD_SIZE" in words


def test_a_timeout_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("QSGP_RANKS_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="Expected QSGP_RANKS_TIMEOUT in seconds, got 'soon'"):
        starting._seconds()


def other_rows():
    ranks = present()
    check_same(ranks, np.arange(5))
    check_same(ranks, np.arange(5) + ranks.rank)


def test_ranks_with_other_rows_are_refused_on_all():
    for kind, words in together(2, other_rows):
        assert kind == "ValueError" and "Expected the same rows on all 2 ranks" in words


def pickled():
    pickle.dumps(present())


def test_a_shared_model_is_not_pickled():
    assert together(2, pickled)[0][0] == "TypeError"
