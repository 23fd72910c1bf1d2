"""A store for each region, on two real servers: one rate and one fetch for each origin."""

from __future__ import annotations

import asyncio

import pytest
from support.guards import make_guard
from support.stores import LONG, MEDIUM, Redis, policy, put, start_redis
from support.turns import wait_of

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.verdict import Action, Question
from robots_guard.errors import SettingsError, StoreError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.stores import is_store, look_at, open_store, shown
from robots_guard.guard.stores.regions import home_of
from robots_guard.origin import origin_of

ORIGINS = [origin_of(f"https://{number}.test") for number in range(40)]
PACED = Fetched(status=200, body=b"User-agent: *\nCrawl-delay: 60\n", tls_verified=True)


class Regions:
    """Two servers, and the setting that names them."""

    def __init__(self, servers: dict[str, Redis]) -> None:
        self.servers = servers

    def setting(self, *names: str) -> str:
        return ", ".join(f"{name}={self.servers[name].url}" for name in names or self.servers)

    def home(self, origin) -> str:
        return home_of(origin, self.servers)

    def of(self, region: str):
        """Return the origins whose home is a region."""
        return [origin for origin in ORIGINS if self.home(origin) == region]

    def keys(self, region: str) -> set[str]:
        """Return the origins that a region's server knows."""
        with self.servers[region].client() as client:
            return {key.decode().split("{")[1].split("}")[0] for key in client.keys("rg:{*")}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    place = tmp_path_factory.mktemp("regions")
    made = Regions({name: start_redis(place) for name in ("eu", "us")})
    yield made
    for server in made.servers.values():
        server.process.kill()
        server.process.wait(60)


@pytest.fixture
def regions(both):
    for server in both.servers.values():
        with server.client() as client:
            client.flushall()
    return both


@pytest.fixture
def store(regions):
    made = open_store(regions.setting())
    yield made
    made.close()


# -- one home for each origin ----------------------------------------------------------------------


def test_everything_about_an_origin_is_in_its_home(store, regions):
    for origin in ORIGINS:
        put(store, policy(origin))
        assert store.take(origin, "one", 1.0, 35.0)
        assert wait_of(store.reserve(origin, 60.0, lambda: 1.0)) == 0
    for region in regions.servers:
        assert regions.keys(region) == {str(origin) for origin in regions.of(region)}
        assert regions.keys(region)
    assert sorted(store.origins()) == sorted(ORIGINS)


def test_processes_of_all_regions_keep_one_rate_and_fetch_once(regions):
    """Three processes, whose settings list the regions in any order."""
    fetcher = ScriptedFetcher({origin.robots_url: PACED for origin in ORIGINS[:10]})
    settings = [regions.setting("eu", "us"), regions.setting("us", "eu"), regions.setting()]
    guards = [make_guard(fetcher, store=open_store(each)) for each in settings]

    async def ask(guard, origin):
        decision = await guard.check(Question(origin=origin, target="/", agent="mybot"))
        return (await guard.turn(decision)).verdict.action

    async def ask_all():
        asked = [ask(guard, origin) for origin in ORIGINS[:10] for guard in guards]
        return await asyncio.gather(*asked)

    actions = asyncio.run(ask_all())
    for guard in guards:
        guard.close()

    assert set(fetcher.counts.values()) == {1}
    assert len(fetcher.counts) == 10
    for first in range(0, len(actions), len(guards)):
        of_origin = sorted(actions[first : first + len(guards)])
        assert of_origin == sorted([Action.PASS, Action.DEFER, Action.DEFER])


def test_a_document_is_found_in_any_region(store, regions):
    for region, body in (("eu", MEDIUM), ("us", LONG)):
        stored = policy(regions.of(region)[0], body=body)
        put(store, stored)
        assert store.document(stored.document.sha256) == body
    assert store.document("0" * 64) is None


def test_reading_writes_nothing(regions):
    store = look_at(regions.setting())
    assert store.get(ORIGINS[0]) is None
    assert list(store.origins()) == []
    assert store.last_turn(ORIGINS[0]) == (0.0, 0.0)
    store.close()
    assert not any(regions.keys(region) for region in regions.servers)


# -- a region that is away -------------------------------------------------------------------------


@pytest.fixture
def without_us(tmp_path):
    made = Regions({name: start_redis(tmp_path) for name in ("eu", "us")})
    store = open_store(made.setting())
    put(store, policy(made.of("eu")[0], body=LONG))
    made.servers["us"].process.kill()
    made.servers["us"].process.wait(60)
    yield made, store
    store.close()
    made.servers["eu"].process.kill()
    made.servers["eu"].process.wait(60)


def test_only_the_origins_of_a_lost_region_are_without_a_store(without_us):
    regions, store = without_us
    for _ in range(3):
        for origin in regions.of("us"):
            with pytest.raises(
                StoreError, match=r"cannot be reached.*\(the store of the region us\)$"
            ):
                store.reserve(origin, 60.0, lambda: 1.0)
        for origin in regions.of("eu"):
            store.reserve(origin, 60.0, lambda: 1.0)
    assert store.document(policy(body=LONG).document.sha256) == LONG
    with pytest.raises(StoreError, match="the region us"):
        store.document("0" * 64)
    with pytest.raises(StoreError, match="the region us"):
        list(store.origins())


