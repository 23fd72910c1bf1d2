"""The add-on: how it changes and reads a project's settings."""

from __future__ import annotations

import logging

import pytest
from integrations.scrapy.components import OwnRobots
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.robotstxt import PythonRobotParser
from scrapy.settings import Settings
from scrapy.spiders import Spider

from robots_guard.errors import SettingsError
from robots_guard.scrapy import (
    Addon,
    GuardPriorityQueue,
    GuardScheduler,
    RobotsGuardMiddleware,
    RobotsGuardSeal,
)
from robots_guard.scrapy.deferral.gate import OriginGate
from robots_guard.scrapy.options import options_of, verifies_tls

DAPQ = "scrapy.pqueues.DownloaderAwarePriorityQueue"
MIDDLEWARE = "robots_guard.scrapy.RobotsGuardMiddleware"


@pytest.fixture
def configured(tmp_path) -> Settings:
    """The settings of a project that the add-on can work with."""
    settings = Settings({"ROBOTS_GUARD_AGENT": "mybot", "ROBOTS_GUARD_STORE": "memory:"})
    settings.set("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path))
    return settings


@pytest.fixture
def applied(configured):
    """A factory of settings that the add-on has updated."""

    def apply(**chosen) -> Settings:
        settings = configured.copy()
        settings.update(chosen, priority="project")
        Addon().update_settings(settings)
        return settings

    return apply


def order(settings: Settings) -> list:
    return DownloaderMiddlewareManager._get_mwlist_from_settings(settings)


def test_the_guard_takes_the_builtins_place(applied):
    before = order(Settings())
    after = order(applied())

    place = next(
        n for n, component in enumerate(before) if str(component).endswith("RobotsTxtMiddleware")
    )
    assert after[place] is RobotsGuardMiddleware
    assert after[-1] is RobotsGuardSeal
    assert after[:place] + after[place + 1 : -1] == before[:place] + before[place + 1 :]


@pytest.mark.parametrize(
    "chosen",
    [
        {"scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None},
        {"scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": 50},
        {RobotsTxtMiddleware: 900},
        {MIDDLEWARE: 90},
        {RobotsGuardMiddleware: 90},
    ],
)
def test_the_builtin_is_off_and_the_guard_on_once_whatever_the_project_sets(applied, chosen):
    after = applied(DOWNLOADER_MIDDLEWARES=chosen)

    *others, last = order(after)
    assert last is RobotsGuardSeal
    loaded = [component for component in others if "obots" in str(component)]
    assert len(loaded) == 1
    assert str(loaded[0]) in (MIDDLEWARE, str(RobotsGuardMiddleware))
    place = after["DOWNLOADER_MIDDLEWARES"].get(loaded[0], 100)
    assert place == (90 if 90 in chosen.values() else 100)


def test_applying_the_addon_twice_changes_nothing(applied):
    settings = applied()
    once = order(settings)
    Addon().update_settings(settings)

    assert order(settings) == once


def test_scrapys_own_queue_is_replaced(applied):
    assert applied()["SCHEDULER_PRIORITY_QUEUE"] is GuardPriorityQueue
    settings = applied(SCHEDULER_PRIORITY_QUEUE=DAPQ)
    assert settings["SCHEDULER_PRIORITY_QUEUE"] is GuardPriorityQueue
    assert settings["SCHEDULER"] == "scrapy.core.scheduler.Scheduler"


@pytest.mark.parametrize(
    ("chosen", "wrapped"),
    [
        (
            {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"},
            "scrapy.core.scheduler.Scheduler",
        ),
        ({"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}, "scrapy_redis.scheduler.Scheduler"),
    ],
)
def test_a_projects_own_queue_or_scheduler_is_wrapped(applied, chosen, wrapped):
    settings = applied(**chosen)

    assert settings["SCHEDULER"] is GuardScheduler
    assert settings["ROBOTS_GUARD_FALLBACK_SCHEDULER"] == wrapped
    assert settings["SCHEDULER_PRIORITY_QUEUE"] == chosen.get("SCHEDULER_PRIORITY_QUEUE", DAPQ)
    Addon().update_settings(settings)
    assert settings["ROBOTS_GUARD_FALLBACK_SCHEDULER"] == wrapped, (
        "wrapped once, though applied twice"
    )


def test_it_logs_that_it_replaces_the_builtin(applied, caplog):
    caplog.set_level(logging.INFO, "robots_guard")
    applied(ROBOTSTXT_OBEY=True)

    replaces, signals = caplog.records
    assert replaces.levelname == signals.levelname == "INFO"
    assert "it replaces Scrapy's RobotsTxtMiddleware" in replaces.message
    assert "signals are recorded only, because no purposes are declared" in signals.message


def test_it_logs_the_purposes_that_signals_are_enforced_for(applied, caplog):
    caplog.set_level(logging.INFO, "robots_guard")
    applied(ROBOTS_GUARD_PURPOSES=["search", "ai-train"])

    assert "enforced for the purposes search, ai-train" in caplog.messages[-1]


def test_it_logs_that_it_only_reports(applied, caplog):
    with caplog.at_level(logging.INFO, logger="robots_guard"):
        applied(ROBOTS_GUARD_REPORT_ONLY=True)
    assert "refuses nothing, and records what robots.txt forbids" in caplog.text
    assert "enforces" not in caplog.text


def test_overriding_robotstxt_obey_false_logs_a_warning(applied, caplog):
    applied()
    assert not caplog.records
    applied(ROBOTSTXT_OBEY=False)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "ROBOTS_GUARD_ENABLED = False" in record.message


SPIDER, COMMAND_LINE = 30, 40  # priorities of settings
BUILTIN = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
OFF = "set ROBOTS_GUARD_ENABLED = False to switch it off"


@pytest.mark.parametrize(
    ("name", "value", "priority", "expected"),
    [
        ("ROBOTSTXT_OBEY", False, 20, ("settings of the project", OFF)),
        ("ROBOTSTXT_OBEY", False, SPIDER, ("the spider (custom_settings)", OFF)),
        ("ROBOTSTXT_OBEY", "0", COMMAND_LINE, ("the command line", OFF)),
        (
            "DOWNLOADER_MIDDLEWARES",
            {BUILTIN: None},
            20,
            ("switches RobotsTxtMiddleware off in the settings of the project", OFF),
        ),
        (
            "DOWNLOADER_MIDDLEWARES",
            {RobotsTxtMiddleware: None},
            SPIDER,
            ("the spider (custom_settings)", OFF),
        ),
        ("DOWNLOADER_MIDDLEWARES_BASE", {}, 20, ("DOWNLOADER_MIDDLEWARES_BASE switches", OFF)),
        (
            "ROBOTSTXT_PARSER",
            "scrapy.robotstxt.PythonRobotParser",
            20,
            ("has no effect", "remove it. ROBOTS_GUARD_DIALECT"),
        ),
        ("ROBOTSTXT_PARSER", PythonRobotParser, 20, ("scrapy.robotstxt.PythonRobotParser in",)),
    ],
)
def test_each_setting_that_has_no_effect_any_more_logs_one_warning(
    configured, caplog, name, value, priority, expected
):
    configured.set(name, value, priority)
    Addon().update_settings(configured)
    Addon().update_settings(configured)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(name)
    assert all(part in record.message for part in expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROBOTSTXT_OBEY", True),
        ("DOWNLOADER_MIDDLEWARES", {BUILTIN: 50}),
        ("ROBOTSTXT_PARSER", "robots_guard.scrapy.RobotParser"),
    ],
)
def test_a_setting_that_changes_nothing_logs_no_warning(configured, caplog, name, value):
    configured.set(name, value, "project")
    Addon().update_settings(configured)

    assert not caplog.records


@pytest.mark.parametrize("name", [OwnRobots, "integrations.scrapy.components.OwnRobots"])
def test_a_subclass_of_the_builtin_logs_a_warning(applied, caplog, name):
    applied(DOWNLOADER_MIDDLEWARES={name: 101})

    (record,) = caplog.records
    assert "components.OwnRobots, a subclass of RobotsTxtMiddleware, stays on" in record.message


def test_switched_off_it_changes_nothing(applied):
    assert order(applied(ROBOTS_GUARD_ENABLED=False)) == order(Settings())


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("mybot", "mybot"),
        ("mybot/1.0", "mybot"),
        ("bot7", "bot7"),
        ("My-Bot/2.1 (+https://example.test/bot)", "My-Bot"),
    ],
)
def test_the_agent_defaults_to_scrapys_own_setting(user_agent, token):
    assert options_of(Settings({"ROBOTSTXT_USER_AGENT": user_agent})).settings.agent == token


@pytest.mark.parametrize("user_agent", ["Mozilla/5.0 (compatible; mybot/1.0)", "my bot", "*"])
def test_a_user_agent_without_a_product_token_is_an_error(user_agent):
    with pytest.raises(SettingsError, match="set ROBOTS_GUARD_AGENT"):
        options_of(Settings({"ROBOTSTXT_USER_AGENT": user_agent}))


def test_text_from_the_command_line_is_converted():
    settings = Settings(
        {"ROBOTS_GUARD_AGENT": "mybot", "ROBOTS_GUARD_MAX_DEFER": "60", "ROBOTS_GUARD_STORE": None}
    )
    settings.set("ROBOTS_GUARD_AUDIT", "all", priority="cmdline")
    read = options_of(settings).settings

    assert (read.max_defer, read.audit) == (60.0, "all")
    assert read.store.startswith("sqlite:///")


VERIFIES = "DOWNLOAD_VERIFY_CERTIFICATES"
KNOWN = VERIFIES in Settings()


@pytest.mark.parametrize(
    ("chosen", "verified"),
    [
        ({}, False),
        ({VERIFIES: True}, KNOWN),  # before Scrapy 2.15 the setting does nothing
        ({VERIFIES: True, "DOWNLOAD_HANDLERS": {"https": "someone.elses.Handler"}}, False),
        ({VERIFIES: True, "DOWNLOAD_HANDLERS": {"https": None}}, False),
        ({VERIFIES: True, "DOWNLOADER_CLIENTCONTEXTFACTORY": "someone.elses.Factory"}, False),
        (
            {
                "DOWNLOADER_CLIENTCONTEXTFACTORY": "scrapy.core.downloader.contextfactory.BrowserLikeContextFactory"
            },
            True,
        ),
    ],
)
def test_tls_counts_as_verified_only_if_that_is_certain(chosen, verified):
    assert verifies_tls(Settings(chosen)) is verified


def test_a_gate_is_removed_with_its_crawl():
    crawler = Crawler(Spider)
    gate = OriginGate.of(crawler)

    assert OriginGate.of(crawler) is gate
    gate.close()
    assert OriginGate.of(crawler) is not gate
