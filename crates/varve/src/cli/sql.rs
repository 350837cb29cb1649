//! `varve sql`.

use varve_sql::SqlError;

use super::{CommandError, SqlArgs};
use crate::Embedded;
use crate::shell::{Shell, Work};

pub fn run(arguments: &SqlArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    let database = Embedded::open_with(&place.directory, &place.settings()?)?;
    let done = work(arguments, &database);
    database.close()?;
    done
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
