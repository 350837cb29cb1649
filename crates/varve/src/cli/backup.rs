//! The commands `varve backup`, `varve backup verify` and `varve restore`.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use varve_engine::{Algorithm, BackupOptions, Compression};
use varve_pager::{
    ArchiveSource, BackupBase, BackupSource, BackupSummary, HomeLayout, PackedConfig, RestoredTablespace,
    Until,
};

use super::{BackupArgs, BackupCommand, CommandError, RestoreArgs, Where, moment, say, warn};
use crate::Embedded;
use crate::archive_place::ArchivePlace;
use crate::backup_place::{BackupWriter, ListedTablespace, StoredBackup};
use crate::config::show_bytes;
use crate::data_directory::{DatabaseDevices, DirectoryState};
use crate::error::OpenError;
use crate::transfer::link::with_cause;

/// The time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The number of bytes that are read from the server at once.
const PIECE_BYTES: usize = 256 << 10;
/// The longest sleep that keeps the rate.
const NAP_MAX: Duration = Duration::from_secs(1);

/// A backup that is being taken by this process.
struct Taking {
    writer: BackupWriter,
    shows_progress: bool,
    shown: Instant,
}

impl Taking {
    fn write(&mut self, piece: &[u8]) -> Result<(), CommandError> {
        self.writer.write(piece)?;
        if self.shows_progress && self.shown.elapsed() >= PROGRESS_EVERY {
            self.shown = Instant::now();
            let (done, pages) = self.writer.progress();
            let percent = (done * 100).checked_div(pages).unwrap_or(100).min(100);
            say(format!("{percent} %: {done} of {pages} pages, {}", show_bytes(self.writer.bytes())));
        }
        Ok(())
    }
}

/// Runs `varve backup`.
pub fn run(arguments: &BackupArgs) -> Result<(), CommandError> {
    match (&arguments.command, &arguments.source, &arguments.to) {
        (Some(BackupCommand::Verify { place, earlier }), _, _) => verify(place, earlier),
        (None, Some(source), Some(to)) => take(arguments, source, to),
        (None, _, _) => Err(CommandError::Failed("varve backup needs a source and --to".into())),
    }
}

fn take(arguments: &BackupArgs, source: &str, to: &Path) -> Result<(), CommandError> {
    let earlier = arguments.earlier.as_deref().map(StoredBackup::open).transpose()?;
    let base = earlier.as_ref().map(StoredBackup::as_base).transpose()?;
    let writer = BackupWriter::create(to, arguments.earlier.as_deref())?;
    let mut taking = Taking { writer, shows_progress: arguments.progress, shown: Instant::now() };
    if source.contains("://") {
        from_server(arguments, source, base, &mut taking)?;
    } else {
        from_directory(arguments, Path::new(source), base, &mut taking)?;
    }
    let bytes = taking.writer.bytes();
    let BackupSummary { start, end, .. } = taking.writer.finish()?;
    let unchanged = match start.base {
        Some(_) => format!(", {} unchanged ones are in the earlier backup", end.same),
        None => String::new(),
    };
    say(format!(
        "backup {:016x} of the state at LSN {} is in {}: {} pages{unchanged}, {}",
        start.backup,
        end.end,
        to.display(),
        end.pages,
        show_bytes(bytes)
    ));
    Ok(())
}

/// Takes a backup of a running server.
fn from_server(
    arguments: &BackupArgs,
    url: &str,
    base: Option<BackupBase>,
    taking: &mut Taking,
) -> Result<(), CommandError> {
    let failed = |error: postgres::Error| {
        if error.as_db_error().is_none() {
            return lost_connection(&error);
        }
        let why = error.as_db_error().map_or_else(
            || error.to_string(),
            |of_server| {
                let detail = of_server.detail().or(of_server.hint());
                detail.map_or_else(
                    || of_server.message().to_owned(),
                    |more| format!("{}. {more}", of_server.message()),
                )
            },
        );
        CommandError::Failed(format!("the server at the given address says: {}", why.trim_end_matches('.')))
    };
    let mut client = Client::connect(url, NoTls).map_err(|error| match error.as_db_error() {
        Some(_) => failed(error),
        None => CommandError::Failed(format!(
            "there is no connection to the server at the given address: {}. Check the address, and whether the server runs",
            with_cause(&error)
        )),
    })?;
    client.batch_execute("SET statement_timeout = 0").map_err(failed)?;
    let mut options = vec![format!("COMPRESSION '{}'", arguments.compress)];
    options.extend(arguments.max_rate.map(|rate| format!("MAX_RATE {}", (rate / 1024).max(32))));
    options.extend(base.map(|base| format!("EARLIER '{base}'")));
    let statement = format!("BASE_BACKUP ({})", options.join(", "));
    let mut reader = client.copy_out(statement.as_str()).map_err(failed)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = reader.read(&mut piece).map_err(|error| match error.into_inner() {
            Some(inner) => match inner.downcast::<postgres::Error>() {
                Ok(of_server) => failed(*of_server),
                Err(other) => lost_connection(&*other),
            },
            None => lost_connection(&io::Error::from(io::ErrorKind::ConnectionReset)),
        })?;
        match count {
            0 => return Ok(()),
            count => taking.write(&piece[..count])?,
        }
    }
}

