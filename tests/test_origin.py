"""Origins: one key per site in any spelling, and no key for URLs that parsers could read
differently."""

from __future__ import annotations

import ipaddress
import os
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import readers

from robots_guard import origin
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import Origin, objection, origin_of, parse_authority, split_url

# These tests compare the private `_split_uncached` with what is cached, and read `_RECENT`: that
# something is cached has no public face.


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.test", "http://a.test"),
        ("http://a.test:80/", "http://a.test"),
        ("https://a.test:443", "https://a.test"),
        ("http://a.test:443", "http://a.test:443"),
        ("https://a.test:80", "https://a.test:80"),
        ("http://a.test:", "http://a.test"),
        ("http://a.test:0080", "http://a.test"),
        ("http://a.test:00000000000000000080", "http://a.test"),
        ("http://a.test:08080", "http://a.test:8080"),
        ("HTTP://A.TeSt/", "http://a.test"),
        ("http://a.test.", "http://a.test"),
        ("http://a.test.:80", "http://a.test"),
        ("http://user:pass@a.test", "http://a.test"),
        ("http://@a.test", "http://a.test"),
        ("http://a_b.test", "http://a_b.test"),
        ("http://-a.test", "http://-a.test"),
        ("https://fa\u00df.de", "https://xn--fa-hia.de"),
        ("https://XN--FA-HIA.de", "https://xn--fa-hia.de"),
        ("https://b\u00fccher.example.", "https://xn--bcher-kva.example"),
        ("https://B\u00dcCHER.example", "https://xn--bcher-kva.example"),
        ("https://b\u00fccher\u3002example", "https://xn--bcher-kva.example"),
        ("https://fa\u00ad\u00df.de", "https://xn--fa-hia.de"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://127.1", "http://127.0.0.1"),
        ("http://127.0.1", "http://127.0.0.1"),
        ("http://0x7f.1", "http://127.0.0.1"),
        ("http://0X7F.0x0.0X0.0x1", "http://127.0.0.1"),
        ("http://0177.0.0.1", "http://127.0.0.1"),
        ("http://2130706433", "http://127.0.0.1"),
        ("http://0x7f000001", "http://127.0.0.1"),
        ("http://017700000001", "http://127.0.0.1"),
        ("http://127.0.0.1.", "http://127.0.0.1"),
        ("http://\u2460\u2461\u2466.0.0.1", "http://127.0.0.1"),
        ("http://\uff11\uff12\uff17.1", "http://127.0.0.1"),
        ("http://0", "http://0.0.0.0"),
        ("http://0x", "http://0.0.0.0"),
        ("http://[::1]", "http://[::1]"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://[0:0:0:0:0:0:0:1]:80", "http://[::1]"),
        ("http://[2001:DB8::A]", "http://[2001:db8::a]"),
        ("http://[::ffff:127.0.0.1]", "http://[::ffff:7f00:1]"),
        ("http://1.2.3.4.test", "http://1.2.3.4.test"),
    ],
)
def test_one_key_for_one_site(url, origin):
    assert str(split_url(url)[0]) == origin


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///path",
        "http://:80",
        "http://.",
        "http://..",
        "http://a..test",
        "http://.a.test",
        "http://a.test..",
        "http://a%2etest",
        "http://%61.test",
        "http://localhost\0.evil.test",
        "http://a\x00",
        "http://a b.test",
        "http://a\t.test",
        "http://a\n.test",
        "http://a\x7f.test",
        "http://a\\.test",
        "http://a.test\\@b.test",
        "http://a,b.test",
        "http://a*.test",
        "http://(a).test",
        "http://a.test:0",
        "http://a.test:65536",
        "http://a.test:99999999999999999999",
        "http://a.test:8_0",
        "http://a.test:+80",
        "http://a.test:-80",
        "http://a.test:80 ",
        "http://a.test:\u0668\u0660",
        "http://a.test:80:80",
        "http://256.1.1.1",
        "http://1.2.3.4.5",
        "http://1.2.3.256",
        "http://4294967296",
        "http://0x100000000",
        "http://08.1.1.1",
        "http://1.2.3.09",
        "http://a.test.0x1",
        "http://a.1",
        "http://\u2460\u2468\u2468\u2468.0.0.1",
        "http://::1",
        "http://[::1",
        "http://::1]",
        "http://[::1]x",
        "http://[::1]80",
        "http://[::1]:x",
        "http://[]",
        "http://[1.2.3.4]",
        "http://[fe80::1%25eth0]",
        "http://[fe80::1%eth0]",
        "http://[v1.a]",
        "http://\u202ea.test",
        "http://user@other.test:81@a.test",
        "http://a@@b.test",
        "http://a.test @b.test",
        "http://a.test\n@b.test",
        "http://\u00ad",
        "http://xn--\u00fc.test",
        "http://" + "a" * 254,
        "http:a.test",
        "http:/a.test",
        "https:a.test",
        "//a.test/",
        "/path",
        "a.test",
        "",
        "://a.test",
        "1http://a.test",
        " http://a.test",
    ],
)
def test_ambiguous_url_has_no_key(url):
    with pytest.raises(MalformedURL):
        split_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.test/x",
        "file:///etc/passwd",
        "data:,x",
        "mailto:a@b.test",
        "about:blank",
        "ws://a.test",
        "javascript:1",
        "s3://b/k",
    ],
)
def test_other_schemes_are_not_governed(url):
    with pytest.raises(NotGoverned):
        split_url(url)


