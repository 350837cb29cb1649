"""MariaDB with durable settings, as a server to compare with. See bench/README.md for the reasons."""

import os
import pwd
import signal
import socket
import subprocess

from . import wire
from .server import Server


class MariaDb(Server):
    """`mariadbd` on one directory, InnoDB only."""

    name = "mariadb"
    stop_signal = signal.SIGTERM
    DATABASE = "bench"

    SETTINGS = {
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_doublewrite": "ON",
        "innodb_flush_method": "O_DIRECT",
        "innodb_log_file_size": "4G",
        "innodb_buffer_pool_dump_at_shutdown": "OFF",
        "innodb_buffer_pool_load_at_startup": "OFF",
        "max_connections": "400",
        "max_prepared_stmt_count": "100000",
    }

    # Debian's place, and where scripts/setup puts what it takes out of a package.
    PLUGINS = ("/usr/lib/mysql/plugin", os.path.join(os.path.dirname(__file__), "../../target/mariadb/usr/lib/mysql/plugin"))
    # The codec that is built in. It is used if the plug-in of the wanted codec is missing.
    CODEC = "zlib"

    def __init__(self, directory, pool_mib=256, how="", page_kib=8):
        super().__init__(directory, pool_mib)
        self.page_kib = page_kib
        self.tables, _, codec = how.partition("-")
        if self.tables not in ("", "page", "row"):
            raise SystemExit(f"mariadb-{how}: its tables are page (page_compressed) or row (ROW_FORMAT=COMPRESSED)")
        self.codec = self.found_codec(codec) if self.tables == "page" else ""

    @classmethod
    def storing(cls, how, directory, pool_mib, page_kib):
        """Makes a server whose tables are stored in one of these ways: unchanged, page_compressed (`page`,
        `page-zlib`, `page-lz4` ...) or ROW_FORMAT=COMPRESSED (`row`)."""
        return cls(directory, pool_mib, how, page_kib)

    @classmethod
    def found_codec(cls, asked):
        """Returns the codec of page_compressed. Without an option, it is lz4 if Debian's plug-in is there."""
        if asked not in ("", cls.CODEC) and not cls.plugin_directory(asked):
            raise SystemExit(f"mariadb has no {asked} here: install mariadb-plugin-provider-{asked}")
        return asked or ("lz4" if cls.plugin_directory("lz4") else cls.CODEC)

    @classmethod
    def plugin_directory(cls, codec):
        """Returns the directory of the codec's plug-in, or None."""
        found = (os.path.abspath(place) for place in cls.PLUGINS if os.path.exists(os.path.join(place, f"provider_{codec}.so")))
        return next(found, None)

    def settings(self):
        """Returns all settings, with those of this server's pages and codec."""
        settings = {**self.SETTINGS, "innodb_page_size": f"{self.page_kib}k"}
        if self.codec:
            settings["innodb_compression_algorithm"] = self.codec
        if self.codec not in ("", self.CODEC):
            settings["plugin_dir"] = self.plugin_directory(self.codec)
            settings["plugin_load_add"] = f"provider_{self.codec}"
        return settings

    def reshape(self):
        """Compresses the tables, because the clients' CREATE TABLE statements do not."""
        how = {"page": "PAGE_COMPRESSED=1", "row": f"ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={self.page_kib // 2}"}.get(self.tables)
        for table in self.sql("SHOW TABLES").split() if how else []:
            self.sql(f"ALTER TABLE `{table}` {how}, FORCE")

    def identity(self):
        """Returns options for the user of the process, because MariaDB refuses to run as root. Only Debian's
        package with the service makes a user of its own."""
        if os.geteuid() != 0:
            return {}
        try:
            entry = pwd.getpwnam("mysql")
        except KeyError:
            entry = pwd.getpwnam("nobody")
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def initialise(self):
        os.makedirs(self.directory, exist_ok=True)
        identity = self.identity()
        if identity:
            os.chown(self.directory, identity["user"], identity["group"])
        command = ["mariadb-install-db", "--no-defaults", f"--datadir={self.directory}", "--auth-root-authentication-method=normal", "--skip-test-db", f"--innodb_page_size={self.page_kib}k"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd="/", **identity)

    def command(self):
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings().items()]
        place = [f"--datadir={self.directory}", f"--socket={self.directory}/socket", f"--port={self.port}", "--bind-address=127.0.0.1"]
        return ["/usr/sbin/mariadbd", "--no-defaults", *place, f"--innodb-buffer-pool-size={self.pool_mib}M", "--skip-log-bin", "--skip-name-resolve", *settings]

    def start(self, wait_s=60):
        if not os.path.exists(os.path.join(self.directory, "ibdata1")):
            self.initialise()
        waited = super().start(wait_s)
        self.sql(f"CREATE DATABASE IF NOT EXISTS {self.DATABASE}", database="mysql")
        return waited

    def probe(self, wait_s):
        """Connects. When the server is up, it sends a greeting to each client."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=wait_s) as probe:
                if not probe.recv(5):
                    raise wire.ConnectionLost("no greeting")
        except OSError as error:
            raise wire.ConnectionLost(str(error)) from error

    def sql(self, text, database=DATABASE):
        """Runs SQL through Debian's client. Returns the output."""
        command = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "-N", database, "-e", text]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout

    def sysbench_options(self):
        return ["--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={self.port}", "--mysql-user=root", f"--mysql-db={self.DATABASE}"]

    def bench_address(self):
        return f"mysql://root@127.0.0.1:{self.port}/{self.DATABASE}"

    def go_tpc_options(self):
        return ["-d", "mysql", "-H", "127.0.0.1", "-P", str(self.port), "-U", "root", "-D", self.DATABASE]

    def settle(self, tables):
        for table in tables:
            self.sql(f"ANALYZE TABLE {table}")
        self.sql("FLUSH TABLES")

    def version(self):
        return subprocess.run(["/usr/sbin/mariadbd", "--version"], capture_output=True, text=True).stdout.strip()

    def check(self):
        return 0, "(no check for MariaDB)"
