//! The command `varve serve`.
//!
//! Invariants
//! 1. `listening on ADDRESS:PORT` is printed on a separate line when clients can connect.
//! 2. After a signal the server accepts no new sessions, ends the existing sessions, and then closes the
//!    database. The order matters, because a session that still runs could otherwise write into a closed
//!    database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use varve_engine::TablesRegion;
use varve_pager::{HomeLayout, NvmStats, ProtectionKind, Recovery, StartProgress};
use varve_server::{Encryption, Listener, Options, Proof, Server};
use varve_sql::log::{self, Severity, Source};

use super::init::how_to_log_in;
use super::{CommandError, ServeArgs, notices, say};
use crate::Embedded;
use crate::config::{AUTO_FILE_NAME, MessageSettings, ServerSettings, Settings, show_bytes, tell};
use crate::data_directory::DirectoryState;
use crate::memory::default_pool_bytes;
use crate::messages::{self, MessageOutput};
use crate::system_file::Misfit;
use crate::watch::Endpoint;

/// The time that sessions have to end after the stop signal.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// The number of file descriptors for files, rings and the listener. Each connection needs one more.
const DESCRIPTORS_BESIDE: u64 = 256;

pub fn run(arguments: &ServeArgs) -> Result<(), CommandError> {
    let served = serve(arguments);
    if let Err(error) = &served {
        log_to_file(Severity::Fatal, &error.to_string());
    }
    served
}

fn serve(arguments: &ServeArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    let system = place.system(Misfit::Told)?;
    let altered = system.altered();
    let mut settings = place.with_flags(system.settings().clone());
    settings.server.listen = arguments.listen.unwrap_or(settings.server.listen);
    varve_sql::panics::report_panics();
    let state = place.state()?;
    let messages = begin_messages(&settings.server.messages);
    if state == DirectoryState::Database {
        open_messages(&messages)?;
    }
    let mut signals = catch_signals()?;
    raise_descriptor_limit(settings.server.max_connections as u64);
    // The address is opened first, because recovery can take minutes, and the server cannot run without an
    // address. Meanwhile the server refuses clients with 57P03 (starting up).
    let options = options(&settings.server)?;
    let listener = Listener::open_for(settings.server.listen, &options)?;
    let metrics = settings.metrics_listen.map(Endpoint::bind).transpose()?;
    let progress = Arc::<StartProgress>::default();
    let told = progress.clone();
    let starting = listener.begin_starting(move || told.to_string())?;
    let database = Embedded::open_watched(&place.directory, &settings, system, progress)?;
    // In a new data directory, no other file may be there before the database is.
    open_messages(&messages)?;
    database.home().warnings.iter().for_each(|what| notices::log_warning(what));
    introduce(&database, &settings, state);
    tell_recovery(&database);
    notices::watch(database.engine())?;
    if !altered.is_empty() {
        say(format!("{AUTO_FILE_NAME} (ALTER SYSTEM) says: {}", altered.join(", ")));
    }
    starting.end();
    let server = Server::start_with(listener, options, database.sql().clone())?;
    announce(&server, &database.sql().first_role());
    let endpoint = metrics.map(|metrics| Endpoint::start(metrics, database.engine(), database.sql()));
    let endpoint = endpoint.transpose()?;
    if let Some(endpoint) = &endpoint {
        say(format!("metrics on http://{}/metrics, a live page on /", endpoint.address()));
    }
    if settings.server.authentication == Proof::Password && !database.sql().has_login() {
        say(format!(
            "nobody can log in: no role has a password; stop this server, then: {}",
            how_to_log_in(&place.directory, &database)
        ));
    }
    say(format!("listening on {}", server.address()));
    log_to_file(Severity::Log, &format!("listening on {}", server.address()));
    await_stop(&mut signals, &messages);
    say("stopping: ending sessions, writing a checkpoint");
    log_to_file(Severity::Log, "stopping: ending sessions, writing a checkpoint");
    drop(endpoint);
    stop(server, database)
}

/// Whether the messages go to a file. Then they include those that this command prints on standard output.
static HAS_FILE: AtomicBool = AtomicBool::new(false);

