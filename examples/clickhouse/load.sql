-- Inserts a Parquet export into the tables of tables.sql. It can be repeated: rows that are there
-- already are merged. To insert one day, replace the first * by day=2026-11-23. To read from an object
-- store, replace file('lake/...', 'Parquet') by s3('https://bucket.example/lake/...', 'Parquet').

SET use_hive_partitioning = 0; -- the column day follows from at
SET input_format_parquet_allow_missing_columns = 1; -- of files of earlier versions

INSERT INTO robots_guard.decisions (`kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `id`, `agent`, `user_agent`, `client`, `method`, `url`, `origin`, `action`, `reason`, `group`, `rule`, `line`, `form`, `dialect`, `matching`, `sha256`, `status`, `fetched_at`, `age`, `redirects`, `stale`, `via`, `tls_verified`, `until`, `delay_source`, `delay`, `defers`, `led_by`, `placeholder`, `escaped`, `relaxed`, `would`, `override`, `override_owner`, `override_reason`, `override_expires`, `detail`, `source`, `elapsed_us`, `failure`, `trouble_since`, `sampled`, `robots_txt_of`, `uses`, `evidence`, `evidence_omitted`, `raw`)
SELECT `kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `id`, `agent`, `user_agent`, `client`, `method`, `url`, `origin`, `action`, `reason`, `group`, `rule`, `line`, `form`, `dialect`, `matching`, `sha256`, `status`, `fetched_at`, `age`, `redirects`, `stale`, `via`, `tls_verified`, `until`, `delay_source`, `delay`, `defers`, `led_by`, `placeholder`, `escaped`, `relaxed`, `would`, `override`, `override_owner`, `override_reason`, `override_expires`, `detail`, `source`, `elapsed_us`, `failure`, `trouble_since`, `sampled`, `robots_txt_of`, `uses`, `evidence`, `evidence_omitted`, `raw`
FROM file('lake/decisions/*/*.parquet', 'Parquet');

INSERT INTO robots_guard.responses (`kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `id`, `request`, `agent`, `method`, `url`, `origin`, `status`, `dialect`, `purposes`, `action`, `reason`, `uses`, `images`, `limits`, `unavailable_after`, `content_use`, `tdm_policy`, `license`, `license_other`, `price`, `incomplete`, `follow_only`, `flags`, `evidence`, `evidence_omitted`, `detail`, `placeholder`, `relaxed`, `would`, `override`, `override_owner`, `override_reason`, `override_expires`, `raw`)
SELECT `kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `id`, `request`, `agent`, `method`, `url`, `origin`, `status`, `dialect`, `purposes`, `action`, `reason`, `uses`, `images`, `limits`, `unavailable_after`, `content_use`, `tdm_policy`, `license`, `license_other`, `price`, `incomplete`, `follow_only`, `flags`, `evidence`, `evidence_omitted`, `detail`, `placeholder`, `relaxed`, `would`, `override`, `override_owner`, `override_reason`, `override_expires`, `raw`
FROM file('lake/responses/*/*.parquet', 'Parquet');

INSERT INTO robots_guard.counts (`kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `id`, `count`, `since`, `until`, `agent`, `origin`, `action`, `reason`, `rule`, `line`, `would`, `relaxed`, `placeholder`, `escaped`, `failure`, `detail`, `override`, `override_owner`, `override_reason`, `override_expires`, `sha256`, `raw`)
SELECT `kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `id`, `count`, `since`, `until`, `agent`, `origin`, `action`, `reason`, `rule`, `line`, `would`, `relaxed`, `placeholder`, `escaped`, `failure`, `detail`, `override`, `override_owner`, `override_reason`, `override_expires`, `sha256`, `raw`
FROM file('lake/counts/*/*.parquet', 'Parquet');

INSERT INTO robots_guard.fetches (`kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `origin`, `file`, `url`, `via`, `conditional`, `status`, `size`, `sha256`, `truncated`, `location`, `tls_verified`, `failure`, `detail`, `elapsed_us`, `warc_id`, `warc_file`, `warc_sha256`, `raw`)
SELECT `kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `origin`, `file`, `url`, `via`, `conditional`, `status`, `size`, `sha256`, `truncated`, `location`, `tls_verified`, `failure`, `detail`, `elapsed_us`, `warc_id`, `warc_file`, `warc_sha256`, `raw`
FROM file('lake/fetches/*/*.parquet', 'Parquet');

INSERT INTO robots_guard.events (`kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `version`, `host`, `pid`, `segment`, `settings`, `chain`, `previous`, `lost`, `head`, `key`, `signature`, `detail`, `relaxed`, `count`, `source`, `sha256`, `text`, `problems`, `override`, `size`, `part`, `parts`, `hold`, `change`, `owner`, `reason`, `origins`, `since`, `until`, `files`, `raw`)
SELECT `kind`, `schema`, `at`, `mono`, `seq`, `writer`, `component`, `job`, `version`, `host`, `pid`, `segment`, `settings`, `chain`, `previous`, `lost`, `head`, `key`, `signature`, `detail`, `relaxed`, `count`, `source`, `sha256`, `text`, `problems`, `override`, `size`, `part`, `parts`, `hold`, `change`, `owner`, `reason`, `origins`, `since`, `until`, `files`, `raw`
FROM file('lake/events/*/*.parquet', 'Parquet');