@pytest.mark.parametrize("spelling", ["http:a.test", "HTTP:/a.test", "https:\\\\a.test"])
def test_http_without_its_slashes_is_refused_and_not_passed_as_another_scheme(spelling):
    """Browsers and some clients repair it to http://a.test, so it must not pass as ungoverned."""
    with pytest.raises(MalformedURL):
        split_url(spelling)


@pytest.mark.parametrize(
    ("url", "is_absolute"),
    [
        ("http://a.test/", True),
        ("HTTPS://a.test/", True),
        ("mailto:a@b.test", True),
        ("a.test/page", False),
        ("a.test:80/page", False),
        ("htps://a.test/", False),
        ("", False),
    ],
)
def test_objection_to_a_url_without_a_known_scheme(url, is_absolute):
    said = objection(url)

    assert (said is None) == is_absolute
    assert said is None or said.startswith(f"{url!r} is not an absolute URL")


def test_an_origin_is_its_scheme_host_and_port():
    assert split_url("http://a.test")[0] != split_url("https://a.test")[0]
    assert split_url("http://a.test")[0] != split_url("http://a.test:8080")[0]
    assert split_url("http://a.test")[0] != split_url("http://www.a.test")[0]
    assert split_url("http://a.test:80/x?y")[0] == Origin("http", "a.test", 80)
    assert split_url("http://a.test:8080")[0].robots_url == "http://a.test:8080/robots.txt"
    assert split_url("https://[::1]:443")[0].robots_url == "https://[::1]/robots.txt"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://a.test", "/"),
        ("http://a.test/", "/"),
        ("http://a.test?q=1", "/?q=1"),
        ("http://a.test#frag", "/"),
        ("http://a.test/p?q#f?/", "/p?q"),
        ("http://a.test/a/../b//c/./%2e%2E;x?y=/..", "/a/../b//c/./%2e%2E;x?y=/.."),
        ("http://a.test/\u00e4\u20ac", "/\xc3\xa4\xe2\x82\xac"),
        ("http://a.test/@b.test:81/", "/@b.test:81/"),
        ("http://a.test/ \x00\n", "/ \x00\n"),
        ("http://a.test/\udc80", "/\x80"),
        ("http://a.test/gr\udcc3\udcb6", "/gr\xc3\xb6"),
    ],
)
def test_target_keeps_its_bytes(url, target):
    assert split_url(url)[1] == target


def test_userinfo_is_ignored_and_never_shown():
    with pytest.raises(MalformedURL) as caught:
        split_url("http://me:secret@a b/")
    assert "secret" not in str(caught.value)


AUTHORITIES = st.text(
    st.sampled_from(
        string.ascii_letters + string.digits + ".:@[]%-_\\ \0x\u00df\u2460\u3002\u00ad"
    ),
    max_size=40,
)


