"""The Parquet export to an S3-compatible server (`tox -e lake` installs moto and pyarrow)."""

from __future__ import annotations

import pytest
from audit.decisions import AT, audit_log_in, decision

from robots_guard.audit.lake.export import export
from robots_guard.audit.lake.places import place_at
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.search import Search
from robots_guard.errors import SettingsError

BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint():
    pytest.importorskip("pyarrow.fs", reason="pyarrow is installed by `tox -e lake`")
    server = pytest.importorskip("moto.server", reason="moto is installed by `tox -e lake`")
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"{host}:{port}"
    started.stop()


@pytest.fixture
def url(endpoint, monkeypatch):
    """The URL of an empty bucket."""
    from pyarrow.fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    files = S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )  # fmt: skip
    files.create_dir(BUCKET)
    yield f"s3://{BUCKET}/crawls?scheme=http&endpoint_override={endpoint}&region=us-east-1"
    files.delete_dir(BUCKET)


@pytest.fixture
def audit_log(tmp_path):
    log = audit_log_in(tmp_path / "audit_log")
    for number in range(50):
        log.write(decision(f"https://a.test/private/{number}", at=AT + number))
    yield log
    log.close()


def exported(audit_log, url):
    return [*export(audit_log.directory, place_at(url), "2027-01-16", Unreadable())]


def downloaded(url, directory):
    """A local copy of what lies at a URL."""
    from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, copy_files

    files, root = FileSystem.from_uri(url)
    copy_files(
        root, str(directory), source_filesystem=files, destination_filesystem=LocalFileSystem()
    )
    return {each.path for each in files.get_file_info(FileSelector(root, recursive=True))}


def test_an_export_to_s3_is_complete_repeatable_and_can_be_added_to(audit_log, url, tmp_path):
    assert sum(each.added for each in exported(audit_log, url)) == 51
    assert exported(audit_log, url) == []
    audit_log.write(decision("https://a.test/private/last", at=AT + 60))
    (written,) = exported(audit_log, url)
    assert (written.records, written.added) == (51, 1)
    names = downloaded(url, tmp_path / "copy")
    assert f"{BUCKET}/crawls/decisions/day=2027-01-15/records.parquet" in names
    with Search(audit_log.directory) as log, Search(tmp_path / "copy") as lake:
        sql = 'SELECT kind, id, url, "at", writer, seq, settings FROM records ORDER BY ALL'
        assert [*lake.select(sql)[1]] == [*log.select(sql)[1]]


def test_without_credentials_or_server_the_reason_is_said(audit_log, endpoint):
    with pytest.raises(SettingsError, match="the export cannot be written"):
        exported(audit_log, f"s3://missing/x?scheme=http&endpoint_override={endpoint}")


@pytest.mark.parametrize("url", ["gopher://x/y", "s3://"])
def test_a_url_that_is_no_place_is_refused(audit_log, url):
    pytest.importorskip("pyarrow.fs")
    with pytest.raises(SettingsError, match="--parquet"):
        exported(audit_log, url)
