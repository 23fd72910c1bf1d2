"""`audit verify`, `keys` and `hold`: what is proven about a log, and by what."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import stat
import subprocess
import sys

import pytest
from audit.decisions import AT, audit_log_in, decision
from audit.forgeries import forge_copies
from support.timestamps import authority

from robots_guard.audit.key_files import create_key
from robots_guard.audit.read import index
from robots_guard.audit.read.search import Search
from robots_guard.audit.signing import fingerprint


@pytest.fixture
def key(tmp_path):
    return tmp_path / "key.pem"


@pytest.fixture
def signed(tmp_path, key):
    """A signed log, closed."""
    log = audit_log_in(tmp_path / "audit_log", signer=create_key(key), chain=True, audit="all")
    log.write(decision())
    log.write(decision(at=AT + 60))
    log.close()
    return tmp_path / "audit_log"


def summary_of(ran):
    return json.loads(ran.out.splitlines()[-1])["summary"]


def test_the_summary_says_what_was_verified_and_how(here, signed, key):
    shown = here("audit", "keys", key).out.split()
    done = here("audit", "verify")

    assert done.status == 0
    assert done.out.splitlines()[-1] == (
        "whole: 1 file; 1 writer; 5 records from 2027-01-15T08:00:00.000Z to 2027-01-15T08:01:00.000Z;"
        f" 0 gaps; signatures: 1 by {shown[1]}; timestamps: none; WARC records: none"
    )
    summary = summary_of(here("audit", "verify", "--json"))
    assert (summary["is_whole"], summary["signatures"]) == (True, {shown[0]: 1})


@pytest.mark.parametrize("place", ["missing", "empty", "foreign"])
def test_nothing_to_verify_is_an_error_with_the_remedy(here, tmp_path, place):
    if place != "missing":
        (tmp_path / place).mkdir()
    if place == "foreign":
        (tmp_path / place / "notes.txt").write_text("x")
        (tmp_path / place / "data.jsonl").write_text("{}\n")
    status, out, err = here("audit", "verify", "--audit-log", tmp_path / place)

    assert (status, out) == (2, "")
    assert "name the directory that the integrations write to" in err


def test_keys_are_made_shown_and_listed(here, signed, tmp_path, key):
    new = tmp_path / "new.pem"
    made = here("audit", "keys", "--create", new)
    assert (made.status, stat.S_IMODE(new.stat().st_mode)) == (0, 0o600)
    assert "PRIVATE" not in made.out + made.err
    assert here("audit", "keys", new).out == made.out
    again = here("audit", "keys", "--create", new)
    assert (again.status, "never overwritten" in again.err) == (2, True)

    public = here("audit", "keys", key).out.split()[0]
    headings, *listed = here("audit", "keys").out.splitlines()
    assert headings.split("\t") == ["key", "fingerprint", "writers", "signatures"]
    assert listed == [f"{public}\t{fingerprint(public)}\t1\t1"]


def test_only_trusted_keys_count(here, signed, tmp_path, key):
    here("audit", "keys", "--create", tmp_path / "other.pem")
    trusted, other = tmp_path / "trusted", tmp_path / "other"
    trusted.write_text(here("audit", "keys", key).out)
    other.write_text(here("audit", "keys", tmp_path / "other.pem").out)

    assert here("audit", "verify", "--keys", trusted).status == 0
    assert here("audit", "verify", "--keys", trusted, "--keys", other).status == 0
    refused = here("audit", "verify", "--keys", other)
    assert refused.status == 1
    assert "which is not a trusted key; has no valid signature by a trusted key" in refused.out
    assert refused.out.splitlines()[-1].startswith("NOT WHOLE: ")
    unusable = here("audit", "verify", "--keys", tmp_path / "none")
    assert (unusable.status, "there is no file" in unusable.err) == (2, True)


def test_an_unsigned_writer_is_not_proven_by_keys(here, signed, key):
    log = audit_log_in(signed, chain=True)
    log.write(decision())
    log.close()

    assert here("audit", "verify").status == 0
    assert here("audit", "verify", "--keys", key).status == 1


def test_heads_that_were_printed_are_given_back(here, signed, tmp_path, monkeypatch):
    printed = here("audit", "verify", "--heads")
    (writer, last, head) = printed.out.split()
    assert (printed.status, last, len(head)) == (0, "5", 64)
    (tmp_path / "heads").write_text(printed.out)

    assert here("audit", "verify", "--expect", tmp_path / "heads").status == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(printed.out.encode())))
    assert here("audit", "verify", "--expect", "-").status == 0
    (path,) = signed.glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    assert here("audit", "verify").status == 0
    cut = here("audit", "verify", "--expect", tmp_path / "heads")
    assert cut.status == 1
    assert (
        f"{writer}\t3\twhole\tends at 3, but the given statement names its lines up to 5" in cut.out
    )
    path.unlink()
    missing = here("audit", "verify", "--expect", tmp_path / "heads")
    assert (missing.status, f"{writer}\t0\tmissing\t" in missing.out) == (1, True)
    (tmp_path / "heads").write_text("nonsense\n")
    unusable = here("audit", "verify", "--expect", tmp_path / "heads")
    assert (unusable.status, "line 1 is not WRITER LAST HEAD" in unusable.err) == (2, True)


def test_an_authority_confirms_the_heads(here, signed, tmp_path):
    with authority(tmp_path / "tsa") as tsa, authority(tmp_path / "other") as other:
        made = here("audit", "verify", "--tsa", tsa.url)
        for path, why in (
            ("/refuses", "refused it"),
            ("/moved", "answers 307"),
            ("/error", "answers 500"),
            ("/another", "answers another"),
        ):
            refused = here("audit", "verify", "--tsa", tsa.url + path)
            assert (refused.status, why in refused.err) == (2, True), refused.err
    gone = here("audit", "verify", "--tsa", tsa.url)
    anchor = signed / made.out.strip()
    kept = json.loads(anchor.read_bytes())

    assert (made.status, gone.status) == (0, 2)
    assert "cannot be used" in gone.err
    assert len([*signed.glob("anchor-*.json")]) == 1
    assert (kept["format"], kept["tsa"]) == ("robots_guard-anchor-1", tsa.url)
    assert base64.b64decode(kept["token"])[0] == 0x30  # DER
    unchecked = here("audit", "verify")
    assert (unchecked.status, "1 present, issuer not checked" in unchecked.out) == (0, True)
    checked = here("audit", "verify", "--tsa-roots", tsa.roots)
    assert (checked.status, "timestamps: 1 verified" in checked.out) == (0, True)
    wrong = here("audit", "verify", "--tsa-roots", other.roots)
    assert (wrong.status, "timestamps: 1 INVALID" in wrong.out) == (1, True)
    unusable = here("audit", "verify", "--tsa-roots", anchor)
    assert (unusable.status, "has no certificate in PEM" in unusable.err) == (2, True)
    # the anchor is found again in another place, too
    assert here("audit", "verify", "--expect", anchor).status == 0
    (path,) = signed.glob("*.jsonl")
    path.unlink()
    cut = here("audit", "verify")
    assert (cut.status, "is missing, but the anchor of" in cut.out) == (1, True)


def test_a_response_that_comes_in_parts_is_read_to_its_end(here, signed, tmp_path):
    with authority(tmp_path / "tsa") as tsa:
        made = here("audit", "verify", "--tsa", f"{tsa.url}/slowly")

    assert (made.status, made.out[:7]) == (0, "anchor-")


def test_a_log_without_chains_has_no_heads(here, tmp_path):
    log = audit_log_in(tmp_path / "audit_log")
    log.write(decision())
    log.close()
    status, out, err = here("audit", "verify", "--heads")

    assert (status, out) == (2, "")
    assert "set audit to evidence, or audit_signing_key" in err


def test_a_forged_name_adds_no_line_to_the_heads(here, signed):
    """A writer with a line break in its name, and a chain that is right."""
    name = "x 1 y\nz"
    first = hashlib.sha256(name.encode()).hexdigest()
    record = {
        "kind": "start",
        "schema": 1,
        "at": "2027-01-15T08:00:00.000Z",
        "seq": 1,
        "writer": name,
    }
    record |= {
        "version": "1",
        "host": "h",
        "pid": 1,
        "segment": 1,
        "chain": "sha256",
        "previous": first,
    }
    (signed / "20270115-x-0001.jsonl").write_text(json.dumps(record) + "\n")
    status, out, err = here("audit", "verify", "--heads")

    assert (status, len(out.splitlines())) == (1, 1)
    assert "is broken: left out" in err


def test_a_broken_chain_has_no_head(here, signed):
    log = audit_log_in(signed, chain=True)
    log.write(decision())
    log.close()
    path = log.path
    path.write_bytes(path.read_bytes().replace(b'"component":"cli"', b'"component":"CLI"', 1))
    status, out, err = here("audit", "verify", "--heads")

    assert (status, len(out.splitlines())) == (1, 1)
    assert "is broken: left out" in err


# -- the setting ---------------------------------------------------------------------------------------------


def test_a_signing_key_signs_what_a_command_records(here, signed, key, tmp_path):
    place = tmp_path / "other_log"
    here(
        *("check", "--audit-log", place, "--audit-signing-key", key, "--audit", "all"),
        "http://127.0.0.1:9/",
    )
    done = here("audit", "verify", "--audit-log", place, "--keys", key)
    (path,) = place.glob("*.jsonl")
    start = json.loads(path.read_bytes().splitlines()[0])

    assert done.status == 0, done
    assert start["settings"]["audit_signing_key"] == str(key)
    assert start["chain"] == "sha256"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "there is no file"), (b"x", "not a private key in PEM"), ("mode", "other users")],
)
def test_an_unusable_key_stops_the_start(here, tmp_path, content, why):
    path = tmp_path / "bad.pem"
    if content == "mode":
        create_key(path)
        path.chmod(0o644)
    elif content:
        path.write_bytes(content)
        path.chmod(0o600)
    status, out, err = here("check", "--audit-signing-key", path, "http://127.0.0.1:9/")

    assert (status, out) == (2, "")
    assert why in err


def test_a_key_instead_of_its_path_is_refused_and_not_shown(here, key, signed):
    status, out, err = here("check", "--audit-signing-key", key.read_text(), "http://127.0.0.1:9/")

    assert (status, out) == (2, "")
    assert "is a key itself" in err
    assert key.read_text().splitlines()[1] not in err


# -- holds ---------------------------------------------------------------------------------------------------


def test_a_hold_is_added_listed_and_released_on_record(here, signed, key):
    sign = ("--audit-signing-key", key)
    who = ("--owner", "jane", "--reason", "case 7")
    added = here("audit", "hold", *sign, "--origin", "https://a.test/x", *who)
    identity = added.out.strip()
    _, listed = here("audit", "hold").out.splitlines()
    (kept,) = map(json.loads, here("audit", "hold", "--json").out.splitlines())

    assert (added.status, "files" in added.err) == (0, True)
    assert listed.split("\t")[:1] + listed.split("\t")[2:6] == [
        identity,
        "jane",
        "https://a.test",
        "",
        "",
    ]
    assert (kept["id"], kept["owner"], kept["reason"]) == (identity, "jane", "case 7")
    released = here(
        "audit", "hold", *sign, "--release", identity, "--owner", "joe", "--reason", "settled"
    )
    assert released.status == 0
    assert here("audit", "hold").out == ""
    records = here("audit", "query", "--kind", "hold", "--json").out.splitlines()
    changes = {each["change"]: each for each in map(json.loads, records)}
    assert {each: changes[each]["owner"] for each in changes} == {"add": "jane", "release": "joe"}
    assert {each["component"] for each in changes.values()} == {"cli"}
    assert here("audit", "verify", "--keys", key).status == 0


def test_a_hold_that_cannot_be_is_refused(here, signed, tmp_path):
    who = ("--owner", "jane", "--reason", "case 7")
    for arguments, why in (
        (("--origin", "ftp://a.test", *who), "give an origin such as"),
        (("--owner", " ", "--reason", "x"), "it is empty"),
        (("--owner", "jane"), "--reason"),
        (("--since", "2h", "--until", "3h", *who), "is not before"),
        (("--since", "soon", *who), "is not a time"),
        (("--audit-log", tmp_path / "none", *who), "there is no audit log in"),
        (("--release", "abc", *who), "there is no hold 'abc'"),
    ):
        status, out, err = here("audit", "hold", *arguments)
        assert (status, out, why in err) == (2, "", True), (arguments, err)
    (signed / ".holds").write_text("{")
    for arguments in ((), who, ("--release", "abc", *who)):
        status, out, err = here("audit", "hold", *arguments)
        assert (status, "no file of the audit log is removed" in err) == (2, True), err
    assert (signed / ".holds").read_text() == "{"


def test_heads_are_not_made_with_options_that_verify(here, signed, key):
    for given in (("--heads", "--keys", key), ("--tsa", "http://127.0.0.1:9/", "--json")):
        status, out, err = here("audit", "verify", *given)
        assert (status, out) == (2, "")
        assert "verify with the other options in a run of its own" in err


def test_without_the_extra_each_says_what_is_missing(variables, signed, key, tmp_path):
    """One process without cryptography: signatures are not checked, and nothing is signed."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('cryptography', 'rfc3161_client', 'warcio')));"
        "from robots_guard.app.cli.main import run\n"
        "for args in ('verify', 'keys --create new.pem', 'verify --tsa http://127.0.0.1:9/'):\n"
        "    print(run(['audit', *args.split()]), flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()

    assert "signatures: 1 not checked (pip install 'robots_guard[audit]')" in lines[2]
    assert lines[3:] == ["0", "2", "2"]
    assert done.stderr.count("pip install 'robots_guard[audit]'") == 2


def test_a_log_without_a_signature_is_said_to_have_none(here, variables, tmp_path):
    variables.setenv("ROBOTS_GUARD_AUDIT_LOG", str(tmp_path))

    said = "robots-guard: the audit log has no valid signature\n"
    assert here("audit", "keys") == (0, "", said)


def test_a_verified_report_counts_the_lines_and_not_their_index(
    here, signed, tmp_path, monkeypatch
):
    """Verification does not read the index, so what it confirms must not come from there."""
    monkeypatch.setattr(index, "WORTHWHILE", 1)
    with Search(signed):
        pass
    forge_copies(signed, "SELECT * FROM {} WHERE kind <> 'decision'")

    for option, is_counted in (("--verify", True), ("--no-verify", False)):
        page = tmp_path / f"report{option}.html"
        here("audit", "report", option, "-o", page)
        assert ("https://a.test" in page.read_text()) is is_counted
