"""Files that cannot be used, or must not be: one sentence that names the file, and the line."""

from __future__ import annotations

import os
import stat
import sys

import pytest
from support.cost import LINEAR, growth
from support.programs import lacking

from robots_guard.configuration import files, settings_from, shown
from robots_guard.errors import SettingsError

# text of the file, the line that is named, and the sentence
FAULTS = {
    "unknown": ("\nmin_deley = 1", 2, "unknown setting min_deley: did you mean min_delay?"),
    "dashed": ("audit-log = 'x'", 1, "unknown setting audit-log: did you mean audit_log?"),
    "section": ("\n\n[prxy]\nworkers = 2", 3, "unknown section [prxy]: did you mean [proxy]?"),
    "package": (
        "[robots_guard]\nagent = 'x'",
        1,
        "write what belongs to no section above the first one",
    ),
    "within": (
        "[proxy]\n\nworker = 2",
        3,
        "unknown setting worker in [proxy]: did you mean workers?",
    ),
    "top level": ("workers = 2", 1, "workers belongs to a section: put it below [proxy]"),
    "two homes": (
        "listen = ':1'",
        1,
        "listen belongs to a section: put it below [proxy] or [console]",
    ),
    "foreign": (
        "[scrapy]\nmeta_bypass = 'deny'\nworkers = 2",
        3,
        "workers has no meaning in [scrapy]: put it below [proxy]",
    ),
    "proxy's setting": (
        "[scrapy]\nconnect_ports = '1'",
        2,
        "connect_ports has no meaning in [scrapy]: put it below [proxy]",
    ),
    "no table": ("proxy = 8080", 1, "proxy is a section: write [proxy]"),
    "no section": ("[store]\nurl = 'x'", 1, "store is a setting and no section: write store = ..."),
    "inline": ("proxy = { listn = ':1' }", 1, "unknown setting listn in [proxy]: did you mean"),
    "syntax": ("agent = mybot", 1, "not valid TOML: Invalid value"),
    "syntax later": ("# a\n\nagent == 'x'", 3, "not valid TOML: Invalid value"),
    "twice": ("agent = 'a'\n\nagent = 'b'", 3, "not valid TOML: agent is already in line 1"),
    "no end": ('a = 1\n\nagent = """x\n\ny\n', 3, "not valid TOML: Unterminated string"),
    "open list": ("\nagents = [\n 'a',\n", 2, "not valid TOML: "),
    "deep": ("a = " + "[" * 5000, None, "not valid TOML"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_file_is_named_with_its_line(places, fault):
    text, line, sentence = FAULTS[fault]
    file = places.write(text)

    with pytest.raises(SettingsError) as caught:
        places.read("proxy")

    place = f"{file}:{line}: " if line else f"{file}:"
    assert str(caught.value).startswith(place)
    assert sentence in str(caught.value)


def test_a_value_of_any_shape_has_its_line(places):
    file = places.write(
        "# comment\r\n"
        'agent = "mybot" # x\r\n'
        "purposes = [\r\n"
        "  # [proxy]\r\n"
        "  'search', 'a#b'] # ]#\r\n"
        'contact = """\r\nhttps://a.test/""" # "x"\r\n'
        "min_delay = 2\r\n"
        "\r\n"
        "[ proxy ] # y\r\n"
        "proxyauth = 'a:b'\r\n"
        "[console]\r\n"
    )
    lines = {name: each.source.line for name, each in places.read("proxy").values.items()}

    assert lines == {"agent": 2, "purposes": 3, "contact": 6, "min_delay": 8, "proxyauth": 11}
    assert places.read("proxy").values["purposes"].source.name == str(file)


def test_a_long_list_takes_linear_time(places):
    def read(count):
        networks = [f'  "10.{number // 256}.{number % 256}.0/24",' for number in range(count)]
        places.write("\n".join(["allow_private = [", *networks, "]", "min_delay = 1"]))
        assert places.read().values["min_delay"].source.line == count + 3

    assert growth(read, lambda count: count, 500) <= LINEAR


def test_a_byte_order_mark_is_no_part_of_the_text(places):
    file = places.write("")
    file.write_bytes(b"\xef\xbb\xbfagent = 'mybot'\n")

    assert places.values() == {"agent": "mybot"}


def broken(kind, path, monkeypatch):
    """Make a path one that cannot be read."""
    match kind:
        case "not UTF-8":
            path.write_bytes("agent = 'a'\ncontact = 'é'".encode("latin-1"))
        case "UTF-16":
            path.write_text("agent = 'a'", encoding="utf-16")
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to(path.parent / "none")
        case "pipe":
            os.mkfifo(path)
        case "huge":
            monkeypatch.setattr(files, "LARGEST", 10)
            path.write_text("# 4567890123")
        case "unreadable":
            path.write_text("")
            monkeypatch.setattr(os, "open", refused)


def refused(*_):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("not UTF-8", ":2: not UTF-8: save the file in that encoding"),
        ("UTF-16", ":1: not UTF-8: save the file in that encoding"),
        ("folder", " is a directory: name a regular file"),
        ("loop", " cannot be read: too many levels of symbolic links"),
        ("dangling", " cannot be read: no such file or directory"),
        ("pipe", " is not a file but a pipe or device: name a regular file"),
        ("huge", " is larger than 10 bytes"),
        ("unreadable", " cannot be read: permission denied"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(places, monkeypatch, kind, sentence):
    path = places.project / "robots_guard.toml"
    broken(kind, path, monkeypatch)

    with pytest.raises(SettingsError) as caught:
        places.read()
    assert str(caught.value) == f"{path}{sentence}"

    with pytest.raises(SettingsError) as caught:
        places.read(config=str(path))
    assert str(caught.value).endswith(f"{path}{sentence}")


def test_a_named_file_that_is_missing_is_an_error(places):
    with pytest.raises(SettingsError, match=r"^--config: /none/x.toml cannot be read: no such"):
        places.read(config="/none/x.toml")
    places.variables["ROBOTS_GUARD_CONFIG"] = "/none/x.toml"
    with pytest.raises(SettingsError, match=r"^ROBOTS_GUARD_CONFIG: /none/x.toml cannot be read"):
        places.read()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[tool.robots-guard]", r"pyproject.toml:1: \[tool.robots-guard\] is not read: write"),
        ("\n[tool]\nrobots_guard = 1", r"pyproject.toml:3: robots_guard is not a table"),
        ("[tool.robots_guard]\nagnt = 1", r"pyproject.toml:2: unknown setting agnt: did you mean"),
        ("# robots_guard\n[", r"pyproject.toml:2: not valid TOML"),
    ],
)
def test_a_pyproject_that_says_it_wrongly_is_an_error(places, text, sentence):
    places.write(text, "pyproject.toml")

    with pytest.raises(SettingsError, match=sentence):
        places.read()


def test_a_pyproject_of_other_programs_is_left_alone(places):
    places.write("{{ cookiecutter }}", "pyproject.toml", mode=0o666)
    assert places.values() == {}
    places.write("[project]\ndependencies = ['robots_guard']", "pyproject.toml", mode=0o666)
    assert places.values() == {}
    with pytest.raises(SettingsError, match=r"there is no \[tool.robots_guard\] in it"):
        places.read(config="pyproject.toml")


# -- trust ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o646, 0o664])
def test_a_file_that_others_can_write_is_not_trusted_unless_it_is_named(places, monkeypatch, mode):
    monkeypatch.setattr(files, "_is_private", lambda _: False)
    file = places.write("on_restricted = 'allow'", mode=mode)

    with pytest.raises(SettingsError, match=r"can be written to by .*, so it is not trusted: run"):
        places.read()
    assert places.values(config=str(file)) == {"on_restricted": "allow"}


def test_a_file_of_another_user_is_not_trusted(places, monkeypatch):
    file = places.write("on_restricted = 'allow'")
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid == 0:
        os.chown(file, 12345, -1)

    with pytest.raises(SettingsError, match=f"^{file} belongs to the user .*not trusted: name the"):
        places.read()


def test_a_link_of_another_user_is_not_trusted(places):
    if os.geteuid() != 0:
        lacking("only root can create links of other users")
    places.write("on_restricted = 'allow'", "mine.toml")
    link = places.project / "robots_guard.toml"
    link.symlink_to("mine.toml")
    assert places.values() == {"on_restricted": "allow"}
    os.chown(link, 12345, -1, follow_symlinks=False)

    with pytest.raises(SettingsError, match="belongs to the user 12345"):
        places.read()


#: TOML that takes minutes to parse.
ENDLESS = ".".join(["a"] * 100_000) + " = 1\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("robots_guard.toml", ENDLESS),
        ("pyproject.toml", f"[tool.robots_guard]\n{ENDLESS}"),
        ("pyproject.toml", f"[tool]\nrobots_guard = 1\n{ENDLESS}"),
    ],
)
def test_a_file_of_another_user_is_not_parsed(places, monkeypatch, name, text):
    file = places.write(text, name)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid == 0:
        os.chown(file, 12345, -1)

    with pytest.raises(SettingsError, match=f"^{file} belongs to the user .*not trusted"):
        places.read()


