"""What a status or a failure of /robots.txt means, number by number."""

from __future__ import annotations

import pytest

from robots_guard.decisions.access import Access, Failure, access_of, access_of_failure, is_trouble
from robots_guard.protocol.dialect import dialect

RFC, GOOGLE = dialect("rfc9309"), dialect("google")


@pytest.mark.parametrize(
    "status", [199, 206, 226, 300, 399, 407, 408, 421, 425, 429, 500, 599, 600]
)
def test_inconclusive_statuses_are_trouble(status):
    assert is_trouble(status)


@pytest.mark.parametrize(
    "status",
    [200, 205, 207, 225, 227, 299, 400, 401, 403, 406, 409, 420, 422, 424, 426, 428, 430, 499],
)
def test_every_other_2xx_or_4xx_is_conclusive(status):
    assert not is_trouble(status)


@pytest.mark.parametrize(
    ("status", "access"),
    [
        (200, Access.RULES),
        (299, Access.RULES),
        (300, Access.UNREACHABLE),
        (400, Access.UNRESTRICTED),
        (401, Access.RESTRICTED),
        (402, Access.UNRESTRICTED),
        (403, Access.RESTRICTED),
        (404, Access.UNRESTRICTED),
        (428, Access.UNRESTRICTED),
        (429, Access.UNREACHABLE),
        (430, Access.UNRESTRICTED),
        (500, Access.UNREACHABLE),
    ],
)
def test_only_401_and_403_restrict_and_only_429_defers(status, access):
    assert access_of(status, RFC) is access


@pytest.mark.parametrize("status", [401, 403])
def test_a_dialect_may_treat_a_refusal_as_no_file(status):
    assert access_of(status, GOOGLE) is Access.UNRESTRICTED


@pytest.mark.parametrize("failure", list(Failure))
def test_every_failure_makes_an_origin_unreachable(failure):
    assert access_of_failure(failure, RFC) is Access.UNREACHABLE


@pytest.mark.parametrize("failure", list(Failure))
def test_a_dialect_may_treat_endless_redirects_but_no_other_failure_as_no_file(failure):
    endless = failure in (Failure.REDIRECT_LOOP, Failure.REDIRECT_LIMIT)

    assert access_of_failure(failure, GOOGLE) is (
        Access.UNRESTRICTED if endless else Access.UNREACHABLE
    )