/// Switches on the messages that the settings ask for. They go to stderr at first.
fn begin_messages(settings: &MessageSettings) -> Arc<MessageOutput> {
    let output = MessageOutput::new(settings.file.as_deref());
    messages::set_format(settings.format);
    if output.subscribe().is_ok() {
        log::keep();
    }
    log::keep_connections(settings.connections, settings.disconnections);
    log::keep_checkpoints(settings.checkpoints);
    output
}

/// Opens the file of the messages, if there is one.
fn open_messages(output: &MessageOutput) -> Result<(), CommandError> {
    let Some(path) = output.path() else { return Ok(()) };
    output.open().map_err(|error| CommandError::Messages { path: path.to_owned(), error })?;
    HAS_FILE.store(true, Ordering::Relaxed);
    Ok(())
}

/// Writes a message that standard output has already, if messages go to a file.
fn log_to_file(severity: Severity, message: &str) {
    if HAS_FILE.load(Ordering::Relaxed) {
        log::write(Source::SERVER, severity, message);
    }
}

/// Waits for the signal to stop. SIGHUP opens the file of the messages again.
fn await_stop(signals: &mut Signals, messages: &MessageOutput) {
    // The iterator ends only when it is closed, and it is never closed.
    for signal in signals.forever() {
        if signal != SIGHUP {
            return;
        }
        if let Err(error) = messages.open() {
            let path = messages.path().unwrap_or(Path::new("stderr")).display();
            let message = format!(
                "could not open the log file \"{path}\" again: {error}; messages still go to the old file"
            );
            notices::log_warning(&message);
        }
    }
}

/// Reports the work of a start after a crash.
fn tell_recovery(database: &Embedded) {
    let Some(recovery) = database.engine().pager().recovery().filter(|did| did.redo.applied_count > 0) else {
        return;
    };
    let Recovery { redo, analysis_time, levels_time, redo_time } = recovery;
    let all = (analysis_time + levels_time + redo_time).as_secs_f64();
    let mib = redo.log_bytes as f64 / f64::from(1 << 20);
    say(format!(
        "recovered in {all:.1} s: {} page changes redone from {mib:.1} MiB of log (analysis {:.1} s, redo {:.1} s)",
        redo.applied_count,
        analysis_time.as_secs_f64(),
        redo_time.as_secs_f64()
    ));
}

/// Returns the options of the server.
fn options(settings: &ServerSettings) -> Result<Options, CommandError> {
    let encryption = match &settings.tls {
        None => Encryption::Off,
        Some(tls) => {
            let config = varve_server::options::tls(&tls.certificate, &tls.key)?;
            if tls.required { Encryption::Required(config) } else { Encryption::Offered(config) }
        }
    };
    Ok(Options {
        proof: settings.authentication,
        encryption,
        patience: settings.authentication_timeout,
        ..Options::new(settings.max_connections)
    })
}

/// Returns an iterator that reads each SIGHUP, and the first SIGINT or SIGTERM. The second of these signals
/// ends the process.
fn catch_signals() -> Result<Signals, CommandError> {
    let fail = |error| CommandError::System { what: "Cannot catch signals", error };
    let again = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, again.clone()).map_err(fail)?;
        signal_hook::flag::register(signal, again.clone()).map_err(fail)?;
    }
    Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(fail)
}

