//! Changes the size of the cache while the database runs. The cache then begins empty, in a file with another
//! number of slots.
//!
//! ```text
//!   file longer --> dirty pages to the --> gate closed, all forgotten; --> header: new shape, --> file shorter
//!   (if it grows)   data files             reads and writes end            new epoch              (if it shrinks)
//! ```
//!
//! Invariants
//! 1. If the device or the data files have no space, nothing changes. Only the file may be longer until the
//!    next start.
//! 2. While the size changes, no slot is read, written, cleaned or dirty. A lookup finds no page. A put
//!    waits, and the cache takes no page that is offered.
//! 3. The partition of a page changes with the number of partitions, under the locks of all of them. A thread
//!    that has locked a page's partition has the present one (`table_of`), and no work continues in an
//!    earlier one.
//! 4. After a crash during the change, the length of the file differs from its header, or the file has no
//!    record of its epoch. The cache then begins empty. Log records of the cache also have an epoch.
//!
//! No page is kept, because a slot has another position in a file of another size.

use std::time::Duration;

use varve_device::{planted, reached};

use crate::base::error::Result;
use crate::control::random_id;
use crate::flash::cache::{FlashCache, Table};
use crate::flash::io::store::Whose;
use crate::flash::table::Partition;
use crate::flash::table::shape::Shape;

impl FlashCache {
    /// Changes the cache to `slots` slots. The cache is empty then. If the cache is lost, or about to be, the
    /// new size takes effect at the next start.
    pub(crate) fn resize(&self, slots: u32) -> Result<()> {
        let _one_at_a_time = self.policy.switching.lock();
        let shape = Shape::of(slots);
        if shape.slots() == self.slots() || self.is_lost() || self.is_failing() {
            return Ok(());
        }
        let grows = shape.slots() > self.slots();
        let has_room = if grows { self.drive.store.set_length(shape.slots()) } else { Ok(()) };
        let drains = !planted("flash: another size forgets what home lacks");
        let drained = has_room.and_then(|()| if drains { self.drain_dirty() } else { Ok(()) });
        let resized = drained.and_then(|()| {
            let _nobody_takes = self.policy.gate.write();
            self.forget_all();
            self.wait_for_rest()?;
            self.reshape(&shape).inspect_err(|cause| self.lose(cause))
        });
        self.end_draining();
        match &resized {
            Err(_) if grows => {
                let _as_long_as_it_was = self.drive.store.set_length(self.slots());
            }
            // The gate is open again, because shortening a long file takes time.
            Ok(()) if !grows => self.shorten(),
            _ => {}
        }
        resized
    }

    /// Waits until no thread uses a slot. Meanwhile no page is found, and none is added.
    fn wait_for_rest(&self) -> Result<()> {
        while self.drive.writes.pending() > 0 || !self.tables().all(|table| table.is_empty()) {
            if !self.write_some(Duration::ZERO)? {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Changes the shape while the gate is closed and all slots are free. If the result is `Err`, the content
    /// of the header is unknown.
    fn reshape(&self, shape: &Shape) -> Result<()> {
        // Threads that write slot records use the shape, so they are locked out while it changes.
        let nobody_writes = self.records.hardening.nobody_writes();
        let mut noted = self.records.keeping.noted.lock();
        let whose = Whose { slots: shape.slots(), epoch: random_id(), ..self.records.hardening.whose() };
        self.drive.store.sign(&whose)?;
        self.renew_tables(shape);
        self.records.hardening.reshape(whose, self.drive.store.table_blocks());
        self.records.keeping.reshape(self.records.scheme, self.drive.store.table_blocks());
        *noted = None;
        drop((nobody_writes, noted));
        if self.records.hardening.is_on() {
            self.begin_keeping();
        }
        reached("flash: another size");
        Ok(())
    }

    /// Makes empty partitions for the new shape, and sets the offsets of the slots in the file.
    fn renew_tables(&self, shape: &Shape) {
        let (order, clean_order) = (self.policy.design().order(), self.policy.clean_order);
        let mut tables: Vec<Table<'_>> = self.tables().collect();
        self.drive.store.reshape(shape.slots());
        self.slots.shape.become_like(shape);
        for (no, table) in (0..).zip(&mut tables) {
            table.renew(Partition::new(shape.slots_of(no), order, clean_order));
        }
    }

    /// Shortens the file to the length that its slots need.
    fn shorten(&self) {
        if let Err(cause) = self.drive.store.set_length(self.slots()) {
            // The longer file does no harm: it occupies space, and the next start begins with an empty cache.
            self.note_error(&cause);
        }
    }
}
