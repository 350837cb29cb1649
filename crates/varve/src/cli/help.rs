//! The long help texts.

/// `varve --help`
pub const LONG: &str = "\
Varve is a transactional SQL database. It speaks the PostgreSQL protocol, so psql, pgbench, sysbench \
and the PostgreSQL drivers can use it. It can also be linked into a Rust program.

Try it:

    varve serve ./data                                   # makes ./data if it is missing
    psql -h 127.0.0.1 -p 5433 -U postgres postgres       # in another terminal
    postgres=> create table item (id int primary key, name text);
    postgres=> insert into item values (1, 'lamp');
    postgres=> select * from item;

Stop the server with Ctrl-C. Committed data is there at the next start, however the server stopped.
SHOW durability says what survives a loss of power.

`varve help COMMAND` explains a command.";

/// `varve help serve`
pub const SERVE: &str = concat!(
    "\
Runs a server for the database in a directory until it gets SIGINT (Ctrl-C) or SIGTERM. If the directory \
is missing or empty, it creates a new database. It prints what it found about the devices, the settings \
in force, and, when clients can connect, `listening on ADDRESS:PORT`.

A stop ends all sessions, rolls back open transactions, and writes a checkpoint. Clients get 57P01. A \
second signal ends the process at once. The next start then recovers the database from the log.

By default, any user name can connect, but only from this machine. The settings `authentication` and \
`listen` change that. The database is named postgres.

Settings are read from varve.toml in the data directory, or from the file given with --config. ALTER \
SYSTEM SET writes varve.auto.toml in the data directory, which overrides it. pg_settings shows the \
settings (category Varve), and which of them wait for the next start. All settings are optional. This is \
a complete file:

",
    include_str!("../config/settings.toml"),
    "
Examples:

    varve serve                                 # ./varve-data, port 5433
    varve serve /srv/db --pool 4GiB
    varve serve /srv/db --listen 127.0.0.1:0    # any free port
    varve serve /srv/db --config my.toml"
);

/// `varve help init`
pub const INIT: &str = "\
Creates a new, empty database in a directory that is missing or empty. `varve serve` also does this, if \
there is no database. Use init to choose a page size or devices, to set the password of the first role, \
postgres, or to get an error if the directory is in use. A varve.toml in the directory is used.

Examples:

    varve init /srv/db
    varve init /srv/db --config my.toml
    varve init /srv/db --password-file secret.txt    # for authentication = \"scram-sha-256\"";

/// `varve help device`
pub const DEVICE: &str = "\
Runs a smart device: a process next to the drive with the data file, which scans tables for a database and \
sends only results. It opens the data file for reading, and runs beside the server of the database. \
Both sides must know the key. The connection is not encrypted, so use HOST:PORT only in a trusted network.

SQL queries use the device that the section [smart] of varve.toml names (docs/smart-device.md). Programs \
that embed Varve can use a device through the crate varve-smart, too.

Examples:

    head -c 32 /dev/urandom | base64 > device.key
    varve device serve --listen unix:/run/varve-device --directory /srv/db --key-file device.key
    varve device serve --listen 10.0.0.5:7000 --directory /srv/db --key-file device.key --profile smart-ssd";

/// `varve help sql`
pub const SQL: &str = "\
A shell for the database in a directory, without a server. It reads statements and commands from a \
terminal, from -c, from files or from standard input. It creates a new database if the directory is \
empty, or if it is missing and --create or no name was given. Only one process at a time can open a \
database. If a server runs, use psql.

At a terminal there is a history (~/.varve_history), and completion of names with the tab key. A statement \
ends with a semicolon and may have many lines. Ctrl-C cancels the running statement. \\? lists the \
commands: \\d and others show the catalog, \\copy loads a file and shows its progress.

Results go to standard output, everything else to standard error. Several statements in one -c are one \
transaction. A script ends at its first error.

Exit codes: 0 success, 1 a statement failed or the database did not open, 2 wrong usage, \
130 Ctrl-C between two statements of a script.

Examples:

    varve sql                                              # ./varve-data, at the terminal
    varve sql /srv/db --create -f schema.sql               # a new database
    varve sql /srv/db -c 'select count(*) from item'
    varve sql /srv/db --format json -c 'select * from item' > item.json
    varve sql /srv/db -f data.sql -f more.sql
    varve sql /srv/db -c \"\\copy item from 'item.csv' with (format csv)\"";

/// `varve help dump`
pub const DUMP: &str = "\
Writes the database postgres in a directory, or the database that an address names, as SQL text to standard \
output. `varve sql DIR --create -f FILE` and psql restore it. Everything is read in one snapshot. A directory \
must not be in use; a running server is dumped by its address. No programs of PostgreSQL are needed.

A dump has schemas, sequences, tables, rows, constraints, indexes, views and comments. It has no roles, owners, \
rights, tablespaces and settings. The same contents give the same text.

Examples:

    varve dump /srv/db > db.sql
    varve dump postgres://postgres@127.0.0.1:5433/postgres -o db.sql
    varve dump /srv/db --schema-only
    varve dump /srv/db --table public.item --data-only";

