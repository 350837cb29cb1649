"""Sends the same statements to two servers, judges the answers, and reduces a case with different answers to
a small one.

A case is a list of statements over a data set, with the way in which they are sent. If a case changes data,
it runs in a transaction that is rolled back. If PostgreSQL itself gives another answer under other plans, or
with its rows in another order, a difference is not a fault.
"""

import copy
import re
import struct
import time
from dataclasses import dataclass, field

from . import answers, engines, exchange, sql_values, wire
from .sql_tree import LIST, Literal, Node, Parameters, literals, render, shrink

SESSION = [
    "set client_min_messages = 'error'",
    "set datestyle = 'ISO, MDY'",
    "set statement_timeout = '4s'",
]
OTHER_PLANS = [
    "set enable_hashjoin = off",
    "set enable_mergejoin = off",
    "set enable_nestloop = off",
    "set enable_hashagg = off",
    "set enable_sort = off",
    "set enable_seqscan = off",
    "set join_collapse_limit = 1; set from_collapse_limit = 1",
    "set enable_material = off; set enable_memoize = off; set enable_hashjoin = off",
]
RECONNECT = "the connection was lost"
FORMS = ["${n}", "${n}::{type}", "${n}::{type}"]


@dataclass
class Case:
    """Statements, each with the columns by which it is ordered. `changed` are tables whose contents are
    compared after the statements. `forms` says how literals are written as parameters. `again` has the values
    with which a prepared statement is executed once more (both by a literal's id). `settings` are those of
    Varve's session."""

    root: Node
    ordered: list
    mode: str = "simple"
    changed: list = field(default_factory=list)
    forms: dict = field(default_factory=dict)
    again: list = field(default_factory=list)
    features: set = field(default_factory=set)
    settings: dict = field(default_factory=dict)

    def statements(self):
        return self.root.parts

    def form(self, literal):
        return self.forms.get(id(literal))

    def parameters(self):
        return Parameters(self.form)

    def more_values(self, parameters):
        """Returns further values for these parameters, a list for each execution."""
        return [[values.get(id(each), each.value) for each in parameters.sent] for values in self.again]

    def text(self):
        return ";\n".join(render(each) for each in self.statements())


class Asker(exchange.Session):
    """A session with separate steps for sending and for receiving, so that two servers work at the same
    time."""

    def ask(self, sql, parameters, mode, again=()):
        """Sends one statement. `parameters` are literals, and `again` has more values for the same prepared
        statement."""
        if mode == "simple":
            self.send(wire.message(b"Q", wire.cstring(sql)))
            return
        declared = [sql_values.OIDS[each.type] if mode == "binary" else 0 for each in parameters]
        parse = b"\0" + wire.cstring(sql) + struct.pack(f"!h{len(declared)}I", len(declared), *declared)
        sent = wire.message(b"P", parse) + wire.message(b"D", b"S\0")
        for values in [[each.value for each in parameters], *again]:
            sent += bound(parameters, values, mode) + wire.message(b"D", b"P\0") + wire.message(b"E", b"\0" + struct.pack("!i", 0))
        self.send(sent + wire.message(b"S"))

    def answer(self):
        return self._gather(None, b"")


def bound(parameters, values, mode):
    """Returns a Bind message with values in binary where they have a binary form."""
    forms = [sql_values.binary(each.type, value) if mode == "binary" and value is not None else None for each, value in zip(parameters, values)]
    body = b"\0\0" + struct.pack(f"!h{len(forms)}h", len(forms), *(int(form is not None) for form in forms)) + struct.pack("!h", len(forms))
    for form, value in zip(forms, values):
        raw = form if form is not None else None if value is None else value.encode()
        body += struct.pack("!i", -1) if raw is None else struct.pack("!i", len(raw)) + raw
    return wire.message(b"B", body + struct.pack("!hh", 1, int(mode in ("binary", "extended"))))


def laid_out(statements, layout):
    """Returns the statements of a data set with this layout of its tables. With `mixed`, every second table
    is PAX. VACUUM FULL writes a filled table again, so that its leaves are built anew."""
    made, names, count = [], [], 0
    for sql in statements:
        plain = re.match(r"create table (\w+) \(.*\)$", sql, re.S)
        if plain and " partition by " not in sql:
            count += 1
            if layout == "mixed" and count % 2 == 0:
                made.append(sql)
                continue
            names.append(plain[1])
            sql += f" with (layout = '{'pax' if layout == 'mixed' else layout}')"
        made.append(sql)
    return made + [f"vacuum full {name}" for name in names]


