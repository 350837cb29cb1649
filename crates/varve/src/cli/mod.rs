//! The command line.

mod backup;
mod bench;
mod check;
mod dump;
mod help;
mod import;
mod init;
mod moment;
mod notices;
mod nvm;
mod serve;
mod sql;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use varve_pager::Until;

use crate::config::{AUTO_FILE_NAME, ConfigError, FILE_NAME, Settings, parse_address, parse_bytes, text_of};
use crate::data_directory::{DirectoryState, inspect};
use crate::error::OpenError;
use crate::shell::Format;
use crate::system_file::{Misfit, SystemFile};
use crate::transfer::TransferError;
use crate::watch::EndpointError;

/// The reason why a command failed, as a paragraph.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The database doesn't open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The server doesn't start.
    #[error(transparent)]
    Server(#[from] varve_server::ServerError),
    /// There is no session for this user.
    #[error("There is no session: {0}.")]
    Session(String),
    /// A statement or a command failed. The error was printed.
    #[error("a statement failed")]
    Said,
    /// The check found damage; it was printed.
    #[error("{0}")]
    Damaged(String),
    /// Some pages could not be written from persistent memory to the data files.
    #[error(
        "The pages could not be written to the data files: {0}. Nothing is lost. Repair that, and run the command again."
    )]
    Drain(varve_engine::Error),
    /// There is no endpoint of metrics.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The smart device can't serve.
    #[error("The device cannot serve: {0}.")]
    Device(#[from] varve_smart::SmartError),
    /// A dump or an import failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The database could not be copied, or restored.
    #[error("{}.", .0.to_string().trim_end_matches('.'))]
    Copy(varve_engine::Error),
    /// Another failure of a command.
    #[error("{0}.")]
    Failed(String),
    /// A backup could not be taken or read.
    #[error("{}.", .0.to_string().trim_end_matches('.'))]
    Backup(#[from] crate::backup_place::BackupError),
    /// The measurement failed.
    #[error("The measurement failed: {0}.")]
    Bench(#[from] varve_bench::BenchError),
    /// The file of the server's messages can't be opened.
    #[error(
        "The log file {} cannot be opened: {error}. Correct log_file in section [server] of varve.toml, or the rights of its directory.",
        .path.display()
    )]
    Messages {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The system refused another operation.
    #[error("{what}: {error}.")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        error: std::io::Error,
    },
}

/// Varve, a transactional SQL database that speaks the PostgreSQL protocol
#[derive(Debug, Parser)]
#[command(name = "varve", version, about, long_about = help::LONG, max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a database to PostgreSQL clients
    #[command(long_about = help::SERVE)]
    Serve(ServeArgs),
    /// Make a new, empty database
    #[command(long_about = help::INIT)]
    Init(InitArgs),
    /// Read everything in a database and report damage
    #[command(long_about = help::CHECK)]
    Check(CheckArgs),
    /// Take a backup of a running server or of a stopped database, or verify one
    #[command(
        long_about = help::BACKUP,
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true
    )]
    Backup(BackupArgs),
    /// Make a database of a backup
    #[command(long_about = help::RESTORE)]
    Restore(RestoreArgs),
    /// Show what a stopped database has in persistent memory, or move it to files
    #[command(long_about = help::NVM)]
    Nvm(NvmArgs),
    /// Scan tables next to their drive, for a database
    #[command(subcommand, long_about = help::DEVICE)]
    Device(DeviceCommand),
    /// Run statements on a database in this process, without a server
    #[command(long_about = help::SQL)]
    Sql(SqlArgs),
    /// Write a database as SQL text
    #[command(long_about = help::DUMP)]
    Dump(DumpArgs),
    /// Copy a PostgreSQL database into a new or empty Varve database
    #[command(long_about = help::IMPORT)]
    Import(ImportArgs),
    /// Measure: workloads in this process or over the wire
    #[command(long_about = help::BENCH)]
    Bench(varve_bench::cli::BenchArgs),
}

/// The directory if the command names none.
const DEFAULT_DIRECTORY: &str = "varve-data";

/// Arguments of all commands on a directory.
#[derive(Debug, Args)]
struct Where {
    /// The data directory
    #[arg(default_value = DEFAULT_DIRECTORY)]
    directory: PathBuf,
    /// The configuration; without it, varve.toml in the data directory, if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Memory for the buffer pool, such as 512MiB or 2GiB; overrides the configuration
    #[arg(long, value_name = "SIZE", value_parser = pool_size)]
    pool: Option<u64>,
    /// Open a copy of a data directory that was taken while the database was running, or after a crash; then
    /// run `varve check`
    #[arg(long)]
    accept_copy: bool,
}

#[derive(Debug, Args)]
struct ServeArgs {
    #[command(flatten)]
    place: Where,
    /// Where to listen, as ADDRESS:PORT; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<std::net::SocketAddr>,
}

