"""How many attacks there are."""

from test_redteam_commands import CONFINED, HIDDEN, KEYS, ORDERS, TRUSTED
from test_redteam_files import ATTACKS
from test_redteam_injections import SAID, SERVED
from test_redteam_repository import BROUGHT


def test_more_than_a_hundred_ways_are_tried() -> None:
    tables = (ATTACKS, TRUSTED, HIDDEN, KEYS, CONFINED, ORDERS, SAID, SERVED, BROUGHT)
    assert sum(map(len, tables)) > 100
