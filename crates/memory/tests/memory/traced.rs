//! A region that records which line of the code made each write-back and each fence. A test can then take all
//! events of one line out of a recording. The execution would be the same without these events, because the
//! region below loses nothing by itself. So one recorded life serves for all lines.
//!
//! Invariants
//! 1. An event is recorded under the tick at which the record log gets it.
//! 2. Only events within calls are recorded.
//!
//! This module does not know images, or what a store should hold.

use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_device::{RecordLog, Region, RegionFacts, RegionTally, Result};

use crate::skipping::Call;

/// What an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durably {
    WriteBack,
    Fence,
}

/// Calls whose events are noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    None,
    Open,
    All,
}

/// The line of code that made an event, and its caller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub call: Call,
    pub what: Durably,
    /// The line that asks for the event, below helpers: "nvm_inplace/store.rs:120 commit".
    pub at: String,
    /// The innermost line that is not in the allocator.
    pub from: String,
}

impl Site {
    /// Returns whether the line is in the allocator. Its own tests show that such a line is needed, or that
    /// it is not needed by some callers. Only owners are freed for engines alone.
    pub fn is_in_allocator(&self) -> bool {
        let file = self.at.split(':').next().unwrap_or_default();
        ALLOCATOR.contains(&file) && file != "free_owner.rs"
    }
}

/// The files of the allocator.
const ALLOCATOR: [&str; 12] = [
    "allocator.rs",
    "chunks.rs",
    "free_owner.rs",
    "heap.rs",
    "intent.rs",
    "open.rs",
    "pool.rs",
    "publish.rs",
    "roots.rs",
    "slab.rs",
    "space.rs",
    "state.rs",
];

/// The functions that only pass an event on.
const HELPERS: [&str; 7] =
    ["store_back", "store_word", "store_words", "write_back", "fence", "persist", "store_claim"];

#[derive(Default)]
struct State {
    call: Option<Call>,
    sites: BTreeMap<u64, Site>,
}

/// The traced region. `log` records the region below it.
pub struct Traced {
    inner: Arc<dyn Region>,
    log: Arc<RecordLog>,
    calls: Calls,
    state: Mutex<State>,
}

impl Traced {
    pub fn wrap(inner: Arc<dyn Region>, log: Arc<RecordLog>, calls: Calls) -> Arc<Traced> {
        Arc::new(Traced { inner, log, calls, state: Mutex::default() })
    }

    /// Runs a call.
    pub fn during<T>(&self, call: Call, run: impl FnOnce() -> T) -> T {
        self.state.lock().call = Some(call);
        let result = run();
        self.state.lock().call = None;
        result
    }

    /// Returns the sites so far, by the ticks of their events.
    pub fn sites(&self) -> BTreeMap<u64, Site> {
        self.state.lock().sites.clone()
    }

    fn note(&self, what: Durably) {
        let mut state = self.state.lock();
        let Some(call) = state.call else { return };
        let is_noted = match self.calls {
            Calls::None => false,
            Calls::Open => call == Call::Open,
            Calls::All => true,
        };
        if !is_noted {
            return;
        }
        let frames = frames(&Backtrace::force_capture().to_string());
        let is_helper = |frame: &&Frame| HELPERS.contains(&frame.function.as_str());
        let is_in_allocator = |frame: &&Frame| ALLOCATOR.contains(&frame.file.as_str());
        let at = frames.iter().find(|frame| !is_helper(frame)).map(Frame::text);
        let from = frames.iter().find(|frame| !is_helper(frame) && !is_in_allocator(frame));
        let from = from.map(Frame::text).unwrap_or_default();
        let site = Site { call, what, at: at.unwrap_or_default(), from };
        state.sites.insert(self.log.now() + 1, site);
    }
}

/// A frame in the sources of the crate.
struct Frame {
    file: String,
    line: String,
    function: String,
}

impl Frame {
    fn text(&self) -> String {
        format!("{}:{} {}", self.file, self.line, self.function)
    }
}

/// Returns the frames of the crate `memory`, innermost first.
fn frames(backtrace: &str) -> Vec<Frame> {
    let mut function = "";
    let mut frames = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        let Some(location) = line.strip_prefix("at ") else {
            // "12: path::function"
            function = line.split_once(": ").map_or(line, |(_, symbol)| symbol);
            continue;
        };
        let is_ours = location.starts_with("./src/") || location.contains("memory/src/");
        let Some((_, path)) = location.rsplit_once("src/").filter(|_| is_ours) else { continue };
        let mut parts = path.split(':');
        let part = |part: Option<&str>| part.unwrap_or_default().to_string();
        let (file, line) = (part(parts.next()), part(parts.next()));
        frames.push(Frame { file, line, function: function_of(function) });
    }
    frames
}

/// Returns the name of a function: without its path, its types and the closures in it.
fn function_of(symbol: &str) -> String {
    let mut depth = 0;
    let is_outside = |character: &char| {
        depth += i32::from(*character == '<') - i32::from(*character == '>');
        depth == 0 && *character != '>'
    };
    let plain: String = symbol.chars().filter(is_outside).collect();
    let is_name = |part: &&str| {
        let is_hash = part.len() == 17 && part.starts_with('h');
        !part.is_empty() && !part.starts_with('{') && !is_hash
    };
    plain.rsplit("::").find(is_name).unwrap_or_default().to_string()
}

impl Region for Traced {
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
        self.note(Durably::WriteBack);
        self.inner.write_back(offset, len_bytes);
    }

    fn fence(&self) {
        self.note(Durably::Fence);
        self.inner.fence();
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
