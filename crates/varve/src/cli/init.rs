//! The command `varve init`.

use std::path::Path;

use varve_server::Proof;
use varve_sql::SqlError;

use super::{CommandError, InitArgs, say, warn};
use crate::Embedded;
use crate::data_directory::DirectoryState;
use crate::error::OpenError;

pub fn run(arguments: &InitArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    let settings = place.settings()?;
    let path = place.directory.clone();
    if place.state()? == DirectoryState::Database {
        return Err(OpenError::AlreadyDatabase { path }.into());
    }
    let password = arguments.password_file.as_deref().map(first_line).transpose()?;
    let database = Embedded::open_with(&path, &settings)?;
    database.home().warnings.iter().for_each(|what| warn(what));
    if let Some(password) = password {
        give_password(&database, &password)?;
    }
    let is_locked_out = settings.server.authentication == Proof::Password && !database.sql().has_login();
    let advice = how_to_log_in(&path, &database);
    database.close()?;
    say(format!(
        "created a new database in {}; start it with: varve serve {}",
        path.display(),
        path.display()
    ));
    if is_locked_out {
        say(format!("nobody can log in there yet; first: {advice}"));
    }
    Ok(())
}

/// Returns the statements that give the first role a password.
pub fn how_to_log_in(directory: &Path, database: &Embedded) -> String {
    let role = database.sql().first_role();
    format!("varve sql {} -c \"ALTER ROLE {role} PASSWORD '...'\"", directory.display())
}

fn first_line(file: &Path) -> Result<String, CommandError> {
    let unusable = |error| CommandError::System { what: "Cannot read the password from its file", error };
    let text = std::fs::read_to_string(file).map_err(unusable)?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(unusable(std::io::Error::other(format!("the first line of {} is empty", file.display())))),
    }
}

fn give_password(database: &Embedded, password: &str) -> Result<(), CommandError> {
    let refused = |error: SqlError| CommandError::Session(error.message.into());
    let (role, password) = (database.sql().first_role(), password.replace('\'', "''"));
    let sql = format!("ALTER ROLE {role} PASSWORD '{password}'");
    database.session().and_then(|mut session| session.run(&sql)).map_err(refused)?;
    Ok(())
}
