"""Reads records in the sqllogictest format from a file, and writes them back. e2e/README.md says which parts
of the format are standard, and which are our own.

A file is a list of paragraphs. Comments and blank lines belong to the record after them, so that they stay
when a file is written back. This module does not know how a record is run.
"""

import re
from dataclasses import dataclass, field

RESULTS = "----"
SERVERS = ("postgresql", "varve")
SORT_MODES = ("nosort", "rowsort", "valuesort")
LETTERS = {20: "I", 21: "I", 23: "I", 26: "I", 700: "R", 701: "R", 1700: "R"}


class BadFile(Exception):
    """The error of a file that violates the format."""


@dataclass
class Record:
    """One statement and its expected result. `kind` is ok, error, query or new (a draft without any
    expectation)."""

    line: int
    kind: str = "new"
    sql: str = ""
    sqlstate: str = ""
    types: str = ""
    sort: str = "nosort"
    rows: list = field(default_factory=list)
    copy_in: list = None
    connection: str = "default"
    only: str = ""
    reason: str = ""
    protocol: str = ""
    parameters: list = None
    before: list = field(default_factory=list)

    def title(self):
        """Returns the statement on one line, which is its name in the list of pending records."""
        return " ".join(self.sql.split())

    def sorted_rows(self, rows):
        """Returns rows in the order in which they are compared."""
        if self.sort == "rowsort":
            return sorted(rows, key=repr)
        if self.sort == "valuesort":
            return [[value] for value in sorted((value for row in rows for value in row), key=repr)]
        return rows


def letters(columns):
    return "".join(LETTERS.get(oid, "T") for _, oid in columns)


def shown(value):
    """Returns one value as a file shows it."""
    if value is None:
        return "NULL"
    text = value.decode(errors="backslashreplace")
    return text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") or "(empty)"


def shown_rows(rows):
    return ["\t".join(shown(value) for value in row) for row in rows]


