"""Grammars that were made to cost much: time, memory, or the stack."""

from ingot.sampling import Grammar


def crossing(count: int) -> Grammar:
    """Patterns that must all hold, whose automata multiply: 2 kB, and minutes."""
    parts = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}c"} for i in range(count)]
    return Grammar.json_schema({"allOf": parts})


def _references(keyword: str, depth: int) -> Grammar:
    twice = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    last = {f"d{depth}": {"type": "integer"}}
    return Grammar.json_schema({"$ref": "#/$defs/d0", "$defs": twice | last})


def properties(count: int) -> Grammar:
    """An object with so many properties, each of which may come or not."""
    names = {f"p{i}": {"type": "integer"} for i in range(count)}
    return Grammar.json_schema({"type": "object", "properties": names})


_MANY = [f"p{i}" for i in range(5000)]
_OBJECTS = [
    {"anyOf": [{"type": "object", "required": [f"p{i}_{j}"]} for j in range(8)]} for i in range(12)
]
_RULES = "\n".join(f'r{i}: r{i + 1} r{i + 1} | "x{i}"' for i in range(8000))
_DOUBLED = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60))

BOMBS = {
    "39 patterns": crossing(39),
    "a circle of references": Grammar.json_schema(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    ),
    "allOf, doubled 60 times": _references("allOf", 60),
    "anyOf, doubled 60 times": _references("anyOf", 60),
    "allOf of many anyOf": Grammar.json_schema({"allOf": _OBJECTS}),
    "900 arrays in each other": Grammar.json_schema(
        '{"type":"array","items":' * 900 + "{}" + "}" * 900
    ),
    "20,000 values": Grammar.json_schema({"enum": [f"value {i}" for i in range(20_000)]}),
    "5,000 properties": properties(5000),
    "5,000 that are required": Grammar.json_schema({"type": "object", "required": _MANY}),
    "minItems": Grammar.json_schema({"type": "array", "minItems": 10**9}),
    "minLength": Grammar.json_schema({"type": "string", "minLength": 10**9}),
    "a pattern of counts": Grammar.json_schema(
        {"type": "string", "pattern": "(a{1,1000}){1,1000}"}
    ),
    "a regex of counts": Grammar.regex("(((a{100}){100}){100}){100}"),
    "a regex of exact counts": Grammar.regex("b?(a{1000}){1000}"),
    "a long memory": Grammar.regex("(?s:.*)a(?s:.){1000}c"),
    "lookahead": Grammar.regex("(?=a)b"),
    "many options": Grammar.regex("(ab|cd)?" * 31_000),
    "intersections": Grammar.lark("start: A\nA: /.*a.{20}b.*/ & ~/.*c.{20}d.*/ & /.*e.{20}f.*/"),
    "ambiguity": Grammar.lark('start: s\ns: s s | s s s | "a" | '),
    "a chain of rules": Grammar.lark(f'start: r0\n{_RULES}\nr8000: "z"'),
    "rules that may be empty": Grammar.lark("start: " + "a " * 3000 + '\na: "x" | '),
    "all parts of a text": Grammar.lark(
        'start: %regex {"substring_chars": "' + "abc " * 40_000 + '"}'
    ),
    "GBNF: counts": Grammar.gbnf('root ::= (("a"{1,1000}){1,1000}){1,1000}'),
    "GBNF: 20,000 classes": Grammar.gbnf("root ::= " + "[a-z]* " * 20_000),
    "GBNF: 20,000 choices": Grammar.gbnf("root ::= " + " | ".join(f'"{i}"' for i in range(20_000))),
    "GBNF: doubled 60 times": Grammar.gbnf(f'root ::= r0\n{_DOUBLED}\nr60 ::= "z" | ""'),
    "GBNF: ambiguity": Grammar.gbnf('root ::= s\ns ::= s s | s s s | "a" | "b"'),
    "GBNF: parentheses": Grammar.gbnf("root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000),
}  # fmt: skip
