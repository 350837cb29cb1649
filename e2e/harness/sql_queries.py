"""Makes random queries over the tables and views of a data set: FROM, grouping, windows, set operations,
WITH, order and LIMIT.

Invariants
1. Where LIMIT, OFFSET or DISTINCT ON choose rows, all output columns are ordered by, so that the choice is the same on every server.
2. A query knows its output columns and by which of them its rows are ordered (`ordered`).

This module does not know servers, or how expressions are made.
"""

from dataclasses import dataclass, field, replace

from . import sql_values
from .sql_expressions import Scope, is_orderable
from .sql_tree import FROM, QUERY, Node, expression, members, option, plain, render

SCALAR_TYPES = ["integer", "integer", "integer", "bigint", "text", "text", "numeric", "double precision", "boolean", "date", "timestamp", "interval", "timestamptz",
                "smallint", "time", "integer[]", "json", "uuid", "bytea", "real", "text[]"]  # fmt: skip


@dataclass
class Relation:
    """A table, a view or a subquery in FROM: its columns, and those columns that distinguish its rows."""

    name: str
    columns: list
    key: list = field(default_factory=list)
    large: bool = False


@dataclass
class Item:
    """An entry of FROM under its alias. `filled` are the aliases whose columns an outer join may fill with NULLs."""

    node: Node
    aliases: dict
    comma: bool = False
    filled: frozenset = frozenset()

    def columns(self):
        return [(f"{alias}.{name}", type) for alias, relation in self.aliases.items() for name, type in relation.columns]

    def has_keys(self):
        return all(relation.key for relation in self.aliases.values())

    def decides(self):
        """Returns the columns that distinguish the rows, or all columns if no key does."""
        found = []
        for alias, relation in self.aliases.items():
            names = relation.key or [name for name, type in relation.columns if is_orderable(type)]
            found += [f"{alias}.{name}" for name in names]
        return found


@dataclass
class Made:
    """A query with its output. `ordered` are the numbers (from 1) of the columns by which its rows are
    ordered, in order."""

    node: Node
    columns: list
    ordered: list = field(default_factory=list)