class Side:
    """One server, with its session on the current data set."""

    def __init__(self, target, schema="q", timeout_s=30, engine=None, settings=(), layout=None):
        self.target, self.schema, self.timeout_s, self.session, self.loaded = target, schema, timeout_s, None, []
        self.engine, self.layout = engine, layout
        self.settings = [f"set {name} = '{value}'" for name, value in settings]
        self.used = {}

    def connect(self):
        self.session = Asker(self.target.port, timeout_s=self.timeout_s)
        for setting in [*SESSION, *self.settings, *self.loaded]:
            self.session.simple(setting)
        self.used = {}

    def use(self, settings):
        """Gives the session these settings and no others of this kind."""
        if self.session is None and settings:
            self.run("select 1")
        if self.session is None or settings == self.used:
            return
        for name in {*self.used, *settings}:
            if self.used.get(name) != settings.get(name):
                self.run(f"set {name} = '{settings[name]}'" if name in settings else f"reset {name}")
        self.used = dict(settings)

    def send(self, sql, *arguments):
        """Sends a statement. Returns how the connection was lost, if it was lost."""
        try:
            if self.session is None:
                self.connect()
            self.session.ask(engines.using(sql, self.engine), *arguments)
        except (wire.ConnectionLost, wire.ServerError, OSError) as error:
            return self.lost(error)
        return None

    def receive(self):
        try:
            return self.session.answer()
        except (wire.ConnectionLost, wire.ServerError, OSError) as error:
            return self.lost(error)

    def lost(self, error):
        self.session = None
        return f"{RECONNECT}: {error}"

    def run(self, sql):
        return self.send(sql, [], "simple") or self.receive()

    def load(self, statements):
        """Makes the data set anew in a schema of its own. Returns the first error."""
        path = f"set search_path = {self.schema}"
        statements = laid_out(statements, self.layout) if self.layout else statements
        settings = [each for each in statements if each.startswith("set ")]
        self.run("rollback")
        self.run(f"drop schema if exists {self.schema} cascade")
        for sql in [f"create schema {self.schema}", path, *statements]:
            outcome = self.run(sql)
            if isinstance(outcome, str) or outcome.error:
                return sql, outcome
        self.loaded = [path, *settings]
        return None


