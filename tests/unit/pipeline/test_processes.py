"""Work in several processes."""

import os

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.processes import map_in_processes


def test_results_are_in_the_order_of_the_arguments() -> None:
    """Whichever process was first."""
    assert list(map_in_processes(str, range(20))) == [str(number) for number in range(20)]


def test_a_process_that_is_gone_is_told_in_one_line() -> None:
    """As when the system ended it for want of memory."""
    with pytest.raises(ConfigError, match="has ended: is there too little memory"):
        list(map_in_processes(os._exit, [1]))
