"""Templates that must be stopped: they break out, run for ever or grow without bound.

As a script it renders the bombs and prints, for each, the error that stopped it (or the
start of its output) and, at the end, how much the process grew, as JSON lines.
"""

import json
import resource

from ingot.errors import ChatTemplateError
from ingot.tokenizer.chat_template import ChatTemplate
from ingot.tokenizer.sandbox import Limits

# Half the usual time, to be done sooner.
_LIMITS = Limits(seconds=0.25)
MESSAGES = [{"role": "user", "content": "<hi"}]


def _grown(kind: str, step: str, use: str) -> str:
    """A value that doubles sixty times, and a use of it."""
    return (
        f"{{% set ns = namespace(x={kind}, y={kind}) %}}{{% for i in range(60) %}}"
        f"{{% set ns.x = {step} %}}{{% set ns.y = {step.replace('ns.x', 'ns.y')} %}}"
        f"{{% endfor %}}{{{{ {use} }}}}"
    )


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ []['__class__']['__base__'] }}",
    "{{ (1).__class__ }}",
    "{{ messages.__class__ }}",
    "{{ messages[0].content.__init__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ ['']|map(attribute='__class__')|list }}",
    "{{ ['']|map(attribute='__class__.__mro__')|list }}",
    "{{ ['']|selectattr('__class__')|list }}",
    "{{ ['']|sort(attribute='__class__') }}",
    "{{ ['']|join(attribute='__class__') }}",
    "{{ ['']|sum(attribute='__class__', start='') }}",
    "{{ ['']|map('attr', '__class__')|list }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ cycler(1).__init__.__globals__.os }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ joiner(',').__init__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace.mro() }}",
    "{{ namespace().__class__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% set ns = namespace() %}{% set ns.__html__ = range %}",
    "{{ dict.mro() }}",
    "{{ dict.__subclasses__() }}",
    "{{ range.__self__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.function.__globals__ }}",
    "{{ strftime_now.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__ }}",
    "{{ loop.__init__ }}{% for x in [1] %}{{ loop.__init__ }}{% endfor %}",
    "{% for x in [1] %}{{ loop._iterable }}{% endfor %}",
    "{% for x in [1] %}{{ loop._undefined.__init__ }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m._environment }}",
    "{% macro m() %}{{ caller._func }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ ''.strip.function }}",
    "{{ ''.strip.__self__ }}",
    "{{ ''.join.owner }}",
    "{% for x in ''.strip %}{{ x }}{% endfor %}",
    "{{ [''.strip] }}",
    "{{ ''.strip }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{0[__class__]}'.format('') }}",
    "{{ '{x.__class__}'.format(x='') }}",
    "{{ '{.strip.__self__}'.format('') }}",
    "{{ '{m.__init__}'.format(m=messages) }}",
    "{{ '{0.__class__}'.format_map({'0': ''}) }}",
    "{{ ''.format_map({}) }}",
    "{{ '%r' % '' }}",
    "{{ 'a'.encode() }}",
    "{{ 'a'.maketrans('a', 'b') }}",
    "{{ 'a'.translate({}) }}",
    "{{ (1).to_bytes(1000000000, 'big') }}",
    "{{ [].append(1) }}",
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages.sort() }}",
    "{{ undefined_name.attribute }}",
    "{{ undefined_name() }}",
    "{{ messages() }}",
    "{{ 'a'() }}",
    "{{ [].pop() }}",
    "{{ range(3)() }}",
    "{% include 'x' %}",
    "{% import 'x' as x %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% block x %}{% endblock %}",
    "{% autoescape true %}{% endautoescape %}",
    "{% do messages.append(1) %}",
    "{% trans %}{% endtrans %}",
    "{% debug %}",
    "{{ messages|map('@step')|list }}",
    "{{ [-1000000000]|map('@step', 0)|list }}",
    "{{ messages|map('@concatenate', 'a')|list }}",
    "{{ messages|select('filter')|list }}",
    "{{ 'x' is filter }}",
    "{{ range(*[1]) }}",
    "{{ dict(**{'a': 1}) }}",
    "{{ messages|map(*['upper'])|list }}",
]