class Queries:
    """Makes queries over `relations`."""

    def __init__(self, chance, expressions, relations):
        self.chance, self.x, self.relations = chance, expressions, relations
        self.with_names = []
        self.aliases = 0
        expressions.queries = self

    def maybe(self, share):
        return self.chance.random() < share

    def note(self, feature):
        self.x.note(feature)

    def alias(self, letter="r"):
        self.aliases += 1
        return f"{letter}{self.aliases}"

    # FROM

    def source(self, depth, outer):
        """Returns one entry of FROM."""
        roll = self.chance.random()
        if depth > 0 and roll < 0.12:
            return self.derived(depth, outer, lateral=False)
        if roll < 0.17:
            return self.values_list(outer)
        if roll < 0.22:
            return self.set_function(outer)
        if self.with_names and roll < 0.4:
            return self.named(self.chance.choice(self.with_names))
        return self.named(self.chance.choice(self.relations))

    def named(self, relation):
        alias = self.alias("t")
        if self.maybe(0.08):
            self.note("column aliases")
            renamed = replace(relation, columns=[(f"z{at}", type) for at, (_, type) in enumerate(relation.columns)], key=[])
            return Item(Node(FROM, f"{relation.name} as {alias}({', '.join(name for name, _ in renamed.columns)})"), {alias: renamed})
        return Item(Node(FROM, f"{relation.name} {alias}"), {alias: relation})

    def derived(self, depth, outer, lateral):
        """Returns a subquery in FROM. If it is lateral, it may read the columns of `outer`."""
        made = self.select(depth - 1, outer if lateral else outer.outer, names=True)
        alias = self.alias("s")
        self.note("lateral" if lateral else "derived table")
        node = Node(FROM, "lateral (" if lateral else "(", made.node, f") {alias}")
        return Item(node, {alias: Relation(alias, made.columns)})

    def values_list(self, outer):
        self.note("values in from")
        alias = self.alias("v")
        types = [self.chance.choice(SCALAR_TYPES) for _ in range(self.chance.choice([1, 2, 3]))]
        node, columns = self.values_rows(types, outer, self.chance.choice([1, 2, 3]))
        names = [f"c{at}" for at in range(len(columns))]
        return Item(Node(FROM, "(", node, f") {alias}({', '.join(names)})"), {alias: Relation(alias, list(zip(names, types)))})

    def values_rows(self, types, outer, count):
        scope = Scope(outer=outer, subqueries=False)
        rows = []
        for _ in range(count):
            made = [self.x.any(type, 1, replace(scope, outer=None)) for type in types]
            rows.append(plain("(", *(piece for each, type in zip(made, types) for piece in (f"cast(", each, f" as {type}), ")), ")"))
            rows[-1].parts[-2] = f" as {types[-1]})"
        return plain("values ", members(rows)), types

    def set_function(self, outer):
        alias = self.alias("f")
        scope = Scope(outer=outer.outer, subqueries=False)
        choice = self.chance.randrange(8)
        if choice <= 2:
            self.note("generate_series")
            step = self.chance.choice(["", ", 2", ", -1"])
            first = self.chance.choice(["0", "1", "3"])
            if self.maybe(0.1):
                self.note("subquery in a function in from")
                first = plain("(select ", first, f" from {self.chance.choice(self.relations).name} limit 1)")
            node = Node(FROM, "generate_series(", first, f", {self.chance.choice(['3', '5', '-2', '20'])}{step}) {alias}(n)")
            return Item(node, {alias: Relation(alias, [("n", "integer")])})
        if choice <= 4:
            self.note("unnest")
            type = self.chance.choice(["integer[]", "text[]"])
            node = Node(FROM, "unnest(", self.x.any(type, 1, scope), f") with ordinality {alias}(e, o)")
            return Item(node, {alias: Relation(alias, [("e", sql_values.ELEMENTS[type]), ("o", "bigint")], ["o"])})
        if choice == 5:
            self.note("generate_series of timestamps")
            node = Node(FROM, f"generate_series(timestamp '2024-01-30', timestamp '2024-03-02', interval '{self.chance.choice(['1 mon', '10 days', '36 hours'])}') {alias}(n)")
            return Item(node, {alias: Relation(alias, [("n", "timestamp")])})
        if choice == 6:
            self.note("json_array_elements")
            node = Node(FROM, "json_array_elements", self.chance.choice(["", "_text"]), f"('[1, \"a\", null, {{\"b\": 2}}]') {alias}(j)")
            return Item(node, {alias: Relation(alias, [("j", "json" if node.parts[1] == "" else "text")])})
        self.note("string_to_table")
        function = self.chance.choice(["string_to_table(", "regexp_split_to_table("])
        return Item(Node(FROM, function, self.x.any("text", 1, scope), f", 'b') {alias}(w)"), {alias: Relation(alias, [("w", "text")])})

    def joined(self, depth, outer):
        """Returns a FROM of one entry, or of several joined entries."""
        item = self.source(depth, Scope(outer=outer))
        for _ in range(self.chance.choices([0, 1, 2, 3], [35, 40, 18, 7])[0] if depth > 0 else self.maybe(0.25)):
            item = self.join(item, depth, outer)
        return item

    def join(self, left, depth, outer):
        # A comma binds less than JOIN, so the condition of a JOIN after the comma could not name the entries
        # before it.
        words = {"join": 30, "left join": 30, "right join": 10, "full join": 12, "cross join": 5, "natural": 3, ",": 10}
        word = "," if left.comma else self.chance.choices(list(words), list(words.values()))[0]
        right = self.right_side(left, word, depth, outer)
        both = {**left.aliases, **right.aliases}
        simple = len(left.aliases) == len(right.aliases) == 1
        if word == "natural":
            word = self.chance.choice(["natural join", "natural left join", "natural full join"]) if simple else "cross join"
        self.note(word if word != "," else "comma join")
        filled = left.filled | right.filled
        filled |= frozenset(right.aliases if "left" in word or "full" in word else ())
        filled |= frozenset(left.aliases if "right" in word or "full" in word else ())
        if word == ",":
            return Item(Node(FROM, left.node, ", ", right.node), both, True, filled)
        if word == "cross join" or word.startswith("natural"):
            return Item(Node(FROM, left.node, f" {word} ", right.node), both, False, filled)
        common = sorted({name for name, _ in left_columns(left)} & {name for name, _ in left_columns(right)})
        if common and simple and self.maybe(0.15):
            self.note("using")
            some = self.chance.sample(common, min(len(common), self.chance.choice([1, 1, 2])))
            return Item(Node(FROM, left.node, f" {word} ", right.node, f" using ({', '.join(some)})"), both, False, filled)
        node = Node(FROM, left.node, f" {word} ", right.node, " on ", self.join_condition(left, right, word, depth, outer))
        return Item(node, both, False, filled)

    def right_side(self, left, word, depth, outer):
        """Returns the right side of a join: a lateral subquery, joins in parentheses, or a source."""
        if depth > 0 and word in ("join", "left join", ",", "cross join") and self.maybe(0.2):
            return self.derived(depth, Scope(left.columns(), outer), lateral=True)
        if depth > 0 and self.maybe(0.1):
            inner = self.join(self.source(depth - 1, Scope(outer=outer)), depth - 1, outer)
            if not inner.comma and len(inner.aliases) > 1:
                self.note("joins in parentheses")
                return Item(Node(FROM, "(", inner.node, ")"), inner.aliases, False, inner.filled)
        return self.source(depth, Scope(outer=outer))

    def join_condition(self, left, right, word, depth, outer):
        """Returns a join condition: mostly an equality of two columns, and perhaps further conditions."""
        both = Scope(left.columns() + right.columns(), outer, subqueries=self.maybe(0.25))
        parts = []
        if self.maybe(0.8) or word == "full join":
            pairs = [(a, b) for a, t in left.columns() for b, u in right.columns() if t == u and t != "json"]
            if pairs:
                for a, b in [self.chance.choice(pairs) for _ in range(self.chance.choice([1, 1, 1, 2]))]:
                    parts.append(expression("boolean", a, " = ", b))
        filled = self.columns_filled(left) + self.columns_filled(right)
        if filled and self.maybe(0.15):
            parts.append(self.x.about_nulls(filled, replace(both, subqueries=False)))
        if not parts or self.maybe(0.3):
            parts.append(self.x.any("boolean", self.chance.choice([1, 2]), both))
        if self.maybe(0.04):
            parts = [expression("boolean", self.chance.choice(["true", "false", "null"]))]
        return expression("boolean", "(", members(parts, " and "), ")")

    # SELECT

    def select(self, depth, outer, types=None, names=False, top=False):
        """Returns a query of one SELECT, or of several by set operations. `types` are the wanted types of its
        output, if any."""
        if depth > 0 and self.maybe(0.12):
            return self.set_operation(depth, outer, types, names)
        return self.block(depth, outer, types, names, top)

    def outputs(self, types, depth, scope, names):
        """Returns the select list: nodes, and columns as (name, type)."""
        wanted = types or self.wanted_types(scope)
        made, columns = [], []
        for at, type in enumerate(wanted):
            name = f"c{at}"
            made.append(plain(self.x.any(type, depth, scope), f" as {name}" if names or self.maybe(0.8) else ""))
            columns.append((name, type))
        return made, columns

    def wanted_types(self, scope):
        """Returns types of a select list, mostly those of columns in scope."""
        held = [type for _, type in (scope.grouped or scope).columns] or SCALAR_TYPES
        return [self.chance.choice(held if self.maybe(0.6) else SCALAR_TYPES) for _ in range(self.chance.choices([1, 2, 3, 4, 6], [20, 35, 25, 15, 5])[0])]

    def block(self, depth, outer, types, names, top):
        """Returns one SELECT with all its clauses."""
        item = self.joined(depth, outer) if self.maybe(0.93) else None
        scope = Scope(item.columns() if item else [], outer, decides=item.decides() if item else [])
        scope.unique = bool(item) and item.has_keys()
        scope.subqueries = depth > 0
        where = self.where(scope, self.columns_filled(item)) if self.maybe(0.5) else ""
        mode = self.chance.choices(["plain", "aggregate", "group", "windows"], [50, 15, 25, 12 if item else 0])[0]
        grouping, having = "", ""
        if mode == "aggregate":
            self.note("aggregate without group by")
            scope = Scope([], outer, grouped=scope, subqueries=depth > 0)
        elif mode == "group":
            grouping, scope = self.grouping(depth, scope)
        elif mode == "windows":
            scope.windows = True
        if mode in ("aggregate", "group") and self.maybe(0.3):
            self.note("having")
            having = option(" having ", self.x.any("boolean", 2, scope))
        made, columns = self.outputs(types, self.chance.choice([1, 2, 2, 3]) if depth > 0 else 1, scope, names)
        if mode == "group" and types is None and self.maybe(0.7):
            for name, type in scope.columns:
                made.append(plain(name, f" as c{len(columns)}"))
                columns.append((f"c{len(columns)}", type))
        distinct, tail, ordered = self.tail(columns, scope, top)
        source = option(" from ", item.node) if item else ""
        node = Node(QUERY, "select ", distinct, members(made), source, where, grouping, having, tail, type=signature(columns))
        return Made(node, columns, ordered)

    @staticmethod
    def columns_filled(item):
        """Returns the columns that an outer join of this FROM may fill with NULLs."""
        columns = item.columns() if item else []
        return [(name, type) for name, type in columns if name.split(".")[0] in item.filled and type != "json"]

    def where(self, scope, filled=()):
        """Returns a condition on rows: any condition, a simple one (most often), or a condition about the
        NULLs of an outer join."""
        if filled and self.maybe(0.4):
            return option(" where ", self.x.about_nulls(filled, scope))
        usable = any(type != "json" for _, type in scope.columns)
        plain_one = usable and self.maybe(0.35)
        return option(" where ", self.x.narrow(scope) if plain_one else self.x.any("boolean", self.chance.choice([1, 2, 3]), scope))

    def grouping(self, depth, scope):
        """Returns GROUP BY with one to three expressions, and the scope after it."""
        count = self.chance.choice([1, 1, 2, 3])
        inner = replace(scope, subqueries=scope.subqueries and self.maybe(0.1))
        keys, computed = [], False
        for _ in range(count):
            type = self.x.compared_type(scope)
            is_plain = self.maybe(0.7)
            key = self.x.column_or_literal(type, scope) if is_plain else self.x.any(type, 2, inner)
            computed = computed or not is_plain or is_literal(key)
            if is_literal(key):
                key = expression(type, "cast(", key, f" as {type})")
            fix(key)
            keys.append((key, type))
        form = self.chance.choices(["", "rollup", "cube", "sets"], [75, 8, 6, 11])[0]
        # If PostgreSQL 15 finds a key to be constant, it treats it as equal in all grouping sets.
        if computed:
            form = ""
        self.note("group by" if not form else f"grouping {form}")
        nodes = [plain("(", key, ")") for key, _ in keys]
        if form in ("rollup", "cube"):
            clause = option(f" group by {form} (", members(nodes), ")")
        elif form == "sets":
            sets = [plain("(", members(self.chance.sample(nodes, self.chance.randrange(len(nodes) + 1)), ", ", 0), ")") for _ in range(self.chance.choice([1, 2, 3]))]
            sets.append(plain("(", members(nodes), ")"))
            clause = option(" group by grouping sets (", members(sets), ")")
        else:
            clause = option(" group by ", members(nodes))
        columns = [(plain("(", key, ")"), type) for key, type in keys]
        return clause, Scope(columns, scope.outer, grouped=scope, subqueries=depth > 0)

    def tail(self, columns, scope, top):
        """Returns (DISTINCT, ORDER BY with LIMIT, the columns of ORDER BY)."""
        orderable = all(is_orderable(type) for _, type in columns)
        distinct = ""
        every = list(range(1, len(columns) + 1))
        if orderable and self.maybe(0.12):
            self.note("distinct")
            distinct = option("distinct ")
        if orderable and self.maybe(0.12 if not top else 0.35):
            self.chance.shuffle(every)
            clause = [" order by ", ", ".join(f"{at}{self.chance.choice(['', '', ' desc', ' nulls first', ' desc nulls last'])}" for at in every)]
            return distinct, plain(option(*clause, self.limit(ties=True)) if self.maybe(0.6) else option(*clause)), every
        if top and orderable and self.maybe(0.2):
            some = self.chance.sample(every, self.chance.randrange(1, len(every) + 1))
            # Which rows are ties of the last row does not depend on an order among them.
            return distinct, option(" order by ", ", ".join(map(str, some)), self.ties() if self.maybe(0.3) else ""), some
        return distinct, "", []

    def ties(self):
        self.note("with ties")
        # There is no OFFSET, because it depends on the order of ties which of them it leaves out.
        return option(f" fetch first {self.chance.choice(['0', '1', '2', '3'])} rows with ties")

    def limit(self, ties=False):
        if ties and self.maybe(0.15):
            return self.ties()
        self.note("limit")
        count = self.chance.choice(["0", "1", "2", "3", "3", "10", "10"])
        skipped = self.chance.choice(["1", "2", "0"])
        limit = self.chance.choice([f" limit {count}", f" limit {count} offset {skipped}", f" offset {skipped}", f" fetch first {count} rows only", f" limit {count}", " limit all"])
        if self.maybe(0.08):
            self.note("subquery in limit")
            some = self.chance.choice(self.relations).name
            limit = self.chance.choice([" limit (select 2)", f" limit (select count(*) from {some})", f" limit 2 offset (select count(*) / 2 from {some})", " limit (select null::bigint)"])
        return option(limit)

    def distinct_on(self, depth, outer):
        """Returns DISTINCT ON with the first output columns. The query is ordered by all of them."""
        self.note("distinct on")
        item = self.joined(depth, outer)
        scope = Scope(item.columns(), outer, subqueries=depth > 0)
        types = [self.x.compared_type(scope) for _ in range(self.chance.choice([2, 3]))]
        made, columns = self.outputs([type if is_orderable(type) else "text" for type in types], 1, scope, True)
        node = Node(QUERY, "select distinct on (1) ", members(made, ", ", len(made)), " from ", item.node, " order by ", ", ".join(str(at + 1) for at in range(len(made))), type=signature(columns))
        return Made(node, columns, list(range(1, len(made) + 1)))

    def set_operation(self, depth, outer, types, names):
        wanted = types or [self.chance.choice(SCALAR_TYPES[:13]) for _ in range(self.chance.choice([1, 2, 3]))]
        word = self.chance.choice(["union", "union all", "union all", "intersect", "except", "intersect all", "except all"])
        if any(not is_orderable(type) for type in wanted):
            word = "union all"
        self.note(word)
        left, right = (self.select(depth - 1, outer, wanted, names=True) for _ in range(2))
        columns = [(f"c{at}", type) for at, type in enumerate(wanted)]
        parts = ["(", left.node, f") {word} (", right.node, ")"]
        if all(is_orderable(type) for type in wanted) and self.maybe(0.2):
            every = ", ".join(str(at + 1) for at in range(len(wanted)))
            return Made(Node(QUERY, *parts, option(f" order by {every}", self.limit()), type=signature(columns)), columns, list(range(1, len(wanted) + 1)))
        return Made(Node(QUERY, *parts, type=signature(columns)), columns)

    # Subqueries of expressions

    def scalar(self, type, depth, outer):
        """Returns a query of one column and, mostly, at most one row."""
        roll = self.chance.random()
        outer = outward(outer)
        item = self.joined(min(depth, 1), outer)
        scope = Scope(item.columns(), outer, subqueries=depth > 1)
        where = option(" where ", self.correlated(scope, outer)) if self.maybe(0.7) else ""
        if roll < 0.6:
            grouped = Scope([], outer, grouped=scope, subqueries=False)
            made = self.x.aggregate(type, 1, grouped)
            having = option(" having ", self.x.any("boolean", 1, grouped)) if self.maybe(0.1) else ""
            return Node(QUERY, "select ", made, " from ", item.node, where, having, type=type)
        made = self.x.any(type, 1, scope)
        if roll < 0.93 and is_orderable(type):
            return Node(QUERY, "select ", made, " from ", item.node, where, " order by 1 limit 1", type=type)
        return Node(QUERY, "select ", self.x.any(type, 1, outer), type=type) if self.maybe(0.7) else Node(QUERY, "select ", made, " from ", item.node, where, type=type)

    def correlated(self, scope, outer):
        """Returns a condition. Mostly it compares a column of the subquery with a column of the outer
        query."""
        around = [each for level in levels(outer) for each in level.columns if isinstance(each[0], str)]
        pairs = [(a, b) for a, t in scope.columns for b, u in around if t == u and t != "json"]
        if pairs and self.maybe(0.65):
            self.note("correlated subquery")
            a, b = self.chance.choice(pairs)
            compared = expression("boolean", "(", a, f" {self.chance.choice(['=', '=', '=', '<', '>=', '<>'])} ", b, ")")
            if self.maybe(0.3):
                return expression("boolean", "(", members([compared, self.x.any("boolean", 1, scope)], self.chance.choice([" and ", " or "])), ")")
            return compared
        return self.x.any("boolean", 2, scope)

    def existing(self, depth, outer):
        outer = outward(outer)
        item = self.joined(min(depth, 1), outer)
        scope = Scope(item.columns(), outer, subqueries=depth > 1)
        where = option(" where ", self.correlated(scope, outer)) if self.maybe(0.8) else ""
        if self.maybe(0.15):
            grouped = Scope([], outer, grouped=scope, subqueries=False)
            return Node(QUERY, "select count(*) from ", item.node, where, option(" having ", self.x.any("boolean", 1, grouped)), type="exists")
        return Node(QUERY, f"select {self.chance.choice(['1', '*', 'null'])} from ", item.node, where, type="exists")

    def of_types(self, types, depth, outer):
        """Returns a query with these output columns."""
        outer = outward(outer)
        if self.maybe(0.25):
            return self.select(min(depth, 1), outer, types).node
        item = self.joined(min(depth, 1), outer)
        scope = Scope(item.columns(), outer, subqueries=depth > 1)
        made = [self.x.column_or_literal(type, scope) if self.maybe(0.6) else self.x.any(type, 1, scope) for type in types]
        where = option(" where ", self.correlated(scope, outer)) if self.maybe(0.6) else ""
        return Node(QUERY, "select ", members(made, ", ", len(made)), " from ", item.node, where, type=signature([(None, type) for type in types]))

    # Whole statements

    def statement(self, depth):
        """Returns a query as a statement."""
        roll = self.chance.random()
        if roll < 0.05:
            return self.distinct_on(depth, None)
        if roll < 0.13:
            return self.with_queries(depth)
        if roll < 0.15:
            self.note("values")
            types = [self.chance.choice(SCALAR_TYPES) for _ in range(2)]
            node, _ = self.values_rows(types, None, 3)
            return Made(Node(QUERY, node, type=signature([("column1", types[0]), ("column2", types[1])])), [("column1", types[0]), ("column2", types[1])])
        return self.select(depth, None, top=True)

    def with_queries(self, depth):
        """Returns a WITH of one or two queries, perhaps a recursive one."""
        self.note("with")
        before, parts = list(self.with_names), []
        recursive = self.maybe(0.35)
        for _ in range(self.chance.choice([1, 1, 2])):
            name = self.alias("w")
            if recursive:
                relation, node = self.recursion(name)
            else:
                made = self.select(depth - 1, None, names=True)
                relation = Relation(name, made.columns)
                node = plain(f"{name} as ", self.chance.choice(["", "", "materialized ", "not materialized "]), "(", made.node, ")")
            parts.append(node)
            self.with_names = [*self.with_names, relation]
        main = self.select(depth, None, top=True)
        self.with_names = before
        node = Node(QUERY, "with recursive " if recursive else "with ", members(parts), " ", main.node, type=signature(main.columns))
        return Made(node, main.columns, main.ordered)

    def recursion(self, name):
        """Returns a recursive query that counts, and passes on a value."""
        self.note("with recursive")
        type = self.chance.choice(["integer", "text", "numeric", "boolean"])
        word = self.chance.choice(["union all", "union"])
        first = self.x.any(type, 1, Scope(subqueries=False))
        step = self.x.any(type, 1, Scope([(f"{name}.v", type), (f"{name}.n", "integer")], subqueries=False)) if word == "union" or self.maybe(0.5) else plain(f"{name}.v")
        table = self.chance.choice(self.relations)
        join = f" join {table.name} y on y.{table.key[0]} = {name}.n" if table.key and dict(table.columns).get(table.key[0]) == "integer" and self.maybe(0.4) else ""
        node = plain(f"{name}(n, v) as (select 1, cast(", first, f" as {type}) {word} select {name}.n + 1, cast(", step, f" as {type}) from {name}{join} where {name}.n < 5)")
        return Relation(name, [("n", "integer"), ("v", type)]), node


def left_columns(item):
    return [column for relation in item.aliases.values() for column in relation.columns]


def is_literal(node):
    return len(node.parts) == 1 and not isinstance(node.parts[0], str)


def outward(scope):
    """Returns the scope that subqueries see. Of the expressions of GROUP BY, subqueries can name only plain
    columns."""
    if not scope.grouped:
        return replace(scope, windows=False) if scope.windows else scope
    names = [(key.parts[1].parts[0], type) for key, type in scope.columns if not isinstance(key, str)]
    return replace(scope, columns=[(name, type) for name, type in names if isinstance(name, str) and name.count(".") == 1 and "(" not in name], grouped=None)


def levels(scope):
    while scope is not None:
        yield scope
        scope = scope.outer


def signature(columns):
    return ",".join(type for _, type in columns)


def fix(node):
    """Makes the literals of an expression that is used at two places the same text at both, and never a
    parameter."""
    from .sql_tree import literals

    for each in literals(node):
        each.fixed = True
