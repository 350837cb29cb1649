"""Represents SQL as a tree that knows which of its parts can be left out. So a statement that shows a fault
can be made smaller.

A node is a list of parts (texts and nodes) and a kind. An expression may be replaced by a smaller one of its
type, an option may become empty, and a list may lose members. Nodes may be shared, such as an expression of
GROUP BY and its use. Then both change together. This module does not know what a statement means. A smaller
statement may be wrong, and the caller finds this when it runs the statement.
"""

from dataclasses import dataclass, field

EXPRESSION, OPTION, LIST, QUERY, FROM, PLAIN, LITERAL = "expression", "option", "list", "query", "from", "plain", "literal"


class Node:
    """A part of a statement. `least` is the number of members that a list must keep, and `joiner` is the text
    between them."""

    __slots__ = ("parts", "kind", "type", "joiner", "least")

    def __init__(self, kind, *parts, type=None, joiner="", least=0):
        self.kind, self.parts, self.type, self.joiner, self.least = kind, list(parts), type, joiner, least


class Literal(Node):
    """A constant that may be sent as a parameter. `value` is its text as a client sends it, None for NULL."""

    __slots__ = ("value", "text", "fixed")

    def __init__(self, type, value, text, fixed=False):
        super().__init__(LITERAL, type=type)
        self.value, self.text, self.fixed = value, text, fixed


def expression(type, *parts):
    return Node(EXPRESSION, *parts, type=type)


def option(*parts):
    return Node(OPTION, *parts)


def members(nodes, joiner=", ", least=1):
    return Node(LIST, *nodes, joiner=joiner, least=least)


def plain(*parts):
    return Node(PLAIN, *parts)


@dataclass
class Parameters:
    """The literals of a statement that are sent as parameters. `choose` says how a literal is written: with
    its number and type, or None if it stays in the text."""

    choose: object
    sent: list = field(default_factory=list)
    numbers: dict = field(default_factory=dict)

    def written(self, literal):
        if id(literal) not in self.numbers:
            form = None if literal.fixed else self.choose(literal)
            self.numbers[id(literal)] = form and (len(self.sent) + 1, form)
            if form:
                self.sent.append(literal)
        known = self.numbers[id(literal)]
        return known and known[1].format(n=known[0], type=literal.type)


def render(node, parameters=None):
    """Returns the text of a statement. Literals that `parameters` chooses become $1 and so on."""
    out = []
    _render(node, out, parameters)
    return "".join(out)


def _render(node, out, parameters):
    if isinstance(node, str):
        out.append(node)
    elif node.kind == LITERAL:
        out.append(parameters and parameters.written(node) or node.text)
    else:
        for at, part in enumerate(node.parts):
            if at and node.joiner:
                out.append(node.joiner)
            _render(part, out, parameters)


def walk(node):
    """Returns this node and all nodes below it, each once, outer nodes first."""
    seen, todo = set(), [node]
    while todo:
        each = todo.pop()
        if isinstance(each, str) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        todo.extend(reversed(each.parts))


def literals(node):
    return [each for each in walk(node) if each.kind == LITERAL]


def simplest(type):
    """Returns expressions that can replace an expression of this type, the simplest first."""
    from . import sql_values

    return [sql_values.null(type), sql_values.plain_value(type)]


def smaller_forms(node):
    """Returns ways to make this one node smaller, as lists of parts, the smallest result first. A literal has
    none."""
    if node.kind == OPTION and node.parts:
        yield []
    if node.kind == LIST:
        yield from fewer_members(node)
    if node.kind in (EXPRESSION, QUERY, FROM) and node.parts:
        below = [each for each in walk(node) if each is not node and each.kind in (node.kind, LITERAL) and each.type == node.type]
        if node.kind == EXPRESSION and not is_simple(node):
            yield from ([each] for each in simplest(node.type))
        for each in below[:4]:
            if each.kind == node.kind and node.parts != [each]:
                yield list(each.parts)
            elif each.kind == LITERAL and node.parts != [each]:
                yield [each]


def is_simple(node):
    return len(node.parts) == 1 and (isinstance(node.parts[0], str) or node.parts[0].kind == LITERAL)


def fewer_members(node):
    count = len(node.parts)
    size = count // 2
    while size >= 1:
        for begin in range(0, count, size):
            kept = node.parts[:begin] + node.parts[begin + size :]
            if node.least <= len(kept) < count:
                yield kept
        size //= 2


def shrink(root, still_wrong, tries_max=1500):
    """Makes the tree smaller in place, as long as `still_wrong()` is true. Returns the number of tries."""
    tries, changed = 0, True
    while changed and tries < tries_max:
        changed = False
        for node in walk(root):
            again = True
            while again and tries < tries_max:
                again = False
                for parts in smaller_forms(node):
                    tries += 1
                    before, node.parts = node.parts, parts
                    if still_wrong():
                        again = changed = True
                        break
                    node.parts = before
                    if tries >= tries_max:
                        break
    return tries
