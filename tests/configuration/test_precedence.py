"""Where a value is taken from: files, the environment and what is given, in rising precedence."""

from __future__ import annotations

import pytest

from robots_guard.configuration import settings_from
from robots_guard.configuration.settings import ProxySettings
from robots_guard.errors import SettingsError


def test_each_value_comes_from_the_most_specific_place_that_has_it(places):
    (places.system / "robots_guard.toml").write_text('agent = "a"\nmin_delay = 1\nmax_defer = 1\n')
    (places.user / "robots_guard.toml").write_text("min_delay = 2\nmax_defer = 2\nmax_delay = 2\n")
    file = places.write("max_defer = 3\nmax_delay = 3\nfetch_timeout = 3\n")
    places.variables.update(ROBOTS_GUARD_MAX_DELAY="4", ROBOTS_GUARD_FETCH_TIMEOUT="4")

    found = places.read()
    settings = settings_from(found, {"fetch_timeout": "5"}, defaults={"hold_max": 60, "agent": "z"})

    assert found.files == (
        places.system / "robots_guard.toml",
        places.user / "robots_guard.toml",
        file,
    )
    assert (settings.agent, settings.min_delay, settings.max_defer) == ("a", 2, 3)
    assert (settings.max_delay, settings.fetch_timeout, settings.hold_max) == (4, 5, 60)
    assert str(found.values["max_defer"].source) == f"{file}:1"
    assert str(found.values["max_delay"].source) == (
        "the environment variable ROBOTS_GUARD_MAX_DELAY"
    )


def test_a_section_wins_over_the_top_level_of_its_file_only(places):
    (places.user / "robots_guard.toml").write_text('[proxy]\naudit = "all"\nhold_max = 9\n')
    places.write('audit = "refusals"\nhold_max = 1\n[proxy]\nhold_max = 2\nworkers = 3\n')

    assert places.values("proxy") == {"audit": "refusals", "hold_max": 2, "workers": 3}
    assert places.values("scrapy") == {"audit": "refusals", "hold_max": 1}


def test_a_variable_can_be_for_one_section(places):
    places.variables.update(
        ROBOTS_GUARD_PROXY_LISTEN="[::]:8080",
        ROBOTS_GUARD_PROXY_AGENT="proxybot",
        ROBOTS_GUARD_AGENT="mybot",
        ROBOTS_GUARD_STORE="",
    )

    assert places.values("proxy") == {"listen": "[::]:8080", "agent": "proxybot"}
    assert places.values("scrapy") == {"agent": "mybot"}


def test_the_variables_that_kubernetes_sets_for_a_service_are_no_settings(places):
    for name in ("", "PROXY_"):
        for rest in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP"):
            places.variables[f"ROBOTS_GUARD_{name}{rest}"] = "x"
        places.variables[f"ROBOTS_GUARD_{name}PORT_8080_TCP_ADDR"] = "10.0.0.1"

    assert places.values("proxy") == {}


def test_the_nearest_file_is_the_projects_and_it_hides_those_above(places):
    places.write("min_delay = 1\n", "../robots_guard.toml")
    inner = places.write("max_delay = 2\n", "a/pyproject.toml")
    assert places.values(directory=places.project / "a") == {"min_delay": 1}

    inner.write_text('[project]\nname = "x"\n\n[tool.robots_guard]\nmax_delay = 2\n')
    assert places.values(directory=places.project / "a") == {"max_delay": 2}
    found = places.read(directory=places.project / "a" / "b").values["max_delay"]
    assert str(found.source) == f"{inner}:5"

    places.write("max_delay = 3\n", "a/robots_guard.toml")
    assert places.values(directory=places.project / "a") == {"max_delay": 3}


def test_a_named_file_is_the_only_one(places, tmp_path):
    places.write("min_delay = 1\n")
    named = tmp_path / "other.toml"
    named.write_text("max_delay = 2\n")

    assert places.values(config=str(named)) == {"max_delay": 2}
    assert places.values(config="../../other.toml") == {"max_delay": 2}
    places.variables["ROBOTS_GUARD_CONFIG"] = str(named)
    assert places.values() == {"max_delay": 2}
    assert places.values(config="") == {}
    places.variables["ROBOTS_GUARD_CONFIG"] = ""
    assert places.values() == {}
    assert places.values(config=str(named)) == {"max_delay": 2}


def test_relative_paths_are_relative_to_the_file(places):
    places.write(
        """
        audit_log = "log"
        store = "sqlite:///cache/policies.sqlite"
        overrides = "/etc/overrides.toml"
        agents = "~/agents.toml"
        fetch_proxy = "file:secrets/proxy"
        audit_signing_key = "env:KEY_FILE"
        [proxy]
        proxyauth = "@users"
        confdir = "ca"
        """
    )

    assert places.values("proxy") == {
        "audit_log": f"{places.project}/log",
        "store": f"sqlite:///{places.project}/cache/policies.sqlite",
        "overrides": "/etc/overrides.toml",
        "agents": "~/agents.toml",
        "fetch_proxy": f"file:{places.project}/secrets/proxy",
        "audit_signing_key": "env:KEY_FILE",
        "proxyauth": f"@{places.project}/users",
        "confdir": f"{places.project}/ca",
    }


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"agent": "a"}, "{file}:3: min_delay 'soon' is not a number"),
        (
            {"agent": "a", "min_delay": "later", "matching": "spec"},
            "--min-delay 'later' is not a number",
        ),
        ({"agent": "a", "min_delay": 1}, "ROBOTS_GUARD_MATCHING 'loose' is not known"),
        ({"agent": "a b", "min_delay": 1, "matching": "spec"}, "--agent 'a b' is not a product"),
        (
            {"min_delay": 1, "matching": "spec"},
            "--agent is not set: give the crawler's product token, such as 'mybot', or write"
            ' agent = "mybot" into robots_guard.toml',
        ),
    ],
)
def test_an_error_names_the_place_of_the_value(places, given, names):
    file = places.write('\n# seconds\nmin_delay = "soon"\n')
    places.variables["ROBOTS_GUARD_MATCHING"] = "loose"

    with pytest.raises(SettingsError) as caught:
        settings_from(places.read(), given, "--{}", ProxySettings)

    assert str(caught.value).startswith(names.format(file=file))


def test_an_unknown_name_that_is_given_gets_a_suggestion_in_its_own_spelling(places):
    """The name that is suggested may have a value from elsewhere, such as a file."""
    places.write("agent = 'mybot'")

    with pytest.raises(SettingsError) as caught:
        settings_from(places.read(), {"agnet": "x"}, "ROBOTS_GUARD_{}")

    assert "unknown setting ROBOTS_GUARD_AGNET: did you mean ROBOTS_GUARD_AGENT?" in str(
        caught.value
    )