class Judge:
    """Runs cases on both sides over one data set."""

    def __init__(self, ours, peer):
        self.ours, self.peer = ours, peer
        self.twin, self.backwards = (Side(peer.target, schema) for schema in ("q_twin", "q_backwards"))
        # Varve's tables in pages. They show whether only the engine refuses a statement, or Varve itself.
        self.paged = Side(ours.target, "q_paged")
        self.dataset = None
        self.copies_loaded = self.paged_loaded = False

    def refused_by_engine(self, case, refused):
        """Returns whether an engine refuses, without a known reason, a statement that tables in pages
        accept."""
        if not self.ours.engine or engines.refusal("0A000", refused.text):
            return False
        if not self.paged_loaded:
            self.paged.load(self.dataset.statements())
            self.paged_loaded = True
        kept, self.ours = self.ours, self.paged
        try:
            found, _ = self.run(case)
            return found is None or found.kind != "refused"
        finally:
            self.ours = kept

    def load(self, dataset):
        """Makes the data set on both servers. Statements that one server refuses are left out of the data
        set. Returns these statements as (sql, ours, peer)."""
        refused = []
        while True:
            failed = self.ours.load(dataset.statements()) or self.peer.load(dataset.statements())
            if not failed:
                break
            sql, outcome = failed
            refused.append((sql, outcome))
            if not drop_statement(dataset, sql):
                raise RuntimeError(f"{sql}: {answers.shown(outcome)}")
        self.dataset, self.copies_loaded, self.paged_loaded = dataset, False, False
        return refused

    def both(self, sql, parameters, mode, again=()):
        lost = [side.send(sql, parameters, mode, again) for side in (self.ours, self.peer)]
        return [text or side.receive() for text, side in zip(lost, (self.ours, self.peer))]

    def run(self, case):
        """Returns (the first difference or None, the outcomes of the last statement)."""
        changes = bool(case.changed)
        if self.ours.target is not self.peer.target:
            self.ours.use(case.settings)
        if changes:
            self.both("begin", [], "simple")
        found, outcomes = None, (None, None)
        for node, ordered in zip(case.statements(), [*case.ordered, *[[]] * len(case.statements())]):
            parameters = case.parameters()
            sql = render(node, parameters)
            outcomes = self.both(sql, parameters.sent, case.mode, case.more_values(parameters))
            found = answers.compare(*outcomes, ordered, case.mode in ("binary", "extended"))
            if found or any(isinstance(each, str) or each.error for each in outcomes):
                break
        else:
            for table in case.changed:
                outcomes = self.both(f"select * from {table}", [], "simple")
                found = answers.compare(*outcomes)
                if found:
                    found.text = f"contents of {table} behind the change: {found.text}"
                    break
        if changes:
            self.both("rollback", [], "simple")
        return found, outcomes

    def settled(self, case):
        """Returns whether PostgreSQL gives the same answer under all plans and orders of its rows."""
        self.load_copies()
        kept = self.ours
        try:
            self.ours = self.twin
            for setting in OTHER_PLANS:
                self.twin.run(setting)
                found, _ = self.run(case)
                self.twin.run("reset all")
                self.twin.run("; ".join([*SESSION, *self.twin.loaded]))
                if found:
                    return False
            self.ours = self.backwards
            found, _ = self.run(case)
            return not found
        finally:
            self.ours = kept

    def load_copies(self):
        """Makes PostgreSQL's copies of the data set. One copy is needed because a change of the original
        would wait for locks. The other copy has its rows in reverse order."""
        if not self.copies_loaded:
            self.twin.load(self.dataset.statements())
            self.backwards.load(self.dataset.statements(backwards=True))
            self.copies_loaded = True

    def planned_error(self, case):
        """Returns whether the error comes from PostgreSQL's planner, which computes constants before it knows
        whether they are needed."""
        return any(self.is_planned_error(case, node) for node in case.statements())

    def is_planned_error(self, case, node):
        parameters = case.parameters()
        text = render(node, parameters)
        mode = case.mode if parameters.sent else "simple"
        outcome = self.peer.send(f"explain {text}", parameters.sent, mode, case.more_values(parameters)) or self.peer.receive()
        return not isinstance(outcome, str) and bool(outcome.error) and not outcome.error["C"].startswith("42")

    # Making a case small

    def reduce(self, case, difference, seconds=40):
        """Makes the case and the data set smaller as long as the answers differ in the same way. Returns the
        last difference and a script."""
        wanted = difference.sort()
        original, self.dataset = self.dataset, copy.deepcopy(self.dataset)
        until = time.monotonic() + seconds
        state = {"last": difference}
        orders = case.text().count(" order by ")

        def still_wrong():
            # If rows are compared in order, the query keeps its ORDER BY.
            if time.monotonic() > until or (any(case.ordered) and case.text().count(" order by ") < orders):
                return False
            found, _ = self.run(case)
            if found and found.sort() == wanted and (found.kind in ("lost", "internal", "refused") or self.settled(case)):
                state["last"] = found
                return True
            return False

        ordered, case.ordered = case.ordered, []
        if not still_wrong():
            case.ordered = ordered
        if case.mode != "simple":
            mode, case.mode, forms, case.forms = case.mode, "simple", case.forms, {}
            if not still_wrong():
                case.mode, case.forms = mode, forms
        for name, value in list(case.settings.items()):
            del case.settings[name]
            if not still_wrong():
                case.settings[name] = value
        shrink(case.root, still_wrong)
        self.reduce_dataset(case, still_wrong)
        for _, node, _ in self.dataset.views:
            shrink(node, lambda: not self.reload() and still_wrong(), 300)
        self.reload()
        shrink(case.root, still_wrong)
        script = self.script(case)
        self.dataset = original
        self.reload()
        return state["last"], script

    def reload(self):
        self.copies_loaded = self.paged_loaded = False
        return self.ours.load(self.dataset.statements()) or self.peer.load(self.dataset.statements())

    def reduce_dataset(self, case, still_wrong):
        used = case.text() + " ".join(render(node) for _, node, _ in self.dataset.views)
        changed = True
        while changed:
            changed = False
            for attempt in self.dataset.smaller(used):
                back = attempt()
                if back is None:
                    continue
                if not self.reload() and still_wrong():
                    changed = True
                else:
                    back()
            self.reload()

    def script(self, case):
        """Returns the case as SQL that can be run by hand, with both answers."""
        lines = [f"{each};" for each in self.dataset.statements()]
        lines += [f"-- Varve alone: tables with layout {self.ours.layout}"] if self.ours.layout else []
        lines += [f"set {name} = '{value}'; -- Varve alone" for name, value in case.settings.items()]
        if case.changed:
            lines.append("begin;")
        for node in case.statements():
            parameters = case.parameters()
            sql = render(node, parameters)
            sent = ", ".join(f"${at + 1} = {each.value!r} ({each.type})" for at, each in enumerate(parameters.sent))
            again = "".join(f"; again with {values}" for values in case.more_values(parameters))
            lines.append(f"{sql};{f' -- {case.mode}, {sent}{again}' if case.mode != 'simple' else ''}")
        _, (ours, peer) = self.run(case)
        if case.changed:
            lines.append("rollback;")
        return "\n".join([*lines, f"-- Varve:      {answers.shown(ours)}", f"-- PostgreSQL: {answers.shown(peer)}"])


def drop_statement(dataset, sql):
    """Leaves a statement out of a data set. Returns whether the data set had such a part."""
    for table in dataset.tables:
        if sql in table.extras:
            table.extras.remove(sql)
            return True
        if sql in table.statements()[: 1 + len(table.partitions[1:])] or sql.startswith(f"insert into {table.name} "):
            dataset.tables.remove(table)
            dataset.views = [view for view in dataset.views if table.name not in render(view[1])]
            return True
    for view in dataset.views:
        if sql.startswith(f"create view {view[0]} "):
            dataset.views.remove(view)
            return True
    return False


def chosen_forms(root, chance, share):
    """Decides which literals are sent as parameters, and how each is written."""
    return {id(each): chance.choice(FORMS) for each in literals(root) if isinstance(each, Literal) and not each.fixed and chance.random() < share}


def root_of(nodes):
    return Node(LIST, *nodes, joiner=";\n", least=1)