fn lost_connection(error: &dyn Error) -> CommandError {
    let why = with_cause(error);
    CommandError::Failed(format!("the connection to the server failed: {why}. Take the backup again"))
}

/// Takes a backup of a database that no server uses. Opening it may recover it from its log.
fn from_directory(
    arguments: &BackupArgs,
    directory: &Path,
    base: Option<BackupBase>,
    taking: &mut Taking,
) -> Result<(), CommandError> {
    let place = Where {
        directory: directory.to_owned(),
        config: arguments.config.clone(),
        pool: None,
        accept_copy: false,
    };
    let settings = place.settings()?;
    place.must_be_database()?;
    let database = Embedded::open_with(directory, &settings)?;
    database.home().warnings.iter().for_each(|what| warn(what));
    let copied = copy(arguments, &database, base, taking);
    database.close()?;
    copied
}

fn copy(
    arguments: &BackupArgs,
    database: &Embedded,
    base: Option<BackupBase>,
    taking: &mut Taking,
) -> Result<(), CommandError> {
    let options = BackupOptions { compression: Compression::of(arguments.compress), base };
    let mut backup = database.engine().backup(options).map_err(CommandError::Copy)?;
    let (mut piece, began) = (Vec::new(), Instant::now());
    while backup.next(&mut piece).map_err(CommandError::Copy)? {
        taking.write(&piece)?;
        piece.clear();
        let due = arguments.max_rate.map(|rate| taking.writer.bytes() as f64 / rate as f64);
        while let Some(early) = due.and_then(|due| Duration::from_secs_f64(due).checked_sub(began.elapsed()))
        {
            if early.is_zero() {
                break;
            }
            std::thread::sleep(early.min(NAP_MAX));
        }
    }
    Ok(())
}

/// Verifies a backup. If earlier backups are given, also verifies all that it needs.
fn verify(place: &Path, earlier: &[PathBuf]) -> Result<(), CommandError> {
    let stored = StoredBackup::open(place)?;
    let chain = if earlier.is_empty() { vec![stored] } else { chain(stored, earlier)? };
    let mut newer: Option<BackupSummary> = None;
    for stored in &chain {
        let summary = stored.verify()?;
        let BackupSummary { start, end, .. } = &summary;
        say(format!(
            "backup {:016x} in {} is complete: {} pages, log from LSN {} to LSN {}",
            start.backup,
            stored.path().display(),
            end.pages,
            start.start,
            end.end
        ));
        if newer.as_ref().is_some_and(|newer| !newer.is_based_on(&summary)) {
            let what =
                format!("the backup before it is not based on the backup in {}", stored.path().display());
            return Err(CommandError::Damaged(what));
        }
        newer = Some(summary);
    }
    if let Some((id, directory)) = chain.last().map(StoredBackup::base).transpose()?.flatten() {
        say(format!(
            "it is incremental: a restore also needs backup {id:016x}, which was in {}; --earlier checks that one, too",
            directory.display()
        ));
    }
    say("no damage found");
    Ok(())
}

/// Returns the chain of backups that a restore needs, newest first.
fn chain(newest: StoredBackup, others: &[PathBuf]) -> Result<Vec<StoredBackup>, CommandError> {
    let mut known = HashMap::new();
    for directory in others {
        let stored = StoredBackup::open(directory)?;
        known.insert(stored.id()?, stored);
    }
    let mut chain = vec![newest];
    while let Some((id, directory)) = chain.last().map(StoredBackup::base).transpose()?.flatten() {
        let stored = match known.remove(&id) {
            Some(stored) => stored,
            None => StoredBackup::open(&directory)?,
        };
        if stored.id()? != id {
            let what = format!(
                "backup {id:016x} is needed, and {} holds another one; name its directory with --earlier",
                directory.display()
            );
            return Err(CommandError::Failed(what));
        }
        chain.push(stored);
    }
    Ok(chain)
}

/// Returns the tablespaces that a restore makes, and those of the backup. The archive is read only if the
/// backup lacks one of those that are moved.
fn restored_tablespaces(
    newest: &StoredBackup,
    moved: &[(String, String)],
    archive: Option<ArchiveSource<'_>>,
) -> Result<Vec<RestoredTablespace>, CommandError> {
    let of_backup = newest.tablespaces()?.into_iter();
    let of_backup: Vec<RestoredTablespace> =
        of_backup.map(|ListedTablespace { name, location }| RestoredTablespace { name, location }).collect();
    let has_all = moved.iter().all(|(old, _)| of_backup.iter().any(|listed| listed.location == *old));
    match archive.filter(|_| !has_all) {
        None => Ok(of_backup),
        Some(archive) => {
            let mut all = varve_pager::tablespaces_until(newest, archive)
                .map_err(|error| CommandError::Copy(error.into()))?;
            // A tablespace of the backup may have been dropped before the moment.
            all.extend(of_backup);
            Ok(all)
        }
    }
}

