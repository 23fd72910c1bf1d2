"""The forms of a target compared with the URL parsers of servers: Node's two, urllib's and yarl.

The promise: whatever path one of them finds in a target, a rule that forbids that path forbids the target, unless the
target is refused as malformed. CI tries some thousands of targets. `TARGETS=300000 SEED=1 pytest -s --timeout 0
tests/protocol/test_readers.py` tries as many as are named, and prints how many paths it has compared.
"""

from __future__ import annotations

import os
import random
import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import readers

from robots_guard.origin import wire_text
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import malformed, rooted, undotted
from robots_guard.protocol.percent import canonical
from robots_guard.protocol.ruleset import compile_rules

TARGETS = int(os.environ.get("TARGETS", "8000"))
SEED = int(os.environ.get("SEED", "9309"))
AT_ONCE = 500
DOT_SEGMENT = re.compile(r"/\.\.?(/|$)")

# What targets are made of. No "'": new URL() writes it as "%27" in a query, which to RFC 3986 section 2.2 is another.
STARTS = ["/", "/", "//", "//", "///", "////", "/////", "/./", "/.//", "/a/..//", "/%2e//", "/;a//"]
SEPARATORS = ["/", "/", "/", "/", "//", "///", "////", ";", "?", "/", "#"]
NAMES = [
    "private",
    "s",
    "a",
    "b",
    "x",
    "",
    "",
    "~",
    "*",
    "$",
    "!",
    "+",
    "&",
    "=",
    "a,b",
    "(x)",
    '"',
    "<",
    "^",
    "`",
    "{",
    "|",
]
DOTS = [".", "..", "%2e", "%2E%2e", ".%2e", "..;a", ".;", "...", "x.."]
HOSTS = [
    "x:9",
    "x:y",
    "x:",
    "[::1]",
    "[::1",
    "[::1]:9",
    "x;y",
    "x,y",
    ":",
    "0x7f.1",
    "localhost.",
    "1.2.3.4.5",
    "xn--a",
]
HOSTS += ["x..y", "x|y", "x y", "x\ty", "\\x", "x%70rivate", "x%2fy"]
USERS = ["u:p@x:9", "u@x", "@", "@@", "x@", "u@x%70rivate", "u%40x@y", "u@x:y"]
ESCAPES = [
    "%70rivate",
    "%73",
    "x%2fy",
    "x%5cy",
    "%zz",
    "%",
    "%e9",
    "%c3%a9",
    "%3b",
    "%3f",
    "%23",
    "%25",
    "%2570",
]
BYTES = ["\xc3\xa9", "\xe9", "\xa0", "\xc2\xa0", "\xff"]
PARAMETERS = [";", ";a", "private;v=1", ";/", "s;a;b"]
PIECES = [*NAMES, *DOTS, *HOSTS, *USERS, *ESCAPES, *BYTES, *PARAMETERS]

GRAMMAR = st.builds(
    lambda start, parts, end: (
        start + "".join(piece + separator for piece, separator in parts) + end
    ),
    st.sampled_from(STARTS),
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(SEPARATORS)), max_size=7),
    st.sampled_from(["", "s", "private/s"]),
)
ANYTHING = st.text("/.;:@%2eEfF5cC7?#[]a\xa0\xc3\xa9\\ \t*$|", max_size=24).map(
    lambda text: "/" + text
)


@pytest.fixture(scope="module")
def node():
    with readers.started() as process:
        yield process


def generated(source):
    """One target of the grammar."""
    text = source.choice(STARTS)
    for _ in range(source.randint(1, 6)):
        text += source.choice(PIECES) + source.choice(SEPARATORS)
    return text[:-1] if source.random() < 0.6 else text


def found(target, by_node):
    """Every resource that a reader finds in a target, in canonical form, with one such reader."""
    resources = {}
    for reader, path, query in (*by_node, *readers.read_by_python(target)):
        path = canonical(rooted(path))  # a file server joins it to its root
        if DOT_SEGMENT.search(path):
            path = undotted(path)  # where nothing is: a server will resolve it further
        resources.setdefault(path + canonical(query), reader)
    return resources


def rules_for(resource):
    """Rules that forbid a resource, of several shapes."""
    path = resource.partition("?")[0]
    directory, _, name = path.rpartition("/")
    yield f"{resource}$"
    yield resource
    yield f"{directory}/"
    if name:
        yield f"/*{name}$" if resource == path else f"/*{name}?"


