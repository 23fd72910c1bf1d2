"""Signatures of checkpoints, key files, and timestamps of heads."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from support.timestamps import authority

from robots_guard.audit.anchors import (
    Anchor,
    ChainHead,
    InvalidAnchor,
    anchor_of,
    certificates_in,
    heads_of,
    heads_statement,
    read_anchors,
    timestamp_request,
    token_of,
    verify_anchor,
)
from robots_guard.audit.key_files import create_key, read_public_keys, read_signer
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.verify import verify_log
from robots_guard.audit.read.writer_check import Trust
from robots_guard.audit.signing import (
    fingerprint,
    new_signer,
    signer_of,
    statement_of,
    verify_signature,
)
from robots_guard.errors import SettingsError

STATEMENT = statement_of("w-1", 7, "2027-01-15T08:00:00.000Z", "ab" * 32)


def test_a_statement_is_what_the_documentation_says():
    expected = f"robots_guard checkpoint 1\nw-1\n7\n2027-01-15T08:00:00.000Z\n{'ab' * 32}\n"

    assert expected.encode() == STATEMENT


def test_a_signature_is_ed25519_over_the_statement():
    signer = new_signer()
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(signer.key))

    public.verify(base64.b64decode(signer.sign(STATEMENT)), STATEMENT)  # raises if it is not


def test_only_the_key_that_signed_and_only_its_statement_is_valid():
    signer = new_signer()
    signature = signer.sign(STATEMENT)

    assert verify_signature(signer.key, signature, STATEMENT)
    assert not verify_signature(new_signer().key, signature, STATEMENT)
    assert not verify_signature(signer.key, signature, STATEMENT.replace(b"\n7\n", b"\n8\n"))


@pytest.mark.parametrize("bad", ["", "x", "A" * 43, "AAAA", "\N{SNOWMAN}", "A" * 88])
def test_malformed_keys_and_signatures_are_not_valid(bad):
    signer = new_signer()

    assert not verify_signature(bad, signer.sign(STATEMENT), STATEMENT)
    assert not verify_signature(signer.key, bad, STATEMENT)


# -- key files -------------------------------------------------------------------------------------------------


def test_a_key_is_created_for_its_owner_only_and_never_overwritten(tmp_path):
    signer = create_key(tmp_path / "key.pem")

    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    assert read_signer(tmp_path / "key.pem").key == signer.key
    with pytest.raises(SettingsError, match="never overwritten"):
        create_key(tmp_path / "key.pem")
    assert read_signer(tmp_path / "key.pem").key == signer.key


def test_openssl_reads_the_key(tmp_path):
    signer = create_key(tmp_path / "key.pem")
    command = ["openssl", "pkey", "-in", tmp_path / "key.pem", "-pubout", "-outform", "DER"]
    public = subprocess.run(command, capture_output=True, check=True).stdout

    assert base64.b64encode(public[-32:]).decode() == signer.key


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    create_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(mode)

    with pytest.raises(SettingsError, match="can be read or changed by other users: run chmod 600"):
        read_signer(tmp_path / "key.pem")


def test_a_key_that_the_group_can_read_is_accepted(tmp_path):
    signer = create_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o440)

    assert read_signer(tmp_path / "key.pem").key == signer.key


def pem_of(key, passphrase=None):
    lock = forms.BestAvailableEncryption(passphrase) if passphrase else forms.NoEncryption()
    return key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, lock)


def encrypted():
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return pem_of(Ed25519PrivateKey.generate(), b"secret")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a private key in PEM"),
        (b"S3cr3t", "not a private key in PEM"),
        (pem_of(ec.generate_private_key(ec.SECP256R1())), "not an Ed25519 one"),
        (encrypted(), "encrypted with a passphrase"),
    ],
    ids=["empty", "text", "another kind", "encrypted"],
)
def test_a_key_that_cannot_be_used_is_one_sentence_without_the_key(tmp_path, content, why):
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(SettingsError, match=why) as caught:
        read_signer(path)
    assert "S3cr3t" not in str(caught.value)


def test_a_missing_key_is_named_with_the_remedy(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no file .*audit keys --create"):
        read_signer(tmp_path / "key.pem")
    with pytest.raises(SettingsError, match=r"not a regular file|Is a directory"):
        read_signer(tmp_path)


def test_public_keys_are_read_from_each_form(tmp_path):
    signer, other = create_key(tmp_path / "private.pem"), new_signer()
    (tmp_path / "lines").write_text(
        f"# keys\n\n{signer.key} {fingerprint(signer.key)}\n{other.key}\n"
    )
    for name, source in (("a.pem", "private.pem"), ("b.pem", "a.pem")):
        arguments = ["-pubin"] if source == "a.pem" else []
        command = ["openssl", "pkey", *arguments, "-in", tmp_path / source, "-pubout"]
        public = subprocess.run(command, capture_output=True, check=True).stdout
        (tmp_path / name).write_bytes(public * (2 if name == "b.pem" else 1))

    assert read_public_keys(tmp_path / "private.pem") == [signer.key]
    assert read_public_keys(tmp_path / "a.pem") == [signer.key]
    assert read_public_keys(tmp_path / "b.pem") == [signer.key] * 2
    assert read_public_keys(tmp_path / "lines") == [signer.key, other.key]


def test_a_mark_and_a_comment_stand_before_the_keys(tmp_path):
    key = new_signer().key
    (tmp_path / "keys").write_text(f"\ufeff# ours\n \t\n  # {key}\n{key} of jane\n")

    assert read_public_keys(tmp_path / "keys") == [key]
    assert heads_of("\ufeffw-1 12 ".encode() + b"ab" * 32) == [ChainHead("w-1", 12, "ab" * 32)]


@pytest.mark.parametrize("named", ["SHA256:", "sha256:other", "of jane {}x"])
def test_a_key_with_the_fingerprint_of_another_is_refused(tmp_path, named):
    """Who compares fingerprints by eye would trust it."""
    honest, forged = new_signer().key, new_signer().key
    lines = f"{honest} {fingerprint(honest)}\n\n{forged} {named.format(fingerprint(honest))}\n"
    (tmp_path / "keys").write_text(lines)

    with pytest.raises(SettingsError, match=r"line 3: its fingerprint is not that of its key"):
        read_public_keys(tmp_path / "keys")


def test_a_file_of_too_many_keys_is_not_cut(tmp_path):
    (tmp_path / "keys").write_text(f"{new_signer().key}\n" * 30_000)

    with pytest.raises(SettingsError, match="larger than 1 MiB"):
        read_public_keys(tmp_path / "keys")


@pytest.mark.parametrize("content", ["", "# none\n", "nonsense\n", "QUJD\n"])
def test_a_file_without_public_keys_is_refused(tmp_path, content):
    (tmp_path / "keys").write_text(content)

    with pytest.raises(SettingsError, match="cannot be used"):
        read_public_keys(tmp_path / "keys")


def test_nothing_shows_the_private_key():
    signer = new_signer()
    secret = signer.to_pem().splitlines()[1].decode()

    assert secret not in repr(signer)
    assert secret not in str(signer)
    assert signer_of(signer.to_pem()).key == signer.key


FORK = """
import os, sys
from pathlib import Path
from audit.decisions import AT, audit_log_in, decision
from robots_guard.audit.key_files import read_signer
log = audit_log_in(Path(sys.argv[1]), chain=True, signer=read_signer(Path(sys.argv[2])))
log.write(decision())
child = os.fork()
log.write(decision(at=AT + 1))
log.close()
if not child:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_parent_and_forked_child_both_sign(tmp_path):
    signer = create_key(tmp_path / "key.pem")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", FORK, tmp_path / "log", tmp_path / "key.pem"]
    subprocess.run(command, env=environment, check=True, timeout=60)
    finding = verify_log(tmp_path / "log", Unreadable(), Trust(keys=frozenset((signer.key,))))

    assert finding.is_whole
    assert [each.signatures for each in finding.writers] == [{signer.key: 1}] * 2


