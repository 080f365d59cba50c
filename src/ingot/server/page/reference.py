"""The page at `/docs`: every endpoint and the fields of its body, as plain HTML without scripts.

The application's OpenAPI schema comes in, HTML goes out. It does not know the endpoints.
"""

from collections.abc import Iterator
from html import escape
from typing import Any

Schema = dict[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_START = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Ingot: API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page/css/base.css">
<link rel="stylesheet" href="page/css/reference.css">
<script src="page/js/theme.js"></script>
</head>
<body class="reference">
<h1>API</h1>
<p>All endpoints of this server. For programs: <a href="openapi.json">openapi.json</a>.</p>
"""


def reference(schema: Schema) -> str:
    """The whole page."""
    groups: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method in filter(methods.__contains__, _METHODS):
            operation = methods[method]
            tag = operation.get("tags", ["other"])[0]
            groups.setdefault(tag, []).append(_operation(schema, method, path, operation))
    parts = [_START]
    for tag, operations in groups.items():
        parts += [f"<h2>{escape(tag)}</h2>\n", *operations]
    return "".join([*parts, "</body>\n</html>\n"])


def _operation(schema: Schema, method: str, path: str, operation: Schema) -> str:
    rows = [
        *(_row(each["name"], each["schema"], each) for each in operation.get("parameters", ())),
        *_body_rows(schema, operation),
    ]
    table = f"<table>{''.join(rows)}</table>" if rows else "<p>No parameters.</p>"
    return (
        f"<details><summary><code>{method.upper()} {escape(path)}</code> "
        f"{escape(operation.get('description', ''))}</summary>{table}</details>\n"
    )


def _body_rows(schema: Schema, operation: Schema) -> Iterator[str]:
    """A row for each field of the body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = content.get("schema", {})
    body = next((each for each in body.get("anyOf", ()) if "$ref" in each), body)
    body = body.get("items", body)
    if "$ref" in body:
        body = schema["components"]["schemas"][_name(body["$ref"])]
    for name, field in body.get("properties", {}).items():
        yield _row(name, field, {"required": name in body.get("required", ())})


def _row(name: str, field: Schema, parameter: Schema) -> str:
    required = " (required)" if parameter.get("required") else ""
    about = parameter.get("description") or field.get("description", "")
    return (
        f"<tr><th scope='row'><code>{escape(name)}</code>{required}</th>"
        f"<td>{escape(_type(field))}</td><td>{escape(about)}</td></tr>"
    )


def _type(field: Schema) -> str:
    """A short name of a field's type."""
    if "$ref" in field:
        return _name(field["$ref"]).rpartition("__")[2]
    if choices := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(choice) for choice in choices))
    if values := field.get("enum") or ([field["const"]] if "const" in field else None):
        return " or ".join(repr(value) for value in values)
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]
