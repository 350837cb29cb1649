"""Makes matrices of queries and changes for e2e/slt: each form of a clause with each form of another clause,
over the same few rows.

This module does not know the answers: PostgreSQL completes the drafts.
"""

TABLES = """\
CREATE TABLE l (id int PRIMARY KEY, k int, s text);
INSERT INTO l VALUES (1, 10, 'a'), (2, 20, NULL), (3, NULL, 'b'), (4, 10, 'a');
CREATE TABLE r (id int PRIMARY KEY, k int, s text);
INSERT INTO r VALUES (1, 10, 'b'), (2, 10, 'a'), (3, 30, NULL), (5, NULL, 'a');
CREATE TABLE e (id int, k int, s text);
"""

JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
JOIN_CONDITIONS = [
    "ON l.k = r.k", "ON l.id = r.id", "ON l.k = r.k AND l.s = r.s", "ON l.k = r.k AND r.id > 1", "ON l.k = r.k AND l.id > 1", "USING (k)", "USING (id, s)", "ON l.s = r.s AND l.id <> r.id", "ON l.k = r.k AND l.s IS NULL",
    "ON l.id = r.id AND coalesce(l.k, 0) = coalesce(r.k, 0)", "ON l.k = r.k AND true", "ON l.id = r.id AND r.s IN ('a', NULL)",
]  # fmt: skip
JOIN_WHERES = ["", "WHERE r.id IS NULL", "WHERE l.s = 'a' OR r.s = 'a'", "WHERE l.k IS DISTINCT FROM r.k"]

WINDOW_CALLS = [
    "row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(2)", "lag(id)", "lead(id, 2, 0)", "first_value(id)", "last_value(id)", "nth_value(id, 2)", "count(*)", "count(k)", "sum(k)", "avg(k)", "min(s)", "string_agg(s, ',')", "array_agg(id)",
]  # fmt: skip
WINDOWS = [
    "ORDER BY id", "PARTITION BY s ORDER BY id", "PARTITION BY k ORDER BY id DESC", "ORDER BY id ROWS 1 PRECEDING", "ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING",
    "ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW", "ORDER BY id GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "PARTITION BY s ORDER BY id ROWS UNBOUNDED PRECEDING",
]  # fmt: skip

AGGREGATES = [
    "count(*)", "count(k)", "count(DISTINCT k)", "sum(k)", "sum(DISTINCT k)", "avg(k)", "min(s)", "max(k)", "bool_and(k > 5)", "bool_or(s IS NULL)", "array_agg(k ORDER BY id)", "array_agg(DISTINCT s ORDER BY s)", "string_agg(s, ',' ORDER BY id DESC)", "json_agg(k ORDER BY id)", "stddev(k)", "var_pop(k)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY k)", "mode() WITHIN GROUP (ORDER BY s)", "count(*) FILTER (WHERE k = 10)", "sum(k) FILTER (WHERE false)",
]  # fmt: skip
GROUPED = [
    "FROM l", "FROM e", "FROM l WHERE false", "FROM l GROUP BY s", "FROM e GROUP BY s", "FROM l GROUP BY s HAVING count(*) > 1", "FROM l HAVING count(*) > 10", "FROM l GROUP BY ROLLUP (s)", "FROM l GROUP BY GROUPING SETS ((), (k))",
]  # fmt: skip

SUBQUERY_CONDITIONS = [
    "EXISTS (SELECT 1 FROM r WHERE r.k = l.k)", "NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)", "k IN (SELECT k FROM r)", "k NOT IN (SELECT k FROM r)", "k NOT IN (SELECT k FROM r WHERE k IS NOT NULL)", "k IN (SELECT k FROM e)", "k NOT IN (SELECT k FROM e)", "k = ANY (SELECT k FROM r)", "k > ALL (SELECT k FROM r)",
    "k <> ALL (SELECT k FROM r WHERE r.id < 3)", "k = (SELECT max(k) FROM r WHERE r.s = l.s)", "k > (SELECT avg(k) FROM r)", "(k, s) IN (SELECT k, s FROM r)", "(k, s) NOT IN (SELECT k, s FROM r)", "k IS NOT DISTINCT FROM (SELECT k FROM r WHERE r.id = l.id)", "(SELECT count(*) FROM r WHERE r.k = l.k) > 1",
    "(SELECT true FROM e)", "k = (SELECT k FROM r WHERE r.k = l.k)",
]  # fmt: skip
SUBQUERY_PLACES = [
    "SELECT id FROM l WHERE {} ORDER BY id;", "SELECT id, {} AS c FROM l ORDER BY id;", "SELECT id FROM l WHERE NOT ({}) ORDER BY id;", "SELECT id FROM l WHERE ({}) IS NULL ORDER BY id;", "SELECT id, CASE WHEN {} THEN 'y' ELSE 'n' END AS c FROM l ORDER BY id;", "SELECT count(*) FILTER (WHERE {}) AS c FROM l;",
    "SELECT id FROM l ORDER BY {}, id;", "SELECT l.id FROM l JOIN (SELECT 1 AS one) o ON {} ORDER BY 1;",
]  # fmt: skip