/// Raises the limit of descriptors. The usual soft limit of 1,024 is meant for programs that use `select`.
fn raise_descriptor_limit(connections: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = 2 * connections + DESCRIPTORS_BESIDE;
    let possible = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if limit.current.is_some_and(|current| current < possible) {
        limit.current = Some(possible);
        // If the system refuses the new limit, the old one applies.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

fn introduce(database: &Embedded, settings: &Settings, state: DirectoryState) {
    let home = database.home();
    let made = if state == DirectoryState::Database { "" } else { " (new)" };
    say(format!("varve {}", env!("CARGO_PKG_VERSION")));
    for (number, device) in home.devices.iter().enumerate() {
        let made = if number == 0 { made } else { "" };
        say(format!("device {} is {}{made}", device.name, device.path.display()));
        say(format!("  {}", device.capabilities()));
    }
    let spaces = &settings.spaces;
    say(format!(
        "spaces: data on {}, log on {}, rollback on {}, temporary on {}",
        spaces.data, spaces.log, spaces.rollback, spaces.temporary
    ));
    let pool = settings.pool.size_bytes.unwrap_or_else(default_pool_bytes);
    let nvm = database.engine().pager().nvm();
    let in_nvm = nvm.as_ref().map(|nvm| nvm.log_bytes).filter(|bytes| *bytes > 0);
    let log = in_nvm.unwrap_or(settings.log.capacity_bytes);
    if let (Some(flash), Some(design)) = (&settings.flash, database.engine().pager().flash_design()) {
        let size = show_bytes(flash.settings.size_bytes);
        say(format!("flash cache: {size} on {}, {}", flash.device, design.name()));
    }
    if let Some(nvm) = nvm {
        say(introduced(&nvm));
    }
    if let Some(tables) = database.engine().tables_region() {
        say(introduced_tables(tables));
    }
    let in_force = database.engine().pager().config();
    say(format!(
        "pool of {}, log of {}, protection {}, at most {} sessions",
        show_bytes(pool),
        show_bytes(log),
        match (in_force.layout, in_force.protection) {
            (HomeLayout::Packed(_), ProtectionKind::None) => "none (layout packed needs none)",
            (HomeLayout::InPlace, ProtectionKind::None) => "none (torn pages will be lost)",
            (_, kind) => kind.name(),
        },
        settings.server.max_connections
    ));
    // Warnings of devices are printed together with the devices.
    let told = |warning: &&String| {
        let of_devices = home.devices.iter().flat_map(|device| &device.capabilities().warnings);
        of_devices.into_iter().any(|known| warning.ends_with(known.as_str()))
    };
    let warnings = database.engine().warnings();
    warnings.iter().filter(|warning| !told(warning)).for_each(|warning| say(format!("warning: {warning}")));
    // Doublewrite may be the default, which the user has not chosen.
    let is_default = matches!(settings.protection, ProtectionKind::Doublewrite { .. } | ProtectionKind::None);
    let needless = tell::warning(tell::PROTECTION, settings, database.engine().pager());
    needless.filter(|_| !is_default).iter().for_each(|warning| say(format!("warning: {warning}")));
    let kept = tell::KEPT.iter().filter_map(|name| tell::warning(name, settings, database.engine().pager()));
    kept.for_each(|warning| say(format!("warning: {warning}")));
    let proof = match settings.server.authentication {
        Proof::Nothing => "every user name is accepted without a password",
        Proof::Password => "roles prove their passwords (SCRAM-SHA-256)",
    };
    let tls = match &settings.server.tls {
        None => "no TLS",
        Some(tls) if tls.required => "TLS required",
        Some(_) => "TLS offered",
    };
    say(format!("clients: {proof}, {tls}"));
}

fn introduced(nvm: &NvmStats) -> String {
    let (medium, write_back) = (nvm.facts.medium.name(), nvm.facts.write_back.name());
    let imitates =
        nvm.facts.emulates.as_ref().map_or(String::new(), |name| format!(" with the times of {name}"));
    let [size, log] = [nvm.size_bytes, nvm.log_bytes].map(show_bytes);
    format!("nvm: {size} in {}: {medium}{imitates}, {write_back}, log of {log}", nvm.place)
}

fn introduced_tables(tables: &TablesRegion) -> String {
    let size = show_bytes(tables.allocator().region().len_bytes());
    let partitions = if tables.partitions() == 1 { "partition" } else { "partitions" };
    format!(
        "tables in persistent memory: {size} in {}, {} {partitions}",
        tables.location(),
        tables.partitions()
    )
}

fn announce(server: &Server, user: &str) {
    let (address, port) = (server.address().ip(), server.address().port());
    say(format!("connect with: psql -h {address} -p {port} -U {user} postgres"));
}

fn stop(server: Server, database: Embedded) -> Result<(), CommandError> {
    let left = server.stop(STOP_PATIENCE);
    if left > 0 {
        say(format!(
            "{left} sessions did not end; stopping without a checkpoint, so the next start recovers the database"
        ));
        return Ok(());
    }
    let engine = Arc::clone(database.engine());
    let closed = database.close();
    notices::tell(&engine, &mut notices::Told::before_now());
    closed?;
    say("stopped");
    log_to_file(Severity::Log, "stopped");
    Ok(())
}