async def test_a_guard_goes_on_without_a_lost_region(without_us):
    """It fetches and paces these origins for itself, as without any store."""
    regions, store = without_us
    origin = regions.of("us")[0]
    fetcher = ScriptedFetcher({origin.robots_url: PACED})
    guard = make_guard(fetcher, store=store)
    question = Question(origin=origin, target="/", agent="mybot")
    first = await guard.turn(await guard.check(question))
    second = await guard.turn(await guard.check(question))

    assert [each.verdict.action for each in (first, second)] == [Action.PASS, Action.DEFER]
    assert guard.counts["store/error"]
    assert fetcher.counts[origin.robots_url] == 1
    guard.close()


def test_a_lost_region_is_no_error_at_startup(without_us):
    regions, _ = without_us
    store = open_store(regions.setting())
    assert wait_of(store.reserve(regions.of("eu")[1], 60.0, lambda: 1.0)) == 0
    store.close()


# -- a further region ------------------------------------------------------------------------------


def test_a_further_region_takes_over_its_origins_without_their_turns(regions):
    """What moves is fetched again, and forgets its last turn; what stays keeps everything."""
    alone = open_store(regions.setting("eu"))
    for origin in ORIGINS:
        put(alone, policy(origin))
        assert wait_of(alone.reserve(origin, 60.0, lambda: 1.0)) == 0
    alone.close()
    store = open_store(regions.setting("eu", "us"))
    for origin in regions.of("eu"):
        assert store.get(origin) == policy(origin)
        assert wait_of(store.reserve(origin, 60.0, lambda: 1.0)) > 0
    for origin in regions.of("us"):
        assert store.get(origin) is None
        assert wait_of(store.reserve(origin, 60.0, lambda: 1.0)) == 0
        assert wait_of(store.reserve(origin, 60.0, lambda: 1.0)) > 0
    assert set(store.origins()) == set(regions.of("eu"))
    store.close()


def test_a_region_may_move_to_another_server(regions):
    """Homes follow from the names of the regions, not from their URLs."""
    store = open_store(f"eu={regions.servers['us'].url},us={regions.servers['eu'].url}")
    put(store, policy(regions.of("eu")[0]))
    assert regions.keys("us") == {str(regions.of("eu")[0])}
    store.close()


# -- the setting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "urls"),
    [
        ("eu=redis://h/0", {"eu": "redis://h/0"}),
        (
            " eu=redis+cluster://a:1,b:2/?prefix=x ,us-2=rediss+sentinel://c,d/main/0,x=unix:///s?db=1",
            {
                "eu": "redis+cluster://a:1,b:2/?prefix=x",
                "us-2": "rediss+sentinel://c,d/main/0",
                "x": "unix:///s?db=1",
            },
        ),
    ],
)
def test_a_setting_names_regions_and_their_urls(setting, urls):
    from robots_guard.guard.stores.regions import split_regions

    assert split_regions(setting) == urls
    assert is_store(setting)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("eu=", "the first region is not NAME=URL"),
        ("=redis://h/0", "the first region is not NAME=URL"),
        ("EU=redis://h/0", "the first region is not NAME=URL"),
        ("eu_1=redis://h/0", "the first region is not NAME=URL"),
        ("eu=memory:", "the first region is not NAME=URL"),
        ("eu=sqlite:///x", "the first region is not NAME=URL"),
        ("eu=redis://h/0,us=sqlite:///x", "what follows the region 'eu' is not NAME=URL"),
        ("eu=redis+cluster://h/,US=redis://h/0", "what follows the region 'eu' is not NAME=URL"),
        ("eu=redis://h/0,us=", "what follows the region 'eu' is not NAME=URL"),
        ("eu=redis://h/0,eu=redis://i/0", "two regions are named 'eu'"),
        ("eu=redis://h/0,us=redis://h/x", "region 'us': not the URL of a Redis server"),
    ],
)
def test_a_wrong_setting_is_explained_without_its_passwords(setting, sentence):
    secret = setting.replace("://", "://me:secret@", 1)
    for each in {setting, secret}:
        with pytest.raises(SettingsError) as caught:
            open_store(each)
        assert sentence in str(caught.value)
        assert "secret" not in str(caught.value)
        assert "secret" not in shown(each)
    if "region 'us': not" not in sentence:
        assert not is_store(setting)


def test_a_refusing_region_is_an_error_at_startup_that_names_it(regions):
    with regions.servers["us"].client() as client:
        client.config_set("requirepass", "secret")
        try:
            with pytest.raises(
                SettingsError, match=r"^store: region 'us': .*put them into the URL"
            ):
                open_store(regions.setting())
        finally:
            client.config_set("requirepass", "")


def test_passwords_of_all_regions_are_hidden():
    setting = "eu=redis://me:secret@h/0,us=redis+cluster://me:secret@i,j/"
    assert shown(setting) == "eu=redis://h/0, us=redis+cluster://i,j/"
