//! The command `varve dump`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{CommandError, DumpArgs, Opening, warn};
use crate::Embedded;
use crate::system_file::Misfit;
use crate::transfer::dump::{Parts, dump};
use crate::transfer::link::EndPoint;
use crate::transfer::read::Scope;

/// The size of the buffer for the output, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

pub fn run(arguments: &DumpArgs) -> Result<(), CommandError> {
    let source = open(&arguments.source, &arguments.opening, false)?;
    let done = write(arguments, &source);
    let closed = source.close();
    done?;
    Ok(closed?)
}

/// Opens a data directory, or the address of a server. A directory is created if `creates`.
pub fn open(place: &str, opening: &Opening, creates: bool) -> Result<EndPoint, CommandError> {
    if place.contains("://") {
        return Ok(EndPoint::server(place)?);
    }
    let arguments = opening.of(place);
    if !creates {
        arguments.must_be_database()?;
    }
    let system = arguments.system(Misfit::Told)?;
    let settings = arguments.with_flags(system.settings().clone());
    let database = Embedded::open_with_system(&arguments.directory, &settings, system)?;
    database.home().warnings.iter().for_each(|what| warn(what));
    Ok(EndPoint::directory(database, place.to_owned()))
}

fn write(arguments: &DumpArgs, source: &EndPoint) -> Result<(), CommandError> {
    let scope = Scope { schemas: arguments.schemas.clone(), tables: arguments.tables.clone() };
    let parts = Parts { has_schema: !arguments.data_only, has_data: !arguments.schema_only };
    let mut link = source.connect()?;
    let Some(path) = &arguments.output else {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
        return Ok(dump(&mut *link, source.name(), &scope, parts, &mut out)?);
    };
    let mut file = DumpFile::create(path)?;
    dump(&mut *link, source.name(), &scope, parts, &mut file.out)?;
    file.finish()
}

/// A dump that is being written. The file gets its name when the dump is complete. Until then, `.part` stands
/// after the name. If the dump fails, the file is removed.
struct DumpFile {
    out: BufWriter<File>,
    path: PathBuf,
    partial: PathBuf,
}

fn cannot_create(error: io::Error) -> CommandError {
    CommandError::System { what: "Cannot create the file of --output", error }
}

impl DumpFile {
    /// Begins a dump. A file that exists is not overwritten: it may be the last good dump.
    fn create(path: &Path) -> Result<DumpFile, CommandError> {
        refuse_existing(path)?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".part");
        let partial = PathBuf::from(partial);
        let out = BufWriter::with_capacity(BUFFER_BYTES, File::create(&partial).map_err(cannot_create)?);
        Ok(DumpFile { out, path: path.to_owned(), partial })
    }

    /// Makes the dump durable, and gives it its name.
    fn finish(mut self) -> Result<(), CommandError> {
        let written = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        written.map_err(|error| CommandError::System { what: "Cannot write the file of --output", error })?;
        refuse_existing(&self.path)?;
        std::fs::rename(&self.partial, &self.path).map_err(cannot_create)
    }
}

impl Drop for DumpFile {
    fn drop(&mut self) {
        // After a complete dump, no file has this name.
        let _not_needed = std::fs::remove_file(&self.partial);
    }
}

fn refuse_existing(path: &Path) -> Result<(), CommandError> {
    match path.symlink_metadata() {
        Ok(_) => Err(cannot_create(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} exists already; remove it, or choose another name", path.display()),
        ))),
        Err(_) => Ok(()),
    }
}
