"""Makes random expressions of a wanted type over the columns in scope.

Invariants
1. The value of an expression depends only on its rows, and not on a clock, on chance, or on an order that
   PostgreSQL may choose.
2. Each production counts its feature, so that a run can report which features it has used.

This module does not know where rows come from. `Queries` makes the subqueries.
"""

import re
from dataclasses import dataclass, field, replace

from . import sql_functions, sql_values
from .sql_tree import Node, expression, members, option, plain

COMPARISONS = ["=", "=", "=", "<>", "<", ">", "<=", ">="]
COMPARED = ["integer"] * 6 + ["text"] * 3 + ["bigint", "numeric", "double precision", "date", "timestamp", "boolean", "character(3)", "interval", "smallint",
                                             "timestamptz", "time", "uuid", "bytea", "real", "integer[]"]  # fmt: skip
# A column of the second type can be used where the first type is wanted.
TAKES = {
    "text": ("character varying(5)", "character(3)"),
    "numeric": ("numeric(8,2)", "integer", "bigint"),
    "bigint": ("integer",),
    "integer": ("smallint",),
    "double precision": ("real", "integer", "numeric"),
    "timestamp": ("date",),
}


# Window functions that return the same value for peers.
PEERS_ALIKE = ("rank", "dense_rank", "percent_rank", "cume_dist", "count", "min", "max", "bool_and", "bool_or", "sum", "avg", "every", "bit_and")


@dataclass
class Scope:
    """The names that an expression may use. `grouped` is the scope of aggregates' arguments, if aggregates
    are allowed. `decides` are columns that distinguish all rows. `unique` says that no two rows are equal.
    `rowwise` has the windows so far that distinguish equal rows."""

    columns: list = field(default_factory=list)
    outer: "Scope" = None
    grouped: "Scope" = None
    windows: bool = False
    subqueries: bool = True
    decides: list = field(default_factory=list)
    unique: bool = False
    rowwise: list = field(default_factory=list)

    def of_type(self, type):
        wanted = (type, *TAKES.get(type, ()))
        exact = [name for name, each in self.columns if each == type]
        near = [name for name, each in self.columns if each in wanted]
        return exact, near


def cut(template):
    """Returns the texts and argument numbers of a template."""
    return [int(piece) if at % 2 else piece for at, piece in enumerate(re.split(r"\{(\d)\}", template))]


