"""What the gate keeps of each origin is bounded: a broad crawl meets millions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scrapy import Request

from robots_guard.scrapy.deferral import gate as gate_module
from robots_guard.scrapy.deferral.gate import Gate


class Crawler:
    """As much of a crawler as the gate sees."""

    def __init__(self):
        self.engine = SimpleNamespace(downloader=SimpleNamespace(active=set()))


@pytest.fixture
def gate(monkeypatch):
    monkeypatch.setattr(gate_module, "REMEMBERED", 3)
    return Gate(Crawler())


def origin(number):
    return f"http://{number}.test"


def kept(gate):
    """How many things the gate keeps, whatever it keeps them in."""
    return sum(len(value) for value in vars(gate).values() if hasattr(value, "__len__"))


def test_origins_whose_requests_never_come_again_are_forgotten(gate):
    for number in range(100):
        gate.note_paced(origin(number))
        gate.learned(origin(number))

    assert kept(gate) == 6


def test_the_ones_that_are_asked_for_are_remembered(gate):
    for number in range(3):
        gate.note_paced(origin(number))
    gate.admits(Request(f"{origin(0)}/a"))
    gate.note_paced(origin(3))

    out = []
    for number in range(4):
        request = Request(f"{origin(number)}/b")
        gate._out.clear()
        gate.admits(request)
        out.append(request in gate._out.values())
    assert out == [True, False, True, True]


def test_nothing_is_kept_when_the_crawl_is_over(gate):
    gate.note_paced(origin(1))
    gate.learned(origin(1))
    gate.close()

    assert kept(gate) == 0
