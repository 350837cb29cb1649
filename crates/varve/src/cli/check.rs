//! The command `varve check`.

use super::{CheckArgs, CommandError, say, warn};
use crate::Embedded;
use crate::error::OpenError;

/// The most damages that are printed. The first one is the most important.
const DAMAGES_SHOWN: usize = 20;

pub fn run(arguments: &CheckArgs) -> Result<(), CommandError> {
    let place = &arguments.place;
    let settings = place.settings()?;
    let path = place.directory.clone();
    place.must_be_database()?;
    let database = Embedded::open_with(&path, &settings)?;
    database.home().warnings.iter().for_each(|what| warn(what));
    let report = database.engine().check().map_err(OpenError::from)?;
    say(format!("read {} pages and {} rows", report.pages, report.rows));
    for damage in report.damages.iter().take(DAMAGES_SHOWN) {
        say(format!("damage: {damage}"));
    }
    let Some(first) = report.damages.first() else {
        say("no damage found");
        return Ok(database.close()?);
    };
    let count = report.damages.len();
    Err(CommandError::Damaged(format!(
        "{} is damaged: {first}. {count} damages were found. Keep a copy of the directory, and restore a backup.",
        path.display()
    )))
}
