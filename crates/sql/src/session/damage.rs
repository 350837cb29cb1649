//! Damaged pages: the error names the table, since nobody knows what page 340 is.
//!
//! Does not know: what damage is; how a table is mended.

use super::Session;
use crate::error::SqlError;

const HINT: &str = "Run varve check; restore the table from a backup, or drop it.";
const INDEX_HINT: &str = "Run varve check; drop the index and create it anew.";

impl Session {
    /// The error of a damaged page, with the table or index that it belongs to. What was found out about the page becomes the detail.
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
