//! If a statement finds a damaged page, its error gets the name of the table or index. After a panic in the
//! storage engine every statement fails, because data in memory may be wrong.
//!
//! This module does not know how a page is damaged or repaired.

use super::Session;
use crate::error::{Result, SqlError, SqlState};

const HINT: &str = "Run varve check; restore the table from a backup, or drop it.";
const INDEX_HINT: &str = "Run varve check; drop the index and create it anew.";

const STOPPED: &str =
    "the database has stopped: a fault of the program in the storage engine may have left its memory wrong";

impl Session {
    /// Fails if there was a panic in the storage engine, even if it happened while this statement ran.
    pub(super) fn still_sound(&self) -> Result<()> {
        if self.shared.engine.pager().is_sound() {
            return Ok(());
        }
        let hint = "Restart the server: it recovers what was committed from the log.";
        Err(SqlError::new(SqlState::IO_ERROR, STOPPED).with_hint(hint))
    }

    /// Adds the table or index to the error of a damaged page. The description of the damage becomes the
    /// error's detail.
    pub(super) fn of_damaged_page(&self, mut error: SqlError) -> SqlError {
        let Some(page) = error.subject.as_ref().and_then(|subject| subject.page) else { return error };
        let Some((table, index)) = self.shared.engine.table_of_page(page) else { return error };
        let (schema, name) = (&table.schema, &table.name);
        let (what, hint) = match index {
            Some(index) => (format!("index {schema}.{index} of table {schema}.{name}"), INDEX_HINT),
            None => (format!("table {schema}.{name}"), HINT),
        };
        let no = page.no().0;
        let message = format!("page {no} of {what} is damaged").into_boxed_str();
        let found = std::mem::replace(&mut error.message, message);
        error
            .of_table(schema, name)
            .with_detail(format!("{found}. Other rows remain readable."))
            .with_hint(hint)
    }
}
