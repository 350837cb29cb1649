//! `varve init`.

use super::{CommandError, InitArgs, say};
use crate::Embedded;
use crate::error::OpenError;
use crate::home::State;

pub fn run(arguments: &InitArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    let settings = place.settings()?;
    let path = place.directory.clone();
    if place.state()? == State::Database {
        return Err(OpenError::AlreadyDatabase { path }.into());
    }
    Embedded::open_with(&path, &settings)?.close()?;
    say(format!("made a new database in {}; start it with: varve serve {}", path.display(), path.display()));
    Ok(())
}
