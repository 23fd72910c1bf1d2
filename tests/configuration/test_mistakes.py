"""Mistakes of operators: each is one sentence that names the thing, the remedy, and the place where
it was written, with exit status 2, and never a traceback."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from robots_guard.app.cli import main as cli
from robots_guard.configuration.settings import NAMES, PROXY_NAMES
from robots_guard.errors import SettingsError


class Ran(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Run a command line in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path / "audit_log"))
    monkeypatch.setenv("ROBOTS_GUARD_STORE", "memory:")

    def here(*args):
        status = cli.run([str(arg) for arg in args])
        ran = Ran(status, *capsys.readouterr())
        assert "Traceback" not in ran.err
        return ran

    return here


def sentence_in(text: str) -> str:
    """The only line of a text, which must be a sentence with a remedy."""
    assert text.count("\n") == 1, text
    return text.removeprefix("robots-guard: ").rstrip("\n")


# -- in a file ----------------------------------------------------------------------------------------

#: What is in the file, the line of the mistake, and what is said about it.
IN_A_FILE = {
    "a misspelt name": ('\nagnet = "x"', 2, "unknown setting agnet: did you mean agent?"),
    "a name of nothing": ("zzz = 1", 1, "unknown setting zzz: the nearest are "),
    "dashes in a name": ("hold-max = 3", 1, "unknown setting hold-max: did you mean hold_max?"),
    "a misspelt name in a section": (
        "[proxy]\nwokers = 2",
        2,
        "unknown setting wokers in [proxy]: did you mean workers?",
    ),
    "a misspelt section": (
        "[prxy]\nworkers = 2",
        1,
        "unknown section [prxy]: did you mean [proxy]?",
    ),
    "a name above its section": (
        "workers = 2",
        1,
        "workers belongs to a section: put it below [proxy]",
    ),
    "a name of two sections": (
        'listen = "127.0.0.1:80"',
        1,
        "put it below [proxy] or [console]",
    ),
    "a name in another section": (
        "[scrapy]\nworkers = 2",
        2,
        "workers has no meaning in [scrapy]: put it below [proxy]",
    ),
    "a section that is a value": ('proxy = "127.0.0.1"', 1, "proxy is a section: write [proxy]"),
    "a setting that is a section": (
        "[agent]\nname = 'x'",
        1,
        "agent is a setting and no section: write agent = ...",
    ),
    "a space in the agent": (
        'agent = "my bot"',
        1,
        "agent 'my bot' is not a product token: RFC 9309 section 2.2.1 does not allow a space in it;",
    ),
    "an umlaut in the agent": (
        'agent = "b\u00f6t"',
        1,
        "agent 'b\u00f6t' is not a product token: RFC 9309 section 2.2.1 does not allow '\u00f6' in it;",
    ),
    "a dot at the end of the agent": (
        'agent = "bot2000."',
        1,
        "agent 'bot2000.' is not a product token: a dot stands between other characters;",
    ),
    "a whole User-Agent": ('agent = "mybot/1.0"', 1, "does not allow '/' in it;"),
    "an agent in a section": (
        '[proxy]\n\nagent = "2!"',
        3,
        "agent '2!' is not a product token",
    ),
    "words for seconds": (
        'hold_max = "soon"',
        1,
        "hold_max 'soon' is not a number of seconds: write one such as 30",
    ),
    "a unit after seconds": ('max_defer = "15m"', 1, "is not a number of seconds: write one such"),
    "a negative delay": (
        "min_delay = -1",
        1,
        "min_delay -1 is out of range: use 0 to 86400 seconds",
    ),
    "no time at all": ("fetch_timeout = 0", 1, "use more than 0 and at most 3600 seconds"),
    "half a day": (
        "audit_retention_days = 0.5",
        1,
        "audit_retention_days 0.5 is not a whole number",
    ),
    "less than nothing": ("audit_retention_bytes = -1", 1, "is out of range: use 0 to"),
    "yes for a switch": ('report_only = "perhaps"', 1, "is not a switch: use true or false"),
    "a number for a text": ("overrides = 3", 1, "overrides 3 is not text: put it in quotes"),
    "a value that is not known": (
        'on_restricted = "deny"',
        1,
        "on_restricted 'deny' is not known: use drop or allow",
    ),
    "another case": ('audit = "All"', 1, "audit 'All' is not known: use refusals, summary, all or"),
    "an unknown dialect": ('dialect = "gogle"', 1, "dialect 'gogle' is not known; use one of"),
    "an unknown purpose": (
        'purposes = "ai-trian"',
        1,
        "'ai-trian' is not a use: did you mean ai-train?",
    ),
    "a token without its use": (
        'purpose_tokens = "GPTBot"',
        1,
        "purpose_tokens 'GPTBot': 'GPTBot' is not of the form use=token, such as",
    ),
    "a name for a network": (
        'allow_private = "localhost"',
        1,
        "allow_private: 'localhost' is not a network",
    ),
    "a store of another kind": (
        'store = "postgres://x"',
        1,
        "is not a store: use memory:, sqlite:",
    ),
    "a path for a store": ('store = "/var/lib/policies.sqlite"', 1, "is not a store: use memory:"),
    "a misspelt option of a store": (
        'store = "redis://127.0.0.1/0?timout=1"',
        1,
        "timout",
    ),
    "a proxy without a scheme": (
        'fetch_proxy = "proxy.example:3128"',
        1,
        "fetch_proxy is not the URL of an HTTP proxy: write it as http://host:port",
    ),
    "a switch in a list of ports": (
        "connect_ports = [443, true]",
        1,
        "connect_ports [443, True] has a part that is neither text nor a number: write a list"
        ' such as ["a", "b"]',
    ),
    "a number that is no network": ("allow_private = [10]", 1, "'10' is not a network"),
    "ports that are too large": (
        "connect_ports = [443, 99999]",
        1,
        "is not a list of ports: write numbers and ranges",
    ),
    "ports that are no ports": (
        'connect_ports = "80-"',
        1,
        "connect_ports '80-' is not a list of ports: write numbers and ranges",
    ),
    "a body memory without a number": ('body_memory = "lots"', 1, "is not a size: write bytes"),
    "a contact that is no address": (
        'contact = "Jane"',
        1,
        "is not a URL or a mail address: write",
    ),
    "an agent that the dialect cannot compare": (
        'dialect = "google"\nagent = "AI2Bot"',
        2,
        "cannot be judged in dialect google, which compares letters",
    ),
    "a key instead of its file": (
        'audit_signing_key = "-----BEGIN PRIVATE KEY-----"',
        1,
        "is a key itself: put it into a file, and give the path of the file",
    ),
    "no overrides file": (
        '\n\noverrides = "nowhere.toml"',
        3,
        "nowhere.toml' cannot be used (No such file or directory): correct it, or name another",
    ),
    "an override without its parts": (
        'overrides = "two_parts.toml"',
        1,
        "override 'shop': owner, expires are missing: state who is responsible for it",
    ),
    "no agents file": ('agents = "nowhere.toml"', 1, "cannot be read (No such file or directory)"),
    "no signing key": (
        'audit_signing_key = "nowhere.pem"',
        1,
        "there is no file",
    ),
    "a signing key that others read": (
        'audit_signing_key = "open.pem"',
        1,
        "can be read or changed by other users: run chmod 600",
    ),
    "a variable that is not set": (
        'store = "env:NO_SUCH_VARIABLE"',
        1,
        "store 'env:NO_SUCH_VARIABLE': the environment variable NO_SUCH_VARIABLE is not set",
    ),
    "a secret's file that is missing": (
        'fetch_proxy = "file:nowhere"',
        1,
        "nowhere cannot be read: no such file or directory",
    ),
    "no workers": ("[proxy]\nworkers = 0", 2, "workers 0 is out of range: use 1 to 64"),
    "a path behind a port": (
        '[proxy]\nlisten = "127.0.0.1:8000/path"',
        2,
        "listen '127.0.0.1:8000/path' is not an address: use HOST:PORT, such as 127.0.0.1:8080",
    ),
    "a port that is too large": (
        '[proxy]\nlisten = "127.0.0.1:99999"',
        2,
        "listen '127.0.0.1:99999' has a port that is too large: use 0 to 65535",
    ),
    "a port alone": ('[console]\nlisten = "8099"', 2, "use HOST:PORT, such as 127.0.0.1:8099"),
    "a number for modes": ("[proxy]\nmode = 3", 2, "mode 3 is not a list of texts: write one such"),
    "a switch of Scrapy": (
        '[scrapy]\nmeta_bypass = "no"',
        2,
        "meta_bypass 'no' is not known: use audit or deny",
    ),
    "no quotes": (
        "agent = mybot",
        1,
        'not valid TOML: Invalid value: put a text in quotes, as in agent = "mybot"',
    ),
    "an address without quotes": (
        "[proxy]\nlisten = 127.0.0.1:80",
        2,
        'put a text in quotes, as in agent = "mybot"',
    ),
    "an equals sign without a value": ("agent =", 1, "not valid TOML: Invalid value: put a text"),
    "a name twice": (
        'agent = "a"\nhold_max = 1\nagent = "b"',
        3,
        "not valid TOML: agent is already in line 1: remove one of them",
    ),
    "a name twice in a section": (
        "[proxy]\nworkers = 1\nworkers = 2",
        3,
        "not valid TOML: workers is already in line 2: remove one of them",
    ),
    "a section twice": (
        "[proxy]\nworkers = 1\n[console]\n[proxy]\n",
        4,
        "not valid TOML: [proxy] is already in line 1: remove one of them",
    ),
    "a list without an end": ('agent = "a"\nconnect_ports = ["80",\n', 2, "not valid TOML"),
}


@pytest.fixture
def folder(tmp_path):
    """A directory with files that a configuration names."""
    (tmp_path / "two_parts.toml").write_text(
        '[[override]]\nid = "shop"\norigin = "https://shop.example"\nreason = "x"\n'
    )
    key = tmp_path / "open.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    key.chmod(0o644)
    return tmp_path


@pytest.mark.parametrize(("text", "line", "said"), IN_A_FILE.values(), ids=IN_A_FILE)
def test_a_mistake_in_a_file_is_named_with_its_file_and_line(here, folder, text, line, said):
    if "redis://" in text:
        pytest.importorskip("redis")
    file = folder / "robots_guard.toml"
    file.write_text(text + "\n")

    status, out, err = here("config", "check", file)

    assert status == 2
    sentence = sentence_in(out or err)
    assert sentence.startswith(f"{file}:{line}: ")
    assert said in sentence


def test_all_mistakes_of_a_file_are_reported_in_the_order_of_their_lines(here, folder):
    texts = [text for text, line, _ in IN_A_FILE.values() if line == 1 and "\n" not in text]
    single = [
        text for text in texts if not re.match(r"agent =( mybot)?$|store|proxy|audit_sign", text)
    ]
    single = list({text.partition(" ")[0]: text for text in single}.values())
    file = folder / "robots_guard.toml"
    file.write_text("\n".join(single) + "\n")

    status, out, err = here("config", "check", file)

    places = [int(line.split(":")[1]) for line in out.splitlines()]
    assert (status, places) == (2, list(range(1, len(single) + 1)))
    assert err == f"robots-guard: {file}: {len(single)} mistakes\n"


def test_a_secret_is_not_quoted(here, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "postgres://jane:s3cret@host")
    (tmp_path / "secret").write_text("s3cret:x")
    file = tmp_path / "robots_guard.toml"
    file.write_text('store = "env:SECRET"\nfetch_proxy = "file:secret"\n')

    status, out, err = here("config", "check", file)

    assert (status, out.count("\n")) == (2, 2)
    assert "s3cret" not in out + err


#: Mistakes that only `config check` looks for: in what is named, and read when it is used.
_LOOKED_FOR = re.compile(r"\s*(overrides = \"|agents|audit_signing_key = \"(nowhere|open)|store)")
READ_BY_ALL = {
    name: mistake
    for name, mistake in IN_A_FILE.items()
    if "[" not in mistake[0] and not _LOOKED_FOR.match(mistake[0])
}


def _by_command(file, component, here):
    options = () if component == "cli" else ("--store", "memory:")
    command = {"cli": ("check", "--robots", "/dev/null", "https://a.test/"), "proxy": ("proxy",)}
    status, out, err = here("--config", file, *command[component], *options)
    assert (status, out) == (2, "")
    return sentence_in(err)


def _by_scrapy(file):
    options = pytest.importorskip("robots_guard.scrapy.options")
    from scrapy.settings import Settings as ScrapySettings

    with pytest.raises(SettingsError) as raised:
        options.options_of(ScrapySettings({"ROBOTS_GUARD_CONFIG": str(file)}))
    return str(raised.value)


def _by_mitmdump(file):
    from mitmproxy.addonmanager import Loader
    from mitmproxy.options import Options

    from robots_guard.mitmproxy.options import declare, read_settings

    chosen = Options()
    declare(Loader(SimpleNamespace(options=chosen)))  # of the master, it uses the options only
    chosen.update(robots_guard_config=str(file))
    with pytest.raises(SettingsError) as raised:
        read_settings(chosen)
    return str(raised.value)


@pytest.fixture(scope="session")
def mitmproxy():
    with warnings.catch_warnings():
        # mitmproxy's own, of pyparsing and ldap3; only on import
        warnings.simplefilter("ignore", DeprecationWarning)
        return pytest.importorskip("mitmproxy.tools.dump")


@pytest.mark.usefixtures("mitmproxy")
@pytest.mark.parametrize(("text", "line", "said"), READ_BY_ALL.values(), ids=READ_BY_ALL)
def test_every_reader_of_a_file_names_the_same_mistake(here, folder, text, line, said):
    """The proxy's own settings are not read by the others, whose names are checked all the same."""
    file = folder / "robots_guard.toml"
    file.write_text(text + "\n" if "agent" in text else f"{text}\nagent = 'mybot'\n")
    name = text.split()[0]

    readers = [_by_mitmdump(file), _by_command(file, "proxy", here)]
    if name not in PROXY_NAMES or name in NAMES:
        readers += [_by_scrapy(file), _by_command(file, "cli", here)]
    for sentence in readers:
        assert sentence.startswith(f"{file}:{line}: ")
        assert said in sentence


