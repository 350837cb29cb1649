//! The load of one partition, and its tests.
//!
//! This module does not know engines.

use varve_bench::tpcc::Scale;
use varve_bench::{BenchError, Result};
use varve_memory::Store;

use super::super::load::{PartitionLoad, Worker, refused};
use super::inputs::{Input, draw_inputs};
use super::transactions::TpccWorker;
use super::{conditions, load, schema};

/// The number of the first warehouse.
const FIRST_WAREHOUSE: u16 = 1;

/// TPC-C on the warehouses of one partition.
pub struct Tpcc {
    scale: Scale,
    inputs: Vec<Input>,
}

impl Tpcc {
    /// Draws transactions on the warehouses of a partition.
    pub fn new(scale: Scale, transactions: usize, seed: u64) -> Self {
        Self { scale, inputs: draw_inputs(&scale, transactions, seed) }
    }
}

/// Reads the first warehouse. This is the first query after a start.
///
/// Errors: the store refuses; there is no warehouse.
pub fn read_warehouse(store: &dyn Store) -> Result<()> {
    let key = schema::warehouse_key(FIRST_WAREHOUSE);
    match store.get(schema::WAREHOUSE, 0, key.as_slice(), &mut Vec::new()).map_err(refused)? {
        true => Ok(()),
        false => Err(BenchError::Wrong("there is no warehouse".to_owned())),
    }
}

impl PartitionLoad for Tpcc {
    fn load(&self, store: &mut dyn Store) -> Result<()> {
        load::run(&self.scale, store)
    }

    fn transactions(&self) -> usize {
        self.inputs.len()
    }

    fn worker(&self) -> Box<dyn Worker + '_> {
        Box::new(TpccWorker::new(&self.scale, &self.inputs))
    }

    fn check(&self, store: &dyn Store, transactions: usize) -> Result<()> {
        let inputs = self.inputs.get(..transactions).unwrap_or(&self.inputs);
        conditions::check(&self.scale, inputs, store)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use varve_device::{Directory, MemoryDirectory};
    use varve_memory::TableNo;

    use super::super::super::{ENGINES, Ending, Engine, Partition, StoreSettings, run};
    use super::super::schema::{self, District};
    use super::*;

    const SCALE: Scale = Scale { warehouses: 2, districts: 2, customers: 30, items: 200 };
    const SETTINGS: StoreSettings = StoreSettings {
        system_call: Duration::ZERO,
        checkpoint_log_bytes: 100_000,
        batch_transactions: 10,
        node_bytes: 4096,
        cache_bytes: 200_000,
        memtable_bytes: 30_000,
    };

    fn partition(engine: &Engine) -> (Partition, Arc<dyn varve_device::Region>) {
        let region = MemoryDirectory::new().map("partition", 48 << 20);
        let region: Arc<dyn varve_device::Region> = region.expect("a region");
        (Partition::create(engine, Arc::clone(&region), None, SETTINGS).expect("a partition"), region)
    }

    /// Runs all transactions, one after another. Returns how many of them were rolled back.
    fn run_all(load: &Tpcc, partition: &mut Partition) -> usize {
        let mut worker = load.worker();
        let store = partition.store.as_mut();
        let mut rolled_back = 0;
        for number in 0..load.transactions() {
            match worker.execute(number, store).expect("a transaction") {
                Ending::Commit => drop(store.commit().expect("a commit")),
                Ending::RollBack => {
                    rolled_back += 1;
                    store.rollback().expect("a rollback");
                }
            }
        }
        store.sync().expect("a sync");
        rolled_back
    }

    #[test]
    fn conditions_hold_on_every_engine_behind_a_run_and_a_start() {
        let load = Tpcc::new(SCALE, 2_000, 1);
        for engine in ENGINES {
            let (mut partition, region) = partition(engine);
            load.load(partition.store.as_mut()).expect("rows");
            load.check(partition.store.as_ref(), 0).expect("the conditions of the load");
            let numbers = 0..load.transactions();
            run(load.worker().as_mut(), partition.store.as_mut(), numbers, 10, &mut || ()).expect("a run");
            load.check(partition.store.as_ref(), 2_000).expect("the conditions");
            drop(partition);
            let opened = Partition::open(engine, region, SETTINGS).expect("a start");
            load.check(opened.store.as_ref(), 2_000)
                .unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        }
    }

    #[test]
    fn one_order_in_a_hundred_is_rolled_back() {
        let load = Tpcc::new(SCALE, 4_000, 3);
        let engine = Engine::named("nvm_inplace").expect("an engine");
        let (mut partition, _) = partition(engine);
        load.load(partition.store.as_mut()).expect("rows");
        let rolled_back = run_all(&load, &mut partition);
        assert!((5..=40).contains(&rolled_back), "1 % of 1,800 orders: {rolled_back}");
        load.check(partition.store.as_ref(), 4_000).expect("the conditions");
        assert!(load.check(partition.store.as_ref(), 3_990).is_err(), "ten more than expected");
    }

    /// An engine could cause each of these damages, and the check must find them.
    #[test]
    fn a_lost_row_breaks_a_condition() {
        let load = Tpcc::new(SCALE, 500, 1);
        let engine = Engine::named("nvm_inplace").expect("an engine");
        let district = District { warehouse: 1, number: 1 };
        let deletes = [
            (schema::DISTRICT, district.key()),
            (schema::ORDERS, district.row_key(3)),
            (schema::NEW_ORDER, district.row_key(29)),
            (schema::ORDER_LINE, district.line_key(3, 1)),
            (schema::HISTORY, schema::warehouse_row_key(1, 5)),
        ];
        for (table, key) in deletes {
            let (mut partition, _) = partition(engine);
            load.load(partition.store.as_mut()).expect("rows");
            let store = partition.store.as_mut();
            assert_eq!(store.delete(table, key.as_slice()), Ok(true), "{table:?}");
            store.commit().expect("a commit");
            assert!(load.check(partition.store.as_ref(), 0).is_err(), "{table:?}");
        }
        let (mut partition, _) = partition(engine);
        load.load(partition.store.as_mut()).expect("rows");
        let (key, ytd) = (schema::warehouse_key(1), schema::warehouse::YTD);
        let is_there = partition.store.patch(schema::WAREHOUSE, key.as_slice(), ytd.at(), &[1; 8]);
        assert_eq!(is_there, Ok(true));
        assert!(load.check(partition.store.as_ref(), 0).is_err(), "{:?}", TableNo::new(0));
    }
}
