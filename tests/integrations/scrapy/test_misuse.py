"""Invalid settings: one sentence, an exit status, no traceback, and above all no unguarded
crawl."""

from __future__ import annotations

import textwrap

import pytest
from integrations.scrapy.crawl import EPOLL, MODES, QUIET, crawl, fork, run_scrapy
from scrapy.settings import Settings

from robots_guard.errors import SettingsError
from robots_guard.scrapy.options import HOLD_MAX, is_enabled, options_of

ADDON = {"robots_guard.scrapy.Addon": 500}
MISUSES = {
    "no agent": ({"ROBOTS_GUARD_AGENT": None}, "ROBOTS_GUARD_AGENT is not set"),
    "no token": ({"ROBOTS_GUARD_AGENT": "my bot/1"}, "'my bot/1' is not a product token"),
    "unknown": ({"ROBOTS_GUARD_MAX_DEFFER": 3}, "did you mean ROBOTS_GUARD_MAX_DEFER?"),
    "no number": (
        {"ROBOTS_GUARD_MAX_DEFER": "soon"},
        "ROBOTS_GUARD_MAX_DEFER 'soon' is not a number of seconds",
    ),
    "store": ({"ROBOTS_GUARD_STORE": "sqlite:////dev/null/x.sqlite"}, "/dev/null"),
    "store kind": ({"ROBOTS_GUARD_STORE": "mysql://x"}, "mysql"),
    "audit_log": (
        {"ROBOTS_GUARD_AUDIT_LOG": "/dev/null/audit_log"},
        "audit_log: no file can be written",
    ),
    "bypass": ({"ROBOTS_GUARD_META_BYPASS": "allow"}, "use audit or deny"),
    "switch": ({"ROBOTS_GUARD_ENABLED": "perhaps"}, "use True or False"),
    "two switches": (
        {"DOWNLOADER_MIDDLEWARES": {"robots_guard.scrapy.middleware.RobotsGuardMiddleware": None}},
        "set ROBOTS_GUARD_ENABLED = False",
    ),
    "mask": (
        {"ROBOTS_GUARD_AGENT": None, "ROBOTSTXT_USER_AGENT": "Mozilla/5.0 (compatible)"},
        "contains no product token",
    ),
}
NO_AGENT = {"ROBOTS_GUARD_AGENT": None}


def error_sentence(log: str) -> str:
    """The one error message of the process."""
    assert "Traceback" not in log, log
    assert "Unhandled" not in log, log
    assert "never retrieved" not in log, log
    (sentence,) = [line for line in log.splitlines() if line.startswith("robots_guard: ")]
    return sentence


@pytest.mark.parametrize("misuse", MISUSES)
def test_an_invalid_setting_ends_the_process_with_one_sentence(net, misuse):
    site = net.origin("")
    settings, expected = MISUSES[misuse]

    done = crawl([f"{site.url}/a"], settings)

    assert done.code == 1
    assert expected in error_sentence(done.log)
    assert site.received == []


@pytest.mark.parametrize(
    "mode",
    [
        {"deferred_api": True},
        *MODES.values(),
        # Without the add-on, the middleware finds the error later, when the engine is built.
        {
            "settings": {
                "ADDONS": {},
                "DOWNLOADER_MIDDLEWARES": {"robots_guard.scrapy.RobotsGuardMiddleware": 100},
            }
        },
        {
            "deferred_api": True,
            "settings": {
                "ADDONS": {},
                "DOWNLOADER_MIDDLEWARES": {"robots_guard.scrapy.RobotsGuardMiddleware": 100},
            },
        },
    ],
    ids=["CrawlerProcess", *MODES, "middleware", "middleware in CrawlerProcess"],
)
def test_a_missing_agent_ends_the_process_however_the_crawl_is_started(net, mode):
    site = net.origin("")
    settings = mode.get("settings", {}) | NO_AGENT

    done = crawl([f"{site.url}/a"], settings, deferred_api=mode.get("deferred_api", False))

    assert done.code == 1
    assert "ROBOTS_GUARD_AGENT is not set" in error_sentence(done.log)
    assert site.received == []


@pytest.mark.parametrize("command", ["crawl", "runspider", "fetch"])
@pytest.mark.parametrize("reactor", ["asyncio", "epoll"])
def test_a_missing_agent_ends_the_scrapy_command_and_is_logged(net, tmp_path, command, reactor):
    site = net.origin("")
    _write_project(
        tmp_path,
        f"{site.url}/a",
        ADDONS=ADDON,
        LOG_FILE=str(tmp_path / "log"),
        **QUIET,
        **({"TWISTED_REACTOR": EPOLL} if reactor == "epoll" else {}),
    )
    words = {
        "crawl": ["crawl", "one"],
        "runspider": ["runspider", "project/one.py"],
        "fetch": ["fetch", f"{site.url}/a"],
    }

    child = run_scrapy(tmp_path, *words[command], timeout=60)

    assert child.returncode == 1
    assert "ROBOTS_GUARD_AGENT is not set" in error_sentence(child.stderr)
    assert (
        "[robots_guard] CRITICAL: ROBOTS_GUARD_AGENT is not set" in (tmp_path / "log").read_text()
    )
    assert child.stderr.count("ROBOTS_GUARD_AGENT is not set") == 1
    assert site.received == []


