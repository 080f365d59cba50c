"""The sandbox computes what Jinja computes, with and without placeholders."""

import json
from functools import cache
from random import Random
from typing import Any

import pytest
from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ingot.errors import ChatTemplateError
from ingot.tokenizer.chat_template import ChatTemplate

CONTROL = ("<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "</s>", "<eos>", "sop", "<｜a▁b｜>")

EXPRESSIONS = """
s ; s~t ; s+t ; s*2 ; 2*s ; s==t ; s!=t ; s<t ; s<=t ; s>t ; s>=t ; s<=t<=s ; s in t ;
t not in s ; s in [s,t] ; s in {t:1} ; [s]==[t] ; {s:t}=={t:s} ; s[0] ; s[0]=='<' ; s[-1] ;
s[1:] ; s[:-1] ; s[::-1] ; s[::2] ; s[1:3] ; s[0] in '<[' ; s.strip() ; s.strip('<> ') ;
s.lstrip('<') ; s.rstrip('>|') ; s.lstrip(t) ; s.rstrip('\\n') ; s.split() ; s.split('<') ;
s.split('|',1) ; s.rsplit('|',1) ; s.split(t) ; s.rsplit(t) ; s.split('</think>')[-1] ;
s.splitlines() ; s.splitlines(true) ; s.partition('<') ; s.rpartition('>') ; s.partition(t) ;
s.replace('<','((') ; s.replace('|','',1) ; s.replace(t,'') ; s.replace('',t) ;
s.replace('[',t) ; t.join([s,s]) ; '-'.join(s) ; s.removeprefix('<') ; s.removesuffix('>') ;
s.removeprefix(t) ; s.removesuffix(t) ; s.startswith('<') ; s.endswith('>') ; s.startswith(t) ;
s.startswith(('<','[')) ; s.find('|') ; s.rfind('|') ; s.find(t) ; s.count('<') ; s.count(t) ;
s.index('<') ; s.rindex(t) ; s.upper() ; s.lower() ; s.title() ; s.capitalize() ; s.swapcase() ;
s.casefold() ; s.isalnum() ; s.isalpha() ; s.isdigit() ; s.isspace() ; s.isupper() ;
s.islower() ; s.istitle() ; s.isascii() ; s.isidentifier() ; s.isdecimal() ; s.isnumeric() ;
'{}-{}'.format(s,t) ; '{0:>5}|{1!r}'.format(s,n) ; '{a}{b[0]}'.format(a=s,b=items) ; '%s'%s ;
'%5s|%-5s'%(s,t) ; '%(a)s'%{'a':s} ; '%d%%'%n ; '%05.2f'%n ; '%s'%[s] ; '%x'%n ; s|upper ;
s|lower ; s|title ; s|capitalize ; s|trim ; s|trim('<>') ; s|length ; s|string ; s|list ;
s|first ; s|last ; s|reverse ; s|replace('<','&') ; s|replace(t,'-') ; s|replace('|','',1) ;
s|indent ; s|indent(2,true) ; s|indent('<>',blank=true) ; s|e ; s|escape ; s|tojson ;
s|tojson(ensure_ascii=true) ; [s,{t:n}]|tojson(indent=2) ;
{s:[t,n,none,true,1.5]}|tojson(separators=(',',':')) ; {'b':s,'a':t}|tojson(sort_keys=true) ;
s|wordcount ; s|default('x') ; nothing|default(s) ; ''|default(s,true) ; s|int ; s|float ;
s|int(7) ; n|abs ; n|float ; (n/3)|round(2) ; (n/3)|round(1,'floor') ; (n/3)|round(1,'ceil') ;
'7'|int+n ; '7.9'|int ; 'f'|int(base=16) ; items|join ; items|join(t) ; items|join(',')|upper ;
items|sort ; items|sort(reverse=true) ; items|sort(case_sensitive=true) ; items|unique|list ;
items|unique(case_sensitive=true)|list ; items|min ; items|max ; items|first ; items|last ;
items|length ; items|count ; items|reverse|list ; items|map('upper')|list ;
items|map('length')|sum ; items|map('replace','<','')|join ; items|select('in',t)|list ;
items|select|list ; items|reject('eq',s)|list ; items|reject|list ;
items|map('trim')|map('length')|list ; items[1:]|join ; items+[s] ; items*2 ; items.index(s) ;
items.count(s) ; (items+[s]).index(s) ; items|string ; items ; (1,2)+(3,) ; (s,t)|join('|') ;
table ; table|items|list ; table.items()|list ; table.keys()|list ; table.values()|list ;
table.get('a') ; table.get(s,'none') ; table[s] ; table['a'] ; table.a ; table.nothing ;
table|dictsort ; table|dictsort(by='value') ; table|dictsort(reverse=true) ; table|length ;
table|list ; table|first ; 'a' in table ; s in table ; table|tojson ;
rows|map(attribute='name')|list ; rows|map(attribute='size',default=0)|list ;
rows|sort(attribute='name') ; rows|sort(attribute='size,name') ; rows|selectattr('size')|list ;
rows|selectattr('name','in',t)|list ; rows|rejectattr('size','defined')|list ;
rows|selectattr('inner.deep','eq',s)|list ; rows|sum('n') ;
rows|map(attribute='inner.deep')|join('/') ; rows|join(',',attribute='name') ;
rows|max(attribute='name') ; rows|unique(attribute='size')|list ; rows[0].inner.deep ;
rows[0]['inner']['deep'] ; rows[9] ; rows[9].x ; rows|first|items|list ;
(rows|selectattr('size')) and 1 ; rows|map(attribute='name')|first ; n+1 ; n-1 ; n*2 ; n/2 ;
n//2 ; n%3 ; -n ; +n ; n**2 ; n>1 ; n>=1 ; 1<n<9 ; n is odd ; n is even ; n is divisibleby(3) ;
s is string ; s is mapping ; s is sequence ; s is iterable ; n is number ; n is integer ;
n is float ; none is none ; nothing is defined ; nothing is undefined ; s is upper ; s is lower ;
s is eq(t) ; s is in(t) ; s is sameas(s) ; true is true ; true is boolean ; s is callable ;
range is callable ; table is mapping ; items is sequence ; 1 is ne(2) ; 1 is lt(2) ; 2 is ge(2) ;
nothing ; nothing.x ; nothing['x'] ; nothing+1 ; nothing==1 ; not nothing ; nothing|length ;
nothing|list ; nothing|upper ; nothing|trim ; nothing|items|list ; nothing|string ;
nothing or s ; s and t ; not s ; range(3)|list ; range(n)|list ; range(1,9,3)|list ;
range(3)|join ; range(2) ; [x,n]|join ; namespace(a=s).a ; namespace(a=s).b ;
namespace({'a':s}).a ; dict(a=s) ; dict([(s,1)]) ; dict(table,a=1) ; cycler('a',s).next() ;
joiner(s)() ; s.a ; s.1 ; n.a ; none.a ; true.a ; (1).a ; items.a ; items.0 ; items['x'] ;
s['x'] ; n['x'] ; n[0] ; none[0] ; table[0] ; s.upper().lower() ; s|upper|lower ;
'A'~1~none~true~1.5~[s] ; 1~2 ; 'a\\tb' ; '"\\'' ; '<|im_end|>' in s ; s.split('<|im_end|>') ;
s.replace('<|im_end|>','') ; s=='<|im_end|>' ; '<|im_end|>'~s ; s|format(t) ; s|safe ;
s.split(none,1) ; s.split(t,1) ; s.split(sep='|') ; s.rsplit('<',maxsplit=1) ; 1_000 ; 1e3 ;
0x1f ; {'<':1,'[':2}[s[0]] ; {'<':1}.get(s[0]) ; table[items[0]] ; {s:1}[s] ; rows[0][t] ;
{'b<':s,'b':t,'b|':1}|tojson(sort_keys=true)
"""

BLOCKS = [
    "{% for x in items %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in items %}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{% for x in items if x %}{{ loop.length }}{{ loop.first }}{% else %}none{% endfor %}",
    "{% for x in items %}{% if x == s %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in items %}{% if x == s %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for k, v in table|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for x in items %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for x in nothing %}{{ x }}{% else %}empty{% endfor %}",
    "{% if s %}a{% elif t %}b{% else %}c{% endif %}",
    "{% set x = s %}{{ x }}{% for i in [1] %}{% set x = t %}{% endfor %}{{ x }}",
    "{% set ns = namespace(x='') %}{% for i in items %}{% set ns.x = ns.x ~ i %}{% endfor %}"
    "{{ ns.x }}",
    "{% set x %}a{{ s }}b{% endset %}{{ x|upper }}{{ x|length }}",
    "{% set x | trim %}  {{ s }} {% endset %}[{{ x }}]",
    "{% set a, b = s, t %}{{ b }}{{ a }}",
    "{% macro m(x, y='z') %}<{{ x }}{{ y }}{{ varargs }}{{ kwargs }}>{% endmacro %}"
    "{{ m(s) }}{{ m(s, t) }}{{ m(s, t, 1, q=2) }}{{ m(y=s) }}",
    "{% macro m(x) %}({{ caller(x) }}){% endmacro %}{% call(y) m(s) %}{{ y }}!{% endcall %}",
    "{% macro m(n) %}{% if n %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% with x = s, y = t %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{{ s if n > 1 else t }}{{ s if n > 99 }}",
    "{# comment #}  {%- if 1 %} a \n {%- endif %}\n  {% if 1 %}\n b\n  {% endif %}\n c\n",
    "{% raw %}{{ s }}{% endraw %}",
    "a\n\n{{ s }}\n\n",
    "{% set d = {'k': s, t: 1} %}{{ d.k }}{{ d[t] }}{{ d|length }}",
    "{{ [s, t, [n, (s, 1)], {'a': s}] }}",
    "{% set it = items|map('upper') %}{{ it|list }}{{ it|list }}",
    "{{ 'a' 'b' }}{{ (1, ) }}{{ () }}{{ [] }}{{ {} }}",
    "{{ raise_exception('no ' ~ s) }}",
]


SOURCES = [f"{{{{ {expression.strip()} }}}}" for expression in EXPRESSIONS.split(";")] + BLOCKS


@cache
def _reference_template(source: str) -> Template:
    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, **options: json.dumps(
        value, ensure_ascii=ensure_ascii, **options
    )
    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source)