class Expressions:
    """Makes expressions. `queries` makes the subqueries in them."""

    def __init__(self, chance, values, features):
        self.chance, self.values, self.features = chance, values, features
        self.queries = None
        self.risky = False
        self.by_type = self._by_type(sql_functions.SAFE)
        self.by_type_risky = self._by_type(sql_functions.SAFE + sql_functions.RISKY * 3)
        self.aggregates = self._by_type(sql_functions.AGGREGATES)
        self.ranked = self._by_type(sql_functions.RANKED)

    @staticmethod
    def _by_type(table):
        found = {}
        for type, template, arguments in table:
            found.setdefault(type, []).append((template, arguments))
        return found

    def note(self, feature):
        self.features.add(feature)

    def maybe(self, share):
        return self.chance.random() < share

    def type_of_some(self):
        """Returns a random type, and common types more often."""
        return self.chance.choice(COMPARED) if self.maybe(0.9) else self.chance.choice(["json", "text[]", "integer[]", "numeric(8,2)", "character varying(5)"])

    def any(self, type, depth, scope):
        """Returns an expression of this type, at most `depth` levels deep."""
        if depth <= 0 or self.maybe(0.2):
            return self.leaf(type, scope)
        if type == "boolean" and self.maybe(0.75):
            return self.condition(depth, scope)
        ways = [(self.function, 40), (self.leaf_of, 25), (self.case, 8), (self.coalesce, 6), (self.cast, 2)]
        if scope.grouped:
            ways.append((self.aggregate, 60))
        if scope.windows:
            ways.append((self.window, 40))
        if scope.subqueries:
            ways.append((self.scalar_subquery, 5))
        way = self.chance.choices([way for way, _ in ways], [weight for _, weight in ways])[0]
        return way(type, depth, scope)

    def leaf_of(self, type, depth, scope):
        return self.leaf(type, scope)

    def leaf(self, type, scope):
        """Returns a column of the scope or of an outer scope, else a constant."""
        while scope is not None and not self.maybe(0.15):
            exact, near = scope.of_type(type)
            if near:
                name = self.chance.choice(exact if exact and self.maybe(0.8) else near)
                return expression(type, name)
            scope = scope.outer
        return expression(type, self.values.literal(type))

    def column_or_literal(self, type, scope):
        exact, near = scope.of_type(type)
        return expression(type, self.chance.choice(exact or near)) if near else expression(type, self.values.literal(type))

    def filled(self, type, template, arguments, depth, scope):
        """Returns the template with expressions for its arguments."""
        for mark, fields in sql_functions.FIELDS.items():
            if mark in template:
                template = template.replace(mark, self.chance.choice(fields))
        made = [self.any(self.type_of_some() if each == "any" else each, depth - 1, scope) for each in arguments]
        return expression(type, *(made[piece] if isinstance(piece, int) else piece for piece in cut(template)))

    def function(self, type, depth, scope):
        table = (self.by_type_risky if self.risky else self.by_type).get(type)
        if not table:
            return self.leaf(type, scope)
        template, arguments = self.chance.choice(table)
        self.note("function " + re.sub(r"\{\w\}", "", template)[:24].strip("() "))
        return self.filled(type, template, arguments, depth, scope)

    def case(self, type, depth, scope):
        """Returns a CASE of one of both forms, sometimes over constants."""
        arms = self.chance.choice([1, 1, 2, 3])
        if self.maybe(0.35):
            self.note("case with operand")
            over = self.type_of_some()
            over = "integer" if over in ("json",) else over
            head = self.any(over, depth - 1, scope) if self.maybe(0.7) else expression(over, self.values.literal(over))
            whens = [plain(" when ", self.any(over, depth - 2, scope), " then ", self.any(type, depth - 1, scope)) for _ in range(arms)]
            start = ["case ", head]
        else:
            self.note("case")
            whens = [plain(" when ", self.case_condition(depth, scope), " then ", self.any(type, depth - 1, scope)) for _ in range(arms)]
            start = ["case"]
        other = option(" else ", self.any(type, depth - 1, scope)) if self.maybe(0.7) else ""
        return expression(type, "(", *start, members(whens, ""), other, " end)")

    def case_condition(self, depth, scope):
        if self.maybe(0.15):
            self.note("case over a constant")
            return expression("boolean", self.values.literal("boolean"))
        return self.any("boolean", depth - 1, scope)

    def coalesce(self, type, depth, scope):
        which = self.chance.choice(["coalesce", "coalesce", "nullif", "greatest", "least"])
        if type == "json" and which != "coalesce":
            return self.leaf(type, scope)
        self.note(which)
        count = 2 if which == "nullif" else self.chance.choice([1, 2, 3])
        made = [self.any(type, depth - 1, scope) for _ in range(count)]
        return expression(type, which, "(", members(made, ", ", 2 if which == "nullif" else 1), ")")

    def cast(self, type, depth, scope):
        self.note("cast")
        return expression(type, "cast(", self.any(type, depth - 1, scope), f" as {type})")

    def scalar_subquery(self, type, depth, scope):
        self.note("scalar subquery")
        return expression(type, "(", self.queries.scalar(type, depth - 1, scope), ")")

    # Conditions

    def condition(self, depth, scope):
        ways = [(self.comparison, 40), (self.logic, 22), (self.null_test, 8), (self.between, 5), (self.in_list, 8), (self.like, 5), (self.row_comparison, 2), (self.truth_test, 3)]
        if scope.subqueries:
            ways += [(self.exists, 4), (self.in_subquery, 5), (self.quantified, 3)]
        way = self.chance.choices([way for way, _ in ways], [weight for _, weight in ways])[0]
        return way(depth - 1, scope)

    def compared_type(self, scope):
        """Returns a type, mostly the type of a column in the scope."""
        held = [type for _, type in scope.columns if type not in ("json", "text[]")]
        return self.chance.choice(held) if held and self.maybe(0.7) else self.chance.choice(COMPARED)

    def comparison(self, depth, scope):
        type = self.compared_type(scope)
        operator = self.chance.choice([*COMPARISONS, "is distinct from", "is not distinct from"])
        left = self.any(type, depth, scope) if self.maybe(0.4) else self.column_or_literal(type, scope)
        return expression("boolean", "(", left, f" {operator} ", self.any(type, depth, scope), ")")

    def logic(self, depth, scope):
        if self.maybe(0.25):
            return expression("boolean", "(not ", self.any("boolean", depth, scope), ")")
        operator = self.chance.choice([" and ", " or "])
        return expression("boolean", "(", members([self.any("boolean", depth, scope) for _ in range(self.chance.choice([2, 2, 3]))], operator), ")")

    def narrow(self, scope):
        """Returns comparisons of columns with constants, joined by AND, which an index can answer."""
        self.note("columns and constants")
        made = []
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            name, type = self.chance.choice([each for each in scope.columns if each[1] not in ("json",)])
            operator = self.chance.choice(["=", "<", "<=", ">", ">=", "<=", ">=", "between", "in", "is null"])
            if operator == "between":
                made.append(expression("boolean", name, " between ", self.values.literal(type), " and ", self.values.literal(type)))
            elif operator == "in":
                made.append(expression("boolean", name, " in (", members([self.values.literal(type) for _ in range(self.chance.choice([1, 2, 5]))]), ")"))
            elif operator == "is null":
                made.append(expression("boolean", name, " is null"))
            else:
                made.append(expression("boolean", name, f" {operator} ", self.values.literal(type, null_too=False)))
        return expression("boolean", "(", members(made, " and "), ")")

    def about_nulls(self, columns, scope):
        """Returns a condition on one of these columns. Either no row with NULL in this column fulfils the
        condition, or it only looks so."""
        self.note("about the nulls of an outer join")
        name, type = self.chance.choice(columns)

        def value():
            return self.values.literal(type, null_too=False)

        simple = [
            lambda: (name, f" {self.chance.choice(['=', '<>', '<', '<=', '>', '>='])} ", value()),
            lambda: (name, self.chance.choice([" in (", " not in ("]), members([value(), value()]), ")"),
            lambda: (name, self.chance.choice([" between ", " not between "]), value(), " and ", value()),
            lambda: (name, self.chance.choice([" is null", " is not null"])),
            lambda: (name, self.chance.choice([" is distinct from ", " is not distinct from "]), value()),
            lambda: ("coalesce(", name, ", ", value(), ") = ", value()),
            lambda: ("nullif(", name, ", ", value(), ") = ", value()),
            lambda: ("greatest(", name, ", ", value(), ") = ", value()),
        ]

        def condition():
            return expression("boolean", "(", *self.chance.choice(simple)(), ")")

        test = self.chance.choice([" is true", " is not true", " is false", " is not false", " is unknown", " is not unknown"])
        around = [
            lambda: [condition()],
            lambda: [condition()],
            lambda: ["not ", condition()],
            lambda: [condition(), test],
            lambda: [condition(), self.chance.choice([" and ", " or "]), self.any("boolean", 1, scope)],
            lambda: ["not (", condition(), self.chance.choice([" and ", " or "]), self.any("boolean", 1, scope), ")"],
            lambda: ["case when ", condition(), " then ", self.any("boolean", 1, scope), " end"],
            lambda: ["case when ", condition(), " then false else ", self.any("boolean", 1, scope), " end"],
            lambda: ["coalesce(", condition(), ", ", self.any("boolean", 1, scope), ")"],
        ]
        return expression("boolean", "(", *self.chance.choice(around)(), ")")

    def null_test(self, depth, scope):
        test = self.chance.choice([" is null", " is not null"] * 8 + [" isnull", " notnull"])
        return expression("boolean", "(", self.any(self.compared_type(scope), depth, scope), f"{test})")

    def truth_test(self, depth, scope):
        test = self.chance.choice([" is true", " is not true", " is false", " is not false", " is unknown", " is not unknown"])
        return expression("boolean", "(", self.any("boolean", depth, scope), f"{test})")

    def between(self, depth, scope):
        type = self.compared_type(scope)
        word = self.chance.choice([" between ", " not between ", " between symmetric "])
        self.note(word.strip())
        return expression("boolean", "(", self.any(type, depth, scope), word, self.any(type, depth, scope), " and ", self.any(type, depth, scope), ")")

    def in_list(self, depth, scope):
        type = self.compared_type(scope)
        word = self.chance.choice([" in (", " not in ("])
        self.note(word.strip(" ("))
        count = self.chance.choice([1, 2, 3, 4, 25]) if self.maybe(0.9) else 60
        made = [self.any(type, depth - 1, scope) if self.maybe(0.15) else self.values.literal(type) for _ in range(count)]
        return expression("boolean", "(", self.any(type, depth, scope), word, members(made), "))")

    def like(self, depth, scope):
        if self.maybe(0.5):
            word = self.chance.choice([" like ", " not like ", " ilike ", " not ilike "])
            pattern = sql_values.quoted(self.chance.choice(sql_functions.PATTERNS))
        else:
            word = self.chance.choice([" ~ ", " !~ ", " ~* ", " !~* "])
            pattern = sql_values.quoted(self.chance.choice(sql_functions.REGEXES))
        self.note(word.strip())
        return expression("boolean", "(", self.any("text", depth, scope), word, pattern, ")")

    def row_comparison(self, depth, scope):
        self.note("row comparison")
        types = [self.compared_type(scope) for _ in range(2)]
        left, right = ([self.any(type, depth - 1, scope) for type in types] for _ in range(2))
        if self.maybe(0.4):
            return expression("boolean", "((", left[0], ", ", left[1], ") in ((", right[0], ", ", right[1], ")))")
        return expression("boolean", "((", left[0], ", ", left[1], f") {self.chance.choice(COMPARISONS)} (", right[0], ", ", right[1], "))")

    def exists(self, depth, scope):
        self.note("exists")
        return expression("boolean", self.chance.choice(["exists (", "not exists ("]), self.queries.existing(depth, scope), ")")

    def in_subquery(self, depth, scope):
        word = self.chance.choice([" in (", " not in ("])
        self.note(word.strip(" (") + " subquery")
        if self.maybe(0.12):
            self.note("row in subquery")
            types = [self.compared_type(scope) for _ in range(2)]
            made = [self.any(type, depth - 1, scope) for type in types]
            return expression("boolean", "((", made[0], ", ", made[1], ")", word, self.queries.of_types(types, depth, scope), "))")
        type = self.compared_type(scope)
        return expression("boolean", "(", self.any(type, depth, scope), word, self.queries.of_types([type], depth, scope), "))")

    def quantified(self, depth, scope):
        type = self.compared_type(scope)
        word = self.chance.choice(["any", "all", "some"])
        self.note(f"{word} subquery")
        return expression("boolean", "(", self.any(type, depth, scope), f" {self.chance.choice(COMPARISONS)} {word} (", self.queries.of_types([type], depth, scope), "))")

    # Aggregates and windows

    def aggregate(self, type, depth, scope):
        """Returns an aggregate of this type, or a function of aggregates."""
        table = self.aggregates.get(type)
        if not table:
            return self.function(type, depth, scope)
        inner = replace(scope.grouped, subqueries=scope.grouped.subqueries and self.maybe(0.2))
        template, arguments = self.chance.choice(table)
        distinct = self.maybe(0.25)
        self.note("aggregate " + template.split("(")[0] + (" distinct" if distinct and "{d}" in template else ""))
        made = self.filled(type, template.replace("{d}", "distinct " if distinct else ""), arguments, min(depth, 2), inner)
        if self.maybe(0.2):
            self.note("filter")
            return expression(type, made, option(" filter (where ", self.any("boolean", 2, inner), ")"))
        return made

    def window(self, type, depth, scope):
        """Returns a window function of this type."""
        inner = replace(scope, windows=False, subqueries=scope.subqueries and self.maybe(0.1))
        ranked, plain_ones = self.ranked.get(type, []), self.aggregates.get(type, [])
        plain_ones = [(template, arguments) for template, arguments in plain_ones if "order by" not in template]
        # Equal rows have no order, and two windows may number them differently. So there may be only one of
        # these functions.
        if not scope.unique and scope.rowwise:
            ranked, plain_ones = [], [each for each in plain_ones if each[0].split("(")[0] in PEERS_ALIKE]
        if not ranked and not plain_ones:
            return self.function(type, depth, replace(scope, windows=False))
        if plain_ones and (not ranked or self.maybe(0.5)):
            template, arguments = self.chance.choice(plain_ones)
            template = template.replace("{d}", "")
        else:
            template, arguments = self.chance.choice(ranked)
        if "ntile({0})" in template or ", {1})" in template:
            inner = replace(inner, columns=[]) if self.maybe(0.5) else inner
        self.note("window " + template.split("(")[0])
        call = self.filled(type, template, arguments, 2, inner)
        return expression(type, call, " over (", *self.window_clauses(template, inner), ")")

    def window_clauses(self, template, scope):
        """Returns PARTITION BY, an ORDER BY that determines the order, and a frame."""
        partition = option("partition by ", members([self.any(self.compared_type(scope), 1, scope) for _ in range(self.chance.choice([1, 1, 2]))]), " ") if self.maybe(0.5) else ""
        peers_alike = template.split("(")[0] in PEERS_ALIKE
        if peers_alike and self.maybe(0.3):
            return [partition]
        direction = lambda: self.chance.choice(["", "", " desc", " asc nulls first", " desc nulls last"])  # noqa: E731
        if peers_alike and (self.maybe(0.6) or (scope.rowwise and not scope.unique)):
            type = self.compared_type(scope)
            order = ["order by ", self.any(type, 1, scope), direction()]
            return [partition, *order, self.frame(scope, type, decided=False)]
        scope.rowwise.append(template)
        keys = [plain(name, direction()) for name in scope.decides] or [plain("1")]
        self.chance.shuffle(keys)
        return [partition, "order by ", members(keys, ", ", len(keys)), self.frame(scope, None, decided=bool(scope.decides))]

    def frame(self, scope, type, decided):
        if self.maybe(0.4):
            return ""
        if decided:
            mode = self.chance.choice(["rows", "rows", "groups"])
        else:
            mode = self.chance.choice(["range", "groups"])
        self.note(f"frame {mode}")
        offset = self.offset(mode, type, scope)
        starts = ["unbounded preceding", "current row"] + ([plain(offset, " preceding")] if offset else [])
        ends = ["unbounded following", "current row"] + ([plain(self.offset(mode, type, scope), " following")] if offset else [])
        if self.maybe(0.2):
            return option(f" {mode} ", self.chance.choice(starts))
        exclude = self.chance.choice(["", "", "", " exclude current row", " exclude ties", " exclude group"]) if self.maybe(0.5) else ""
        return option(f" {mode} between ", self.chance.choice(starts), " and ", self.chance.choice(ends), exclude)

    def offset(self, mode, type, scope):
        """Returns the offset of a frame's end, or None if the end has no offset."""
        if mode == "range":
            if type in ("integer", "bigint", "smallint", "numeric"):
                return expression("integer", self.chance.choice(["1", "2", "0"]))
            return expression("interval", "interval '1 day'") if type in ("timestamp", "date", "timestamptz") else None
        if scope.subqueries and self.maybe(0.5):
            self.note("subquery in a frame")
            return expression("integer", "(select ", self.chance.choice(["1", "2", "count(*)"]), ")")
        return expression("integer", self.chance.choice(["1", "2", "0", "3"]))


def is_orderable(type):
    return type not in sql_values.UNORDERED


__all__ = ["Expressions", "Scope", "Node", "is_orderable"]
