//! The command `varve dump`.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
    let mut out = output(arguments.output.as_deref())?;
    Ok(dump(&mut *link, source.name(), &scope, parts, &mut out)?)
}

/// Opens the output. A file that exists is not overwritten: it may be the last good dump.
fn output(file: Option<&Path>) -> Result<Box<dyn Write>, CommandError> {
    let Some(path) = file else {
        return Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())));
    };
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let made =
        made.map_err(|error| CommandError::System { what: "Cannot create the file of --output", error })?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, made)))
}