def _reference(source: str, values: dict[str, Any]) -> str | None:
    try:
        return _reference_template(source).render(values)
    except Exception:
        return None


@cache
def _template(source: str, control: tuple[str, ...]) -> ChatTemplate:
    return ChatTemplate(source, control_tokens=control)


def _ours(source: str, values: dict[str, Any], control: tuple[str, ...]) -> str | None:
    try:
        return _template(source, control).render([{"role": "", "content": ""}], **values).text
    except ChatTemplateError:
        return None


PIECES = (
    *(
        "<",
        ">",
        "|",
        "[",
        "]",
        "/",
        "</think>",
        "<|im_end|>",
        "im_end",
        "[INST]",
        "sop",
        "s",
        "eos",
    ),
    *(
        "｜",
        "▁",
        "&",
        '"',
        "'",
        "\\",
        " ",
        "\n",
        "-",
        "a",
        "Bc",
        "ß",
        "İ",
        "é",
        "🎉",
        "⠀",
        "1",
        "%",
        "\x7f",
    ),
)


def _variables(random: Random) -> dict[str, Any]:
    def text() -> str:
        return "".join(random.choices(PIECES, k=random.randrange(7)))

    s, t = text(), text()
    return {
        "s": s,
        "t": t,
        "n": random.randrange(10),
        "items": random.choices([s, t, "b<", "A|"], k=random.randrange(5)),
        "table": {"b": t, "a": s, "A[": text()},
        "rows": [
            {"name": s, "size": 1, "n": 2, "inner": {"deep": t}},
            {"name": t, "size": 0, "n": 3, "inner": {"deep": s}},
        ],
    }


VARIABLES = [_variables(Random(seed)) for seed in range(30)]


@pytest.mark.parametrize("source", SOURCES)
def test_as_jinja(source: str) -> None:
    for values in VARIABLES:
        reference = _reference(source, values)
        assert _ours(source, values, ()) == reference
        assert _ours(source, values, CONTROL) == reference


def test_most_expressions_render() -> None:
    """The comparison above means something only then."""
    rendered = [s for s in SOURCES if any(_reference(s, v) is not None for v in VARIABLES)]
    assert len(rendered) > 0.95 * len(SOURCES)
