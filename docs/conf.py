"""The configuration of the documentation's site: `sphinx-build -W docs build/site`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import robots_guard

DOCS = Path(__file__).parent
PYPROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
sys.path.insert(0, str(DOCS / "_extensions"))

project = PYPROJECT["name"]
version = release = robots_guard.__version__
copyright = "the authors of robots_guard"  # noqa: A001  Sphinx's name
author = "the authors of robots_guard"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "accessible_theme",
    "drawings",
    "generated_pages",
    "outside_links",
    "setting_anchors",
]
exclude_patterns = ["_*"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4  # the levels of headings that links may name, as on GitHub

#: Where links to files outside docs/ lead.
source_url = f"{PYPROJECT['urls']['Source']}/blob/main"

smartquotes = False  # it would join the hyphens of options
default_role = "code"  # docstrings mark code with single backticks
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"robots_guard {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(DOCS / "_static" / "search_scores.js")
html_extra_path = ["audit-record.schema.json"]
html_copy_source = False
html_show_sphinx = False
html_use_index = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_lexer("robots", TextLexer)  # GitHub's name for a robots.txt
