"""The queue with open and closed buckets: it hands out what the slow model hands out.

The model looks at every bucket for each request, as Scrapy's own queue does.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from scrapy import Request, Spider
from scrapy.core.downloader import Downloader
from scrapy.crawler import Crawler
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.squeues import LifoMemoryQueue, PickleLifoDiskQueue
from scrapy.utils.misc import build_from_crawler
from support.cost import FACTOR, growth

from robots_guard.scrapy.deferral import buckets as buckets_module
from robots_guard.scrapy.deferral import gate as gate_module
from robots_guard.scrapy.deferral.buckets import Buckets, OrderedNames, bucket_named
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.deferral.queue import GuardPriorityQueue
from robots_guard.scrapy.guarded_request import GROUP

HOSTS = ["a.test", "a.test.b", "b.test", "c.test", "d.test", "e.test"]
URLS = [f"{scheme}://{host}" for host in HOSTS for scheme in ("http", "https")]
SHARED = "a shared slot"  # of several origins


class StillDownloader(Downloader):
    """A downloader whose requests a test moves."""

    def __init__(self) -> None:
        self.ip_concurrency = 0
        self.active = set()
        self.slots = {}

    def begin(self, request: Request) -> None:
        """A request enters its slot."""
        key = self.get_slot_key(request)
        request.meta["download_slot"] = key
        self.active.add(request)
        self.slots.setdefault(key, SimpleNamespace(active=set())).active.add(request)

    def end(self, request: Request) -> None:
        """A request leaves its slot, which is kept for a while."""
        self.active.discard(request)
        slot = self.slots.get(self.get_slot_key(request))
        if slot is not None:
            slot.active.discard(request)


def crawler_with(downloader: StillDownloader):
    crawler = Crawler(Spider)
    crawler.spider = Spider("spider")
    crawler.engine = SimpleNamespace(downloader=downloader, _slot=None)
    return crawler


class Model:
    """The requests of each bucket, last in first out for each priority, and what leaves next."""

    def __init__(self) -> None:
        self.stacks: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.last: tuple[str, str] | None = None

    def __len__(self) -> int:
        return sum(len(urls) for stacks in self.stacks.values() for urls in stacks.values())

    def push(self, bucket: str, request: Request) -> None:
        self.stacks[bucket][request.priority].append(request.url)

    def next_bucket(self, downloader: StillDownloader, is_open) -> str | None:
        """Of the open buckets with the fewest downloads, the first behind the last one taken."""
        counts = {}
        for name in self.stacks:
            bucket = bucket_named(name)
            if is_open(bucket.origin, bucket.group):
                slot = downloader.slots.get(bucket.slot)
                counts[bucket.slot, name] = len(slot.active) if slot else 0
        places = sorted(place for place in counts if counts[place] == min(counts.values()))
        behind = [place for place in places if self.last is not None and place > self.last]
        for _, name in behind or places:
            return name
        return None

    def top(self, name: str | None) -> str | None:
        if name is None:
            return None
        stacks = self.stacks[name]
        return stacks[max(stacks)][-1]

    def pop(self, name: str | None) -> str | None:
        if name is None:
            return None
        stacks = self.stacks[name]
        url = stacks[max(stacks)].pop()
        if not stacks[max(stacks)]:
            del stacks[max(stacks)]
        if not stacks:
            del self.stacks[name]
        self.last = (bucket_named(name).slot, name)
        return url


class QueueOfCrawl(RuleBasedStateMachine):
    """A crawl with a queue in memory."""

    downstream = LifoMemoryQueue
    out = Bundle("out")  # requests that have left the queue and not ended

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.number = 0
        self.known: set[str] = set()
        self.time, gate_module.time = gate_module.time, SimpleNamespace(monotonic=lambda: self.now)
        self.folder = tempfile.mkdtemp()
        self.model = Model()
        self.open_queue({})

    def open_queue(self, state: dict[str, list[int]]) -> None:
        self.downloader = StillDownloader()
        crawler = crawler_with(self.downloader)
        self.queue = build_from_crawler(
            GuardPriorityQueue,
            crawler,
            downstream_queue_cls=self.downstream,
            key=self.folder,
            startprios=state,
        )
        self.gate = OriginGate.of(crawler)
        self.gate.lacks_policy = lambda origin: str(origin) not in self.known

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()
            self.gate.deferrals.clear()
            gate_module.time = self.time
            shutil.rmtree(self.folder)

    # -- the scheduler

    @rule(
        site=st.sampled_from(URLS),
        priority=st.integers(-1, 1),
        slot=st.sampled_from([None, None, None, SHARED]),
        group=st.sampled_from(["", "", "", "16.5"]),
        many=st.integers(1, 3),
    )
    def push(self, site, priority, slot, group, many) -> None:
        meta = {"download_slot": slot, GROUP: group}
        for _ in range(many):
            self.number += 1
            self.schedule(Request(f"{site}/{self.number}", priority=priority, meta=meta))

    @rule(priority=st.integers(-1, 1))
    def push_what_no_robots_txt_governs(self, priority) -> None:
        self.number += 1
        self.schedule(Request(f"data:,{self.number}", priority=priority))

    def schedule(self, request: Request) -> None:
        self.model.push(self.gate.bucket(request), request)
        self.queue.push(request)

    @rule(target=out, many=st.integers(1, 6))
    def pop(self, many):
        popped = []
        for _ in range(many):
            url = self.model.pop(self.next_bucket())
            request = self.queue.pop()
            assert (request and request.url) == url
            if request is not None:
                self.gate.mark_begun(request)
                popped.append(request)
        return multiple(*popped)

    @rule()
    def peek(self) -> None:
        """Nothing moves."""
        expected = self.model.top(self.next_bucket())
        if self.downstream is LifoMemoryQueue:
            request = self.queue.peek()
            assert (request and request.url) == expected

    def next_bucket(self) -> str | None:
        self.gate.deferrals.settle(self.now)
        return self.model.next_bucket(self.downloader, self.gate.deferrals.is_open)

    @invariant()
    def none_is_lost(self) -> None:
        if hasattr(self, "queue"):
            assert sum(map(len, self.queue.pqueues.values())) == len(self.model)

    # -- what opens and closes origins

    @rule(
        site=st.sampled_from(URLS),
        group=st.sampled_from(["", "", "#16.5"]),
        seconds=st.sampled_from([0.01, 1.0, 2.5, 60.0]),
    )
    def shut(self, site, group, seconds) -> None:
        self.gate.deferrals.shut(site + group, self.now + seconds, self.now)

    @rule(seconds=st.sampled_from([0.01, 1.0, 2.5, 60.0]))
    def wait(self, seconds) -> None:
        self.now += seconds

    @rule(site=st.sampled_from(URLS), is_known=st.booleans())
    def learn_or_forget_a_policy(self, site, is_known) -> None:
        (self.known.add if is_known else self.known.discard)(site)

    @rule(site=st.sampled_from(URLS), is_paced=st.booleans())
    def note_pace(self, site, is_paced) -> None:
        note = self.gate.deferrals.note_paced if is_paced else self.gate.deferrals.note_unpaced
        note(site)

    @rule(site=st.sampled_from(URLS))
    def fetched(self, site) -> None:
        self.gate.deferrals.fetched(site, self.now)

    # -- the downloader

    @rule(request=out)
    def enter_the_slot(self, request) -> None:
        self.downloader.begin(request)

    @rule(request=consumes(out))
    def end(self, request) -> None:
        self.downloader.end(request)
        self.gate.mark_ended(request)

    @rule(request=consumes(out))
    def send_back(self, request) -> None:
        """To the scheduler: its policy is fetched first, or its origin is shut for a second."""
        self.downloader.end(request)
        deferrals = self.gate.deferrals
        if deferrals.is_probing(request):
            deferrals.fetch(request)
        elif request.url.startswith("http"):
            origin = self.gate.bucket(request).rpartition(" ")[2]
            deferrals.send_back(request, origin, 1.0, self.now)
        self.schedule(request.copy())


class QueueOfJob(QueueOfCrawl):
    """A crawl with a queue on disk, which is stopped and resumed."""

    downstream = PickleLifoDiskQueue

    @rule(guarded=st.booleans())
    def stop_and_resume(self, guarded) -> None:
        """Perhaps Scrapy's own queue has the job for a moment in between."""
        state = self.queue.close()
        if not guarded:
            crawler = crawler_with(StillDownloader())
            plain = build_from_crawler(
                DownloaderAwarePriorityQueue,
                crawler,
                downstream_queue_cls=self.downstream,
                key=self.folder,
                startprios=state,
            )
            assert len(plain) == len(self.model)
            state = plain.close()
        self.gate.deferrals.clear()
        self.model.last = None
        self.open_queue(json.loads(json.dumps(state)))

    @rule(request=consumes(QueueOfCrawl.out))
    def end_in_another_life(self, request) -> None:
        """A request of a crawl that has been stopped may still end."""
        self.downloader.end(request)
        self.gate.mark_ended(request)