def test_a_pyproject_of_another_user_that_only_mentions_the_program_is_ignored(places, monkeypatch):
    file = places.write(f'dependencies = ["robots_guard[proxy]"]\n{ENDLESS}', "pyproject.toml")
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid == 0:
        os.chown(file, 12345, -1)

    assert places.values() == {}


@pytest.mark.skipif(sys.platform != "linux", reason="access control lists of Linux")
def test_a_file_that_an_access_control_list_opens_is_not_trusted(places, monkeypatch):
    monkeypatch.setattr(files, "_is_private", lambda _: True)
    file = places.write("on_restricted = 'allow'", mode=0o664)
    assert places.values() == {"on_restricted": "allow"}
    monkeypatch.setattr(os, "listxattr", lambda _: ["user.x", "system.posix_acl_access"])

    with pytest.raises(SettingsError, match=f"^{file} can be written to by those in its access"):
        places.read()


def test_the_group_of_one_user_alone_may_write(places):
    file = places.write("agent = 'mybot'", mode=0o664)

    assert file.stat().st_mode & stat.S_IWGRP
    if file.stat().st_gid == os.geteuid():
        assert places.values() == {"agent": "mybot"}


# -- surroundings -----------------------------------------------------------------------------------


def test_without_a_working_directory_there_is_no_project(places, tmp_path, monkeypatch):
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()

    assert places.values(directory=None) == {}
    with pytest.raises(SettingsError, match="the working directory has been removed"):
        places.read(directory=None, config="x.toml")


