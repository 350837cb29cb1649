"""Starts and stops the servers under test: Varve, and PostgreSQL, which shows that a script itself is
correct.

Every process is stopped by its own pid. A server object owns its data directory only if it made it.
"""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import engines, wire

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def scratch(prefix):
    """Returns a new directory on a real disk (VARVE_SCRATCH or /var/tmp), which the user postgres can use."""
    base = os.environ.get("VARVE_SCRATCH", "/var/tmp")
    made = tempfile.mkdtemp(prefix=f"varve-{prefix}-", dir=base)
    os.chmod(made, 0o755)
    return made


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def varve_binary():
    return program("VARVE_BIN", "varve")


def lab_binary():
    """Returns the program of the experiments, which runs LinkBench."""
    return program("VARVE_LAB_BIN", "varve-lab")


def program(variable, name):
    named = os.environ.get(variable)
    return os.path.abspath(named) if named else os.path.join(ROOT, "target", "debug", name)


class Server:
    """The properties that both servers share: a process, a port, a log file."""

    name = "server"
    engine = None
    """The engine of tables that a test makes; None for the usual one."""

    def adapt(self, sql):
        """Returns the statements in the form that this server gets."""
        return engines.using(sql, self.engine)

    def __init__(self, directory, pool_mib):
        self.directory = directory
        self.pool_mib = pool_mib
        self.port = free_port()
        self.process = None
        self.memory_group = None
        self.log_path = os.path.join(os.path.dirname(directory), f"{self.name}-{os.path.basename(directory)}.log")

    def command(self):
        raise NotImplementedError

    def start(self, wait_s=60):
        """Starts the process. Returns the seconds until it answered a query."""
        began = time.monotonic()
        self.launch()
        while True:
            try:
                self.probe(wait_s)
                return time.monotonic() - began
            except (wire.ConnectionLost, wire.ServerError) as error:
                if self.process.poll() is not None:
                    raise self.no_start(f"{self.name} ended with {self.process.returncode}") from None
                if time.monotonic() - began > wait_s:
                    raise self.no_start(f"{self.name} did not answer in {wait_s} s ({error})") from None
                time.sleep(0.02)

    def no_start(self, what):
        """Returns the error of a start. The reason is at the end, because a log that is cut keeps its end."""
        said = self.log_tail(1500).strip()
        return RuntimeError(f"its log:\n{said}\n{what}: {said.splitlines()[-1] if said else 'its log is empty'}")

    def launch(self):
        """Starts the process, in its memory group if it has one."""
        command, identity = self.command(), self.identity()
        if self.memory_group:
            command, identity = self.memory_group.wrap(command, identity), {}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **identity)

    def probe(self, wait_s):
        """Runs one query. Raises an exception while the server does not answer."""
        probe = wire.Connection(self.port, timeout_s=wait_s)
        probe.query("SELECT 1")
        probe.close()

    def sysbench_options(self):
        return ["--db-driver=pgsql", "--pgsql-host=127.0.0.1", f"--pgsql-port={self.port}", "--pgsql-user=postgres", "--pgsql-db=postgres"]

    def bench_address(self):
        """Returns the connection string for `varve bench run --server`."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def go_tpc_options(self):
        return ["-d", "postgres", "-H", "127.0.0.1", "-P", str(self.port), "-U", "postgres", "-D", "postgres", "--conn-params", "sslmode=disable"]

    def reshape(self):
        """Changes the tables after a load to the form that is measured. By default there is nothing to
        change."""

    def written_bytes(self):
        """Returns the bytes that the process has sent to block devices, including direct writes. Returns None
        if several processes write."""
        with open(f"/proc/{self.process.pid}/io") as counters:
            return next(int(line.split()[1]) for line in counters if line.startswith("write_bytes:"))

    def allocated_bytes(self):
        """Returns the bytes of the blocks that the file system has allocated to the server's files, without
        the log."""
        found = 0
        for folder, _, names in os.walk(self.directory):
            for name in names if os.path.basename(folder) != "pg_wal" else []:
                if name.startswith(("log.", "ib_logfile")):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found += os.stat(os.path.join(folder, name)).st_blocks * 512
        return found

    def settle(self, tables):
        """Prepares the measurement after a load: collects statistics, and writes everything to disk."""
        connection = self.connect(timeout_s=600)
        for table in tables:
            connection.query(f"VACUUM ANALYZE {table}")
        connection.query("ANALYZE")
        connection.query("CHECKPOINT")
        connection.close()

    def start_and_kill(self, delay_s):
        """Starts the process, and kills it after `delay_s`, whatever it does then. It must not have ended by
        itself."""
        self.launch()
        time.sleep(delay_s)
        ended = self.process.poll()
        self.kill9()
        if ended is not None:
            raise RuntimeError(f"{self.name} ended with {ended} while it recovered:\n{self.log_tail()}")

    def identity(self):
        return {}

    def stop(self, wait_s=120):
        """Asks the server to shut down. Returns its exit code."""
        if self.process is None:
            return None
        self.process.send_signal(self.stop_signal)
        code = self.process.wait(wait_s)
        self.process = None
        return code

    stop_signal = signal.SIGTERM

    def kill9(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def connect(self, **arguments):
        return wire.Connection(self.port, **arguments)

    def log_tail(self, bytes_max=4000):
        with open(self.log_path, "rb") as log:
            return log.read()[-bytes_max:].decode(errors="replace")

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def resident_bytes_max(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("no VmHWM")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            try:
                self.stop(30)
            except subprocess.TimeoutExpired:
                self.kill9()


class Varve(Server):
    """`varve serve` on one directory."""

    name = "varve"

    def __init__(self, directory, pool_mib=256, config="", page_kib=8, binary=None):
        super().__init__(directory, pool_mib)
        self.binary = os.path.abspath(binary or varve_binary())
        if not os.path.exists(self.binary):
            raise SystemExit(f"{self.binary} does not exist: cargo build -p varve, or set VARVE_BIN")
        self.config_path = f"{directory}.toml"
        with open(self.config_path, "w") as file:
            page_size = f'page_size = "{page_kib}KiB"\n' if page_kib != 8 else ""
            file.write(f'[pool]\nsize = "{pool_mib}MiB"\n{page_size}\n[server]\nmax_connections = 400\n{config}')

    def command(self):
        return [self.binary, "serve", self.directory, "--listen", f"127.0.0.1:{self.port}", "--config", self.config_path]

    def version(self):
        return subprocess.run([self.binary, "--version"], capture_output=True, text=True).stdout.strip()

    PACKED = '\n[home]\nlayout = "packed"\ncompression = "lz4"\n'
    # The sizes are small, so that pages are written to the data files all the time, and log files are reused.
    NVM = '\n[nvm]\ndevice = "main"\nsize = "80MiB"\nlog = "64MiB"\n\n[protection]\nkind = "nvm"\n'
    WAYS = {"packed": PACKED, "nvm": NVM, "nvm-packed": NVM + PACKED, "pax": ""}

    @classmethod
    def storing(cls, how, directory, pool_mib, page_kib, binary=None):
        """Makes a server with pages of this size. `how` says how tables are stored: one of WAYS, or a codec.
        `binary` is the program of another build."""
        codec = f'\n[home]\ncompression = "{how}"\n' if how else ""
        made = cls(directory, pool_mib, cls.WAYS.get(how, codec), page_kib, binary)
        made.tables = "pax" if how == "pax" else ""
        return made

    def reshape(self):
        """Writes the tables again by columns, if they are to be stored so, because the clients' CREATE TABLE
        statements do not say so."""
        if self.tables != "pax":
            return
        connection = self.connect(timeout_s=3600)
        for (table,) in connection.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"):
            connection.query(f"ALTER TABLE {table} SET (layout = 'pax')")
        connection.close()

    def add_postgres(self):
        """Makes the role postgres, as which the tests connect. The first role of another build may have the
        name varve."""
        first = wire.Connection(self.port, user="varve")
        if not first.query("SELECT 1 FROM pg_roles WHERE rolname = 'postgres'"):
            first.query("CREATE ROLE postgres SUPERUSER LOGIN")
        first.close()

    def check(self):
        """Runs `varve check`. Returns (exit code, output)."""
        done = subprocess.run([self.binary, "check", self.directory, "--config", self.config_path], capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout + done.stderr


class Postgres(Server):
    """PostgreSQL with durable settings. See bench/README.md for the reasons."""

    name = "postgres"
    locale = "C"
    stop_signal = signal.SIGINT

    def __init__(self, directory, pool_mib=256):
        super().__init__(directory, pool_mib)
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        self.bin = found[-1] if found else os.path.dirname(os.path.realpath(shutil.which("postgres") or "/usr/bin/postgres"))

    SETTINGS = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "max_wal_size": "4GB",
        "min_wal_size": "1GB",
        "checkpoint_timeout": "15min",
        "max_connections": "400",
        "autovacuum": "on",
        "huge_pages": "try",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_locks_per_transaction": "64",
    }

    def identity(self):
        if os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam("postgres")
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def initialise(self):
        os.makedirs(self.directory, exist_ok=True)
        if self.identity():
            entry = pwd.getpwnam("postgres")
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)
        command = [f"{self.bin}/initdb", "-k", "-U", "postgres", "-A", "trust", f"--locale={self.locale}", "-E", "UTF8", "-D", self.directory]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self.identity())

    def settings(self):
        return {**self.SETTINGS, "shared_buffers": f"{self.pool_mib}MB"}

    def command(self):
        settings = [f"--{name}={value}" for name, value in self.settings().items()]
        return [f"{self.bin}/postgres", "-D", self.directory, "-p", str(self.port), "-k", "", "-h", "127.0.0.1", *settings]

    def kill9(self):
        super().kill9()
        time.sleep(1)  # its other processes notice this soon; a start before that is refused

    def start(self, wait_s=60):
        if not os.path.exists(os.path.join(self.directory, "PG_VERSION")):
            self.initialise()
        return super().start(wait_s)

    def written_bytes(self):
        return None

    def version(self):
        return subprocess.run([f"{self.bin}/postgres", "--version"], capture_output=True, text=True).stdout.strip()

    def check(self):
        return 0, "(no check for PostgreSQL)"


def make(kind, directory, pool_mib=256, page_kib=8):
    """Returns a server by its name on the command line: postgres, mariadb or varve. After mariadb and varve
    may follow how tables are stored, such as mariadb-page, varve-lz4, varve-nvm, varve-pax. For another
    build of Varve, `@` and the program follow: varve@/tmp/before/varve."""
    from .mariadb import MariaDb

    kind, _, binary = kind.partition("@")
    name, _, how = kind.partition("-")
    if binary and name != "varve":
        raise SystemExit(f"{kind}@{binary}: another program behind @ is for varve only")
    if name == "postgres":
        return Postgres(directory, pool_mib)
    if name == "mariadb":
        return MariaDb.storing(how, directory, pool_mib, page_kib)
    if name != "varve":
        raise SystemExit(f"{name}: no such server; postgres, mariadb and varve are")
    return Varve.storing(how, directory, pool_mib, page_kib, binary)
