"""A control group that limits one server's memory, including its part of the page cache. It needs root, and a
kernel with the memory controller.

A group is made below the group of this process (version 1 or 2), so that this process's limits are also
limits of the server. The group is removed at the end. Only the server is moved into it, before it starts.
"""

import os

MIB = 1 << 20


class NoGroup(Exception):
    """The machine does not permit a group. The text has the reason."""


class MemoryGroup:
    """One group with a limit."""

    def __init__(self, name, limit_mib):
        parent, self.version = own_group()
        self.path = os.path.join(parent, f"{name}-{os.getpid()}")
        try:
            os.mkdir(self.path)
            limit = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
            with open(os.path.join(self.path, limit), "w") as file:
                file.write(str(limit_mib * MIB))
        except OSError as error:
            self.remove()
            raise NoGroup(f"no memory group can be made below {parent}: {error}") from error

    def wrap(self, command, identity):
        """Returns the command that enters the group, takes the user's identity, and becomes `command`."""
        become = []
        if identity:
            become = ["setpriv", f"--reuid={identity['user']}", f"--regid={identity['group']}", "--clear-groups"]
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.path, *become, *command]

    def used_max_mib(self):
        """Returns the most memory that was used, if the kernel reports it."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        try:
            with open(os.path.join(self.path, name)) as file:
                return int(file.read()) // MIB
        except OSError:
            return None

    def remove(self):
        if os.path.isdir(self.path):
            os.rmdir(self.path)


def own_group():
    """Returns (directory of this process's group, version of the controller)."""
    with open("/proc/self/cgroup") as file:
        entries = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in entries:
        if "memory" in controllers.split(","):
            return mounted("memory") + path, 1
    for number, controllers, path in entries:
        if number == "0" and not controllers:
            return mounted("cgroup2") + path, 2
    raise NoGroup("this process is in no control group")


def mounted(wanted):
    """Returns where version 1's memory controller or version 2's hierarchy is mounted."""
    with open("/proc/mounts") as file:
        for line in file:
            _, point, kind, options = line.split()[:4]
            if kind == wanted or (kind == "cgroup" and wanted in options.split(",")):
                return point
    raise NoGroup(f"{wanted} is not mounted")