# -- files that cannot be used ------------------------------------------------------------------------


def test_a_file_that_cannot_be_used_is_named_with_the_remedy(here, tmp_path):
    said = {}
    for name, content in {"latin.toml": b"# \n\n# \xfc\n", "pyproject.toml": b"[tool.x]\n"}.items():
        (tmp_path / name).write_bytes(content)
        ran = here("config", "check", tmp_path / name)
        assert (ran.status, ran.out) == (2, "")
        said[name] = sentence_in(ran.err)
    for name in ("nowhere.toml", "."):
        ran = here("config", "check", tmp_path / name)
        assert (ran.status, ran.out) == (2, "")
        said[name] = sentence_in(ran.err)

    assert said["latin.toml"].endswith("latin.toml:3: not UTF-8: save the file in that encoding")
    assert "there is no [tool.robots_guard] in it: add that table" in said["pyproject.toml"]
    assert "nowhere.toml cannot be read: no such file or directory" in said["nowhere.toml"]
    assert "is a directory: name a regular file" in said["."]


# -- in the environment -------------------------------------------------------------------------------

IN_THE_ENVIRONMENT = {
    "WORKERS": ("2", "WORKERS belongs to one component: set ROBOTS_GUARD_PROXY_WORKERS"),
    "LISTEN": (
        "127.0.0.1:80",
        "to one component: set ROBOTS_GUARD_PROXY_LISTEN or ROBOTS_GUARD_CONSOLE_LISTEN",
    ),
    "AGENT": ("my bot", "is not a product token: RFC 9309 section 2.2.1 does not allow a space"),
    "AGNET": ("mybot", "did you mean ROBOTS_GUARD_AGENT?"),
    "HOLD_MAX": ("soon", "is not a number of seconds: write one such as 30 or 0.5"),
    "MIN_DELAY": ("-1", "is out of range: use 0 to 86400 seconds"),
    "REPORT_ONLY": ("perhaps", "use true or false"),
    "ON_RESTRICTED": ("deny", "is not known: use drop or allow"),
    "STORE": ("postgres://x", "is not a store: use memory:, sqlite:///relative/path"),
    "DIALECT": ("gogle", "is not known; use one of koster1994"),
    "MODE": ("Report", "MODE belongs to one component: set ROBOTS_GUARD_PROXY_MODE"),
    "AUDIT": ("everything", "is not known: use refusals, summary, all or evidence"),
    "PURPOSES": ("ai-trian", "did you mean ai-train?"),
    "ALLOW_PRIVATE": ("10.0.0.0/33", "use CIDRs such as 10.0.0.0/8, separated by commas"),
    "CONTACT": ("Jane", "is not a URL or a mail address: write one such as"),
    "AUDIT_SIGNING_KEY": ("/nowhere.pem", "make one with 'robots-guard audit keys --create FILE'"),
    "OVERRIDES": ("/nowhere.toml", "correct it, or name another file"),
    "FETCH_PROXY": ("env:NO_SUCH_VARIABLE", "the environment variable NO_SUCH_VARIABLE is not set"),
    "CONFIG": ("/nowhere.toml", "cannot be read: no such file or directory"),
}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [(name, *rest) for name, rest in IN_THE_ENVIRONMENT.items()],
    ids=IN_THE_ENVIRONMENT,
)
def test_a_mistake_in_the_environment_is_named_with_its_variable(
    here, monkeypatch, name, value, said
):
    variable = f"ROBOTS_GUARD_{name}"
    monkeypatch.setenv(variable, value)

    status, out, err = here("config", "check")

    assert status == 2
    sentence = sentence_in(out or err)
    assert variable in sentence
    assert said in sentence


