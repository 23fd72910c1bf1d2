"""The report: one self-contained HTML file.

Invariant: the template escapes all values, and the page may neither load nor run anything, because
clients and sites control values in an audit log.
"""

from __future__ import annotations

from robots_guard.audit.show.chart import chart
from robots_guard.audit.show.figures import Summary
from robots_guard.audit.show.markup import environment


def page(summary: Summary, made: str, about: str, trouble: str = "") -> str:
    """Return the report as HTML. `about` describes the records it covers."""
    template = environment().get_template("report.html")
    return template.render(
        summary=summary,
        chart=chart(summary.timeline.bars),
        made=made,
        about=about,
        trouble=trouble,
    )
