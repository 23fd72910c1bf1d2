"""Writes the parts of the reference that follow from the code: in a page, the line
`<!-- generated: NAME -->` is replaced by the text of that name when the site is built.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

import robots_guard
from robots_guard.app.cli.group import OWN
from robots_guard.app.cli.main import NAME, commands
from robots_guard.audit.show.export import FORMATS
from robots_guard.decisions.reasons import MEANINGS, Meaning, Party
from robots_guard.gateway.patch import Patch
from robots_guard.protocol.lint.response import KINDS
from robots_guard.scrapy import patches as scrapy_patches

with warnings.catch_warnings():
    # mitmproxy's own, of pyparsing and ldap3; only on import.
    warnings.simplefilter("ignore", DeprecationWarning)
    from robots_guard.mitmproxy import patches as mitmproxy_patches

PATCHES = {
    "In every mitmproxy with the addon": mitmproxy_patches.ADDON_PATCHES,
    "In `robots-guard proxy` only": mitmproxy_patches.COMMAND_PATCHES,
    "In a crawl of Scrapy": scrapy_patches.PATCHES,
}

_PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_SCHEMA = Path(__file__).parent.parent / "audit-record.schema.json"
_SUITES = Path(__file__).parents[2] / "tests" / "data" / "suites.jsonl"
_NOT_STARRED = {"robots_guard": ("open",)}  # public, but not in __all__
_INTERNAL = {"configuration"}  # its `__all__` is for the commands and the integrations
_LONG_SIGNATURE = 200  # characters; a longer one is left out, because it repeats the members


# -- the command line -------------------------------------------------------------------------------


def command_reference() -> str:
    """Every command with its arguments, its help and its options."""
    with click.Context(commands, info_name=NAME, max_content_width=100) as context:
        return "\n".join(
            line
            for path, command in _walk(context, commands)
            for line in _command_section(path, command)
        )


def _walk(
    context: click.Context, group: click.Group
) -> Iterator[tuple[click.Context, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        with command.context_class(command, info_name=name, parent=context) as inner:
            yield inner, command
            if isinstance(command, click.Group):
                yield from _walk(inner, command)


def _command_section(context: click.Context, command: click.Command) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"## {context.command_path.removeprefix(f'{NAME} ')}\n"
    yield f"```text\n{usage}\n```\n"
    yield f"{_help_text(command)}\n"
    for title, options in _sections(context, command).items():
        yield f"**{title}**\n"
        yield from (f"`{names}`\n: {_markdown(text)}\n" for names, text in options)


def _help_text(command: click.Command) -> str:
    """The help of a command in Markdown: a paragraph that click must not wrap is a code block."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    if text.startswith("\b"):
        return f"```text\n{text.removeprefix(chr(8)).strip()}\n```"
    return _markdown(text)


def _sections(context: click.Context, command: click.Command) -> dict[str, list[tuple[str, str]]]:
    """The options of a command by the sections of its help."""
    sections: dict[str, list[tuple[str, str]]] = {OWN: []}
    for option in command.get_params(context):
        record = option.get_help_record(context)
        if record is not None and "--help" not in option.opts:
            sections.setdefault(getattr(option, "section", OWN), []).append(record)
    return {title: options for title, options in sections.items() if options}


def _markdown(text: str) -> str:
    """Plain text in Markdown, on one line: what Markdown or HTML would read as markup is escaped."""
    return re.sub(r"([\\*_<>\[\]#|])", r"\\\1", " ".join(text.split()))


# -- the records of the audit log -------------------------------------------------------------------


def record_reference() -> str:
    """The fields of every kind of record, from the JSON Schema."""
    schema = json.loads(_SCHEMA.read_text("utf-8"))
    names = [each["$ref"].rpartition("/")[2] for each in schema["anyOf"]]
    return "\n".join(line for name in names for line in _record_section(schema["$defs"][name]))


def _record_section(definition: dict[str, Any]) -> Iterator[str]:
    (kind,) = definition["properties"]["kind"]["enum"]
    yield f"## {kind}\n"
    yield f"{_markdown(definition.get('description', ''))}\n"
    yield "| field | type | if absent |"
    yield "|---|---|---|"
    for name, field in definition["properties"].items():
        absent = "always present" if name in definition["required"] else _absent(field)
        yield f"| `{name}` | {_type_of(field)} | {absent} |"
    yield ""


def _absent(field: dict[str, Any]) -> str:
    return f"`{json.dumps(field.get('default'))}`"


def _type_of(field: dict[str, Any]) -> str:
    """The type of a field, in words."""
    if "$ref" in field:
        return f"`{field['$ref'].rpartition('/')[2]}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(map(_type_of, field["anyOf"]))
    if field.get("type") == "array":
        return f"list of {_type_of(field['items'])}" if field.get("items") else "list"
    return str(field.get("type", "any"))


def reason_table() -> str:
    """Every reason, and what follows from it."""
    rows = (_reason_row(name, meaning) for name, meaning in MEANINGS.items())
    head = "| reason | meaning | due to | response | Heritrix | replay |\n|---|---|---|---|---|---|"
    return "\n".join([head, *rows])


