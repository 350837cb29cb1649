"""Checks a server against itself, without another server.

TLP (Rigger and Su, "Finding Bugs in Database Systems via Query Partitioning", OOPSLA 2020): a query returns
the rows for which a condition is true, those for which it is false, and those for which it is NULL. NoREC
("Detecting Optimization Bugs in Database Engines via Non-Optimizing Reference Engine Construction", ESEC/FSE
2020): the number of rows that meet a condition is the same in WHERE and in the select list.
"""

from .sql_expressions import Scope
from .sql_tree import render


def pair(chance, queries, x):
    """Returns two statements that must have the same rows."""
    item = queries.joined(chance.choice([1, 2]), None)
    scope = Scope(item.columns(), None)
    condition = render(x.any("boolean", chance.choice([1, 2, 3]), scope))
    source = render(item.node)
    if chance.random() < 0.5:
        return (
            f"select count(*) from {source} where {condition}",
            f"select coalesce(sum(case when {condition} then 1 else 0 end), 0) from {source}",
        )
    made = render(x.any(x.compared_type(scope), 1, scope))
    parts = [condition, f"not {condition}", f"({condition}) is null"]
    return (
        f"select {made} as c from {source}",
        " union all ".join(f"select {made} as c from {source} where {each}" for each in parts),
    )
