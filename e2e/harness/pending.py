"""The list of records that are known to fail: one line each, `file.slt: statement on one line`, with ` [n]` for the n-th of the same.

A fix must remove its lines from the list. A record on the list that passes is an error, so that the list
stays correct.
"""

import os


def titles(records):
    """Returns the name of each record of one file in the list, in order."""
    seen, out = {}, []
    for record in records:
        title = record.title()
        seen[title] = seen.get(title, 0) + 1
        out.append(title if seen[title] == 1 else f"{title} [{seen[title]}]")
    return out


def read(path):
    """Returns {file: {titles}}."""
    listed = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file.read().splitlines():
                if line and not line.startswith("#"):
                    name, _, title = line.partition(": ")
                    listed.setdefault(name, set()).add(title)
    return listed


HEADER = """\
# Records that don't pass on Varve. Written by `e2e/slt --write-pending`; a line whose record passes must go.
"""


def write(path, listed):
    with open(path, "w") as file:
        file.write(HEADER)
        for name in sorted(listed):
            file.writelines(f"{name}: {title}\n" for title in sorted(listed[name]))
