//! Estimates for the EXPLAIN of plans of this crate's executor, from samples of the tables.
//!
//! This module does not know how costs are computed (`explain::cost`).

use std::cell::RefCell;

use varve_engine::{LockMode, Transaction};

use crate::eval::Expr;
use crate::explain::cost::{Rates, ScanWork};
use crate::explain::short::Guesses;
use crate::general::Around;
use crate::plan::TableAccess;
use crate::settings::Settings;
use crate::statistics::Sampled;

/// Returns the costs of single operations, from the settings of the session.
pub(super) fn rates(settings: &Settings) -> Rates {
    Rates {
        sequential_page: settings.real("seq_page_cost"),
        random_page: settings.real("random_page_cost"),
        row: settings.real("cpu_tuple_cost"),
        entry: settings.real("cpu_index_tuple_cost"),
        operator: settings.real("cpu_operator_cost"),
    }
}

/// Reads samples in a transaction.
pub(super) struct Measures<'t> {
    txn: RefCell<&'t mut Transaction>,
    around: Around,
    rates: Rates,
}

impl Measures<'_> {
    /// Returns an object that makes estimates in this transaction. The transaction's statement has begun.
    pub(super) fn new(txn: &mut Transaction, around: Around, rates: Rates) -> Measures<'_> {
        Measures { txn: RefCell::new(txn), around, rates }
    }
}

impl Guesses for Measures<'_> {
    fn rates(&self) -> &Rates {
        &self.rates
    }

    fn scan(&self, target: &TableAccess, filter: Option<&Expr>) -> Option<(ScanWork, f64)> {
        let mut txn = self.txn.borrow_mut();
        // The estimate needs no locks on partitions.
        let table = txn.table_by_rows(&target.table, LockMode::AccessShare).ok()?;
        let reader = txn.constraint_reader();
        let mut sampled = Sampled { table: &table, reader, around: &self.around };
        Some(sampled.scan(target, filter))
    }
}
