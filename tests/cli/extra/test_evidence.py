"""From "why was this URL blocked last night?" to evidence that verifies: the walk-through of docs/audit.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile

import pytest
from audit.decisions import audit_log_in, decision
from support.timestamps import authority

from robots_guard.audit.key_files import read_signer

CORE = "cryptography rfc3161_client duckdb warcio jinja2 zstandard markupsafe"


@pytest.fixture
def evidence(here, net, variables, tmp_path):
    """A refused request, as a log that is kept as evidence has it: chained, signed, with its WARC records."""
    here("audit", "keys", "--create", tmp_path / "key.pem")
    variables.setenv("ROBOTS_GUARD_AUDIT_SIGNING_KEY", str(tmp_path / "key.pem"))
    variables.setenv("ROBOTS_GUARD_AUDIT", "evidence")
    site = net.origin("User-agent: *\nDisallow: /private/\n")
    assert here("check", f"{site.url}/private/page").status == 1
    return site


def test_from_a_blocked_url_to_a_verified_bundle(here, evidence, tmp_path):
    url = f"{evidence.url}/private/page"
    record = json.loads(here("audit", "query", "--since", "1d", "--origin", url, "--json").out)
    with authority(tmp_path / "tsa") as tsa:
        assert here("audit", "verify", "--tsa", tsa.url).status == 0
    path, public = tmp_path / "evidence.zip", tmp_path / "public.txt"
    public.write_text(here("audit", "keys", tmp_path / "key.pem").out.split()[0])
    written = here("audit", "bundle", record["id"], "-o", path)

    assert written.status == 0, written.err
    status, out, err = here("audit", "replay", path, "--keys", public, "--tsa-roots", tsa.roots)
    assert (status, err) == (0, ""), out
    assert f"recorded  DROP (disallowed)  {record['at']}  {url}" in out
    assert ">    2  Disallow: /private/" in out
    assert f"what {evidence.url}/robots.txt answered at" in out
    assert "with the given key SHA256:" in out
    assert "as an authority of the given certificates confirms" in out
    assert out.endswith("what it does not prove is listed above\n")
    assert "not proven:" not in out

    again = tmp_path / "period.zip"
    assert here("audit", "bundle", "--since", "1h", "--origin", url, "-o", again).status == 0
    period = json.loads(here("audit", "replay", "--json", again, "--keys", public).out)
    assert period["verified"] is True
    assert [run["missing"] for run in period["completeness"]["runs"]] == [0]

    other = tmp_path / "other.pem"
    here("audit", "keys", "--create", other)
    status, out, _ = here("audit", "replay", path, "--keys", other)
    assert status == 1
    assert "which is not among the given keys" in out


def test_a_bundle_says_that_its_records_are_not_signed_yet(here, variables, tmp_path):
    here("audit", "keys", "--create", tmp_path / "key.pem")
    directory, path = tmp_path / "live", tmp_path / "early.zip"
    variables.setenv("ROBOTS_GUARD_AUDIT_LOG", str(directory))
    signer = read_signer(tmp_path / "key.pem")
    log = audit_log_in(
        directory, chain=True, signer=signer, settings={"audit_signing_key": "key.pem"}
    )
    log.write(decision())
    err = here("audit", "bundle", "w-1", "-o", path).err
    asked_with_keys = here("audit", "replay", path, "--keys", tmp_path / "key.pem")
    log.close()
    later = here("audit", "bundle", "w-1", "-o", tmp_path / "later.zip")

    assert "no signature covers them" in err
    assert "its next checkpoint (within five minutes) signs them: make the bundle" in err
    assert asked_with_keys.status == 1
    assert "make the bundle again then" in asked_with_keys.out
    assert asked_with_keys.out.endswith("contradicted, as stated above\n")
    assert "no signature" not in later.err


def test_the_page_of_one_decision_says_its_sentence_once(here, evidence, tmp_path):
    identity = json.loads(here("audit", "query", "--json").out)["id"]
    here("audit", "bundle", identity, "-o", tmp_path / "evidence.zip")
    with zipfile.ZipFile(tmp_path / "evidence.zip") as archive:
        page = archive.read("index.html").decode()

    assert page.count("mybot was not allowed to fetch") == 1
    assert "<h2>The decision</h2>" in page


@pytest.mark.parametrize("option", ["--keys", "--tsa-roots"])
def test_what_cannot_be_used_to_check_a_bundle_has_a_remedy(here, evidence, tmp_path, option):
    identity = json.loads(here("audit", "query", "--json").out)["id"]
    path, junk = tmp_path / "evidence.zip", tmp_path / "junk.txt"
    here("audit", "bundle", identity, "-o", path)
    junk.write_text("junk\n")
    unusable = here("audit", "replay", path, option, junk)
    missing = here("audit", "replay", path, option, tmp_path / "none")

    assert (unusable.status, missing.status) == (2, 2)
    assert f"{option}: '{junk}' cannot be used" in unusable.err
    assert "): give a PEM file" in unusable.err or "): name a file with the root" in unusable.err
    assert "cannot be read (No such file or directory): name another file" in missing.err


@pytest.mark.parametrize(("option", "mebibytes"), [("--keys", 1), ("--tsa-roots", 16)])
def test_what_a_bundle_is_checked_with_is_not_read_without_end(
    here, evidence, tmp_path, option, mebibytes
):
    path = tmp_path / "evidence.zip"
    here("audit", "bundle", json.loads(here("audit", "query", "--json").out)["id"], "-o", path)
    done = here("audit", "replay", path, option, "/dev/zero")

    assert done.status == 2
    assert f"{option}: '/dev/zero' cannot be read (larger than {mebibytes} MiB)" in done.err


def test_a_bundle_that_is_not_there_is_not_taken_for_an_id(here, tmp_path):
    path = tmp_path / "missing.zip"

    assert here("audit", "replay", path) == (
        2,
        "",
        f"robots-guard: there is no file '{path}': name a bundle, or the id of a decision\n",
    )


def test_a_bundle_is_checked_with_the_core_alone(here, evidence, tmp_path):
    identity = json.loads(here("audit", "query", "--json").out)["id"]
    path = tmp_path / "evidence.zip"
    here("audit", "bundle", identity, "-o", path)
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({CORE.split()!r}));"
        "from robots_guard.app.cli.main import main; main()"
    )
    keys = tmp_path / "public.txt"
    keys.write_text(here("audit", "keys", tmp_path / "key.pem").out.split()[0])
    done, with_keys = (
        subprocess.run(
            [sys.executable, "-c", code, "audit", "replay", str(path), *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for options in ([], ["--keys", str(keys)])
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert (with_keys.returncode, with_keys.stdout) == (2, "")
    assert "pip install 'robots_guard[audit]'" in with_keys.stderr
    assert "the verdict, judged again, is the recorded one" in done.stdout
    missing = done.stdout.partition("not proven:")[2]
    assert "signatures are not checked" in missing
    assert "index.html says what the other files say" in missing
    assert missing.count("pip install 'robots_guard[audit]'") == 2


def test_a_bundle_of_a_period_says_what_it_reaches(here, evidence, tmp_path):
    path, late = tmp_path / "period.zip", tmp_path / "before.zip"
    key = tmp_path / "key.pem"
    written = here("audit", "bundle", "--since", "1h", "-o", path)
    before = here("audit", "bundle", "--since", "3h", "--until", "2h", "-o", late)
    shown = here("audit", "replay", path, "--keys", key)
    record = json.loads(here("audit", "query", "--json").out)

    assert (written.status, before.status) == (0, 0)
    assert "not proven: what the crawler did from " in written.err
    assert "no writer has a run of lines in it" in before.err
    assert shown.status == 0
    assert re.search(
        r"period    all lines from \S+Z to \S+Z, of each writer with a chain that wrote in that time\n"
        rf"writer    {record['writer']}: lines 1 \(\S+Z\) to \d \(\S+Z\), \d here, \d hidden,"
        r" 0 missing, signed until \S+Z\n",
        shown.out,
    )
    assert "states by a signature that the bundle has each record of its selection" in shown.out
    assert here("audit", "replay", late, "--keys", key).status == 1
    assert here("audit", "replay", late).status == 0


def test_a_bundle_of_a_period_that_is_not_signed_says_how_to_sign_it(
    here, evidence, variables, tmp_path
):
    key = tmp_path / "key.pem"
    variables.delenv("ROBOTS_GUARD_AUDIT_SIGNING_KEY")
    unsigned = here("audit", "bundle", "--since", "1h", "-o", tmp_path / "a.zip")
    signed = here(
        "audit", "bundle", "--since", "1h", "--audit-signing-key", key, "-o", tmp_path / "b.zip"
    )
    variables.setenv("ROBOTS_GUARD_AUDIT_SIGNING_KEY", str(tmp_path / "none.pem"))
    unusable = here("audit", "bundle", "--since", "1h", "-o", tmp_path / "c.zip")

    assert "no signature covers the bundle. Make it with --audit-signing-key" in unsigned.err
    assert "no signature covers" not in signed.err
    assert "the bundle is not signed: " in unusable.err
    assert [
        here("audit", "replay", tmp_path / name, "--keys", key).status
        for name in ("a.zip", "b.zip", "c.zip")
    ] == [1, 0, 1]


def test_a_document_that_is_gone_is_named(here, net, variables, tmp_path):
    """Of a log with evidence, what is gone is a WARC file, which is named in any case."""
    site, kept = (net.origin(f"User-agent: *\nDisallow: /{name}/\n") for name in "ab")
    store = f"sqlite:///{tmp_path}/policies.sqlite"
    here("check", f"{site.url}/a/")
    variables.setenv("ROBOTS_GUARD_AUDIT", "evidence")
    here("check", f"{kept.url}/b/")
    whole = here("audit", "verify", "--store", store)
    variables.setenv("ROBOTS_GUARD_STORE", f"sqlite:///{tmp_path}/other.sqlite")
    unknown = here("audit", "verify")
    here("check", f"{net.origin('').url}/")  # makes the other store
    noted = here("audit", "verify")
    gone = here("audit", "verify", "--store", f"sqlite:///{tmp_path}/other.sqlite")
    missing = here("audit", "verify", "--store", f"sqlite:///{tmp_path}/none.sqlite")
    (warc, *_) = (tmp_path / "audit_log").glob("*.warc.gz")
    warc.unlink()
    removed = here("audit", "verify", "--store", store)

    assert (whole.status, unknown.status) == (0, 0)
    assert "MISSING" not in whole.out + unknown.out
    assert (noted.status, gone.status, missing.status) == (0, 1, 2)
    for said in (noted.out, gone.out):
        assert f"the robots.txt of {site.url} with the SHA-256 " in said
        assert f"the robots.txt of {kept.url} " not in said
        assert "documents: 1 MISSING" in said
    assert removed.status == 1
    assert f"{warc.name} is missing" in removed.out
