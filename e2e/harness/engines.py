"""Prepares tests on tables of the memory-oriented engines: the configuration of the server, the engine of its
tables, and the statements that it refuses.

A test sends the same statements to both servers. `using` gives each CREATE TABLE for Varve the clause USING,
unless it has one. `refusal` says whether an error of Varve is a known refusal. Then PostgreSQL gets
`STAND_IN` instead of the statement, which also fails. So both servers stay in step, and later statements are
still compared.

This module does not know how answers are compared.
"""

import re

ENGINES = ("nvm_inplace", "inplace", "nvm_cow", "cow", "nvm_log", "log")
STAND_IN = "SELECT 1 / 0"
LOCK_TIMEOUT = "500ms"
"""For a session that waits for a partition. PostgreSQL's sessions would not wait: the script has to go on."""

REFUSALS = [
    ("0A000", r"cannot change .* in a transaction that has changed ", "one transaction changes one partition, or pages"),
    ("0A000", r"a foreign key from or to table .* of engine ", "no foreign keys"),
    ("0A000", r"an index with an expression or a condition on a table of engine ", "no indexes over expressions, no partial indexes"),
    ("0A000", r"(WITH|SET) \(compression\) for a table of engine ", "the pages of a table are compressed, and these have none"),
    ("0A000", r"going back to before a definition, in a transaction ", "a store makes a definition outside of its transactions"),
    ("55P03", r"could not obtain lock on row in relation ", "a transaction locks its partition, so NOWAIT fails for all of its rows"),
    ("55P03", r"lock timeout", "transactions are serial in a partition: this one would wait"),
]
"""SQLSTATE, what the message begins with or contains, and why these tables differ from others (decision 0117)."""

TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|\"(?:[^\"]|\"\")*\"|\w+|\s+|.",
    re.S,
)
BEFORE_TABLE = {"TEMP", "TEMPORARY", "LOCAL", "GLOBAL", "UNLOGGED"}
BEHIND_USING = {"WITH", "WITHOUT", "ON", "TABLESPACE", "AS"}


def chosen(word):
    """Returns the engines that an option names: one engine, or `all`."""
    return ENGINES if word == "all" else (word,)


def add_option(parser):
    parser.add_argument("--engine", choices=[*ENGINES, "all"], help="tables of this engine in persistent memory, emulated by a file; all: one after the other")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of persistent memory, for --engine")


def config(partitions=1, size_mib=512):
    """Returns the section of the configuration that a server needs for such tables."""
    return f'\n[nvm]\ndevice = "main"\ntables = "{size_mib}MiB"\npartitions = {partitions}\n'


def refusal(sqlstate, message):
    """Returns the reason for the difference, if the error is a known refusal."""
    return next((reason for state, pattern, reason in REFUSALS if state == sqlstate and re.search(pattern, message or "")), None)


def using(sql, engine):
    """Returns the statements, with USING in each CREATE TABLE that has no such clause."""
    if not engine or not re.search(r"\bcreate\b.*\btable\b", sql, re.I | re.S):
        return sql
    tokens = [match.group() for match in TOKEN.finditer(sql)]
    out, start = [], 0
    for end in [at for at, token in enumerate(tokens) if token == ";"] + [len(tokens)]:
        out += one_using(tokens[start:end], engine) + tokens[end : end + 1]
        start = end + 1
    return "".join(out)


def one_using(tokens, engine):
    """Handles the tokens of one statement."""
    depth, words = 0, []  # words outside of parentheses, in capitals, with their places
    for at, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0 and not token.isspace() and not token.startswith(("--", "/*")):
            words.append((token.upper(), at))
    names = [word for word, _ in words]
    head = [word for word in names[:5] if word not in BEFORE_TABLE]
    if head[:2] != ["CREATE", "TABLE"]:
        return tokens
    name_at = names.index("TABLE") + (4 if names[names.index("TABLE") + 1 :][:3] == ["IF", "NOT", "EXISTS"] else 1)
    for number in range(name_at + 1, len(words)):
        word, at = words[number]
        if word == "USING":
            return tokens
        # FOR VALUES WITH (MODULUS ...) is the bound of a partition.
        if word in BEHIND_USING and names[number - 1] != "VALUES":
            return [*tokens[:at], "USING ", engine, " ", *tokens[at:]]
    end = words[-1][1] + 1
    return [*tokens[:end], " USING ", engine, *tokens[end:]]
