"""How an operator watches a proxy: its metrics, its lines on standard error, and the dashboard and alerts of
examples/, which may name only what a real proxy shows."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import urllib.request
from itertools import combinations

import pytest
from integrations.mitmproxy.process import ROOT, proxy
from integrations.mitmproxy.wire import plain
from ruamel.yaml import YAML
from support.programs import program
from support.waiting import eventually

PROMETHEUS = ROOT / "examples" / "prometheus"
DASHBOARD = ROOT / "examples" / "grafana" / "robots_guard.json"
OVERRIDE = (
    '[[override]]\nid = "shop"\norigin = "http://shop.test"\nowner = "o"\nreason = "r"\n'
    'expires = 2999-01-01\naction = "pass"\n'
)
#: Recorded by rules.yml, or Prometheus's own.
NOT_OF_THE_PROXY = re.compile(r"robots_guard:\w+:\w+")


def yaml(name):
    """A file of examples/prometheus/."""
    return YAML(typ="safe").load((PROMETHEUS / name).read_text())  # mitmproxy depends on it


def expressions_of_the_dashboard():
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def expressions_of_the_rules():
    rules = yaml("rules.yml")
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def watched(tmp_path_factory, sites):
    """The metrics of a proxy that has passed, dropped and deferred, its /ready, and what it printed until its end."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "overrides.toml").write_text(OVERRIDE)
    site, shut = sites.start(), sites.start()
    shut.tap.close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    seen = {"site": site, "shut": shut}
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # the tests' own clients would obey it, too
            patch.setenv("http_proxy", "http://me:sesame@parent.test:3128")
            options = ["--metrics", str(port)]
            contact = "https://crawler.example/about"
            overrides = str(folder / "overrides.toml")
            starting = proxy(folder, options, overrides=overrides, contact=contact)
            integration = stack.enter_context(starting)
        for target in ("/open", "/open", "/private/x?token=abc", "/private/y", "/private/z"):
            seen[target] = plain(integration, site.url + target)
        plain(integration, shut.url + "/")
        for path in ("metrics", "ready"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as got:
                seen[path] = got.read().decode()
        eventually(lambda: any(shut.url in line for line in integration.output))
    seen["printed"] = "".join(integration.output)
    return seen


def test_metrics(watched):
    text = watched["metrics"]
    assert 'robots_guard_verdicts_total{action="pass",reason="allowed"} 2.0' in text
    assert 'robots_guard_verdicts_total{action="drop",reason="disallowed"} 3.0' in text
    assert 'robots_guard_events_total{event="fetch/count"} 2.0' in text
    assert 'robots_guard_policies_total{source="fetch"} 2.0' in text
    assert 'robots_guard_policies_total{source="memory"} 4.0' in text
    assert re.search(r"robots_guard_decision_seconds_count 6\.0", text)
    assert "robots_guard_ready 1.0" in text
    expiry = 'robots_guard_override_expiry_timestamp_seconds{override="shop"} 3.2472'
    assert expiry in text
    assert watched["ready"] == "ready\n"


def test_a_failure_that_has_not_happened_is_counted_as_0(watched):
    """`increase` would miss the first failure of a count that begins at 1."""
    for event in ("audit_log/error", "store/error", "overrides/unread", "escaped"):
        assert f'robots_guard_events_total{{event="{event}"}} 0.0' in watched["metrics"]
    assert (
        'robots_guard_verdicts_total{action="drop",reason="unrecorded"} 0.0' in watched["metrics"]
    )


def test_refusals_have_lines_and_repeats_are_counted(watched):
    lines = [line for line in watched["printed"].splitlines() if " INFO " in line]
    url = watched["site"].url
    rule = "line 2 of its robots.txt says 'Disallow: /private/', group '*' [agent mybot, id "
    assert len(lines) == 3
    assert f"drop (disallowed): GET {url}/private/x?token=REDACTED: {rule}" in lines[0]
    refused = f"GET {watched['shut'].url}/: connect: connection refused; retry in"
    assert refused in lines[1]
    assert re.search(r"INFO 2 more within \d+ s like: drop \(disallowed\): GET", lines[2])


def test_a_proxy_variable_that_is_not_used_is_named_once(watched):
    assert watched["printed"].count("http_proxy is set, and is not used") == 1
    assert "--mode upstream:" in watched["printed"]
    assert "sesame" not in watched["printed"]


def test_a_refusal_names_the_operators_contact(watched):
    problem = json.loads(watched["/private/y"].body)
    assert problem["contact"] == "https://crawler.example/about"


# -- what examples/ show of it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expressions",
    [expressions_of_the_dashboard, expressions_of_the_rules],
    ids=["dashboard", "rules"],
)
def test_only_metrics_and_events_of_a_real_proxy_are_named(watched, expressions):
    text = watched["metrics"]
    shown = set(re.findall(r"^(robots_guard_\w+)", text, re.MULTILINE))
    shown |= {
        f"{name}_total"
        for name in re.findall(r"^# TYPE (robots_guard_\w+) counter", text, re.MULTILINE)
    }
    shown |= set(re.findall(r"^# TYPE (robots_guard_\w+_total) counter", text, re.MULTILINE))
    queries = [NOT_OF_THE_PROXY.sub("", query) for query in expressions()]
    named = {name for query in queries for name in re.findall(r"\brobots_guard_\w+", query)}
    assert named - shown == set()
    assert len(named) >= 4
    events = {event for query in queries for event in re.findall(r'event="([^"]+)"', query)}
    assert {event for event in events if f'event="{event}"' not in text} == set()
    reasons = {each for query in queries for each in re.findall(r'reason="([^"]+)"', query)}
    assert {reason for reason in reasons if f'reason="{reason}"' not in text} == set()


def promtool(*arguments):
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_fire_when_they_should():
    promtool("check", "rules", str(PROMETHEUS / "rules.yml"))
    promtool("test", "rules", str(PROMETHEUS / "rules_test.yml"))


def test_each_alert_has_a_test_that_it_fires():
    rules = yaml("rules.yml")
    tests = yaml("rules_test.yml")["tests"]
    alerts = {
        rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    }
    fired = {
        each["alertname"]
        for test in tests
        for each in test["alert_rule_test"]
        if each["exp_alerts"]
    }
    assert alerts == fired


def test_the_queries_of_the_dashboard_can_be_read(tmp_path):
    """Grafana is not here to load it. promtool reads the queries, with Grafana's variables replaced."""
    values = {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m", "$__range": "1h"}
    rules = []
    for number, query in enumerate(expressions_of_the_dashboard()):
        for name, value in values.items():
            query = query.replace(name, value)
        assert "$" not in query
        rules.append({"record": f"query:number{number}", "expr": query})
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_the_structure_of_the_dashboard():
    dashboard = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= dashboard.keys()
    assert dashboard["id"] is None  # Grafana gives one at the import
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text()))
    assert used - variables.keys() == {"__rate_interval", "__range", "__all"}
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels})
    assert len(panels) >= 12
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] in {"stat", "timeseries", "table"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        targets = panel["targets"]
        assert len({target["refId"] for target in targets}) == len(targets) > 0
        place = panel["gridPos"]
        assert min(place.values()) >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
