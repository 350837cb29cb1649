"""Makes random schemas and their rows: tables with keys, indexes, partitions and views, as statements that
make them anew.

A data set can be made smaller, by tables, views, indexes, columns and rows. This module does not know
servers.
"""

import re
from dataclasses import dataclass, field

from . import sql_values
from .sql_queries import Relation
from .sql_tree import render

LETTERS = {
    "integer": "i", "bigint": "b", "smallint": "s", "text": "t", "character varying(5)": "v", "character(3)": "c", "boolean": "p", "double precision": "f",
    "real": "r", "numeric(8,2)": "m", "numeric": "n", "date": "d", "timestamp": "ts", "timestamptz": "tz", "time": "ti", "interval": "iv", "uuid": "u",
    "bytea": "by", "json": "j", "integer[]": "ai", "text[]": "at",
}  # fmt: skip


@dataclass
class Table:
    """A table: columns as (name, type, rest of the definition), rows as lists of texts, and further
    statements about the table."""

    name: str
    columns: list
    key: list = field(default_factory=list)
    unique: set = field(default_factory=set)
    rows: list = field(default_factory=list)
    partitions: list = field(default_factory=list)
    extras: list = field(default_factory=list)

    def statements(self, backwards=False):
        definitions = [f"{name} {type}{rest}" for name, type, rest in self.columns]
        if self.key:
            definitions.append(f"primary key ({', '.join(self.key)})")
        by = self.partitions[0] if self.partitions else ""
        made = [f"create table {self.name} ({', '.join(definitions)}){by}", *self.partitions[1:]]
        rows = list(reversed(self.rows)) if backwards else self.rows
        for at in range(0, len(rows), 200):
            made.append(f"insert into {self.name} values {', '.join(self.row_text(row) for row in rows[at : at + 200])}")
        return made + self.extras

    def row_text(self, row):
        return f"({', '.join('null' if value is None else sql_values.quoted(value) for value in row)})"

    def relation(self):
        return Relation(self.name, [(name, type) for name, type, _ in self.columns], list(self.key), len(self.rows) > 100)


@dataclass
class Dataset:
    """Tables, views as (name, tree, columns), and the session's settings."""

    tables: list
    views: list = field(default_factory=list)
    settings: list = field(default_factory=list)

    def statements(self, backwards=False):
        made = [statement for table in self.tables for statement in table.statements(backwards)]
        return self.settings + made + [f"create view {name} as {render(node)}" for name, node, _ in self.views]

    def relations(self):
        return [table.relation() for table in self.tables] + [Relation(name, columns) for name, _, columns in self.views]

    def smaller(self, used):
        """Returns ways to make the data set smaller: functions that change it and return a function that
        undoes the change. `used` is the text that needs the data set."""
        for table in list(self.tables):
            yield lambda table=table: removed(self.tables, table)
        for view in list(self.views):
            yield lambda view=view: removed(self.views, view)
        for table in list(self.tables):
            for extra in list(table.extras):
                yield lambda table=table, extra=extra: removed(table.extras, extra)
            if table.partitions:
                yield lambda table=table: emptied(table, "partitions", [])
            yield from fewer_rows(table)
            for name, _, _ in list(table.columns):
                if not re.search(rf"\b{name}\b", used) and name not in table.key:
                    yield lambda table=table, name=name: without_column(table, name)
            if table.key:
                yield lambda table=table: emptied(table, "key", [])
        for setting in list(self.settings):
            yield lambda setting=setting: removed(self.settings, setting)


def removed(held, member):
    if member not in held:
        return None
    at = held.index(member)
    held.pop(at)
    return lambda: held.insert(at, member)


def emptied(table, name, value):
    before = getattr(table, name)
    setattr(table, name, value)
    return lambda: setattr(table, name, before)


def fewer_rows(table):
    size = len(table.rows) // 2
    while size >= 1:
        for begin in range(0, len(table.rows), size):
            rows = table.rows[begin : begin + size]
            yield lambda rows=rows: emptied(table, "rows", [row for row in table.rows if not any(row is each for each in rows)]) if rows else None
        size //= 2


