//! The tables, views and rights that a statement needs, collected during binding.

use std::sync::Arc;

use varve_engine::{ObjectId, TableDef};

use crate::rights::{Need, Needed};

/// What the statement uses so far.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Tables that were named.
    pub(super) tables: Vec<Arc<TableDef>>,
    /// Views that were named: what is bound holds for this version of the catalog only.
    pub(super) views: Vec<ObjectId>,
    /// A sequence was read as a relation, which is bound by its OID.
    pub(super) sequence: bool,
    /// ONLY was read.
    pub(super) only: bool,
    /// What was read in FROM, and as whom.
    pub(super) needs: Vec<Need>,
    /// The view whose text is bound, if its owner is who reads what it names.
    pub(super) through: Option<ObjectId>,
}

impl Uses {
    /// Notes that the statement reads something in FROM.
    pub(super) fn need(&mut self, what: Needed) {
        let need = Need { what, through: self.through };
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }
}
