//! The command `varve sql`.

use std::path::Path;

use varve_sql::SqlError;

use super::{CommandError, DEFAULT_DIRECTORY, SqlArgs, warn};
use crate::Embedded;
use crate::data_directory::DirectoryState;
use crate::error::OpenError;
use crate::shell::{Shell, Work};
use crate::system_file::Misfit;

pub fn run(arguments: &SqlArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    if place.state()? == DirectoryState::Missing && !may_create(arguments) {
        return Err(OpenError::NoDirectory { path: place.directory.clone() }.into());
    }
    let system = place.system(Misfit::Told)?;
    let settings = place.with_flags(system.settings().clone());
    let database = Embedded::open_with_system(&place.directory, &settings, system)?;
    database.home().warnings.iter().for_each(|what| warn(what));
    let done = work(arguments, &database);
    database.close()?;
    done
}

/// Returns whether a missing directory is created. Without `--create`, a directory that the user named is not
/// created, because the name may be wrong.
fn may_create(arguments: &SqlArgs) -> bool {
    arguments.create || arguments.place.directory == Path::new(DEFAULT_DIRECTORY)
}

fn work(arguments: &SqlArgs, database: &Embedded) -> Result<(), CommandError> {
    let refused = |error: SqlError| CommandError::Session(error.message.into());
    let mut shell = Shell::open(database.sql(), &arguments.user, arguments.format).map_err(refused)?;
    if arguments.commands.is_empty() && arguments.files.is_empty() {
        return shell.run(Work::StandardInput).map_err(|_| CommandError::Said);
    }
    let texts = shell.run(Work::Texts(arguments.commands.clone()));
    texts.and_then(|()| shell.run(Work::Files(arguments.files.clone()))).map_err(|_| CommandError::Said)
}
