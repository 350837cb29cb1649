//! A region that leaves out one write-back or fence in each call of one kind. So a test can show that each of
//! them is needed.

use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{Region, RegionFacts, RegionTally, Result};

/// A call of the allocator, of a table engine, or on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    Open,
    Allocate,
    Activate,
    Free,
    FreeAll,
    Publish,
    SetRoot,
    CreateRoot,
    RemoveRoot,
    CreateTable,
    DropTable,
    InsertRow,
    ReplaceRow,
    PatchRow,
    DeleteRow,
    RollbackTo,
    Commit,
    Rollback,
    SyncStore,
    CreateFile,
    RenameFile,
    RemoveFile,
    WriteFile,
    ReserveFile,
    TruncateFile,
    Fsync,
}

/// The event that is left out: in calls of this kind, the write-back or fence with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    pub call: Call,
    pub event: u64,
}

#[derive(Default)]
struct State {
    call: Option<Call>,
    events: u64,
    skipped: u64,
    /// For each kind of call, the largest number of events that a call had.
    most: std::collections::BTreeMap<Call, u64>,
}

pub struct Skipping {
    inner: Arc<dyn Region>,
    skip: Option<Skip>,
    state: Mutex<State>,
}

impl Skipping {
    pub fn wrap(inner: Arc<dyn Region>, skip: Option<Skip>) -> Arc<Skipping> {
        Arc::new(Skipping { inner, skip, state: Mutex::default() })
    }

    /// Runs a call. Only write-backs and fences within calls are left out.
    pub fn during<T>(&self, call: Call, run: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        (state.call, state.events) = (Some(call), 0);
        drop(state);
        let result = run();
        let mut state = self.state.lock();
        let events = state.events;
        let most = state.most.entry(call).or_default();
        *most = events.max(*most);
        state.call = None;
        result
    }

    /// Returns, for each kind of call, the largest number of write-backs and fences that a call had.
    pub fn most_events(&self) -> std::collections::BTreeMap<Call, u64> {
        self.state.lock().most.clone()
    }

    fn is_skipped(&self) -> bool {
        let mut state = self.state.lock();
        let Some(call) = state.call else { return false };
        let event = state.events;
        state.events += 1;
        let is_skipped = self.skip == Some(Skip { call, event });
        state.skipped += u64::from(is_skipped);
        is_skipped
    }
}

impl Region for Skipping {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) {
        self.inner.read(offset, buf);
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
    }

    fn write_back(&self, offset: u64, len_bytes: u64) {
        if !self.is_skipped() {
            self.inner.write_back(offset, len_bytes);
        }
    }

    fn fence(&self) {
        if !self.is_skipped() {
            self.inner.fence();
        }
    }

    fn facts(&self) -> RegionFacts {
        self.inner.facts()
    }

    fn tally(&self) -> RegionTally {
        self.inner.tally()
    }

    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }
}
