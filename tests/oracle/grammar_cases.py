"""Over three hundred grammars of all kinds, as people write them, for structured output."""

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.sampling import Grammar

Schema = dict[str, object]

_INTEGERS: list[Schema] = [
    {"type": "integer", **limits}
    for limits in (
        {}, {"minimum": 0}, {"maximum": -1}, {"minimum": 1, "maximum": 6},
        {"minimum": -40, "maximum": 120}, {"exclusiveMinimum": 0, "exclusiveMaximum": 100},
        {"minimum": 1900, "maximum": 2100}, {"multipleOf": 5, "minimum": 0, "maximum": 500},
        {"minimum": 7, "maximum": 7}, {"minimum": 0, "maximum": 65535},
    )
]  # fmt: skip
_NUMBERS: list[Schema] = [
    {"type": "number", **limits}
    for limits in (
        {}, {"minimum": 0, "maximum": 1}, {"exclusiveMinimum": 0}, {"minimum": -90, "maximum": 90},
        {"minimum": 0.5, "maximum": 2.75}, {"maximum": 1000},
    )
]  # fmt: skip
_STRINGS: list[Schema] = [
    {"type": "string", **limits}
    for limits in (
        {}, {"maxLength": 12}, {"minLength": 3, "maxLength": 8}, {"minLength": 5, "maxLength": 5},
        {"pattern": "^[A-Z]{2}[0-9]{4}$"}, {"pattern": "^(red|green|blue)$"},
        {"pattern": "^[a-z]+(-[a-z]+)*$", "maxLength": 30}, {"pattern": "^#[0-9a-f]{6}$"},
        {"pattern": "^\\+?[0-9]{7,12}$"}, {"pattern": "^[A-Za-z ]{2,20}$"},
        {"format": "date"}, {"format": "time"}, {"format": "date-time"}, {"format": "uuid"},
        {"format": "ipv4"}, {"format": "email"}, {"format": "hostname"}, {"format": "duration"},
    )
]  # fmt: skip
_CONSTANTS: list[Schema] = [
    {"const": value} for value in (True, None, 42, -1.5, "a text", ["x", 1], {"k": "v"}, "")
] + [
    {"enum": values}
    for values in (
        ["yes", "no"], [1, 2, 3], ["a", 1, None, True], ["north", "south", "east", "west"],
        [[], {}], ['with "quotes"', "back\\slash", "new\nline"], ["é", "日本", "😀"],
    )
]  # fmt: skip
_PLAIN = [{"type": "boolean"}, {"type": "null"}, *_INTEGERS, *_NUMBERS, *_STRINGS, *_CONSTANTS]


