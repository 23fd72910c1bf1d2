"""`robots-guard config`: show, check, init, and the JSON Schema."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path

import jsonschema
import msgspec
import platformdirs
import pytest
from configuration.test_mistakes import IN_A_FILE

from robots_guard.app.cli.config.schema import schema_text
from robots_guard.configuration.sections import SECTIONS, own_options, settings_in
from robots_guard.text import DOCUMENTATION

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = """\
agent = "mybot"
store = "env:REDIS_URL"
hold_max = 1.5

[proxy]
agent = "proxybot"
listen = "0.0.0.0:8080"
proxyauth = "jane:s3cret"
connect_ports = ["80", "443"]

[scrapy]
meta_bypass = "deny"
"""


@pytest.fixture
def folder(variables, tmp_path, monkeypatch):
    """An empty working directory, and an environment without settings."""
    for name in [each for each in os.environ if each.startswith("ROBOTS_GUARD_")]:
        variables.delenv(name)
    variables.setenv("ROBOTS_GUARD_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(folder):
    path = folder / "robots_guard.toml"
    path.write_text(EXAMPLE)
    return path


def rows_of(out):
    heading, *rows = (line.split("\t") for line in out.splitlines())
    assert heading == ["name", "value", "source"]
    return rows


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("agent = 1979-05-27", "agent 1979-05-27 is a date or a time, which no setting is"),
        ("agent = 1979-05-27T07:32:00Z", "agent 1979-05-27 07:32:00+00:00 is a date or a time"),
        ("hold_max = 07:32:00", "hold_max 07:32:00 is a date or a time, which no setting is"),
        ('purposes = ["search", 1979-05-27]', "purposes 1979-05-27 is a date or a time"),
        ("hold_max = nan", "hold_max nan is not a number: write one such as 30 or 0.5"),
        ("connect_ports = [[443]]", "connect_ports has a part that is neither text nor a number"),
        ("purposes = [{search = 1}]", "purposes has a part that is neither text nor a number"),
        ("agent = {name = 1}", "agent is a setting and no section: write agent = ..."),
        ("[proxy]\nlisten = {port = 1}", "listen is a setting and no section: write listen = ..."),
        ("[proxy]\nlisten = 07:32:00", "listen 07:32:00 is a date or a time"),
    ],
)
def test_a_type_that_no_setting_has_is_one_sentence_in_show_and_check(
    here, tmp_path, written, sentence
):
    file = tmp_path / "types.toml"
    file.write_text(f"{written}\n")
    place = f"{file}:{written.count(chr(10)) + 1}: {sentence}"

    shown, _, said = here("config", "show", "--config", file)
    checked, found, _ = here("config", "check", "--config", file)

    assert (shown, checked) == (2, 2)
    assert place in said
    assert place in found
    assert "datetime" not in found


# -- show -----------------------------------------------------------------------------------------


def test_show_prints_what_is_not_default_and_where_it_comes_from(here, file, variables):
    variables.setenv("ROBOTS_GUARD_MAX_DELAY", "60")
    status, out, err = here("config", "show", "--config", file)

    assert (status, err) == (0, f"robots-guard: read {file}\n")
    assert rows_of(out) == [
        ["agent", "mybot", f"{file}:1"],
        ["store", "env:REDIS_URL", f"{file}:2"],
        ["hold_max", "1.5", f"{file}:3"],
        ["max_delay", "60", "the environment variable ROBOTS_GUARD_MAX_DELAY"],
        ["proxy.agent", "proxybot", f"{file}:6"],
        ["proxy.connect_ports", "80, 443", f"{file}:9"],
        ["proxy.listen", "0.0.0.0:8080", f"{file}:7"],
        ["proxy.proxyauth", "(hidden)", f"{file}:8"],
        ["scrapy.meta_bypass", "deny", f"{file}:12"],
    ]


def test_show_of_one_component_has_its_values_under_their_own_names(here, file):
    shown = {name: value for name, value, _ in rows_of(_show(here, file, "--component", "scrapy"))}

    assert shown["agent"] == "mybot"
    assert shown["meta_bypass"] == "deny"
    assert "listen" not in shown


def test_show_all_has_every_value_of_a_component(here, file):
    for component in ("cli", *SECTIONS):
        shown = rows_of(_show(here, file, "--component", component, "--all"))
        names = [name for name, _, _ in shown]
        assert len(names) == len(set(names))
        if component in SECTIONS:
            assert set(names) == set(settings_in(component))
        by_name = {name: (value, source) for name, value, source in shown}
        assert by_name["max_defer"] == ("900", "default")
    shown = rows_of(_show(here, file, "--component", "proxy", "--all"))
    assert ["body_memory", "256m", "default"] in shown


def _show(here, file, *options):
    status, out, _ = here("config", "show", "--config", file, *options)
    assert status == 0
    return out


def test_show_as_json(here, file):
    shown = json.loads(_show(here, file, "--json", "--component", "proxy"))

    assert (shown["component"], shown["files"]) == ("proxy", [str(file)])
    assert shown["values"][0] == {
        "name": "agent",
        "value": "proxybot",
        "source": {"kind": "file", "name": str(file), "line": 6},
    }


def test_nothing_that_is_shown_contains_a_secret(here, file, variables):
    file.write_text('store = "redis://jane:s3cret@host/0"\n[proxy]\nproxyauth = "jane:s3cret"\n')
    variables.setenv("ROBOTS_GUARD_FETCH_PROXY", "http://jane:s3cret@host:3128")

    shown = _show(here, file) + _show(here, file, "--json") + _show(here, file, "--all")
    assert "redis://host/0" in shown
    assert "s3cret" not in shown


def test_an_error_cannot_control_the_terminal(here, file):
    file.write_text('"a\\u001b]0;x\\u0007b" = 3\n')

    status, out, err = here("config", "show", "--config", file)

    assert (status, out) == (2, "")
    assert r"unknown setting a\x1b]0;x\x07b" in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "lines",
    [
        'set = ["upstream_auth=jane:s3cret", "cert_passphrase=s3cret"]',
        'set = "upstream_auth=jane:s3cret"',
        'set = { upstream_auth = "jane:s3cret" }',
        'set = [{ upstream_auth = "jane:s3cret" }]',
        'proxyauth = ["jane:s3cret", 4]',
        'proxyauth = { jane = "s3cret" }',
        'mode = [{ upstream = "http://jane:s3cret@host" }]',
        'store = ["redis://jane:s3cret@host/0", 4]',
        'fetch_proxy = ["http://jane:s3cret@host", "http://other"]',
        'contact = "http://jane:s3cret@no host/"',
    ],
)
@pytest.mark.parametrize("command", [("show",), ("check",), ("show", "--component", "proxy")])
def test_no_error_and_no_value_quotes_a_secret(here, file, lines, command):
    file.write_text(f'agent = "mybot"\n[proxy]\n{lines}\n')

    _, out, err = here("config", *command, "--config", file)

    assert "mistake" in out + err or lines.split()[0] in out + err
    assert "s3cret" not in out + err


def test_without_a_file_show_says_so(here, folder):
    assert here("config", "show") == (
        0,
        "",
        "robots-guard: no configuration file is read; every value is the default,"
        " which --all shows\n",
    )


# -- init -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", [None, *SECTIONS])
def test_a_new_file_has_no_mistake_with_and_without_its_lines(here, folder, component):
    options = ["--component", component] if component else []
    status, out, _ = here("config", "init", *options)
    file = folder / "robots_guard.toml"
    text = file.read_text()

    assert (status, out) == (0, "")
    assert here("config", "check", file).status == 0
    assert all(value == {} for value in tomllib.loads(text).values())
    assert "(hidden)" not in text

    file.write_text(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    filled = tomllib.loads(file.read_text())
    assert here("config", "check", file).err == f"robots-guard: {file}: no mistake\n"
    jsonschema.validate(filled, json.loads(schema_text()))
    names = {*filled} | {name for section in SECTIONS for name in filled.get(section, {})}
    assert {"agent", "store", "audit_log", "max_defer"} <= names
    if component:
        assert set(settings_in(component)) == names - {component}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_new_file_has_the_defaults_of_each_section(here, folder, section):
    """Names such as `listen` have another default in another section."""
    assert here("config", "init").status == 0

    text = (folder / "robots_guard.toml").read_text()
    uncommented = re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    written = tomllib.loads(uncommented).get(section, {})

    for name, setting in own_options(section).items():
        assert msgspec.convert(written[name], setting.type) == setting.default


def test_a_new_file_may_have_another_name(here, folder):
    status, _, err = here("config", "init", "other.toml")

    assert (status, "other.toml written" in err) == (0, True)
    assert not (folder / "robots_guard.toml").exists()


def test_a_user_without_a_home_directory_may_use_the_commands(here, folder, monkeypatch):
    def fails(*_):
        raise RuntimeError("Could not determine home directory.")

    for name in ("user_cache_path", "user_state_path", "user_config_path"):
        monkeypatch.setattr(platformdirs, name, fails)
    assert here("config", "init").status == 0
    text = (folder / "robots_guard.toml").read_text()
    assert '# audit_log = "/var/log/robots_guard"' in text
    assert here("config", "check", "robots_guard.toml").status == 0
    assert ["audit_log", "", "default"] in rows_of(here("config", "show", "--all").out)


# -- check ----------------------------------------------------------------------------------------


def test_check_reads_the_file_that_the_search_finds(here, folder, variables):
    variables.delenv("ROBOTS_GUARD_CONFIG")
    file = folder / "robots_guard.toml"
    file.write_text('agent = "my bot"\n')
    (folder / "below").mkdir()
    variables.chdir(folder / "below")

    status, out, _ = here("config", "check")

    assert status == 2
    assert out.startswith(f"{file}:1: agent 'my bot'")


def test_values_of_the_proxy_are_checked_without_its_extra(here, folder, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("robots_guard.mitmproxy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mitmproxy", None)
    monkeypatch.setitem(sys.modules, "mitmproxy.proxy", None)
    file = folder / "robots_guard.toml"
    file.write_text('[proxy]\nproxyauth = "jane"\nworkers = 0\n')

    status, out, _ = here("config", "check", file)

    assert (status, out) == (2, f"{file}:3: workers 0 is out of range: use 1 to 64\n")


def test_check_of_nothing_finds_no_mistake(here, folder):
    assert here("config", "check") == (
        0,
        "",
        "robots-guard: there is no configuration file: no mistake\n",
    )


def test_check_reads_the_file_of_a_key(here, folder):
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    forms = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    (folder / "key.pem").write_bytes(pem)
    (folder / "key.pem").chmod(0o600)
    file = folder / "robots_guard.toml"
    file.write_text(f'audit_signing_key = "{folder}/key.pem"\n')

    assert here("config", "check", file).status == 0


# -- the JSON Schema ------------------------------------------------------------------------------


def test_the_stored_schema_is_that_of_the_settings(here):
    assert here("config", "show", "--schema").out == schema_text()
    assert (DOCS / "robots_guard.schema.json").read_text() == schema_text(), (
        "to rewrite it: python docs/settings_tables.py"
    )


def test_the_schema_is_valid_and_accepts_what_the_program_accepts():
    schema = json.loads(schema_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(tomllib.loads(EXAMPLE), schema)
    jsonschema.validate({"connect_ports": [443, "8000-8999"]}, schema)


#: Values with a form of their own, in which no schema finds a mistake; and what depends on other
#: values or on files.
BEYOND_A_SCHEMA = (
    *("dialect", "purposes", "purpose_tokens", "allow_private", "connect_ports"),
    *("body_memory", "contact", "audit_signing_key", "agents"),
    *('overrides = "', 'store = "redis', 'store = "env', 'fetch_proxy = "file'),
    '[proxy]\nlisten = "127.0.0.1:99999"',
)


def _is_toml(text):
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


REFUSED = {
    name: text
    for name, (text, _, _) in IN_A_FILE.items()
    if _is_toml(text) and not text.strip().startswith(BEYOND_A_SCHEMA)
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_the_schema_refuses_mistakes(text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), json.loads(schema_text()))


def test_the_schema_refuses_most_of_the_mistakes():
    assert len(REFUSED) > len(IN_A_FILE) / 2


def test_a_new_file_and_the_schema_name_pages_by_their_addresses(here, folder):
    assert here("config", "init").status == 0
    template = (folder / "robots_guard.toml").read_text()

    for text in (template, schema_text()):
        assert ".md" not in text
        assert f"{DOCUMENTATION}settings.html#private-addresses" in text
        assert f" {DOCUMENTATION}stores.html." in text