def judge(rule, target, profile="standard"):
    return compile_rules(
        f"User-agent: *\nDisallow: {rule}\n".encode(), dialect("rfc9309"), "bot", profile
    ).judge(target)


def leaks(target, by_node):
    """The rules that forbid what a reader finds in a target, and not the target."""
    for resource, reader in found(target, by_node).items():
        for rule in rules_for(resource):
            assert not judge(rule, resource, "spec").allowed, (rule, resource)
            if judge(rule, target).allowed:
                yield reader, target, resource, rule


def test_what_a_reader_finds_is_forbidden_as_the_target_is(node):
    """Thousands of targets, from a grammar of what parsers disagree on."""
    source, compared, refused, leaked = random.Random(SEED), 0, 0, []
    for _ in range(max(1, TARGETS // AT_ONCE)):
        targets = [generated(source) for _ in range(AT_ONCE)]
        for target, by_node in zip(targets, node.targets(targets), strict=True):
            if malformed(target):
                refused += 1
            else:
                compared += len(found(target, by_node))
                leaked.extend(leaks(target, by_node))
    print(
        f"{TARGETS} targets, {refused} refused as malformed, {compared} paths found by readers, {len(leaked)} leaked"
    )
    assert compared > TARGETS
    assert min(leaked, key=lambda each: len(each[1]), default=None) is None


@settings(max_examples=1_500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(GRAMMAR | ANYTHING)
def test_readings_are_forbidden_for_generated_targets(node, target):
    assume(malformed(target) is None)

    assert list(leaks(target, node.targets([target])[0])) == []


@pytest.mark.parametrize(
    "target",
    [
        "///x/private/s",
        "////x/private/s",
        "/////////x/private/s",
        "///u:p@x:9/private/s",
        "///[::1]/private/s",
        "///x;y/private/s",
        "///%78/private/s",
        "///x/%70rivate/s",
        "///x//private/s",
        "///x/../private/s",
        "///x/a/%2e%2e/private/s",
        "///../private/s",
        "/.//x/private/s",
        "/a/..///x/private/s",
        "//x//y/private/s",
        "//u@x%70rivate/s",
        "//x:/../private/s",
        "/;a///x/private/s",
        "///x/private/s?q",
    ],
)
@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_an_authority_in_a_target_hides_nothing(target, profile, node):
    """Each is the private page for at least one reader, or for one behind another."""
    paths = [undotted(canonical(rooted(path))) for _, path, _ in node.targets([target])[0]]

    assert any(path.replace("//", "/") == "/private/s" for path in paths) or target.startswith("/;")
    assert malformed(target) is None
    assert not judge("/private/", target, profile).allowed


@pytest.mark.parametrize(
    ("rule", "target"),
    [
        ("/x/y/private/", "/x/y/%2e%2e/../private/s"),  # to urljoin() "%2e%2e" is a name
        ("/100%25/", "/100%/s"),
        ("/*.pdf$", "/a.pdf/."),  # one file to posix.normalize(), and to the file system
        ("/*.pdf$", "/a.pdf\xa0"),  # url.parse() trims it
        ("/*.pdf$", "/a;b/c.pdf;d"),  # urlparse() takes off the last parameters only
        ("/%C3%83%C2%A9", wire_text("/é")),  # new URL() takes bytes for characters
    ],
)
def test_other_readings_of_one_target(rule, target):
    assert not judge(rule, target).allowed
    assert judge(rule, target, "spec").allowed


@pytest.mark.parametrize(
    "path", ["/a//b", "/a//private/s", "/a/b//", "/http://x/private/s", "/a;b//c"]
)
def test_doubled_slashes_within_a_path_hide_no_authority(path):
    """A wrong refusal is a bug as well: only a path with two leading slashes can contain an authority."""
    assert judge("/private/", path).allowed


@pytest.mark.parametrize(
    "target",
    [
        "http://x/private/s",
        "http:/private/s",
        "http:private/s",
        "HTTPS:\\x\\private/s",
        "*",
        "",
        "?/private/s",
        "x:80",
        "\t///x/private/s",
        " ///x/private/s",
        "/\t//x/private/s",
        "\\\\x/private/s",
        "/\\x/private/s",
        "//\nx/private/s",
    ],
)
def test_targets_that_only_lenient_readers_accept_are_refused(target):
    assert malformed(target)