def without_column(table, name):
    at = [each for each, _, _ in table.columns].index(name)
    if any(re.search(rf"\b{name}\b", text) for text in table.extras + table.partitions) or len(table.columns) == 1:
        return None
    columns, rows = table.columns, table.rows
    table.columns = columns[:at] + columns[at + 1 :]
    table.rows = [row[:at] + row[at + 1 :] for row in rows]

    def back():
        table.columns, table.rows = columns, rows

    return back


class Datasets:
    """Makes data sets."""

    def __init__(self, chance, values):
        self.chance, self.values = chance, values

    def maybe(self, share):
        return self.chance.random() < share

    def make(self):
        self.values.extremes = self.chance.choice([0, 0, 0.02, 0.15])
        self.values.nulls = self.chance.choice([0.05, 0.15, 0.4])
        tables = [self.table(f"t{at}") for at in range(self.chance.choice([2, 3, 4, 5]))]
        zone = self.chance.choice(["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata"])
        return Dataset(tables, settings=[f"set timezone = '{zone}'"])

    def table(self, name):
        types = self.chance.choices(list(sql_values.COLUMN_TYPES), list(sql_values.COLUMN_TYPES.values()), k=self.chance.choice([1, 2, 3, 4, 6, 9]))
        made = Table(name, [("id", self.chance.choice(["integer", "integer", "integer", "bigint"]), "")] if self.maybe(0.85) else [])
        for type in types:
            number = sum(1 for _, each, _ in made.columns if each == type)
            made.columns.append((f"{LETTERS[type]}{number}", type, " not null" if self.maybe(0.15) else ""))
        if made.columns[0][0] == "id" and self.maybe(0.85):
            made.key = ["id"]
            second = made.columns[1]
            if self.maybe(0.15) and second[1] in ("integer", "text", "date", "bigint"):
                made.columns[1] = (second[0], second[1], " not null")
                made.key = [second[0], "id"] if self.maybe(0.5) else ["id", second[0]]
        if made.key and made.key[0] == "id" and self.maybe(0.12):
            made.partitions = self.partitions(name)
        self.fill(made)
        self.indexes(made)
        return made

    def partitions(self, name):
        if self.maybe(0.5):
            return [" partition by hash (id)", *(f"create table {name}_{at} partition of {name} for values with (modulus 3, remainder {at})" for at in range(3))]
        return [
            " partition by range (id)",
            f"create table {name}_a partition of {name} for values from (minvalue) to (4)",
            f"create table {name}_b partition of {name} for values from (4) to (9)",
            f"create table {name}_c partition of {name} default",
        ]

    def fill(self, table):
        count = self.chance.choices([0, 1, 3, 6, 10, 30, 100], [4, 8, 20, 34, 25, 8, 1])[0]
        ids = self.chance.sample(range(1, count * 2 + 1), count)
        for at in range(count):
            row = []
            for name, type, rest in table.columns:
                row.append(str(ids[at]) if name == "id" else self.values.value(type, null_too=not rest))
            table.rows.append(row)

    def indexes(self, table):
        plain_ones = [name for name, type, _ in table.columns if type not in ("json",) and not type.endswith("[]")]
        for at in range(self.chance.choice([0, 1, 1, 2])):
            if not plain_ones:
                return
            names = self.chance.sample(plain_ones, min(len(plain_ones), self.chance.choice([1, 1, 2])))
            distinct = len({tuple(row) for row in self.only(table, names)}) == len(table.rows) and not any(None in row for row in self.only(table, names))
            unique = "unique " if distinct and not table.partitions and self.maybe(0.5) else ""
            if unique:
                table.unique.update(names)
            table.extras.append(f"create {unique}index on {table.name} ({', '.join(names)})")
        if table.rows and "id" in [name for name, _, _ in table.columns] and self.maybe(0.3):
            table.extras.append(f"delete from {table.name} where id % 7 = {self.chance.randrange(7)}")
        if self.maybe(0.2):
            table.extras.append(f"analyze {table.name}")

    def only(self, table, names):
        places = [at for at, (name, _, _) in enumerate(table.columns) if name in names]
        return [[row[at].strip().lower() if row[at] else row[at] for at in places] for row in table.rows]

    def add_views(self, dataset, queries):
        """Adds views over the existing tables. Each name of a column is in a view only once."""
        for at in range(self.chance.choice([0, 1, 2])):
            made = queries.select(1, None, names=True)
            dataset.views.append((f"v{at}", made.node, made.columns))
