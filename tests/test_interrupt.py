"""Ctrl-C while something must not be torn apart."""

import signal

import pytest

from qsgp.interrupt import deferred_interrupt


def test_an_inner_one_hears_of_what_was_pressed_before_it() -> None:
    with deferred_interrupt() as outer:
        signal.raise_signal(signal.SIGINT)
        with deferred_interrupt() as inner:
            assert inner is outer and inner.is_set()
            with pytest.raises(KeyboardInterrupt):  # the second time
                signal.raise_signal(signal.SIGINT)
    with deferred_interrupt() as later:
        assert not later.is_set()