def _object(properties: dict[str, Schema], required: list[str] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def _arrays() -> Iterator[Schema]:
    for item in (*_INTEGERS[3:], *_STRINGS[4:], *_CONSTANTS[8:], {"type": "boolean"}):
        yield {"type": "array", "items": item, "minItems": 1, "maxItems": 4}
    yield {"type": "array", "items": {"type": "integer"}, "maxItems": 0}
    yield {"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 3}
    pair = [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 0, "maximum": 9}]
    yield {"type": "array", "prefixItems": pair, "items": False, "minItems": 2}
    inner = {"type": "array", "items": {"enum": [0, 1]}, "minItems": 2, "maxItems": 2}
    yield {"type": "array", "items": inner, "minItems": 2, "maxItems": 2}


def _objects() -> Iterator[Schema]:
    kinds = _PLAIN[2:]
    for first in range(len(kinds) - 3):
        names = (f"field_{first}", "b", "the value")
        yield _object(dict(zip(names, kinds[first : first + 3], strict=True)))
    for required in ([], ["a"], ["b"], ["a", "c"]):
        yield _object({name: {"type": "integer", "maximum": 9} for name in "abc"}, required)
    yield _object({"pos": _object({"x": {"type": "number"}, "y": {"type": "number"}})})
    yield _object({"deep": _object({"er": _object({"est": {"enum": ["bottom"]}})})})
    yield {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3}
    yield {"type": "object", "patternProperties": {"^x_[a-z]{1,4}$": {"type": "boolean"}},
           "additionalProperties": False, "maxProperties": 2}  # fmt: skip
    yield {"type": "object", "properties": {"kind": {"const": "open"}}, "required": ["kind", "id"],
           "additionalProperties": {"type": "integer"}, "maxProperties": 2}  # fmt: skip


def _combinations() -> Iterator[Schema]:
    for first, second in zip(_PLAIN[::2], _PLAIN[1::2], strict=False):
        yield {"anyOf": [first, second]}
    for kind in ("string", "integer", "boolean"):
        yield {"type": [kind, "null"]}
    yield {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}]}
    circle = _object({"shape": {"const": "circle"}, "r": {"type": "number", "minimum": 0}})
    square = _object({"shape": {"const": "square"}, "side": {"type": "integer"}})
    yield {"anyOf": [circle, square]}
    yield {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 33}]}
    node = _object(
        {
            "value": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        }
    )
    yield {"$defs": {"node": node}, "$ref": "#/$defs/node"}
    tree = _object(
        {
            "name": {"type": "string", "maxLength": 6},
            "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
        }
    )
    yield {"$defs": {"tree": tree}, "$ref": "#/$defs/tree"}
    person = _object({"name": {"type": "string", "maxLength": 15}, "age": {"$ref": "#/$defs/age"}})
    yield {"$defs": {"age": {"type": "integer", "minimum": 0, "maximum": 120}}, **person}


REGEXES = [
    r"\d{3}-\d{4}", r"[A-Z][a-z]+ [A-Z][a-z]+", r"(0[1-9]|1[0-2])/([0-2][0-9]|3[01])/20\d\d",
    r"[0-9a-f]{8}-[0-9a-f]{4}", r"(?:[a-z]+\.)+(com|org|net)", r"\$[1-9][0-9]{0,3}\.[0-9]{2}",
    r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", r"(M{0,3})(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})I{1,3}",
    r"v?\d+\.\d+\.\d+(-[a-z]+)?", r"([01]\d|2[0-3]):[0-5]\d", r"(yes|no|maybe)!?",
    r"[^\s,]+(,[^\s,]+){2}",
    r"#[0-9A-Fa-f]{3}", r"[a-zA-Z_][a-zA-Z0-9_]{0,15}", r"(ab|ba){1,5}", r"\(\d{3}\) \d{3}-\d{4}",
    r"[А-Яа-я]{2,8}", r"[\u4e00-\u9fff]{2,4}", r"(\w+ ){2}\w+\.", r"<b>[a-z ]{1,20}</b>",
    r"\[[0-9]+(, [0-9]+)*\]", r"0x[0-9A-F]{2,8}", r"(Mon|Tues|Wednes|Thurs|Fri)day", r"a.b.c",
    r"[^a-zA-Z]{5}", r"(?i:hello) world", r"x{2,4}y{0,2}z+", r"\t[a-z]+\n", r"=+ [A-Z]+ =+",
    r"[1-9]\d{0,2}(,\d{3})*", r"(north|south)-?(east|west)", r"Q[1-4] (19|20)\d\d", r"[01]{8}",
    r"[a-h][1-8]-[a-h][1-8]", r"(do|re|mi|fa|sol|la|ti)( (do|re|mi|fa|sol|la|ti)){3}",
]  # fmt: skip
_PARTS = (r"[a-z]{1,5}", r"\d{1,3}", r"(foo|bar)", r"[A-Z]", r"\.", r"-?")
REGEXES += [
    f"{a}{b}{c}" for a, b, c in zip(_PARTS * 6, _PARTS[1:] * 7, _PARTS[2:] * 9, strict=False)
]

CHOICES = [
    ["yes", "no"], ["positive", "negative", "neutral"], [str(n) for n in range(50)],
    ["a", "ab", "abc"], ['"quoted"', "it's", "back\\slash"], ["line\nbreak", "tab\there"],
    ["日本", "中国", "한국"], [" leading space", "trailing space "], ["x" * 60], ["0", "00", "000"],
]  # fmt: skip

