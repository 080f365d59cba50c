"""CompiledTemplate: a template that runs in the sandbox.

Jinja parses the source. Its syntax tree may contain only what prompts need. Every step that could
take long or create large values is replaced by an operation that counts its cost. Then Jinja
compiles it. A `CompiledTemplate` runs any number of times, in any thread. It does not know
messages.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

from ingot.errors import ChatTemplateError
from ingot.tokenizer.sandbox.environment import RenderContext, Sandbox
from ingot.tokenizer.sandbox.limits import Limits, Meter
from ingot.tokenizer.sandbox.placeholders import Placeholders
from ingot.tokenizer.sandbox.render_state import RenderState

# The longest templates in use have some 30,000 characters.
_MAX_SOURCE = 128 * 1024
_MAX_NODES = 10_000
_MAX_REASON = 1000
_FILENAME = "<chat template>"

_ALLOWED = frozenset(
    {
        *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name),
        *(nodes.Assign, nodes.AssignBlock, nodes.NSRef, nodes.With, nodes.Scope),
        *(nodes.If, nodes.For, nodes.Break, nodes.Continue, nodes.CondExpr),
        *(nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Call, nodes.Keyword),
        *(nodes.Filter, nodes.Test, nodes.Getattr, nodes.Getitem, nodes.Slice),
        *(nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Concat),
        *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not),
        *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
        *(nodes.Neg, nodes.Pos),
    }
)

# Bytes of the value that a node creates each time it runs, if a template can keep it.
_MEMORY: dict[type[nodes.Node], int] = {
    nodes.List: 128,
    nodes.Tuple: 128,
    nodes.Dict: 256,
    nodes.Pair: 128,
    nodes.For: 512,
    nodes.Macro: 1024,
    nodes.CallBlock: 1024,
}


class _Counting(NodeTransformer):
    """Rewrites a tree so that its loops, output and operators count their cost."""

    def __init__(self, environment: Sandbox) -> None:
        self._environment = environment
        self._nodes = 0
        self._memory = 0
        self.literals: set[str] = set()
        self._rewrites: dict[type[nodes.Node], Callable[[Any], nodes.Node]] = {
            nodes.TemplateData: self._literal,
            nodes.Const: self._constant,
            nodes.Getattr: self._attribute,
            nodes.Concat: self._concatenation,
            nodes.Compare: self._comparison,
            nodes.Getitem: self._item,
            nodes.Pair: self._pair,
        }

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Check a node, rewrite its children, then the node."""
        self._check(node)
        self._nodes += 1
        self._memory += _MEMORY.get(type(node), 0)
        nodes_before, memory_before = self._nodes, self._memory
        self.generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            self._count(node, 1 + self._nodes - nodes_before, self._memory - memory_before)
        rewrite = self._rewrites.get(type(node))
        return rewrite(node) if rewrite is not None else node

    def _check(self, node: nodes.Node) -> None:
        reason = None
        if type(node) not in _ALLOWED:
            reason = f"chat templates cannot use {type(node).__name__.lower()!r}"
        elif self._nodes >= _MAX_NODES:
            reason = "the template is too large"
        elif isinstance(node, nodes.Name) and node.name == "self":
            reason = "chat templates cannot use 'self'"
        elif isinstance(node, nodes.NSRef) and node.attr.startswith("_"):
            reason = f"{node.attr!r} cannot be assigned"
        elif isinstance(node, nodes.Call | nodes.Filter | nodes.Test) and (
            node.dyn_args is not None or node.dyn_kwargs is not None
        ):
            reason = "chat templates cannot use * or ** in calls"
        if reason is not None:
            raise TemplateSyntaxError(reason, node.lineno)

    def _operation(self, name: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(
            *(args[0], name, list(args[1:]), [], None, None),
            lineno=node.lineno,
            environment=self._environment,
        )

    def _count(
        self, node: nodes.For | nodes.Macro | nodes.CallBlock, steps: int, memory: int
    ) -> None:
        """Insert a step at the head of a body, with the cost of the body."""
        step = self._operation("@step", node, nodes.Const(steps), nodes.Const(memory))
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(step, node.test, lineno=node.lineno)

    def _literal(self, node: nodes.TemplateData) -> nodes.Node:
        # As an expression it is written by the sandbox, which counts it.
        self.literals.add(node.data)
        return nodes.Const(node.data, lineno=node.lineno)

    def _constant(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, str):
            self.literals.add(node.value)
        return node

    def _attribute(self, node: nodes.Getattr) -> nodes.Node:
        self.literals.add(node.attr)
        return node

    def _concatenation(self, node: nodes.Concat) -> nodes.Node:
        return self._operation("@concatenate", node, *node.nodes)

    def _comparison(self, node: nodes.Compare) -> nodes.Node:
        rest = [part for each in node.ops for part in (nodes.Const(each.op), each.expr)]
        return self._operation("@compare", node, node.expr, *rest)

    def _item(self, node: nodes.Getitem) -> nodes.Node:
        if isinstance(node.arg, nodes.Const):
            return node
        if not isinstance(node.arg, nodes.Slice):
            return self._operation("@item", node, node.node, node.arg)
        ends = (node.arg.start, node.arg.stop, node.arg.step)
        parts = (nodes.Const(None) if end is None else end for end in ends)
        return self._operation("@slice", node, node.node, *parts)

    def _pair(self, node: nodes.Pair) -> nodes.Node:
        if not isinstance(node.key, nodes.Const):
            node.key = self._operation("@key", node, node.key)
        return node


class CompiledTemplate:
    """A template that was checked and compiled."""

    def __init__(self, source: str) -> None:
        if len(source) > _MAX_SOURCE:
            raise ChatTemplateError(
                f"the chat template has {len(source):,} characters; "
                f"at most {_MAX_SOURCE:,} are allowed"
            )
        failure: ChatTemplateError
        try:
            self._template = self._compile(source)
            return
        except Exception as error:
            # An untrusted source can cause any error, also in Python's compiler.
            failure = _failure(error)
        raise failure

    def _compile(self, source: str) -> Template:
        self._environment = Sandbox()
        counting = _Counting(self._environment)
        tree = counting.visit(self._environment.parse(source, filename=_FILENAME))
        self.literals = frozenset(counting.literals)
        # All text that the template can write by itself.
        self.written = "\n".join(sorted(self.literals))
        code = self._environment.compile(tree, filename=_FILENAME)
        return Template.from_code(self._environment, code, self._environment.globals)

    def run(self, variables: Mapping[str, Any], limits: Limits, placeholders: Placeholders) -> str:
        """Render; texts in `variables` and in the result have placeholders."""
        context = self._template.new_context(dict(variables))
        assert isinstance(context, RenderContext)
        context.state = RenderState(self._environment, Meter(limits), placeholders)
        failure: ChatTemplateError
        try:
            return "".join(self._template.root_render_func(context))
        except Exception as error:
            failure = _failure(error, self._template, placeholders.original)
        # Raised outside the handler, it does not keep the frames and values of the render alive.
        raise failure


def _failure(
    error: Exception, template: Template | None = None, original: Callable[[str], str] = str
) -> ChatTemplateError:
    """An error with the reason and the line of the template."""
    line: int | None = None
    if isinstance(error, TemplateSyntaxError):
        line = error.lineno
    elif template is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILENAME:
                line = template.get_corresponding_lineno(trace.tb_lineno)
            trace = trace.tb_next
    reason = str(error)
    if isinstance(error, TemplateSyntaxError):
        reason = error.message or "it is not a template"
    elif isinstance(error, RecursionError | SyntaxError):
        reason = "it is nested too deeply"
    elif isinstance(error, KeyError):
        reason = f"there is no {error}"
    return ChatTemplateError(original(reason[:_MAX_REASON]) or type(error).__name__, line=line)