BOMBS = [
    "{{ 'a' * 10**10 }}",
    "{{ 'a' * 10000000000 }}",
    "{{ 10000000000 * 'a' }}",
    "{{ [1] * 10000000000 }}",
    "{{ ([1] * 100000) * 100000 }}",
    "{{ (1, 2) * 1000000000 }}",
    "{{ ['a' * 1000000] * 1000 }}",
    _grown("'ab'", "ns.x ~ ns.x", "ns.x"),
    _grown("'ab'", "ns.x + ns.x", "ns.x"),
    _grown("'ab'", "ns.x.replace('a', 'aa')", "ns.x"),
    _grown("'ab'", "'%s%s' % (ns.x, ns.x)", "ns.x"),
    _grown("'ab'", "'{0}{0}'.format(ns.x)", "ns.x"),
    _grown("'ab'", "[ns.x, ns.x]|join", "ns.x"),
    _grown("'<'", "(ns.x ~ ns.x)|e", "ns.x"),
    _grown("[1]", "ns.x + ns.x", "ns.x"),
    _grown("(1,)", "ns.x + ns.x", "ns.x"),
    _grown("2", "ns.x * ns.x", "ns.x"),
    *(
        _grown("[1]", "[ns.x, ns.x]", use)
        for use in (
            *("ns.x", "ns.x == ns.y", "ns.x in [ns.y]", "ns.x < ns.y", "ns.x ~ ''", "ns.x|string"),
            *("ns.x|tojson", "ns.x|tojson(indent=1)", "ns.x|upper", "ns.x|title", "ns.x|trim"),
            *("'%s' % ns.x", "'%s' % (ns.x,)", "'{}'.format(ns.x)", "'{!r}'.format(ns.x)"),
            *("raise_exception(ns.x)", "ns.x is lower", "[ns.x, ns.y]|sort", "[ns.x]|max"),
            *("[[ns.x]].index([ns.y])", "[ns.x].count(ns.y)", "ns.x is eq(ns.y)", "ns.x|e"),
            *("ns.x|wordcount", "[ns.x]|select('eq', ns.y)|list", "''.startswith(ns.x)"),
            *("[[]][ns.x].y", "{}[ns.x]", "[1]|map(ns.x)|list", "ns.x|join", "', '.join(ns.x)"),
            *("'a'|replace(ns.x, '')", "'a'|indent(ns.x)", "[1]|tojson(indent=ns.x)"),
        )
    ),
    *(
        _grown("(1,)", "(ns.x, ns.x)", use)
        for use in (
            *("{ns.x: 1}", "{}[ns.x]", "{}.get(ns.x)", "ns.x in {}", "[ns.x]|unique|list"),
            *("dict([(ns.x, 1)])", "namespace([(ns.x, 1)])", "[1]|map(ns.x)|list"),
            *("{}|dictsort(by=ns.x)", "1.5|round(1, ns.x)", "[ns.x].index(ns.y)"),
            *("range(3)[ns.x]", "(ns.x, 1) in {1: 1}", "messages|map(attribute=ns.x)|list"),
        )
    ),
    "{% set ns = namespace(x=(1,)) %}{% for i in range(99999) %}{% set ns.x = (ns.x,) %}"
    "{% endfor %}{{ ns.x in {} }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
    "{% endfor %}{{ ns.x|tojson }}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{{ range(10**30) }}",
    "{{ range(10**18)|list }}",
    "{{ range(0, 10**18, 2) }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) if b %}{{ loop.length }}{% endfor %}"
    "{% endfor %}",
    "{% for a in 'a' * 2000000 %}{% for b in 'a' * 2000000 %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% break %}{% endfor %}"
    "{% for b in range(99999) %}{% continue %}{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% set x = m() %}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% call m() %}{{ m() }}{% endcall %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(40) }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "{{ 'a'|center(1000000000) }}",
    "{{ 'a'.center(1000000000) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a'.zfill(1000000000) }}",
    "{{ '\\t'.expandtabs(1000000000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%01000000000d' % 1 }}",
    "{{ '%-+ #01000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%.1000000000f' % 1 }}",
    "{{ '%.*f' % (1000000000, 1) }}",
    "{{ '%(a)1000000000s' % {'a': 1} }}",
    "{{ ('%' * 1000000) % 1 }}",
    "{{ ('%(' * 1000000) % {} }}",
    "{{ ('%(a)s' * 10000) % {'a': 'b' * 1000000} }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%1000000000d' is odd }}",
    "{{ '%1000000000d' is even }}",
    "{{ '%1000000000d' is divisibleby(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:.1000000000f}'.format(1.5) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ '{0:>{1}}'.format('a', 1000000000) }}",
    "{{ ('{0}' * 100000).format('a' * 1000000) }}",
    "{{ range(99999)|join('a' * 100000) }}",
    "{{ ('b' * 100000).join('a' * 100000) }}",
    "{{ ('b' * 100000).join(('a' * 100000)|list) }}",
    "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
    "{{ (messages[0].content * 100000).replace('<', 'b' * 100000) }}",
    "{{ ('\\n' * 100000)|indent(100000) }}",
    "{{ ('\\n' * 100000)|indent('a' * 100000, blank=true) }}",
    "{{ 'a'|indent(10000000000, first=true) }}",
    "{{ ('a ' * 100000)|wordwrap(1, wrapstring='a' * 100000) }}",
    "{{ [1]|tojson(indent=1000000000) }}",
    "{{ [1]|tojson(indent='a' * 1000000) }}",
    "{{ [1, 2]|tojson(separators=('a' * 1000000, 'b')) }}",
    "{{ [1, 2]|tojson(separators='\\U0001f600' * 2000000) }}",
    "{{ 2 ** 100000000 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ (2 ** 1000) ** 1000 }}",
    "{{ ('f' * 100000)|int(base=16) ** 3 }}",
    "{{ ('f' * 1000000)|int(base=16) * 3 }}",
    "{{ 1|round(1000000000, 'ceil') }}",
    "{{ 'a'|round(9, 'ceil') }}",
    "{{ [1]|round(9, 'floor') }}",
    "{{ -('a' * 1000000) }}",
    "{{ '-'.join('\\U0001f600' * 2000000) }}",
    "{{ 1.5|round(-1000000000, 'floor') }}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = ns.x + ['a' * 100000 ~ i] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = [ns.x, 'a' * 100000 ~ i] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
    "{% set ns.x = [ns.x, range(9999)|list] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
    "{% set ns.x = [ns.x, ('\\U0001f600' * 9999)|list] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = [ns.x, " + "[i], " * 500 + "] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% macro m() %}{% endmacro %}{% set ns.x = [ns.x, m] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set ns.x = [ns.x, namespace(a=1), cycler(1), joiner()] %}{% endfor %}",
    "{% set x %}{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}"
    "{% endfor %}{% endset %}",
    "{% set x %}{% for a in range(99999) %}" + "a" * 1000 + "{% endfor %}{% endset %}",
    "{% filter upper %}{% for a in range(99999) %}" + "a" * 1000 + "{% endfor %}{% endfilter %}",
    "{% macro m() %}{% for a in range(99999) %}"
    + "a" * 1000
    + "{% endfor %}{% endmacro %}{{ m() }}",
    "{% for a in range(99999) %}" + "a" * 1000 + "{% endfor %}",
    "{{ lipsum(n=1000000) }}",
    "{{ ([range(9999)|list] * 1000)|sum(start=[]) }}",
    "{{ (['a' * 1000000] * 1000)|join }}",
    "{{ (['a' * 1000000] * 1000)|map('upper')|list }}",
    "{{ (['a' * 1000000] * 1000)|sort }}",
    "{{ (['a' * 1000000] * 100000)|map('length')|list|length }}{{ 'a' * 10000000 }}",
    "{{ ('a' * 1000000 ~ 'b') in ['a' * 1000000 ~ 'c'] * 100000 }}",
    "{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}",
    "{{ ('a' * 1000000).rindex('b' ~ 'a' * 500000) }}",
    "{{ ('a' * 1000000).rsplit('b' ~ 'a' * 500000) }}",
    "{{ ('a' * 1000000).rpartition('b' ~ 'a' * 500000) }}",
    "{{ ('ab' * 1000000).split('b') }}",
    "{{ ('a ' * 1000000).split() }}",
    "{{ ('a\\n' * 1000000).splitlines() }}",
    "{{ ('a-' * 1000000)|title }}",
    "{{ ('a' * 2000000)|max }}",
    "{{ ('a' * 2000000)|list }}",
    "{{ range(99999)|map(attribute='a.' * 10000)|list }}",
    "{{ range(99999)|sort(attribute='a,' * 10000) }}",
    "{{ strftime_now('%Y' * 100000) }}",
    "{% set a = range(99999)|list %}{% for i in range(999) %}{{ a|map('string')|list|length }}"
    "{% endfor %}",
    "{% set a = range(99999)|list %}{% for i in range(999) %}{% if a|sort %}{% endif %}"
    "{% endfor %}",
    "{% set a = 'a' * 2000000 %}{% for i in range(99999) %}{% if a == a ~ '' %}{% endif %}"
    "{% endfor %}",
    "{% set a = messages[0].content * 600000 %}{% for i in range(99999) %}{% if a.upper() %}"
    "{% endif %}{% endfor %}",
    "{% set a = 'a' * 2000000 %}{% for i in range(9999999999) %}{% endfor %}",
    "{{ ['\\U000e0001' * 1000000] }}",
    # Sources that are hard on a compiler.
    "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "{{ " + "[" * 150 + "]" * 150 + " }}",
    "{{ " + "not " * 5000 + "1 }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{{ 1" + " + 1" * 5000 + " }}",
    "{{ a" + ".a" * 5000 + " }}",
    "{{ a" + "|d" * 5000 + " }}",
    "{{ 1" + " if 1 else 1" * 5000 + " }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{% for x in [1] %}" * 50 + "{% endfor %}" * 50,
    "{% set x %}" * 500 + "{% endset %}" * 500,
    "{{ a }}" * 15000,
    "a" * 1000000,
    "{{ " + "9" * 5000 + " }}",
    "{{ 1e" + "9" * 400 + " }}",
    "{{ 'a",
    "{% if %}",
    "{% endfor %}",
    "{% generation %}",
    "{{ 'a'|nothing }}",
    "{{ 'a' is nothing }}",
]


def main() -> None:
    """Render every escape and bomb; print what became of each."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for source in (*ESCAPES, *BOMBS):
        try:
            template = ChatTemplate(source, control_tokens=["<|im_end|>"], limits=_LIMITS)
            text = template.render(MESSAGES).text
            print(json.dumps({"rendered": text[:200]}), flush=True)
        except ChatTemplateError as error:
            print(json.dumps({"stopped": error.reason}), flush=True)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"grown": (after - before) * 1024}))


if __name__ == "__main__":
    main()
