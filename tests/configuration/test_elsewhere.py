"""What a printed command names so that it works in another shell."""

from __future__ import annotations

import shlex

import pytest

from robots_guard.configuration.elsewhere import invocation_of

#: A command that reads the audit log only, and one that reads the store, too.
LOG, BOTH = ("audit_log",), ("audit_log", "store")


@pytest.fixture
def options(places):
    """The options that a printed command has, as a function of what the component was given."""

    def options(component="proxy", needs=LOG, given=(), **read):
        invocation = invocation_of(places.read(component, **read), dict(given))
        return shlex.split(invocation.command("x", needs=needs))[2:]

    return options


def test_defaults_need_no_option(options):
    assert options(needs=BOTH) == []


def test_what_the_users_file_says_is_found_everywhere(places, options):
    (places.user / "robots_guard.toml").write_text('audit_log = "/log"\nstore = "memory:"\n')

    assert options(needs=BOTH) == []
    assert options(needs=BOTH, given={"audit_log": "/log"}) == []


def test_a_file_of_the_project_is_named(places, options):
    file = places.write('audit_log = "log"\nstore = "env:REDIS_URL"\n')

    assert options(needs=BOTH) == ["--config", str(file)]
    assert options(needs=LOG) == ["--config", str(file)]
    assert options(needs=BOTH, config=str(file)) == ["--config", str(file)]


def test_beside_a_file_that_is_named_the_others_are_not_read(places, options):
    (places.user / "robots_guard.toml").write_text('store = "redis://host/0"\n')
    file = places.write('audit_log = "/log"\n')

    assert options(needs=BOTH) == ["--store", "redis://host/0", "--config", str(file)]


def test_what_a_section_says_is_named_because_other_components_do_not_read_it(places, options):
    places.write('audit_log = "/general"\n[proxy]\naudit_log = "of the proxy"\n')

    assert options() == ["--audit-log", str(places.project / "of the proxy")]


def test_options_and_variables_are_named_by_absolute_paths(places, options, monkeypatch):
    monkeypatch.chdir(places.project)
    places.variables["ROBOTS_GUARD_STORE"] = "sqlite:///p.sqlite"

    found = options(needs=BOTH, given={"audit_log": "logs/a b"})
    assert found == [
        *("--audit-log", f"{places.project}/logs/a b"),
        *("--store", f"sqlite:///{places.project}/p.sqlite"),
    ]


@pytest.mark.parametrize(
    ("store", "printed"),
    [
        ("redis://jane:s3cret@host/0", "env:ROBOTS_GUARD_STORE"),
        ("env:REDIS_URL", "env:REDIS_URL"),
        ("file:/run/secrets/store", "file:/run/secrets/store"),
    ],
)
def test_a_secret_is_not_printed(options, store, printed):
    assert options(needs=BOTH, given={"store": store}) == ["--store", printed]


def test_the_default_is_named_where_the_users_file_would_say_otherwise(places, options):
    (places.user / "robots_guard.toml").write_text('audit_log = "/other"\n')

    (name, value) = options(config="")
    assert (name, value.endswith("/audit_log")) == ("--audit-log", True)


def test_a_users_file_with_a_mistake_does_not_hinder(places, options):
    (places.user / "robots_guard.toml").write_text("= 1")

    assert options(config="", given={"audit_log": "/log"}) == ["--audit-log", "/log"]