@given(st.text(max_size=60) | AUTHORITIES.map("http://{}/x".format))
@example("http://" + "9" * 5000)
@example("http://0x" + "f" * 5000)
@example("http://a:" + "9" * 5000)
@example("http://[" + ":" * 5000)
@example("http://\u00e4" + "a" * 5000)
@example("http://" + "\u00e4." * 5000)
def test_whatever_it_is_the_answer_is_an_origin_or_one_of_two_errors(url):
    try:
        origin, target = split_url(url)
    except (NotGoverned, MalformedURL):
        return

    assert target.startswith("/")
    assert "#" not in target
    assert all(char <= "\xff" for char in target)
    assert origin.scheme in ("http", "https")
    assert 0 < origin.port < 65536
    assert set(origin.host) <= set(string.ascii_lowercase + string.digits + "-_.:")


@given(AUTHORITIES.map("http://{}".format))
def test_the_serialisation_of_an_origin_is_read_as_itself(url):
    try:
        origin = split_url(url)[0]
    except (NotGoverned, MalformedURL):
        return

    assert split_url(str(origin)) == (origin, "/")
    assert parse_authority(origin.scheme, origin.authority) == origin


@given(st.ip_addresses(v=4), st.sampled_from(["{0}", "0x{1:x}", "{1}", "0{1:o}", "{0}."]))
def test_an_address_has_one_key_however_it_is_written(address, spelling):
    assert split_url("http://" + spelling.format(address, int(address)))[0].host == str(address)


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_has_one_key_however_it_is_written(address):
    spellings = {address.compressed, address.exploded, address.exploded.upper()}

    hosts = {split_url(f"http://[{spelling}]/")[0].host for spelling in spellings}
    assert len(hosts) == 1
    assert ipaddress.IPv6Address(hosts.pop()) == address


def test_cache_of_origins_is_bounded():
    for number in range(10_000):
        origin_of(f"http://{number}.test")

    assert origin_of.cache_info().currsize <= 8192


@given(
    st.sampled_from(["http://a.test", "https://A.test:443", "http://[::1]:8080", "http://a.test."]),
    st.text(max_size=20),
)
def test_cache_and_parser_agree(prefix, rest):
    """The second look-up comes from the cache, with any text after the authority."""
    split_url(prefix + "/")
    for url in (prefix + "/" + rest, prefix + rest):
        assert _answer(split_url, url) == _answer(origin._split_uncached, url)


def _answer(split, url):
    try:
        return split(url)
    except (MalformedURL, NotGoverned) as error:
        return type(error)


@pytest.mark.parametrize(
    "url",
    ["http://a.test?", "http://a.testx", "http://a.test", "http://a.test#/", "http://a.test?/"],
)
def test_a_url_without_a_path_is_not_taken_for_a_shorter_one(url):
    split_url("http://a.test/")

    assert _answer(split_url, url) == _answer(origin._split_uncached, url)


@pytest.mark.parametrize(
    ("rest", "target"),
    [
        ("/caf\u00e9#\u00fc", "/caf\xc3\xa9"),
        ("/?q=\u2603", "/?q=\xe2\x98\x83"),
        ("/\udcc3\udca9", "/\xc3\xa9"),
        ("/\udce9", "/\xe9"),
        ("/\u00e9#x", "/\xc3\xa9"),
    ],
)
def test_a_known_authority_gives_the_same_target_outside_ascii(rest, target):
    url = "https://known.test" + rest
    origin._RECENT.clear()

    assert split_url(url) == split_url(url) == (Origin("https", "known.test", 443), target)
    assert "https://known.test" in origin._RECENT


@pytest.mark.parametrize(
    "url", ["http://a.test/\ud83d", "http://a\ud83d.test/", "http://\udcff.test/"]
)
def test_surrogate_that_represents_no_byte_is_refused(url):
    """In a host this includes one that represents a byte, if the byte is not UTF-8."""
    for _ in range(2):  # the authority is known the second time
        with pytest.raises(MalformedURL, match=r"surrogate|host name"):
            split_url(url)
        split_url("http://a.test/")


