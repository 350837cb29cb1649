"""Runs queries in DuckDB over a database file with a memory limit. Reads a request as JSON, writes the rows and the seconds of each query as JSON.

Runs in the environment of e2e/requirements.txt. The tables are loaded once, without the limit, and the file is opened again for each limit.
"""

import json
import os
import sys
import time

import duckdb


def load(asked):
    with duckdb.connect(asked["database"]) as connection:
        with open(asked["schema"]) as file:
            connection.execute(file.read())
        for table in asked["tables"]:
            connection.execute(f"COPY {table} FROM '{asked['folder']}/{table}.csv' (FORMAT csv, HEADER)")
        connection.execute("CHECKPOINT")


def measured(asked, memory_mib):
    found = {}
    for name, text in asked["queries"].items():
        with duckdb.connect(asked["database"], read_only=True) as connection:
            connection.execute(f"SET memory_limit = '{memory_mib}MiB'; SET threads = {asked['threads']}")
            connection.execute(f"SET temp_directory = '{asked['database']}.tmp'; SET preserve_insertion_order = false")
            began = time.monotonic()
            try:
                rows = [[str(value) for value in row] for row in connection.execute(text).fetchall()]
            except duckdb.Error as error:
                rows = str(error)
            found[name] = {"rows": rows, "seconds": time.monotonic() - began}
    return found


def main():
    asked = json.load(sys.stdin)
    if not os.path.exists(asked["database"]):
        load(asked)
    json.dump({str(mib): measured(asked, mib) for mib in asked["memory_mib"]}, sys.stdout)


if __name__ == "__main__":
    main()