GBNF = [
    'root ::= "yes" | "no"',
    "root ::= [0-9]+",
    'root ::= [a-z]+ ("-" [a-z]+)*',
    'root ::= "{" ws "\\"a\\":" ws [0-9]+ ws "}"\nws ::= [ \\n]{0,3}',
    'root ::= expr\nexpr ::= term (("+" | "-") term)*\n'
    'term ::= num | "(" expr ")"\nnum ::= [0-9]{1,4}',
    'root ::= "(" (root | [a-z]{1,3}) ")"',
    'root ::= item ("," " "? item)*\nitem ::= [A-Z] [a-z]*',
    'root ::= list\nlist ::= "[" (value ("," value)*)? "]"\nvalue ::= list | [0-9]+',
    'root ::= line{1,3}\nline ::= [a-z ]{3,20} "\\n"',
    'root ::= "<" name ">" (root | [a-z ]*) "</" name ">"\nname ::= "b" | "i"',
    "root ::= move (\" \" move)?\nmove ::= [KQRBN]? [a-h] [1-8] [+#]?",
    'root ::= or\nor ::= and (" or " and)*\nand ::= not (" and " not)*\nnot ::= ("not ")? atom\n'
    'atom ::= "true" | "false" | "(" or ")"',
    'root ::= "a" root "b" | "c"',
    'root ::= pair+\npair ::= key "=" value ";"\n'
    'key ::= [a-z]+\nvalue ::= [0-9]+ | "\\"" [^"]* "\\""',
    'root ::= [^0-9]{1,10} "!"',
    'root ::= "é" [à-ü]{2} "日"',
    'root ::= ("0" | [1-9] [0-9]*) ("." [0-9]{1,3})?',
    'root ::= s\ns ::= "(" s ")" s | ""',
    'root ::= statement\nstatement ::= "if " name " then " statement | name " = " [0-9]+\n'
    "name ::= [a-z] [a-z0-9]*",
    'root ::= "\\x41" [\\x61-\\x63]+ "\\u00e9"',
]  # fmt: skip
_HEADS = ('"x"', "[a-c]", '("ab" | "a")', "[0-9]+")
_BODIES = (
    '"p" root "q" | "r"',
    '"." [0-9]{2} | ""',
    'root? "!"',
    '("," root)*',
    '"(" root ")" | "."',
    "[d-f]{1,3}",
    '"z"* ";"',
)
GBNF += [f"root ::= {head} ({body})" for head in _HEADS for body in _BODIES]

LARK = [
    ('start: "a"+ "b"', r"a+b"),
    ("start: WORD (\" \" WORD){2}\nWORD: /[a-z]{1,6}/", r"[a-z]{1,6}( [a-z]{1,6}){2}"),
    ('start: /[0-9]+/ ("," /[0-9]+/)*', r"[0-9]+(,[0-9]+)*"),
    ('start: greeting ", " NAME "!"\ngreeting: "Hello" | "Hi"\nNAME: /[A-Z][a-z]{1,8}/',
     r"(Hello|Hi), [A-Z][a-z]{1,8}!"),
    ('start: (A | B){2,3}\nA: "one "\nB: "two "', r"(one |two ){2,3}"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A grammar, and what its texts are checked with."""

    grammar: Grammar
    schema: Schema | None = None
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    gbnf: str | None = None


def cases() -> list[Case]:
    """All of them."""
    schemas = [*_PLAIN, *_arrays(), *_objects(), *_combinations()]
    made = [Case(Grammar.json_schema(schema), schema=schema) for schema in schemas]
    made += [Case(Grammar.regex(pattern), pattern=pattern) for pattern in REGEXES]
    made += [Case(Grammar.choices(options), choices=tuple(options)) for options in CHOICES]
    made += [Case(Grammar.gbnf(source), gbnf=source) for source in GBNF]
    made += [Case(Grammar.lark(source), pattern=pattern) for source, pattern in LARK]
    return made
