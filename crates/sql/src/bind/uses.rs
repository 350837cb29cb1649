//! The tables, views and rights that a statement needs, collected during binding.

use std::sync::Arc;

use varve_engine::{ObjectId, TableDef};

use crate::rights::{Need, Needed};

/// The objects that the part of the statement that is bound so far uses.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The tables that the statement names.
    pub(super) tables: Vec<Arc<TableDef>>,
    /// The views that the statement names. If there are any, the bound statement is valid for this version of
    /// the catalog only.
    pub(super) views: Vec<ObjectId>,
    /// Whether the statement reads a sequence as a relation. The sequence is bound by its OID.
    pub(super) sequence: bool,
    /// Whether the statement has ONLY.
    pub(super) only: bool,
    /// The relations that the statement reads in FROM, each with the role whose rights count.
    pub(super) needs: Vec<Need>,
    /// The view whose text is being bound, if the rights of the view's owner count for the relations in it.
    pub(super) through: Option<ObjectId>,
}

impl Uses {
    /// Records that the statement reads something in FROM.
    pub(super) fn need(&mut self, what: Needed) {
        let need = Need { what, through: self.through };
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }
}
