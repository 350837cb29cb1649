//! Passes errors through the library DataFusion. An error of Varve comes out unchanged. An error of
//! DataFusion gets an SQLSTATE.

use std::error::Error;

use datafusion::common::DataFusionError;
use varve_sql::{SqlError, SqlState};

const OUT_OF_MEMORY: &str = "out of memory";

/// Wraps an error of Varve into an error of DataFusion.
pub fn wrapped(e: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(e))
}

/// Returns the error that a client sees.
pub fn unwrapped(e: DataFusionError) -> SqlError {
    if let Some(ours) = find::<SqlError>(&e) {
        return ours.clone();
    }
    if let Some(io) = find::<std::io::Error>(&e) {
        if let Some(ours) = io.get_ref().and_then(|inner| inner.downcast_ref::<SqlError>()) {
            return ours.clone();
        }
        let state = if io.kind() == std::io::ErrorKind::StorageFull { "53100" } else { "58030" };
        return SqlError::new(SqlState(state), format!("could not use a temporary file: {io}"));
    }
    let root = e.find_root();
    match root {
        DataFusionError::ResourcesExhausted(_) => out_of_memory(),
        DataFusionError::NotImplemented(what) => SqlError::unsupported(what),
        _ => SqlError::internal(root.to_string()),
    }
}

/// Returns error 53200: the memory of general queries is used up.
pub fn out_of_memory() -> SqlError {
    let hint =
        "Raise memory in the section [query] of varve.toml, or let the statement collect fewer values.";
    SqlError::new(SqlState("53200"), OUT_OF_MEMORY).with_hint(hint)
}

/// Returns whether an error is `out_of_memory`, or an error of DataFusion that `unwrapped` converts to
/// `out_of_memory`.
pub fn is_out_of_memory(e: &DataFusionError) -> bool {
    matches!(e.find_root(), DataFusionError::ResourcesExhausted(_))
        || find::<SqlError>(e).is_some_and(|e| e.sqlstate.0 == "53200" && &*e.message == OUT_OF_MEMORY)
}

/// Returns the first error of this type among an error and its causes.
fn find<E: Error + 'static>(e: &DataFusionError) -> Option<&E> {
    let mut link: Option<&(dyn Error + 'static)> = Some(e);
    while let Some(error) = link {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        link = error.source();
    }
    None
}