#[derive(Debug, Args)]
struct SqlArgs {
    #[command(flatten)]
    place: Where,
    /// Make the directory, with a new database, if it is missing
    #[arg(long)]
    create: bool,
    /// Run these statements, or one command, and leave; may be given several times
    #[arg(short, long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Run the statements of a file, after those of -c, and leave; - is standard input
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How results are written
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The role of the session
    #[arg(short = 'U', long, default_value = "postgres")]
    user: String,
}

#[derive(Debug, Args)]
struct DumpArgs {
    /// The data directory of a stopped database, or the address of a server, postgres://user@host:port/database
    #[arg(default_value = DEFAULT_DIRECTORY)]
    source: String,
    /// Only definitions, no rows
    #[arg(long, conflicts_with = "data_only")]
    schema_only: bool,
    /// Only rows and values of sequences, no definitions
    #[arg(long)]
    data_only: bool,
    /// Only this table, as name or schema.name; may be given several times
    #[arg(short, long = "table", value_name = "NAME")]
    tables: Vec<String>,
    /// Only this schema; may be given several times
    #[arg(short = 'n', long = "schema", value_name = "NAME")]
    schemas: Vec<String>,
    /// Write to this file instead of standard output. The file must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    opening: Opening,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// The address of the source, postgres://user@host:port/database
    #[arg(long, value_name = "URL")]
    from: String,
    /// The target: a data directory, which is created if it is missing, or the address of a running server
    #[arg(long, value_name = "URL|DIR", required_unless_present = "report_only")]
    to: Option<String>,
    /// Only this schema; may be given several times
    #[arg(short = 'n', long = "schema", value_name = "NAME")]
    schemas: Vec<String>,
    /// The number of tables that are copied at a time
    #[arg(short, long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// Print the compatibility report and stop; nothing is changed
    #[arg(long)]
    report_only: bool,
    #[command(flatten)]
    opening: Opening,
}

/// How a data directory is opened, if a command can also take the address of a server.
#[derive(Debug, Args)]
struct Opening {
    /// The configuration of a data directory; without it, varve.toml in the directory, if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Memory for the buffer pool of a data directory, such as 512MiB or 2GiB; overrides the configuration
    #[arg(long, value_name = "SIZE", value_parser = pool_size)]
    pool: Option<u64>,
}

impl Opening {
    /// Returns the arguments for a directory.
    fn of(&self, directory: &str) -> Where {
        Where {
            directory: PathBuf::from(directory),
            config: self.config.clone(),
            pool: self.pool,
            accept_copy: false,
        }
    }
}

#[derive(Debug, Args)]
struct InitArgs {
    #[command(flatten)]
    place: Where,
    /// Give the first role, postgres, the password in the first line of this file
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Args)]
struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// The data directory of a stopped database, or the URL of a server (postgres://user@host:port)
    #[arg(required = true, value_name = "DIRECTORY|URL")]
    source: Option<String>,
    /// The directory for the backup, missing or empty
    #[arg(long, required = true, value_name = "PLACE")]
    to: Option<PathBuf>,
    /// Leave out pages that were not changed since the backup in this directory
    #[arg(long, value_name = "PLACE")]
    earlier: Option<PathBuf>,
    /// How the backup is compressed: none, lz4 or zstd
    #[arg(long, value_name = "NAME", default_value = "lz4", value_parser = backup::compression)]
    compress: varve_engine::Algorithm,
    /// The most bytes per second, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    max_rate: Option<u64>,
    /// Print a line each second
    #[arg(long)]
    progress: bool,
    /// The configuration of a stopped database; without it, varve.toml in the data directory
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Read a whole backup and check it
    Verify {
        /// The directory of the backup
        #[arg(value_name = "PLACE")]
        place: PathBuf,
        /// Also check the earlier backups that an incremental one needs; give each directory
        #[arg(long, value_name = "PLACE")]
        earlier: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct RestoreArgs {
    /// The directory of the backup
    #[arg(long, value_name = "PLACE")]
    from: PathBuf,
    /// The data directory to make, missing or empty
    #[arg(long, value_name = "DIRECTORY")]
    to: PathBuf,
    /// The directory of an earlier backup that this one needs, if it was moved; may be given several times
    #[arg(long, value_name = "PLACE")]
    earlier: Vec<PathBuf>,
    /// Put a tablespace elsewhere; may be given several times
    #[arg(long = "tablespace", value_name = "OLD=NEW", value_parser = backup::moved_tablespace)]
    tablespaces: Vec<(String, String)>,
    /// The directory of the log archive: redo the log after the backup, too
    #[arg(long, value_name = "DIRECTORY")]
    archive: Option<PathBuf>,
    /// The moment up to which the archived log is redone: a time, an LSN such as 0/1A2B3C, or latest
    #[arg(long, value_name = "MOMENT", value_parser = moment::until, default_value = "latest", requires = "archive")]
    until: Until,
    /// The number of the archive's timeline, if several go on from the backup
    #[arg(long, value_name = "NUMBER", value_parser = moment::timeline, requires = "archive")]
    timeline: Option<u64>,
    /// The configuration of the new database; without it, varve.toml in the data directory, if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct NvmArgs {
    #[command(subcommand)]
    command: NvmCommand,
}

#[derive(Debug, Subcommand)]
enum NvmCommand {
    /// Show what is in persistent memory, and what the next start will do with the configuration
    Status(RegionArgs),
    /// Move everything to files, so that the database needs no persistent memory, or can get another region
    Drain(RegionArgs),
}

#[derive(Debug, Args)]
struct RegionArgs {
    #[command(flatten)]
    place: Where,
    /// The directory of the region's file, nvm.varve, if no device of the configuration has it any more
    #[arg(long, value_name = "DIRECTORY")]
    region: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum DeviceCommand {
    /// Serve scans of a data file until a signal comes
    Serve(varve_smart::ServeCommand),
}

fn pool_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < 1 << 20 { Err("is less than 1 MiB".to_owned()) } else { Ok(bytes) }
}

fn rate(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < 32 << 10 { Err("is less than 32 KiB per second".to_owned()) } else { Ok(bytes) }
}

fn listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    parse_address(text).map_err(|_| "it is no address; write ADDRESS:PORT, such as 127.0.0.1:5433".to_owned())
}

