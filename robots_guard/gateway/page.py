"""The HTML page of a proxy's responses: one style sheet, no scripts, no external resources."""

from __future__ import annotations

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2530; --soft: #5b6675; --line: #dfe4ea; --paper: #fff; --back: #f3f5f8;
  --mark: #b3261e; --tint: #fdf1f0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecf2; --soft: #9aa6b5; --line: #333c48; --paper: #1b212a;
  --back: #12161c; --mark: #ff8a80; --tint: #2a1f20; } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 2rem 1rem; background: var(--back);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
main { width: 100%; max-width: 44rem; background: var(--paper); border: 1px solid var(--line);
  border-top: 4px solid var(--mark); border-radius: 10px; padding: 2rem 2.25rem }
.by { margin: 0 0 .5rem; color: var(--mark); font-size: .8rem; font-weight: 600; letter-spacing: .04em }
h1 { margin: 0 0 .75rem; font-size: 1.6rem; line-height: 1.25 }
p { margin: 0 0 1rem }
dl { margin: 1.5rem 0; display: grid; grid-template-columns: max-content 1fr; gap: .6rem 1.25rem;
  border-top: 1px solid var(--line); padding-top: 1.25rem }
dt { color: var(--soft) }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere }
code { font: .92em/1.5 ui-monospace, "SF Mono", Consolas, "DejaVu Sans Mono", monospace }
.rule { display: block; background: var(--tint); border-left: 3px solid var(--mark); border-radius: 4px;
  padding: .45rem .7rem }
.line { display: block; margin-top: .15rem }
.small { color: var(--soft); font-size: .9rem }
a { color: inherit }
.ask { border-top: 1px solid var(--line); padding-top: 1.25rem; margin: 0; color: var(--soft); font-size: .92rem }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: .1rem } dd { margin-bottom: .7rem } }
"""


def page(title: str, body: str, head: str = "") -> bytes:
    """A complete page. All arguments are HTML: the caller has escaped them."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">{head}
<style>{_STYLE}</style></head>
<body><main>
{body}
</main></body></html>
""".encode()
