"""Runs a smart device for a server: `varve device serve` on the server's directory."""

import os
import re
import secrets
import subprocess

from . import wire

PROBE = [
    "create table smart_probe (id int primary key, v int)",
    "insert into smart_probe select i, i % 7 from generate_series(1, 5000) as i",
    "checkpoint",
]


class SmartDevice:
    """A smart device. Its configuration becomes a part of the server's configuration. The server starts
    first."""

    def __init__(self, base):
        self.socket = os.path.join(base, "device.socket")
        self.key = os.path.join(base, "device.key")
        with open(self.key, "w") as file:
            file.write(secrets.token_hex(32))
        self.process = None

    def config(self):
        return f'\n[smart]\naddress = "unix:{self.socket}"\nkey_file = "{self.key}"\n'

    def start(self, server):
        command = [server.binary, "device", "serve", "--listen", f"unix:{self.socket}", "--directory", server.directory, "--key-file", self.key]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("listening on"):
                return
        raise SystemExit(f"the smart device ended with {self.process.wait()}")

    def check(self, server):
        """Fails if scans do not run in the device."""
        connection = wire.Connection(server.port, user="postgres")
        for sql in [*PROBE, "set smart_scan = on"]:
            connection.query(sql)
        shown = "\n".join(str(row[0]) for row in connection.query("explain (analyze) select count(*), sum(v) from smart_probe where v > 2"))
        connection.query("drop table smart_probe")
        connection.close()
        found = re.search(r"Smart Leaves: device=(\d+) host=(\d+)", shown)
        if not found or int(found[1]) == 0:
            raise SystemExit(f"the smart device did not scan:\n{shown}")

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(30)
