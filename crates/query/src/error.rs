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
        DataFusionError::ResourcesExhausted(text) => exhausted(text),
        DataFusionError::NotImplemented(what) => SqlError::unsupported(what),
        _ => SqlError::internal(root.to_string()),
    }
}

/// Operations, each with a part of the name by which an error of DataFusion's memory pool calls it.
const OPERATIONS: [(&str, &str); 12] = [
    ("TopK", "a sort with LIMIT"),
    ("ExternalSorter", "a sort"),
    ("AggregateStream", "a grouping"),
    ("HashJoinInput", "a hash join"),
    ("NestedLoopJoin", "a join without an equality"),
    ("CrossJoin", "a cross join"),
    ("SMJStream", "a merge join"),
    ("SpillJoin", "a join"),
    ("query of WITH", "a query of WITH"),
    ("recursive query", "a recursive query"),
    ("IN", "a subquery of IN"),
    ("values", COLLECTING),
];

/// Aggregates whose values stay in memory.
pub const COLLECTING: &str =
    "an aggregate that keeps its values (array_agg, string_agg, percentile_cont or DISTINCT)";

/// Returns the error 53200 for an operation that needs more memory than it may use.
pub fn out_of_memory(operation: &str) -> SqlError {
    let hint = "Raise memory in the section [query] of varve.toml, or let the statement read fewer rows.";
    SqlError::new(SqlState("53200"), OUT_OF_MEMORY)
        .with_detail(format!("There is not enough memory for {operation}."))
        .with_hint(hint)
}

/// Returns the error 53200 for an error of a memory pool. This error has the name of the operation after "for
/// ".
fn exhausted(text: &str) -> SqlError {
    let consumer = text.split_once("for ").map_or(text, |(_, rest)| rest);
    let consumer = consumer.split_once(" with ").map_or(consumer, |(name, _)| name);
    let named = OPERATIONS.iter().find(|(name, _)| consumer.starts_with(name));
    let named = named.or_else(|| OPERATIONS.iter().find(|(name, _)| consumer.contains(name)));
    let error = out_of_memory(named.map_or("an operation of the query", |(_, operation)| operation));
    match text.contains(AT_WORK_MEM) {
        true => error.with_hint("Raise work_mem, for example SET work_mem = '64MB'."),
        false => error,
    }
}

/// A part of the error of an operation that has reached `work_mem`.
pub const AT_WORK_MEM: &str = "work_mem is";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_operation_and_the_limit() {
        let told = |text: &str| exhausted(text);
        let of = |text: &str| told(text).detail.unwrap_or_default().to_string();
        let pool = "Failed to allocate additional 1.0 MB for TopK[0] with 2.0 MB already allocated for this reservation";
        assert_eq!(of(pool), "There is not enough memory for a sort with LIMIT.");
        assert_eq!(
            of("Failed to allocate additional 1 B for GroupedHashAggregateStream[0] (Count(IN)) with"),
            "There is not enough memory for a grouping."
        );
        assert!(told(pool).hint.is_some_and(|hint| hint.contains("[query] of varve.toml")));
        let bounded = told("no memory for HashJoinInput: it holds 9 bytes, and work_mem is 8");
        assert_eq!(bounded.detail.as_deref(), Some("There is not enough memory for a hash join."));
        assert!(bounded.hint.is_some_and(|hint| hint.contains("SET work_mem")));
    }
}