/// `varve help import`
pub const IMPORT: &str = "\
Copies a database of PostgreSQL into a database of Varve: schemas, tables, rows, sequences, constraints, \
indexes, views and comments. All rows are those of one snapshot of the source, which is only read.

First it tries all definitions in the target and rolls them back. From that it prints a report: what gets \
another form, because Varve lacks it, and what is left out. With --report-only it stops there; without --to it \
tries the definitions in a temporary database. Then it makes the tables, copies their rows, and makes indexes, \
foreign keys and views. At the end it compares the numbers of rows. The report and the result go to standard \
output, progress to standard error.

The target must have none of these objects. The exit code is 0 only if everything that the report promises is \
there. Otherwise the message says what was loaded and what was not.

The password of the source is read from the address or from PGPASSWORD. The connection has no TLS.

Examples:

    varve import --from postgres://app@db.example/app --report-only
    varve import --from postgres://app@db.example/app --to /srv/db --jobs 4
    varve import --from postgres://app@db.example/app --to postgres://postgres@127.0.0.1:5433/postgres
    varve import --from postgres://app@db.example/app --to /srv/db --schema sales";

/// `varve help check`
pub const CHECK: &str = "\
Reads every used page, tree, row, index entry and allocation of a database, and compares them with each \
other. Prints what it read, and the first damages with their places. The exit code is 0 if there is no \
damage, otherwise 1. It does not read free pages, the log before the checkpoint, and the older copy of \
the control page.

The database must not be in use. If it was not stopped cleanly, it is recovered first, as by `varve \
serve`.

Example:

    varve check /srv/db";

/// `varve help nvm`
pub const NVM: &str = "\
Commands for the persistent memory of a stopped database. With a section [nvm], the redo log, the newest \
pages or the doublewrite copies are in a region: the file nvm.varve of a device. The database needs this \
file like its other files. So a start with another configuration is refused.

`varve nvm status` shows what is in the region, whether the database was shut down cleanly, and what the \
next start will do with the present configuration.

`varve nvm drain` moves a database out of persistent memory. It opens the database as it is, whatever the \
configuration says, and recovers it if necessary. It writes all pages to the data files, ends a log in \
the region, and removes the region's file. After a crash, run it again; nothing is lost. Then the \
configuration decides: without [nvm], and with another [protection] kind, everything is in files. With \
[nvm], the next start creates a new region of any size. If the database has no region, drain recovers it \
and shuts it down cleanly. After that a log in files can move to persistent memory.

The file tables.varve has the tables of the memory-oriented engines. status shows its size and its space. \
drain leaves it as it is, because the rows of these tables are nowhere else. To do without the file, drop \
the tables or copy them into others, stop the server, and remove the key tables from section [nvm].

Examples:

    varve nvm status /srv/db
    varve nvm drain /srv/db
    varve nvm drain /srv/db --region /mnt/pmem    # [nvm] and its device are gone from varve.toml";

/// `varve help bench`
pub const BENCH: &str = "\
Runs workloads on a server (Varve or PostgreSQL) or in this process. Prints rates and latencies, and the \
settings.

Examples:

    varve bench run oltp_point_select --threads 16
    varve bench run tpcc --warehouses 4 --check
    varve bench run tpcb --server \"host=127.0.0.1 port=5433 user=postgres\"
    varve bench points
    varve bench commits";

/// `varve help backup`
pub const BACKUP: &str = "\
Takes a backup of a database, with all databases and roles in it, into a directory. The source is a \
running server, whose transactions go on, or the data directory of a stopped one. The backup has the \
state at the moment at which it ends. Each page and all of the log in it are verified on the way. The \
directory has the file manifest.toml only when the backup is complete.

The role must be a superuser, or have the attribute REPLICATION. The connection is not encrypted.

A backup has no configuration files, no certificates and no temporary files. A database with tables of \
memory-oriented engines cannot be backed up.

Examples:

    varve backup postgres://postgres@localhost:5433/postgres --to /backups/monday
    varve backup /srv/db --to /backups/monday           # no server may use /srv/db
    varve backup postgres://postgres@localhost:5433/postgres --to /backups/tuesday --earlier /backups/monday
    varve backup verify /backups/tuesday
    varve backup verify /backups/tuesday --earlier /backups/monday     # all that a restore needs";

/// `varve help restore`
pub const RESTORE: &str = "\
Makes a database of a backup, in a directory that is missing or empty. If the backup is incremental, the \
earlier backups must be there, too. All of them are verified before anything is made. The new database \
has a new id, so that its backups are never mixed with those of the old one. Its layout, page protection \
and devices are those of the configuration; the page size is that of the backup.

With --archive, the archived log after the backup is redone: to its end, or with --until to a time or an LSN. \
Then the database has exactly the transactions that had committed by this moment. A moment that the archive does \
not reach, or that is before the end of the backup, is refused. A time without a time zone is in UTC.

Examples:

    varve restore --from /backups/tuesday --to /srv/db2
    varve restore --from /backups/tuesday --to /srv/db2 --config my.toml
    varve restore --from /backups/tuesday --to /srv/db2 --tablespace /fast/ts=/fast/ts2
    varve restore --from /backups/tuesday --to /srv/db2 --archive /mnt/archive --until '2026-11-30 12:00:00+01'";