# -- among the options --------------------------------------------------------------------------------

ASK = ("check", "https://a.test/")
AMONG_THE_OPTIONS = {
    "agent": (*ASK, "--agent", "bot 2000"),
    "max-defer": (*ASK, "--max-defer", "15m"),
    "on-restricted": (*ASK, "--on-restricted", "deny"),
    "store": (*ASK, "--store", "postgres://x"),
    "overrides": ("overrides", "list", "--overrides", "/nowhere.toml"),
    "audit-log": ("audit", "query", "--audit-log", "/nowhere"),
    "component": ("config", "show", "--component", "proxi"),
    "config": ("config", "show", "--config", "/nowhere.toml"),
}


@pytest.mark.parametrize("option", AMONG_THE_OPTIONS)
def test_a_mistake_among_the_options_is_named_as_an_option(here, monkeypatch, option):
    monkeypatch.setenv("ROBOTS_GUARD_AGENT", "mybot")

    status, out, err = here(*AMONG_THE_OPTIONS[option])

    assert (status, out) == (2, "")
    assert option in sentence_in(err)


# -- not overwritten ----------------------------------------------------------------------------------


def test_a_file_that_exists_is_not_overwritten(here, tmp_path):
    file = tmp_path / "robots_guard.toml"
    file.write_text("# mine\n")

    status, out, err = here("config", "init")

    assert (status, out) == (2, "")
    assert "'robots_guard.toml' exists and is not overwritten: name another file" in sentence_in(
        err
    )
    assert Path(file).read_text() == "# mine\n"
