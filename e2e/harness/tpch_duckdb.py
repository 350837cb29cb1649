"""Runs queries in DuckDB over generated files. Reads a request as JSON, writes the rows of each query as JSON.

Runs in the environment of e2e/requirements.txt. Numbers are written as text; `exact` says of each column whether it is.
"""

import json
import sys

import duckdb


def shown(value):
    return None if value is None else str(value)


def main():
    asked = json.load(sys.stdin)
    connection = duckdb.connect()
    with open(asked["schema"]) as file:
        connection.execute(file.read())
    for table in asked["tables"]:
        connection.execute(f"COPY {table} FROM '{asked['folder']}/{table}.csv' (FORMAT csv, HEADER)")
    answers = {}
    for name, text in asked["queries"].items():
        cursor = connection.execute(text)
        exact = [str(column[1]).upper() not in ("DOUBLE", "FLOAT") for column in cursor.description]
        answers[name] = {"rows": [[shown(value) for value in row] for row in cursor.fetchall()], "exact": exact}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