def _write_project(folder, url, **settings):
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = project.settings\n")
    (folder / "project").mkdir()
    (folder / "project" / "__init__.py").touch()
    lines = [
        f"{name} = {value!r}" for name, value in {"SPIDER_MODULES": ["project"], **settings}.items()
    ]
    (folder / "project" / "settings.py").write_text("\n".join(lines))
    spider = f"""
        import scrapy


        class One(scrapy.Spider):
            name = "one"
            start_urls = [{url!r}]

            def parse(self, response):
                pass
    """
    (folder / "project" / "one.py").write_text(textwrap.dedent(spider))


RUNNER = """
import asyncio, sys
from scrapy.utils.reactor import install_reactor
if sys.argv[2] == "epoll":
    install_reactor("twisted.internet.epollreactor.EPollReactor")
else:
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
import scrapy
from scrapy.crawler import CrawlerRunner
from twisted.internet import reactor

class One(scrapy.Spider):
    name = "one"
    start_urls = [sys.argv[1]]
    def parse(self, response):
        pass

def begin():
    settings = {"ADDONS": {"robots_guard.scrapy.Addon": 500}, "TWISTED_REACTOR": None}
    CrawlerRunner(settings).crawl(One).addErrback(lambda failure: print("ERRBACK", failure.value)).addBoth(
        lambda _: reactor.stop()
    )

reactor.callWhenRunning(begin)
reactor.run()
"""


@pytest.mark.parametrize("reactor", ["asyncio", "epoll"])
def test_a_missing_agent_is_an_error_under_a_programs_own_reactor(net, tmp_path, reactor):
    """Under asyncio the loop ends; under another reactor the crawl's Deferred fails."""
    site = net.origin("")
    (tmp_path / "program.py").write_text(RUNNER)

    child = fork(str(tmp_path / "program.py"), f"{site.url}/a", reactor, timeout=60)

    assert site.received == []
    assert "ROBOTS_GUARD_AGENT is not set" in child.stdout + child.stderr
    assert child.returncode == 1 or "ERRBACK robots_guard: " in child.stdout
    assert "Traceback" not in child.stderr


def test_the_agent_may_be_in_the_environment(monkeypatch):
    monkeypatch.setenv("ROBOTS_GUARD_AGENT", "mybot")

    assert options_of(Settings()).settings.agent == "mybot"
    assert options_of(Settings({"ROBOTSTXT_USER_AGENT": "other"})).settings.agent == "mybot"
    assert options_of(Settings({"ROBOTS_GUARD_AGENT": "other"})).settings.agent == "other"


def test_a_variable_is_told_from_a_setting_of_the_same_name(monkeypatch):
    monkeypatch.setenv("ROBOTS_GUARD_MATCHING", "loose")

    with pytest.raises(SettingsError, match=r"^the environment variable ROBOTS_GUARD_MATCHING 'lo"):
        options_of(Settings({"ROBOTS_GUARD_AGENT": "mybot"}))
    with pytest.raises(SettingsError, match=r"^ROBOTS_GUARD_MATCHING 'tight' is not known"):
        options_of(Settings({"ROBOTS_GUARD_AGENT": "mybot", "ROBOTS_GUARD_MATCHING": "tight"}))


def test_settings_may_be_in_a_file(tmp_path, monkeypatch):
    file = tmp_path / "robots_guard.toml"
    file.write_text(
        'agent = "mybot"\nmin_delay = 2\n[scrapy]\nmin_delay = 3\nmeta_bypass = "deny"\n'
        "enabled = false\n[proxy]\nhold_max = 1\n"
    )
    settings = Settings({"ROBOTS_GUARD_CONFIG": str(file), "ROBOTS_GUARD_MAX_DELAY": 9})
    options = options_of(settings)

    assert (options.settings.agent, options.settings.min_delay) == ("mybot", 3)
    assert (options.settings.max_delay, options.settings.hold_max) == (9, HOLD_MAX)
    assert options.meta_bypass == "deny"
    assert not is_enabled(settings)

    file.write_text("agent = mybot\n")
    settings = Settings({"ROBOTS_GUARD_CONFIG": str(file), "ROBOTS_GUARD_ENABLED": False})
    assert not is_enabled(settings)
    settings.delete("ROBOTS_GUARD_ENABLED")
    with pytest.raises(
        SettingsError, match=f"^{file}:1: not valid TOML: Invalid value: put a text in quotes"
    ):
        is_enabled(settings)