def _reason_row(reason: str, it: Meaning) -> str:
    response, heritrix = str(it.refusal.status), str(it.heritrix)
    if it.fault is Party.NONE:
        response = heritrix = "-"
    return f"| `{reason}` | {it.sentence} | {it.fault} | {response} | {heritrix} | {it.replay} |"


def export_table() -> str:
    """Every export format."""
    rows = (f"| `{name}` | {it.about} | {it.mapping} |" for name, it in FORMATS.items())
    return "\n".join(["| `--format` | a line is | mapping |\n|---|---|---|", *rows])


# -- lint -------------------------------------------------------------------------------------------


def code_table() -> str:
    """Every code of lint."""
    rows = (f"| {it.code} | `{it.name}` | {it.severity} | {it.about} |" for it in KINDS)
    return "\n".join(["| code | name | severity | |\n|---|---|---|---|", *rows])


# -- public test suites -----------------------------------------------------------------------------


def suite_table() -> str:
    """The cases of public test suites whose answers differ from ours, and why."""
    cases = map(json.loads, _SUITES.read_text("utf-8").splitlines())
    rows = (
        f"| {it['suite']} | `{it['case']}` | {it['because']} |" for it in cases if "differs" in it
    )
    return "\n".join(["| suite | case | because |\n|---|---|---|", *rows])


# -- replaced methods -------------------------------------------------------------------------------


def patch_tables() -> str:
    """Every method of a framework that is replaced, and why."""
    return "\n".join(
        line
        for title, patches in PATCHES.items()
        for line in (f"## {title}\n", "| Methods | Why |\n|---|---|", *map(_patch_row, patches), "")
    )


def _patch_row(patch: Patch) -> str:
    owner = patch.owner.__name__.rpartition(".")[2]
    methods = ", ".join(f"`{each.name}`" for each in patch.methods)
    reported = f" [Reported]({patch.issue})." if patch.issue else ""
    return f"| `{owner}`: {methods} | {patch.reason}{reported} |"


# -- the Python API ---------------------------------------------------------------------------------


def api_reference() -> str:
    """Every public name: those in `__all__` of the package and of its public modules."""
    return "\n".join(line for module in _public_modules() for line in _module_section(module))


def _public_modules() -> list[str]:
    """The package, and the modules directly in it that have an `__all__` for users."""
    found = {each.name for each in pkgutil.iter_modules(robots_guard.__path__)} - _INTERNAL
    names = [f"robots_guard.{name}" for name in sorted(found)]
    return ["robots_guard", *(name for name in names if _exports(name))]


def _exports(module: str) -> list[str]:
    return getattr(importlib.import_module(module), "__all__", [])


def _module_section(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    values = [getattr(module, each) for each in (*module.__all__, *_NOT_STARRED.get(name, ()))]
    yield f"## {name}\n"
    yield f"```{{eval-rst}}\n.. automodule:: {name}\n   :no-members:\n```\n"
    yield from _names(name, "Functions", filter(inspect.isroutine, values))
    classes = [value for value in values if isinstance(value, type)]
    yield from _names(name, "Errors", (kind for kind in classes if issubclass(kind, Exception)))
    yield from _names(
        name, "Classes", (kind for kind in classes if not issubclass(kind, Exception))
    )
    yield from _constants(module)


def _constants(module: Any) -> Iterator[str]:
    """The public names that are neither functions nor classes, with their values."""
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isroutine(value) and not isinstance(value, type):
            options = f"   :module: {module.__name__}\n   :value: {value!r}\n"
            yield f"```{{eval-rst}}\n.. data:: {name}\n{options}```\n"


def _names(module: str, title: str, values: Iterable[Any]) -> Iterator[str]:
    found = list(values)
    if not found:
        return
    yield f"### {title}\n" if module == "robots_guard" else f"**{title}**\n"
    yield "```{eval-rst}"
    for value in found:
        yield from _directive(module, value)
    yield "```\n"


def _directive(module: str, value: Any) -> list[str]:
    path = f"{module}.{value.__name__}"
    if inspect.isroutine(value):
        return [f".. autofunction:: {path}", ""]
    if issubclass(value, Exception):
        return [f".. autoexception:: {path}", "   :show-inheritance:", ""]
    members = ["   :members:"]
    if isinstance(value, enum.EnumMeta):
        members.append("   :undoc-members:")
    return [f".. autoclass:: {path}", *members, ""]


def _shorten(
    app: Sphinx,
    kind: str,
    name: str,
    value: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Leave out the signature of a class whose fields are many."""
    if kind == "class" and signature and len(signature) > _LONG_SIGNATURE:
        return "(...)", returned
    return signature, returned


# -- Sphinx -----------------------------------------------------------------------------------------

GENERATORS: dict[str, Callable[[], str]] = {
    "commands": command_reference,
    "records": record_reference,
    "reasons": reason_table,
    "exports": export_table,
    "codes": code_table,
    "patches": patch_tables,
    "suites": suite_table,
    "api": api_reference,
}


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = _PLACE.sub(lambda place: GENERATORS[place[1]](), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-signature", _shorten)
    return {"parallel_read_safe": True}