impl Where {
    /// Returns the settings. Four sources override each other in this order: defaults, the file, changes by
    /// ALTER SYSTEM, flags.
    fn settings(&self) -> Result<Settings, OpenError> {
        Ok(self.with_flags(self.system(Misfit::Told)?.settings().clone()))
    }

    /// Does the same as `settings`, but ignores settings of ALTER SYSTEM that no start would accept. `varve
    /// nvm drain` must work even with such settings.
    fn settings_that_fit(&self) -> Result<Settings, OpenError> {
        Ok(self.with_flags(self.system(Misfit::LeftOut)?.settings().clone()))
    }

    fn with_flags(&self, mut settings: Settings) -> Settings {
        settings.pool.size_bytes = self.pool.or(settings.pool.size_bytes);
        settings.accepts_copy = self.accept_copy;
        settings
    }

    /// Reads the settings without flags, and the file of ALTER SYSTEM.
    fn system(&self, misfit: Misfit) -> Result<SystemFile, OpenError> {
        let in_directory = self.directory.join(FILE_NAME);
        let settings = match &self.config {
            Some(file) => read_settings(file)?,
            None if in_directory.is_file() => read_settings(&in_directory)?,
            None => Settings::default(),
        };
        let system = SystemFile::read(&self.directory, settings, misfit)?;
        for left_out in system.left_out() {
            warn(&format!("{AUTO_FILE_NAME}: {left_out}"));
        }
        Ok(system)
    }

    fn state(&self) -> Result<DirectoryState, OpenError> {
        inspect(&self.directory)
    }

    /// Returns an error if there is no database in the directory.
    fn must_be_database(&self) -> Result<(), OpenError> {
        match self.state() {
            Ok(DirectoryState::Database) => Ok(()),
            Ok(_) => Err(OpenError::NoDatabase { path: self.directory.clone() }),
            Err(OpenError::Foreign { path, names }) => Err(OpenError::OtherFiles { path, names }),
            Err(error) => Err(error),
        }
    }
}

fn read_settings(file: &std::path::Path) -> Result<Settings, OpenError> {
    let bytes =
        std::fs::read(file).map_err(|error| OpenError::ConfigFile { path: file.to_owned(), error })?;
    let home = file.parent().unwrap_or(std::path::Path::new(""));
    text_of(bytes)
        .and_then(|text| Settings::parse(&text, home))
        .map_err(|error| OpenError::Config(ConfigError { file: Some(file.display().to_string()), ..error }))
}

/// Runs a command line. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let program = match Program::try_parse_from(arguments) {
        Ok(program) => program,
        Err(error) => {
            // If help can't be printed, an error can't be printed either.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let done = match program.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Nvm(arguments) => nvm::run(&arguments),
        Command::Device(DeviceCommand::Serve(serve)) => serve.run().map_err(CommandError::from),
        Command::Sql(arguments) => sql::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match done {
        Ok(()) => 0,
        Err(CommandError::Said) => 1,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "varve: {error}");
            1
        }
    }
}

/// Writes a warning. If it can't be written, the command continues.
fn warn(what: &str) {
    let _ = writeln!(std::io::stderr(), "varve: warning: {what}");
}

/// Prints a line. If the reader has gone, the command continues.
fn say(line: impl AsRef<str>) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{}", line.as_ref());
    let _ = out.flush();
}
