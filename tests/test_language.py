"""The rules for names and sentences that a test can check (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import robots_guard

pytestmark = pytest.mark.xdist_group("language")  # so that one worker parses the modules

PACKAGE = Path(robots_guard.__file__).parent
TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = {path: path.read_text("utf-8") for path in MODULES}
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
#: Nouns of the field.
NOUNS = {
    "content_coding",
    "finding",
    "framing",
    "listing",
    "pacing",
    "signing",
    "spelling",
    "testing",
}

BANNED = ("who asks", "told", "of ours", "whoever", "nobody", "the law of", "own up", "owns up")
OCTETS = re.compile(r"\boctets?\b", re.IGNORECASE)  # an RFC's word for a byte
REASON = re.compile(r"^# .*(\bprivate\b|`_\w)", re.MULTILINE)
COLUMNS = 100
LONG_LINES = 0.02  # the share of lines above COLUMNS
CONDITIONAL_EXPRESSIONS = 0.01  # for each line


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(source) for path, source in SOURCES.items()}


def test_a_class_name_names_one_class():
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(PACKAGE)))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_is_a_noun_and_not_a_participle():
    names = {path.stem for path in MODULES} - NOUNS

    assert sorted(name for name in names if name.endswith(("ing", "ed"))) == []


@pytest.mark.parametrize("phrase", BANNED)
def test_prose_names_the_actor(phrase):
    pattern = re.compile(rf"\b{phrase}\b", re.IGNORECASE)

    assert [f"{place}: {text}" for place, text in prose() if pattern.search(text)] == []


def test_a_byte_is_called_an_octet_only_beside_an_rfc():
    found = [
        f"{place}: {text}" for place, text in prose() if OCTETS.search(text) and "RFC" not in text
    ]

    assert found == []


def test_most_lines_fit():
    lines = [line for source in SOURCES.values() for line in source.splitlines()]

    assert sum(len(line) > COLUMNS for line in lines) / len(lines) <= LONG_LINES


def test_conditional_expressions_are_few():
    lines = sum(len(source.splitlines()) for source in SOURCES.values())
    found = sum(isinstance(node, ast.IfExp) for tree in trees().values() for node in ast.walk(tree))

    assert found / lines <= CONDITIONAL_EXPRESSIONS


def test_a_file_that_uses_private_attributes_of_the_package_says_why():
    """A comment names one of them, or says that they are private."""
    sources = {path: path.read_text("utf-8") for path in sorted(TESTS.rglob("*.py"))}
    users = {path for path, source in sources.items() if has_foreign_private_names(source)}

    assert [str(path) for path in users if not REASON.search(sources[path])] == []


def has_foreign_private_names(source: str) -> bool:
    """Whether a module uses a private attribute that the package has, of an object not its own."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in private_names()
        and ast.unparse(node.value) not in ("self", "cls", "os", "sys")
        for node in ast.walk(ast.parse(source))
    )


@cache
def private_names() -> frozenset[str]:
    """The private names of modules and classes of the package, without those of a named tuple."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    functions = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    variables = {node.id for node in nodes if isinstance(node, ast.Name)}
    names = functions | attributes | variables
    return frozenset(name for name in names if re.match("_[a-z]", name)) - {"_replace"}


# -- what people read: docstrings, comments, messages and pages, each with its place -------------------


@cache
def prose() -> tuple[tuple[str, str], ...]:
    return tuple(_prose())


def _prose() -> Iterator[tuple[str, str]]:
    for path, source in SOURCES.items():
        for line, text in (*_strings(trees()[path]), *_comments(source)):
            yield f"{path.relative_to(PACKAGE)}:{line}", " ".join(text.split())
    for path in PAGES:
        for text in _without_code(path.read_text("utf-8")).split("\n\n"):
            yield str(path.relative_to(REPOSITORY)), " ".join(text.split())


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and messages: every string of several words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, _without_code(node.value)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments; lines that follow one another are one."""
    block, last = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] > last + 1:
            yield last, _without_code(" ".join(block))
            block = []
        block.append(token.string.lstrip("#: "))
        last = token.start[0]
    yield last, _without_code(" ".join(block))


def _without_code(text: str) -> str:
    """Return a text without code and without words that it only mentions, which stand in quotes."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r'`[^`]*`|"[^"\n]*"', "", text)
