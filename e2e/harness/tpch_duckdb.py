"""Runs queries in DuckDB over generated files. Reads a request as JSON, writes the rows of each query as JSON.

Runs in the environment of e2e/requirements.txt. Numbers are written as text. `exact` says for each column
whether its numbers are exact, and `seconds` is the least time of `rounds` runs. DuckDB keeps the tables in
memory.
"""

import json
import sys
import time

import duckdb


def shown(value):
    return None if value is None else str(value)


def timed(connection, text, rounds):
    """Returns the cursor's description, its rows, and the least seconds of some runs."""
    best = None
    for _ in range(rounds):
        began = time.monotonic()
        cursor = connection.execute(text)
        rows = cursor.fetchall()
        taken = time.monotonic() - began
        best = taken if best is None else min(best, taken)
    return cursor.description, rows, best


def main():
    asked = json.load(sys.stdin)
    connection = duckdb.connect()
    connection.execute(f"SET threads = {asked['threads']}")
    with open(asked["schema"]) as file:
        connection.execute(file.read())
    for table in asked["tables"]:
        connection.execute(f"COPY {table} FROM '{asked['folder']}/{table}.csv' (FORMAT csv, HEADER)")
    answers = {}
    for name, text in asked["queries"].items():
        columns, rows, seconds = timed(connection, text, asked["rounds"])
        exact = [str(column[1]).upper() not in ("DOUBLE", "FLOAT") for column in columns]
        answers[name] = {"rows": [[shown(value) for value in row] for row in rows], "exact": exact, "seconds": seconds}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