def no_home(*_):
    raise RuntimeError("could not determine the home directory")


def test_without_a_home_directory_there_is_no_file_of_the_user(places, monkeypatch):
    """As for a user of a container that has only a number; platformdirs and pathlib raise then."""
    for name in ("user_config_path", "user_cache_path", "user_state_path"):
        monkeypatch.setattr(files.platformdirs, name, no_home)
    monkeypatch.setattr(files.Path, "expanduser", no_home)
    given = {"agent": "mybot", "store": "memory:", "audit_log": "/log"}

    assert places.values() == {}
    assert settings_from(places.read(), given).audit_log == "/log"
    for name in ("store", "audit_log"):
        without = {each: value for each, value in given.items() if each != name}
        with pytest.raises(SettingsError, match=f"{name} is not set, and without a home directory"):
            settings_from(places.read(), without)
    file = places.write('overrides = "~/overrides.toml"')
    with pytest.raises(SettingsError, match=f"^{file}:1: overrides .* give an absolute path$"):
        settings_from(places.read(), given)


# -- references -------------------------------------------------------------------------------------


def test_references_are_resolved_and_not_shown(places):
    places.write('store = "env:STORE"\nfetch_proxy = "file:proxy"\nagent = "env:NAME"')
    places.write("http://jane:hunter2@proxy.test:80\r\n", "proxy")
    places.variables.update(STORE="redis://:swordfish@h/0", NAME="mybot")
    found = places.read()
    settings = settings_from(found, {"audit_job": "file:proxy"} | {"audit_job": "env:NAME"})

    assert (settings.store, settings.agent) == ("redis://:swordfish@h/0", "mybot")
    assert (settings.fetch_proxy, settings.audit_job) == (
        "http://jane:hunter2@proxy.test:80",
        "mybot",
    )
    assert settings.shown("store") == "env:STORE"
    recorded = str(settings.writing("cli").settings)
    for secret in ("swordfish", "hunter2", "mybot"):
        assert secret not in recorded
        assert secret not in repr(found)
    assert shown("store", found.values["store"].value) == "env:STORE"
    assert shown("store", "redis://u:swordfish@h/0") == "redis://h/0"
    assert shown("proxyauth", "jane:hunter2") == "(hidden)"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('store = "env:NONE"', "store 'env:NONE': the environment variable NONE is not set"),
        ('store = "env:"', "store 'env:': names no environment variable: write env:NAME"),
        ('store = "env:EMPTY"', "store 'env:EMPTY': the environment variable EMPTY is empty"),
        ('store = "file:none"', "cannot be read: no such file or directory"),
        ('store = "file:"', "store 'file:': names no file: write file:PATH"),
        ('store = "file:empty"', "/empty is empty"),
        ('store = "file:two"', "/two has more than one line: it must have the value only"),
        ('store = "file:."', " is a directory: name a regular file"),
        ('dialect = "env:SECRET"', "dialect 'env:SECRET' is not known"),
        ('fetch_proxy = "env:SECRET"', "fetch_proxy is not the URL of an HTTP proxy"),
        ('store = "env:SECRET"', "store 'env:SECRET': its value is not the URL of a store"),
        ('agent = "env:SECRET"', "agent 'env:SECRET' is not a product token"),
        ('allow_private = "env:SECRET"', "allow_private"),
    ],
)
def test_an_error_about_a_reference_quotes_no_secret(places, line, sentence):
    file = places.write(f"\n{line}\n")
    places.write("", "empty")
    places.write("hunter2\nhunter2\n", "two")
    places.variables.update(SECRET="hunter 2", EMPTY="")

    with pytest.raises(SettingsError) as caught:
        settings_from(places.read(), {} if "agent" in line else {"agent": "mybot"})

    assert str(caught.value).startswith(f"{file}:2: ")
    assert sentence in str(caught.value)
    assert "hunter" not in str(caught.value)