/// Refuses an OLD of `--tablespace OLD=NEW` where no tablespace was.
fn refuse_unknown_tablespaces(
    known: &[RestoredTablespace],
    moved: &[(String, String)],
) -> Result<(), CommandError> {
    let is_unknown = |(old, _): &&(String, String)| known.iter().all(|listed| listed.location != *old);
    let Some((unknown, _)) = moved.iter().find(is_unknown) else { return Ok(()) };
    let listed: Vec<String> =
        known.iter().map(|listed| format!("{} in {}", listed.name, listed.location)).collect();
    let what = match listed.is_empty() {
        true => "the backup has no tablespaces".to_owned(),
        false => format!("the tablespaces of the backup are {}", listed.join(", ")),
    };
    Err(CommandError::Failed(format!("no tablespace of the backup was in {unknown}: {what}")))
}

/// Returns the error of a restore. It says which files are left.
fn unrestored(
    place: &Where,
    tablespaces: &[RestoredTablespace],
    moved: &HashMap<&str, &str>,
    error: varve_engine::Error,
) -> CommandError {
    if !matches!(place.state(), Ok(DirectoryState::Database)) {
        return CommandError::Copy(error);
    }
    let mut left = vec![place.directory.display().to_string()];
    for listed in tablespaces {
        let location = listed.location.as_str();
        left.push((*moved.get(location).unwrap_or(&location)).to_owned());
    }
    CommandError::Failed(format!(
        "{}. The database is not complete. Before the next try, remove its files from {}, and from the devices of the \
         configuration",
        error.to_string().trim_end_matches('.'),
        left.join(", ")
    ))
}

/// Runs `varve restore`.
pub fn restore(arguments: &RestoreArgs) -> Result<(), CommandError> {
    let path = &arguments.to;
    let place =
        Where { directory: path.clone(), config: arguments.config.clone(), pool: None, accept_copy: false };
    let settings = place.settings()?;
    if place.state()? == DirectoryState::Database {
        return Err(OpenError::AlreadyDatabase { path: path.clone() }.into());
    }
    let chain = chain(StoredBackup::open(&arguments.from)?, &arguments.earlier)?;
    let newest = &chain[0];
    let store = arguments.archive.clone().map(ArchivePlace::new);
    let (timeline, until) = (arguments.timeline, arguments.until);
    let archive = store.as_ref().map(|store| ArchiveSource { store, timeline, until });
    let tablespaces = restored_tablespaces(newest, &arguments.tablespaces, archive)?;
    refuse_unknown_tablespaces(&tablespaces, &arguments.tablespaces)?;
    let (page_size, is_packed) = (newest.page_size()?, newest.is_packed()?);
    if let Some(wanted) = settings.pool.page_size_bytes.filter(|wanted| *wanted != page_size) {
        let (created, wanted) = (show_bytes(page_size), show_bytes(wanted));
        return Err(OpenError::PageSize { path: arguments.from.clone(), created, wanted }.into());
    }
    let devices = DatabaseDevices::open(path, &settings)?;
    let mut pager = devices.options(&settings)?.pager;
    if settings.layout.is_none() && is_packed {
        pager.layout = HomeLayout::Packed(PackedConfig::DEFAULT);
    }
    let moved: HashMap<&str, &str> =
        arguments.tablespaces.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    let location = |from: &str| moved.get(from).map_or_else(|| from.to_owned(), |to| (*to).to_owned());
    let sources: Vec<&dyn BackupSource> = chain.iter().map(|stored| stored as &dyn BackupSource).collect();
    let restored = varve_engine::restore(pager, &sources, archive, &location);
    devices.close();
    let report = restored.map_err(|error| unrestored(&place, &tablespaces, &moved, error))?;
    let time =
        report.time_us.map_or_else(String::new, |us| format!(" (commits up to {})", moment::shown(us)));
    say(format!(
        "restored the state at LSN {}{time} into {}: {} pages, {} changes from the log; the database has the new id {:016x}",
        report.end,
        path.display(),
        report.pages,
        report.changes,
        report.database
    ));
    if arguments.until == Until::Latest && !report.newer_timelines.is_empty() {
        let names: Vec<String> = report.newer_timelines.iter().map(ToString::to_string).collect();
        warn(&format!(
            "the archive has later log of this database after a gap, in {}: it is not restored. To restore it, \
             choose a backup that was taken after the gap",
            names.join(", ")
        ));
    }
    say(format!("the backup has no configuration file; start it with: varve serve {}", path.display()));
    Ok(())
}

/// Reads `OLD=NEW`, the locations of a tablespace.
pub(super) fn moved_tablespace(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => {
            Err("write OLD=NEW, the locations of a tablespace in the backup and in the new database"
                .to_owned())
        }
    }
}

/// Reads the name of a compression of backups.
pub(super) fn compression(text: &str) -> Result<Algorithm, String> {
    let known = Algorithm::named(text);
    known.ok_or_else(|| "is no compression: none, lz4 and zstd are the usual ones".to_owned())
}