SET_OPERATIONS = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
SET_SIDES = [
    ("SELECT k FROM l", "SELECT k FROM r"), ("SELECT k, s FROM l", "SELECT k, s FROM r"), ("SELECT s FROM l", "SELECT s FROM e"), ("SELECT NULL", "SELECT 1"), ("SELECT 1", "SELECT 1.0"), ("SELECT k FROM l", "VALUES (10), (NULL), (10)"), ("SELECT 'a'", "SELECT s FROM r"), ("SELECT DISTINCT k FROM l", "SELECT k FROM r WHERE s = 'a'"),
    ("SELECT 1", "SELECT 'x'"), ("SELECT 1, 2", "SELECT 1"), ("(SELECT k FROM l ORDER BY id LIMIT 2)", "(SELECT k FROM r ORDER BY id LIMIT 2)"), ("SELECT date '2024-01-01'", "SELECT timestamp '2024-01-01 00:00'"),
]  # fmt: skip

CHANGES = [
    "INSERT INTO c SELECT id + 10, k, s FROM l", "INSERT INTO c SELECT * FROM r", "INSERT INTO c SELECT * FROM r ON CONFLICT DO NOTHING", "INSERT INTO c SELECT * FROM r ON CONFLICT (id) DO UPDATE SET k = excluded.k", "INSERT INTO c SELECT * FROM r ON CONFLICT (id) DO UPDATE SET k = c.k + excluded.k WHERE c.s IS NOT NULL",
    "INSERT INTO c VALUES (9, DEFAULT, 'x'), (10, 1, NULL)", "INSERT INTO c (id) VALUES (9)", "INSERT INTO c (s, id) SELECT s, max(id) + 20 FROM l GROUP BY s", "INSERT INTO c SELECT 9, (SELECT max(k) FROM r), NULL", "UPDATE c SET k = k + 1", "UPDATE c SET k = 0 WHERE s IS NULL", "UPDATE c SET (k, s) = (7, 'z') WHERE id = 1",
    "UPDATE c SET k = r.k FROM r WHERE r.id = c.id", "UPDATE c SET k = (SELECT max(k) FROM r WHERE r.s = c.s)", "UPDATE c SET s = o.n FROM (SELECT s, count(*)::text AS n FROM r GROUP BY s) o WHERE o.s = c.s", "UPDATE c SET k = NULL WHERE id IN (SELECT id FROM r)", "UPDATE c SET id = id + 100 WHERE EXISTS (SELECT 1 FROM r WHERE r.id = c.id)",
    "UPDATE c SET k = CASE WHEN k = 10 THEN 1 ELSE 2 END", "DELETE FROM c", "DELETE FROM c WHERE k IS NULL", "DELETE FROM c USING r WHERE r.id = c.id", "DELETE FROM c USING r WHERE r.k = c.k AND r.s = 'a'", "DELETE FROM c WHERE id NOT IN (SELECT id FROM r)", "DELETE FROM c WHERE k > (SELECT avg(k) FROM l)", "UPDATE c SET k = 1 / (id - 1)",
    "INSERT INTO c VALUES (1, 1, 'twice')", "UPDATE c SET id = 1 WHERE id = 2",
]  # fmt: skip
RETURNED = ["", " RETURNING *", " RETURNING id, k * 2 AS twice, s IS NULL AS none"]


def joins():
    yield TABLES
    for kind in JOINS:
        yield f"# {kind}"
        for condition in JOIN_CONDITIONS:
            for where in JOIN_WHERES:
                yield f"SELECT l.id, r.id AS rid, l.k, r.s FROM l {kind} r {condition} {where} ORDER BY 1, 2, 3, 4;"
        yield ""


def windows():
    yield TABLES
    for call in WINDOW_CALLS:
        yield f"# {call}"
        for window in WINDOWS:
            yield f"SELECT id, {call} OVER ({window}) AS w FROM l ORDER BY id;"
        yield ""


def aggregates():
    yield TABLES
    for call in AGGREGATES:
        yield f"# {call}"
        for tail in GROUPED:
            yield f"SELECT {call} AS a {tail};"
        yield ""


def subqueries():
    yield TABLES
    for place in SUBQUERY_PLACES:
        yield f"# {place}"
        for condition in SUBQUERY_CONDITIONS:
            yield place.format(condition)
        yield ""


def set_operations():
    yield TABLES
    for operation in SET_OPERATIONS:
        yield f"# {operation}"
        for left, right in SET_SIDES:
            yield f"{left} {operation} {right};"
        yield ""


def changes():
    yield TABLES
    yield "CREATE TABLE c (id int PRIMARY KEY, k int DEFAULT 5, s text);\n"
    for change in CHANGES:
        yield f"# {change}"
        yield "DELETE FROM c;\nINSERT INTO c SELECT * FROM l;"
        for returned in RETURNED:
            yield f"BEGIN;\n{change}{returned};"
            yield "SELECT * FROM c;\nROLLBACK;"
        yield ""
