//! TPC-C (revision 5.11) on the memory-oriented engines, as Arulraj, Pavlo and Dulloor (2015, section 5.1)
//! run it: below SQL, with transactions that stay in their partition. Numbers in brackets are clauses of the
//! specification.
//!
//! 1. The inputs of all transactions are drawn before a run, and every engine gets the same inputs.
//! 2. A partition has whole warehouses and a copy of the items. A remote warehouse is another warehouse of
//!    the same partition. So a partition with one warehouse has no remote warehouses.
//! 3. There are no terminals, no keying times and no queue of deliveries.
//!
//! This module does not know engines or published values.

mod conditions;
mod inputs;
mod load;
mod row;
mod schema;
mod transactions;
mod workload;

pub use inputs::SHARES;
pub use workload::{Tpcc, read_warehouse};