def test_a_host_in_bytes_that_the_locale_could_not_decode_is_itself():
    """With LC_ALL=C Python replaces bytes by lone surrogates (PEP 383)."""
    assert (
        split_url("http://b\udcc3\udcbccher.test/")[0] == split_url("http://b\u00fccher.test/")[0]
    )


# What a URL's authority is made of, for readers to differ in.
SCHEMES = [
    "http://",
    "https://",
    "HTTP://",
    "hTTps://",
    "http:",
    "http:/",
    "http:///",
    "https:\\\\",
    "ws://",
    "ftp://",
    "//",
]
SCHEMES += [
    "\thttp://",
    " http://",
    "ht\ttp://",
    "http:/\n/",
    "http://u:p@",
    "http://@",
    "http://a@b@",
    "x:http://",
    "",
]
LABELS = [
    "a",
    "EXAMPLE",
    "localhost",
    "127",
    "1",
    "0x7f",
    "0",
    "017",
    "2130706433",
    "0x",
    "256",
    "4294967296",
    "08",
    "x_y",
]
LABELS += [
    "-a",
    "a--b",
    "xn--bcher-kva",
    "XN--BCHER-KVA",
    "xn--a",
    "xn--",
    "b\u00fccher",
    "fa\u00df",
    "\u2460",
    "\uff11",
]
LABELS += [
    "\u0130",
    "\u212a",
    "\ufb01",
    "a\u0301",
    "\u2603",
    "a,b",
    "a!b",
    "a%62",
    "%31",
    "a b",
    "\u200d",
    "\u00ad",
    "\u0661",
]
LABELS += ["\u05d1", "\ufdfa", "1e3", "0x1g", "", "a" * 64, "\u3002", "\u2488"]
LITERALS = [
    "[::1]",
    "[2001:DB8::A]",
    "[::ffff:1.2.3.4]",
    "[::1.2.3.4]",
    "[1::2:0:0:3]",
    "[1:0:0:2:0:0:3:4]",
    "[0000::1]",
]
LITERALS += [
    "[::127.1]",
    "[::1%25eth0]",
    "[v1.a]",
    "[00000::1]",
    "[1:2:3:4:5:6:7::]",
    "[1:2:3:4:5:6:1.2.3.4]",
    "[::1 ]",
]
PORTS = [
    "",
    "",
    ":80",
    ":443",
    ":8080",
    ":00080",
    ":008080",
    ":",
    ":0",
    ":65536",
    ":0x50",
    ":80:80",
    ": 80",
    ":8080\t",
    "\\",
]
ENDS = ["", "/", "/x", "?q", "#f", "\\x", "/x://y", "@z/", " ", "\t/", "\\@b/"]
NAMES = st.builds(
    str.__add__,
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=4).map(".".join),
    st.sampled_from(["", "", "."]),
)
URLS = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(SCHEMES) | st.sampled_from(["http://", "https://"]),
    NAMES | st.sampled_from(LITERALS) | st.ip_addresses(v=6).map("[{}]".format),
    st.sampled_from(PORTS),
    st.sampled_from(ENDS),
)


@pytest.fixture(scope="module")
def node():
    with readers.started() as process:
        yield process


@settings(max_examples=int(os.environ.get("URLS", "4000")))
@given(url=URLS)
def test_an_origin_is_the_one_that_the_whatwg_parser_finds(node, url):
    """Scheme, host and port, in the same writing; only a trailing dot is left out."""
    found = node.origins([url])[0]
    governed = found is not None and found["protocol"] in ("http:", "https:")
    try:
        ours = split_url(url)[0]
    except MalformedURL:
        return  # nothing is requested
    except NotGoverned:
        assert not governed
        return

    if not governed:
        # A label that decodes to nothing; this package keeps its ASCII text.
        assert "xn--" in ours.host
        return
    port = f":{found['port']}" if found["port"] else ""
    assert (ours.scheme + ":", ours.authority) == (
        found["protocol"],
        found["hostname"].removesuffix(".") + port,
    )
    assert node.origins([f"{ours}/"])[0]["host"] == ours.authority


def test_the_memo_is_bounded():
    for n in range(20_000):
        split_url(f"http://h{n}.test/x")

    assert len(origin._RECENT) <= 8192