class Reader:
    """Reads the records of one file."""

    def __init__(self, name, text):
        self.name, self.lines, self.at = name, text.split("\n"), 0
        self.records, self.before = [], []
        self.marks = {}

    def fail(self, why):
        raise BadFile(f"{self.name}:{self.at + 1}: {why}")

    def read(self):
        """Returns (records, trailing comments)."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line or line.startswith("#"):
                if line or (self.before and self.before[-1]):
                    self.before.append(line)
                self.at += 1
            elif not self.mark(line):
                self.record(line)
        return self.records, self.before

    def mark(self, line):
        """Reads a line that says how the next record is run."""
        word, _, rest = line.partition(" ")
        if word in ("onlyif", "skipif"):
            server, _, reason = (part.strip() for part in rest.partition("#"))
            if server not in SERVERS:
                self.fail(f"{word} names one of {', '.join(SERVERS)}")
            self.marks["only"] = server if word == "onlyif" else SERVERS[1 - SERVERS.index(server)]
            if self.marks["only"] == "varve" and not reason:
                self.fail("a deliberate difference gives its reason: onlyif varve # reason")
            self.marks["reason"] = reason
        elif word == "connection":
            self.marks["connection"] = rest
        elif word == "protocol" and rest in ("simple", "extended"):
            self.marks["protocol"] = rest
        elif word == "parameters":
            self.marks["parameters"] = [None if value.strip() == "NULL" else value.strip() for value in rest.split("|")]
            self.marks["protocol"] = "extended"
        else:
            return False
        self.at += 1
        return True

    def record(self, line):
        words = line.split()
        if words[0] == "statement":
            self.statement(words)
        elif words[0] == "query":
            self.query(words)
        else:
            self.drafts()

    def add(self, record):
        record.before, self.before = self.before, []
        for name, value in self.marks.items():
            setattr(record, name, value)
        self.marks = {}
        self.records.append(record)

    def paragraph(self):
        """Returns the lines up to a blank line or the end."""
        taken = []
        while self.at < len(self.lines) and self.lines[self.at]:
            taken.append(self.lines[self.at])
            self.at += 1
        return taken

    def body(self):
        """Returns (statement, the lines after its ---- or None)."""
        lines = self.paragraph()
        if RESULTS in lines:
            cut = lines.index(RESULTS)
            return "\n".join(lines[:cut]), lines[cut + 1 :]
        return "\n".join(lines), None

    def statement(self, words):
        record = Record(self.at + 1, words[1] if len(words) > 1 else "")
        if record.kind == "error" and len(words) == 3:
            record.sqlstate = words[2]
        elif words[1:] != ["ok"]:
            self.fail("a statement is `statement ok` or `statement error SQLSTATE`")
        self.at += 1
        record.sql, record.copy_in = self.body()
        self.add(record)

    def query(self, words):
        record = Record(self.at + 1, "query", types=words[1] if len(words) > 1 else "")
        record.sort = words[2] if len(words) > 2 else "nosort"
        if not re.fullmatch("[ITR]+", record.types) or record.sort not in SORT_MODES:
            self.fail(f"a query is `query TYPES [{' | '.join(SORT_MODES)}]`, types of I, R and T")
        self.at += 1
        record.sql, rows = self.body()
        if rows is None:
            self.fail("a query has its rows after ----")
        record.rows = rows
        self.add(record)

    def drafts(self):
        """Returns the statements without a header. Each one ends with a `;` at the end of a line."""
        while self.at < len(self.lines) and self.lines[self.at]:
            if self.lines[self.at].startswith("#"):
                self.before.append(self.lines[self.at])
                self.at += 1
                continue
            if self.mark(self.lines[self.at]):
                continue
            record, taken = Record(self.at + 1), []
            while self.at < len(self.lines) and self.lines[self.at]:
                taken.append(self.lines[self.at])
                self.at += 1
                if taken[-1].endswith(";"):
                    break
            if not taken[-1].endswith(";"):
                self.fail("a draft ends in ;")
            record.sql = "\n".join(taken)[:-1].rstrip()
            if self.at < len(self.lines) and self.lines[self.at] == RESULTS:
                self.at += 1
                record.copy_in = self.paragraph()
            self.add(record)


def read(name, text):
    return Reader(name, text).read()


def render(records, trailing):
    """Returns the text of a file."""
    return "\n".join([line for record in records for line in lines_of(record)] + trailing).rstrip("\n") + "\n"


def lines_of(record):
    out = list(record.before)
    if record.only:
        out.append(f"onlyif {record.only}" + (f" # {record.reason}" if record.reason else ""))
    if record.connection != "default":
        out.append(f"connection {record.connection}")
    if record.parameters is not None:
        out.append("parameters " + " | ".join("NULL" if value is None else value for value in record.parameters))
    elif record.protocol:
        out.append(f"protocol {record.protocol}")
    if record.kind == "query":
        sort = "" if record.sort == "nosort" else f" {record.sort}"
        return [*out, f"query {record.types}{sort}", record.sql, RESULTS, *record.rows, ""]
    tail = [] if record.copy_in is None else [RESULTS, *record.copy_in]
    head = f"statement error {record.sqlstate}" if record.kind == "error" else "statement ok"
    return [*out, head, record.sql, *tail, ""]


def complete(record, outcome):
    """Sets the expectation of a draft to a server's answer, and the values of any record to those of the
    answer."""
    if outcome.error:
        record.kind, record.sqlstate, record.rows = "error", outcome.sqlstate, []
    elif outcome.columns or any(outcome.rows):
        if record.kind == "new":
            record.sort = "rowsort" if len(outcome.rows) > 1 and not ordered(record.sql) else "nosort"
        record.kind = "query"
        record.types = letters(outcome.columns) if outcome.columns else "T"
        record.rows = shown_rows(outcome.rows)
        if record.sort == "rowsort":
            record.rows.sort()
    else:
        record.kind = "ok"


def ordered(sql):
    """Returns whether the outermost query has ORDER BY."""
    text, before = sql.lower(), None
    while text != before:
        before, text = text, re.sub(r"\([^()]*\)", " ", text)
    return re.search(r"\border\s+by\b|^\s*(copy|show|fetch)\b", text) is not None