# -- heads and timestamps --------------------------------------------------------------------------------------


HEADS = [ChainHead("w-2", 3, "cd" * 32), ChainHead("w-1", 12, "ab" * 32)]


@pytest.fixture(scope="module")
def tsa(tmp_path_factory):
    with authority(tmp_path_factory.mktemp("tsa")) as running:
        yield running


def response_to(request, tsa, path=""):
    from urllib.request import Request, urlopen

    asked = Request(
        tsa.url + path, request.body, headers={"Content-Type": "application/timestamp-query"}
    )
    with urlopen(asked) as answer:
        return answer.read()


def anchored(tsa, heads=HEADS):
    request = timestamp_request(heads)
    token = token_of(response_to(request, tsa), request)
    return Anchor(at="2027-01-15T08:00:00.000Z", heads=heads, tsa=tsa.url, token=token)


def test_the_heads_are_one_line_for_each_writer_in_order():
    statement = heads_statement(HEADS)

    assert statement == f"w-1 12 {'ab' * 32}\nw-2 3 {'cd' * 32}\n".encode()
    assert heads_of(b"# printed by hand\n\n" + statement) == sorted(HEADS)


@pytest.mark.parametrize("content", [b"", b"w-1 12\n", b"w-1 12 " + b"AB" * 32, b"\xff", b"{}"])
def test_other_text_is_no_heads_statement(content):
    with pytest.raises(InvalidAnchor):
        heads_of(content)


