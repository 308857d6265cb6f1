"""Two ranks with addresses of their own: what `benchmarks/namespaces.py` shows, once and small."""

import argparse
import os

import pytest

import namespaces


@pytest.fixture
def rights():
    if (reason := namespaces.why_not()) is not None:
        pytest.skip(reason)


@pytest.mark.slow
def test_a_link_that_is_cut_ends_both_ranks_and_restored_they_go_on(rights):
    given = argparse.Namespace(rows=3200, cuts=[1], timeout=8.0, torchrun=False)
    whole, moment, cut = namespaces.measured(given, lambda row: None)
    for row in (whole, moment, cut):
        assert row["differs"] < 1e-9 and row["carried_bytes"] > 1e4
    assert cut["ended_s"] < given.timeout + 10 and cut["epochs"] > cut["resumed_from"] >= 1
    for rank, words in enumerate(cut["words"]):
        assert f"Rank {rank} of 2 cannot go on" in words and "more than 8 s" in words and "checkpoint=folder" in words
    left = namespaces.ip("netns", "list")
    assert f"qsgp{os.getpid()}" not in left
