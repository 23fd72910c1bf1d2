-- Queries to the tables of tables.sql. FINAL merges what was inserted twice. A decision with `sampled`
-- stands for so many.

-- name: gaps
-- The numbers that are missing between the records of a writer. A gap at the beginning of a writer is
-- shown, too: retention may have removed its first files before they were exported.
WITH numbers AS (
    SELECT writer, seq FROM robots_guard.decisions
    UNION ALL SELECT writer, seq FROM robots_guard.responses
    UNION ALL SELECT writer, seq FROM robots_guard.counts
    UNION ALL SELECT writer, seq FROM robots_guard.fetches
    UNION ALL SELECT writer, seq FROM robots_guard.events
), sorted AS (
    SELECT writer, seq, lagInFrame(seq, 1, 0) OVER (PARTITION BY writer ORDER BY seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS previous
    FROM (SELECT DISTINCT writer, seq FROM numbers)
)
SELECT writer, previous + 1 AS first_missing, seq - 1 AS last_missing, seq - previous - 1 AS missing
FROM sorted
WHERE seq > previous + 1
ORDER BY missing DESC, writer, seq
LIMIT 100;

-- name: refusals
-- Refused requests by site, with those that were only counted.
SELECT origin, reason, sum(requests) AS refused, max(last) AS last
FROM (
    SELECT origin, reason, coalesce(sampled, 1) AS requests, at AS last
    FROM robots_guard.decisions FINAL WHERE action = 'drop'
    UNION ALL
    SELECT origin, reason, count AS requests, at AS last
    FROM robots_guard.counts FINAL WHERE action = 'drop'
)
GROUP BY origin, reason
ORDER BY refused DESC, origin, reason
LIMIT 100;

-- name: robots_txt
-- Which robots.txt decided about a site, from when to when, and when it was fetched.
SELECT decided.origin AS origin, decided.sha256 AS sha256, decisions, first_decision, last_decision,
    first_fetch, fetches
FROM (
    SELECT origin, sha256, count() AS decisions, min(at) AS first_decision, max(at) AS last_decision
    FROM robots_guard.decisions FINAL WHERE sha256 != '' GROUP BY origin, sha256
) AS decided
LEFT JOIN (
    SELECT origin, sha256, min(at) AS first_fetch, count() AS fetches
    FROM robots_guard.fetches FINAL WHERE sha256 != '' GROUP BY origin, sha256
) AS fetched ON fetched.origin = decided.origin AND fetched.sha256 = decided.sha256
ORDER BY origin, first_decision
LIMIT 100;

-- name: passes
-- What the records of permitted requests cost: rows and bytes (before compression) a day, and what
-- share of all rows they are.
SELECT toDate(at) AS day, count() AS rows, countIf(action = 'pass') AS passes,
    round(passes / rows, 3) AS share, sumIf(byteSize(*), action = 'pass') AS bytes,
    round(avgIf(elapsed_us, action = 'pass'), 1) AS mean_elapsed_us
FROM robots_guard.decisions FINAL
GROUP BY day
ORDER BY day;