def test_a_timestamp_is_verified_by_the_authority_s_root(tsa, tmp_path):
    anchor, roots = anchored(tsa), certificates_in(tsa.roots.read_bytes())

    assert verify_anchor(anchor, roots).is_trusted
    assert not verify_anchor(anchor).is_trusted
    assert verify_anchor(anchor).at == verify_anchor(anchor, roots).at
    # and by openssl, without this package
    (tmp_path / "statement").write_bytes(heads_statement(HEADS))
    (tmp_path / "response").write_bytes(base64.b64decode(anchor.token))
    command = ["openssl", "ts", "-verify", "-in", tmp_path / "response"]
    command += ["-data", tmp_path / "statement", "-CAfile", tsa.roots]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_timestamp_of_other_heads_proves_nothing(tsa):
    anchor = anchored(tsa)
    for changed in (
        [HEADS[0]],
        [HEADS[0], ChainHead("w-1", 13, "ab" * 32)],
        [HEADS[0], ChainHead("w-1", 12, "aa" * 32)],
    ):
        forged = Anchor(at=anchor.at, heads=changed, tsa=anchor.tsa, token=anchor.token)
        with pytest.raises(InvalidAnchor, match="covers other heads"):
            verify_anchor(forged)


def test_a_timestamp_by_another_authority_is_not_verified(tsa, tmp_path):
    with authority(tmp_path / "other") as other:
        anchor, roots = anchored(other), certificates_in(tsa.roots.read_bytes())

    with pytest.raises(InvalidAnchor, match="not verified by the given certificates"):
        verify_anchor(anchor, roots)


def test_a_forged_timestamp_is_not_verified(tsa):
    anchor, roots = anchored(tsa), certificates_in(tsa.roots.read_bytes())
    response = base64.b64decode(anchor.token)
    digest = hashlib.sha256(heads_statement(HEADS)).digest()
    other = heads_statement(HEADS[:1])
    forged = response.replace(digest, hashlib.sha256(other).digest())
    anchor = Anchor(
        at=anchor.at, heads=HEADS[:1], tsa=tsa.url, token=base64.b64encode(forged).decode()
    )

    assert not verify_anchor(anchor).is_trusted  # without certificates anyone can make one
    with pytest.raises(InvalidAnchor, match="not verified"):
        verify_anchor(anchor, roots)


@pytest.mark.parametrize("token", ["", "x", "AAAA", base64.b64encode(b"0" * 300).decode()])
def test_a_malformed_timestamp_proves_nothing(token):
    with pytest.raises(InvalidAnchor):
        verify_anchor(Anchor(at="2027-01-15T08:00:00.000Z", heads=HEADS, token=token))


def test_refusals_and_responses_to_other_requests_are_not_kept(tsa):
    anchored(tsa)
    request = timestamp_request(HEADS)
    for path, why in (("/refuses", "refused it"), ("/another", "answers another request")):
        with pytest.raises(InvalidAnchor, match=why):
            token_of(response_to(request, tsa, path), request)


def test_anchors_are_read_from_the_directory(tsa, tmp_path):
    from msgspec.json import encode

    anchor, problems = anchored(tsa), {}
    (tmp_path / anchor.filename).write_bytes(encode(anchor))
    (tmp_path / "anchor-20270116T080000Z.json").write_text("{}")
    (tmp_path / "anchor-of-mine.json").write_text("{}")

    assert anchor.filename == "anchor-20270115T080000Z.json"
    assert read_anchors(tmp_path, problems) == [anchor]
    assert anchor_of(encode(anchor)) == anchor
    assert list(problems) == ["anchor-20270116T080000Z.json"]
