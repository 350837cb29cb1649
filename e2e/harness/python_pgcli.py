"""Runs pgcli against a server: its completions and its commands. e2e/tools calls this program with the
port."""

import os
import sys

import psycopg
from pgcli.completion_refresher import CompletionRefresher
from pgcli.pgcompleter import PGCompleter
from pgcli.pgexecute import PGExecute
from pgspecial import PGSpecial
from prompt_toolkit.document import Document

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import steps  # noqa: E402

SCHEMA = """
CREATE TABLE parent (id serial PRIMARY KEY, code varchar(10) NOT NULL UNIQUE, n numeric(8,2) DEFAULT 1.5, CONSTRAINT n_positive CHECK (n > 0));
CREATE TABLE child (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent_id int NOT NULL REFERENCES parent ON DELETE CASCADE, at timestamptz DEFAULT now(), note text);
CREATE INDEX child_at ON child (at, id);
CREATE VIEW overview AS SELECT parent.id, parent.code, count(child.id) AS children FROM parent LEFT JOIN child ON child.parent_id = parent.id GROUP BY parent.id, parent.code;
CREATE SEQUENCE apart START WITH 5;
CREATE SCHEMA house;
CREATE TABLE house.room (a int PRIMARY KEY, b text);
"""
# The output of these commands is the same on both servers. The others show sizes, owners, or objects of one
# server only.
SAME = ["\\d", "\\d parent", "\\d child", "\\d overview", "\\d apart", "\\d parent_pkey", "\\d house.room", "\\dt", "\\dt house.*", "\\di", "\\dv", "\\ds", "\\df", "\\dT"]
WORK = ["\\l", "\\dn", "\\du", "\\dx", "\\db", "\\dt+", "\\d+ parent", "\\dp", "\\dD", "\\ddp"]
SPECIAL = PGSpecial()


def executor():
    return PGExecute("postgres", "postgres", None, "127.0.0.1", int(sys.argv[1]), None)


def shown(run, command):
    said = []
    for title, rows, headers, status, *_ in run.run(command, SPECIAL, exception_formatter=lambda e: (_ for _ in ()).throw(e)):
        rows = [] if rows is None else [[str(c).replace("postgres", "varve") for c in row] if not isinstance(row, str) else row for row in rows]
        said.append([title, sorted(map(str, rows)), headers, status])
    return said


def schema():
    """pgcli: statements"""
    run = executor()
    for statement in SCHEMA.strip().splitlines():
        shown(run, statement)
    return shown(run, "SELECT 1 AS one, 'x' AS two")


def commands(command, is_same):
    def act():
        said = shown(executor(), command)
        return said if is_same else None

    act.__doc__ = f"pgcli: {command}"
    return act


def metadata():
    """pgcli: what its completions are made of"""
    run = executor()
    own = lambda rows: sorted(str(r) for r in rows if r[0] in ("public", "house"))  # noqa: E731
    return [
        run.search_path(),
        own(run.tables()),
        own(run.views()),
        own(run.table_columns()),
        own(run.view_columns()),
        own((k.parentschema, k.parenttable, k.parentcolumn, k.childschema, k.childtable, k.childcolumn) for k in run.foreignkeys()),
        [s for s in run.schemata() if s in ("public", "house")],
        list(run.datatypes())[:0],
        len(list(run.functions())) > 0,
        run.view_definition("overview").split("\n")[0],
        len(run.full_databases()) > 0,
        len(list(run.casing())) > 0,
    ]


def completion():
    """pgcli: completions of tables, columns and joins"""
    run = executor()
    done = []
    refresher = CompletionRefresher()
    completer = PGCompleter(smart_completion=True, pgspecial=SPECIAL)
    refresher.refresh(run, SPECIAL, lambda made: done.append(made), None, settings={})
    refresher._completer_thread.join(30)
    completer = done[0]
    said = []
    for text in ("SELECT * FROM par", "SELECT no FROM child", "SELECT * FROM child JOIN "):
        place = len(text) if "FROM child" not in text[:20] else len("SELECT no")
        found = completer.get_completions(Document(text, place), None)
        said.append([c.text for c in found][:3])
    return said


steps.run([schema, *[commands(c, True) for c in SAME], *[commands(c, False) for c in WORK], metadata, completion])