@pytest.mark.parametrize("crawl", [QueueOfCrawl, QueueOfJob])
def test_the_queue_hands_out_what_the_slow_model_hands_out(crawl):
    steps = settings(max_examples=30, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(crawl, settings=steps)


@pytest.mark.parametrize("seed", range(5))
def test_with_all_origins_open_the_order_is_scrapys_own(seed):
    """Scrapy takes turns among slots with equally many downloads since 2.17; before that, only the
    number of downloads counts."""
    rng = random.Random(seed)
    downloaders = StillDownloader(), StillDownloader()
    theirs, ours = (
        build_from_crawler(
            kind, crawler_with(downloader), downstream_queue_cls=LifoMemoryQueue, key=""
        )
        for kind, downloader in zip(
            (DownloaderAwarePriorityQueue, GuardPriorityQueue), downloaders, strict=True
        )
    )
    active: tuple[list[Request], list[Request]] = ([], [])
    takes_turns = hasattr(theirs, "_next_slot")
    for number in range(400):
        url, priority = f"http://{rng.choice(HOSTS)}/{number}", rng.randrange(3)
        for queue in (theirs, ours):
            queue.push(Request(url, priority=priority))
    for _ in range(400):
        chosen = [queue.pop() for queue in (theirs, ours)]
        downloads = [
            len(downloader.slots[key].active) if key in downloader.slots else 0
            for downloader, request in zip(downloaders, chosen, strict=True)
            for key in [downloader.get_slot_key(request)]
        ]
        assert downloads[0] == downloads[1]
        assert chosen[0].url == chosen[1].url or not takes_turns
        ended = rng.randrange(8)
        for downloader, request, requests in zip(downloaders, chosen, active, strict=True):
            downloader.begin(request)
            requests.append(request)
            if len(requests) > 4 and takes_turns:
                downloader.end(requests.pop(ended % len(requests)))
    assert [queue.pop() for queue in (theirs, ours)] == [None, None]


def test_the_cost_of_a_choice_does_not_grow_with_the_buckets():
    """A scan of eight times as many buckets costs eight times as much."""

    def buckets_of(origins: int) -> Buckets:
        buckets = Buckets(lambda _origin, _group: True, len)
        for number in range(origins):
            buckets.add(f"{number}.test http://{number}.test")
        return buckets

    def choose(buckets: Buckets) -> None:
        for _ in range(300):
            name = buckets.next({})
            buckets.mark_taken(name)
            buckets.discard(name)
            buckets.add(name)

    assert growth(choose, buckets_of, 2_000, enough=FACTOR / 2) < FACTOR / 2


@pytest.mark.parametrize("seed", range(3))
def test_ordered_names_are_a_sorted_set(monkeypatch, seed):
    monkeypatch.setattr(buckets_module, "LONGEST_BLOCK", 4)
    rng = random.Random(seed)
    names, expected = OrderedNames(), set()
    for _ in range(600):
        name = f"{rng.randrange(60):02}"
        if name in expected:
            names.remove(name)
        else:
            names.add(name)
        expected ^= {name}
        last = rng.choice([None, f"{rng.randrange(60):02}"])
        order = sorted(expected)
        behind = [each for each in order if last is None or each > last]
        assert list(names) == order
        assert list(names.after(last)) == behind + [each for each in order if each not in behind]
