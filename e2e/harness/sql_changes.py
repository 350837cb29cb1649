"""Makes random changes of tables: INSERT, UPDATE, DELETE in all their forms, with RETURNING.

Invariants
1. The effect of a change does not depend on an order that a server may choose. For example, a row of UPDATE
   ... FROM meets only one row, and new keys differ from existing keys.

This module does not know servers, or how queries are made.
"""

from . import sql_values
from .sql_expressions import Scope
from .sql_queries import Item, Made
from .sql_tree import FROM, QUERY, Node, members, option, plain


class Changes:
    """Makes changes of the tables of a data set."""

    def __init__(self, chance, expressions, queries, tables):
        self.chance, self.x, self.queries, self.tables = chance, expressions, queries, tables

    def maybe(self, share):
        return self.chance.random() < share

    def statement(self):
        """Returns (a change, the table's name)."""
        table = self.chance.choice(self.tables)
        make = self.chance.choice([self.insert, self.insert, self.update, self.update, self.delete])
        return make(table), table.name

    def scope(self, table, item=None, more=()):
        own = [(f"{table.name}.{name}", type) for name, type, _ in table.columns]
        return Scope(own + (item.columns() if item else []) + list(more))

    def returning(self, table, scope):
        """Returns (the clause, the columns)."""
        if not self.maybe(0.5):
            return "", []
        self.x.note("returning")
        if self.maybe(0.3):
            names = [(name, type) for name, type, _ in table.columns]
            return option(f" returning {table.name}.*"), names
        types = [self.x.type_of_some() for _ in range(self.chance.choice([1, 2, 3]))]
        scope.subqueries = self.maybe(0.15)
        made = [plain(self.x.any(type, 1, scope), f" as c{at}") for at, type in enumerate(types)]
        return option(" returning ", members(made)), [(f"c{at}", type) for at, type in enumerate(types)]

    def insert(self, table):
        chosen = [each for each in table.columns if each[0] in table.key or each[2] or self.maybe(0.8)] or table.columns
        targets = ", ".join(name for name, _, _ in chosen)
        conflict = self.on_conflict(table) if self.maybe(0.6) else ""
        source = self.rows_of_values(chosen, bool(conflict)) if self.maybe(0.3) else self.rows_of_query(chosen, table, bool(conflict))
        clause, columns = self.returning(table, self.scope(table))
        self.x.note("insert" if not conflict else "insert on conflict")
        return Made(Node(QUERY, f"insert into {table.name} ({targets}) ", source, conflict, clause, type="change"), columns)

    def rows_of_values(self, chosen, meets):
        # PostgreSQL writes a row before it computes the next one. Varve runs subqueries first, so another
        # error may come first.
        rows = []
        count = self.chance.choice([1, 2, 3])
        for at in range(count):
            values = []
            for name, type, _ in chosen:
                fresh = str(1000 + at) if self.maybe(0.3 if meets else 0.9) else str(1 + at * 2)
                values.append(fresh if name == "id" else "default" if self.maybe(0.05) else self.x.any(type, 1, Scope(subqueries=count == 1 and self.maybe(0.2))))
            rows.append(plain("(", members(values, ", ", len(values)), ")"))
        return plain("values ", members(rows))

    def rows_of_query(self, chosen, table, meets):
        """Returns a SELECT with an order that determines the rows. If rows may meet existing ones, it often
        reads the table itself."""
        self.x.note("insert select")
        item = self.queries.named(table.relation()) if meets and self.maybe(0.6) else self.queries.joined(1, None)
        scope = Scope(item.columns(), None)
        made = []
        for name, type, _ in chosen:
            own = [each for each, other in item.columns() if each.endswith(".id")]
            if name == "id" and own:
                made.append(plain(f"{own[0]}", self.chance.choice(["", "", " + 1"] if meets else [" + 1000", " + 1000", " + 1"])))
            else:
                made.append(plain("cast(", self.x.any(type, 1, scope), f" as {type})"))
        order = ", ".join(str(at + 1) for at, (_, type, _) in enumerate(chosen) if type != "json") or "1"
        where = option(" where ", self.x.any("boolean", 2, scope)) if self.maybe(0.6) else ""
        return plain("select ", members(made, ", ", len(made)), " from ", item.node, where, f" order by {order}", option(" limit ", self.chance.choice(["1", "3"])) if self.maybe(0.5) else "")

    def on_conflict(self, table):
        target = f" ({', '.join(table.key)})" if table.key else ""
        if not target or self.maybe(0.25):
            return option(f" on conflict{target if self.maybe(0.6) else ''} do nothing")
        free = self.free_columns(table)
        if not free:
            return option(" on conflict do nothing")
        excluded = [(f"excluded.{name}", type) for name, type, _ in table.columns]
        scope = self.scope(table, more=excluded)
        scope.subqueries = self.maybe(0.1)
        where = ""
        if self.maybe(0.75):
            plain_one = self.maybe(0.7) and any(type != "json" for _, type in scope.columns)
            where = option(" where ", self.x.narrow(scope) if plain_one else self.x.any("boolean", 2, scope))
        return option(f" on conflict{target} do update set ", self.settings(free, scope), where)

    def free_columns(self, table):
        return [each for each in table.columns if each[0] not in table.key and each[0] not in table.unique]

    def settings(self, free, scope):
        some = self.chance.sample(free, min(len(free), self.chance.choice([1, 1, 2])))
        if len(some) == 2 and self.maybe(0.2):
            made = [self.x.any(type, 2, scope) for _, type, _ in some]
            return plain(f"({some[0][0]}, {some[1][0]}) = (", made[0], ", ", made[1], ")")
        return members([plain(f"{name} = ", "default" if self.maybe(0.03) else self.x.any(type, 2, scope)) for name, type, _ in some])

    def update(self, table):
        item, join = None, ""
        if self.maybe(0.45):
            item, join = self.one_row_each(table)
        scope = self.scope(table, item)
        free = self.free_columns(table)
        if not free or (table.key and self.maybe(0.1)):
            assigned = plain(f"{table.key[0]} = {table.key[0]}") if table.key else plain(f"{table.columns[0][0]} = null")
            if table.key[:1] == ["id"]:
                assigned = plain("id = id + 1000")
        else:
            assigned = self.settings(free, scope)
        self.x.note("update from" if item else "update")
        where = self.where(join, scope)
        clause, columns = self.returning(table, scope)
        return Made(Node(QUERY, f"update {table.name} set ", assigned, plain(" from ", item.node) if item else "", where, clause, type="change"), columns)

    def one_row_each(self, table):
        """Returns (an entry of FROM, the condition under which each row of the table meets at most one row of
        this entry)."""
        own = {type: f"{table.name}.{name}" for name, type, _ in table.columns}
        keyed = [each for each in self.tables if len(each.key) == 1 and dict((n, t) for n, t, _ in each.columns)[each.key[0]] in own]
        if keyed and self.maybe(0.7):
            other = self.chance.choice(keyed)
            item = self.queries.named(other.relation())
            alias, relation = next(iter(item.aliases.items()))
            if relation.key:
                type = dict(relation.columns)[relation.key[0]]
                return item, f"{alias}.{relation.key[0]} = {own[type]}"
        other = self.chance.choice(self.tables)
        name, type, _ = self.chance.choice([each for each in other.columns if each[1] in own and each[1] != "json"] or [(None, None, None)])
        if name is None:
            return None, ""
        self.x.note("update from groups")
        alias = self.queries.alias("g")
        grouped = Scope([], None, grouped=Scope([(f"{other.name}.{n}", t) for n, t, _ in other.columns], subqueries=False), subqueries=False)
        of = self.chance.choice(["bigint", "integer", "text"])
        value = self.x.aggregate(of, 1, grouped)
        from .sql_queries import Relation

        node = Node(FROM, f"(select {name} as k, ", value, f" as a from {other.name} group by {name}) {alias}")
        return Item(node, {alias: Relation(alias, [("k", type), ("a", of)])}), f"{alias}.k = {own[type]}"

    def where(self, join, scope):
        plain_one = not join and self.maybe(0.3) and any(type != "json" for _, type in scope.columns)
        condition = self.x.narrow(scope) if plain_one else self.x.any("boolean", 2, scope) if self.maybe(0.8) else ""
        if join:
            return plain(f" where {join}", option(" and ", condition) if condition else "")
        return option(" where ", condition) if condition else ""

    def delete(self, table):
        item = None
        if self.maybe(0.4):
            item = self.queries.joined(1, None)
        self.x.note("delete using" if item else "delete")
        scope = self.scope(table, item)
        clause, columns = self.returning(table, self.scope(table))
        return Made(Node(QUERY, f"delete from {table.name}", plain(" using ", item.node) if item else "", self.where("", scope), clause, type="change"), columns)


__all__ = ["Changes", "sql_values"]
