//! The list of subqueries that lock rows. They run before the statement.

use super::bound::BoundQuery;
use crate::ty::Ty;

/// The queries that run before the statement.
#[derive(Debug, Default)]
pub(super) struct LockedQueries {
    /// The queries, in the order in which they run.
    pub(super) queries: Vec<LockedQuery>,
    /// Whether such queries are allowed. The session that binds the statement then runs them.
    pub(super) allowed: bool,
}

/// A query that runs before the statement.
#[derive(Debug)]
pub struct LockedQuery {
    /// The query.
    pub query: BoundQuery,
    /// The number of the parameter for its result, from 0.
    pub place: usize,
    /// The type of the elements, if all its rows are wanted, as an array.
    pub list_of: Option<Ty>,
}
