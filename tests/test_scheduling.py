"""The scheduler of the tests gives each worker the tests that pytest-xdist's own would give it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("xdist")
from support.scheduling import Collection, Scheduling
from xdist.scheduler.loadgroup import LoadGroupScheduling

GROUPS = st.lists(st.sampled_from(["", "@one", "@two", "@three"]), max_size=40)


class Worker:
    """A worker's queue of tests."""

    def __init__(self, name):
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.queue = []

    def send_runtest_some(self, places):
        self.queue += places

    def shutdown(self):
        self.shutting_down = True


def run(kind, names, workers, turns):
    """What happens when workers complete tests in the order of `turns`: for each completed test, the
    number of its worker, its place, and whether the worker was told to end.
    """
    option = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(option=option, getvalue=lambda _: ["popen"] * workers)
    scheduler = kind(config)
    pool = [Worker(f"gw{number}") for number in range(workers)]
    for worker in pool:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, names)
    scheduler.schedule()
    happened = []
    for number in [*turns, *[*range(workers)] * len(names)]:
        worker = pool[number % workers]
        if worker.queue:
            place = worker.queue.pop(0)
            scheduler.mark_test_complete(worker, place)
            happened.append((number % workers, place, worker.shutting_down))
    assert scheduler.tests_finished
    return happened


@given(
    groups=GROUPS,
    workers=st.integers(1, 4),
    turns=st.lists(st.integers(0, 3), max_size=60),
)
def test_workers_get_the_tests_that_xdist_would_give_them(groups, workers, turns):
    names = [f"tests/test_x.py::test_{place}{group}" for place, group in enumerate(groups)]

    happened = run(Scheduling, names, workers, turns)

    assert happened == run(LoadGroupScheduling, names, workers, turns)
    assert sorted(place for _, place, _ in happened) == [*range(len(names))]


@given(names=st.lists(st.sampled_from("abcdef"), min_size=1))
def test_a_collection_finds_a_name_where_a_list_does(names):
    assert [Collection(names).index(name) for name in names] == [
        names.index(name) for name in names
    ]


def test_finished_groups_are_forgotten():
    option = SimpleNamespace(loadscopereorder=False)
    scheduler = Scheduling(SimpleNamespace(option=option, getvalue=lambda _: ["popen"]))
    worker = Worker("gw0")
    scheduler.add_node(worker)
    scheduler.add_node_collection(worker, [f"test_{place}" for place in range(100)])
    scheduler.schedule()
    for _ in range(90):
        scheduler.mark_test_complete(worker, worker.queue.pop(0))

    assert len(scheduler.assigned_work[worker]) <= 3
