//! An emulated device: any directory, made as slow as a profile says.
//!
//! A request takes a channel, completes when that channel has served it, and its caller sleeps until
//! then. A thread that woke up late is credited with the delay: its next request counts as arrived
//! that much earlier. So the modelled rate is kept without a busy processor.
//!
//! Invariants
//! 1. The inner operation is done first; its time is hidden in the modelled time where that is longer.
//! 2. Credit is never more than [`CREDIT_NS_MAX`]; what exceeds it is reported as model error.
//! 3. "Sequential" is the next address on the channel that serves the request.
//!
//! What it does not know: what the profile's figures mean; flash translation effects (merges of
//! small random writes).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Directory, Durability, OpenHow, Purpose, ReadOp, WriteOp};
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::profile::{Profile, Request};
use crate::sys;

/// Longest delay that a thread may make good.
const CREDIT_NS_MAX: u64 = 2_000_000;

thread_local! {
    static CREDIT_NS: Cell<u64> = const { Cell::new(0) };
    static SLACK_TIGHTENED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Channel {
    free_at_ns: u64,
    /// File and offset that would continue the last request.
    next: (u32, u64),
}

/// The service-time model with its books.
struct Model {
    profile: Profile,
    dilation: f64,
    channels: Mutex<Vec<Channel>>,
    since_ns: u64,
    cpu_since_ns: u64,
    busy_ns: AtomicU64,
    modelled_ns: AtomicU64,
    late_ns: AtomicU64,
    operations: AtomicU64,
}

/// How far a run on an emulated device can be believed. A run counts only if the model error is at
/// most 3 %, the processors are less than 85 % busy and a device that is claimed to be the bottleneck
/// is at least 90 % busy; else dilate time.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulationReport {
    /// The profile's name.
    pub profile: String,
    /// Device times are multiplied by this.
    pub dilation: f64,
    /// Requests served.
    pub operations: u64,
    /// Delay that could not be made good, as a share of the modelled time.
    pub model_error_share: f64,
    /// Busy share of the channels.
    pub busy_share: f64,
    /// Busy share of all processors by this process.
    pub cpu_share: f64,
}

impl Model {
    fn new(profile: Profile, dilation: f64) -> Model {
        let channels = (0..profile.channels).map(|_| Channel::default()).collect();
        Model {
            profile,
            dilation,
            channels: Mutex::new(channels),
            since_ns: sys::now_ns(),
            cpu_since_ns: sys::process_cpu_ns(),
            busy_ns: AtomicU64::new(0),
            modelled_ns: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        }
    }

    /// When the request would have arrived had the thread not been late.
    fn arrival_ns() -> u64 {
        sys::now_ns().saturating_sub(CREDIT_NS.take())
    }

    /// Puts a request on a channel; returns when it is done.
    fn enqueue(&self, arrival_ns: u64, file: u32, offset: u64, write: bool, bytes: u64) -> u64 {
        let mut channels = self.channels.lock();
        let channel = match self.profile.stripe_bytes {
            0 => channels.iter_mut().min_by_key(|channel| channel.free_at_ns),
            stripe => {
                let count = channels.len() as u64;
                channels.get_mut((offset / stripe % count) as usize)
            }
        };
        let channel = channel.expect("a profile has at least one channel");
        let sequential = channel.next == (file, offset);
        let service_ns = self.dilated(self.profile.service_ns(Request { write, sequential, bytes }));
        channel.next = (file, offset + bytes);
        self.occupy(channel, arrival_ns, service_ns)
    }

    /// A flush waits for all channels and then takes the profile's time.
    fn enqueue_flush(&self, arrival_ns: u64) -> u64 {
        let service_ns = self.dilated((self.profile.flush_us * 1e3) as u64);
        let mut channels = self.channels.lock();
        let idle_ns = channels.iter().map(|channel| channel.free_at_ns).max().unwrap_or(0);
        let start_ns = arrival_ns.max(idle_ns);
        channels
            .iter_mut()
            .map(|channel| self.occupy(channel, start_ns, service_ns))
            .max()
            .unwrap_or(start_ns)
    }

    fn occupy(&self, channel: &mut Channel, from_ns: u64, service_ns: u64) -> u64 {
        let done_ns = from_ns.max(channel.free_at_ns) + service_ns;
        channel.free_at_ns = done_ns;
        self.busy_ns.fetch_add(service_ns, Relaxed);
        done_ns
    }

    fn dilated(&self, ns: u64) -> u64 {
        (ns as f64 * self.dilation) as u64
    }

    /// Sleeps until the request is done and notes how late the thread woke up.
    fn finish(&self, arrival_ns: u64, done_ns: u64) {
        if !SLACK_TIGHTENED.replace(true) {
            sys::tighten_timer_slack();
        }
        if sys::now_ns() < done_ns {
            sys::sleep_until_ns(done_ns);
        }
        let late_ns = sys::now_ns().saturating_sub(done_ns);
        CREDIT_NS.set(late_ns.min(CREDIT_NS_MAX));
        self.late_ns.fetch_add(late_ns.saturating_sub(CREDIT_NS_MAX), Relaxed);
        self.modelled_ns.fetch_add(done_ns.saturating_sub(arrival_ns), Relaxed);
        self.operations.fetch_add(1, Relaxed);
    }

    fn report(&self) -> EmulationReport {
        let elapsed_ns = (sys::now_ns() - self.since_ns).max(1) as f64;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get()) as f64;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let channels = f64::from(self.profile.channels);
        let cpu_ns = (sys::process_cpu_ns() - self.cpu_since_ns) as f64;
        EmulationReport {
            profile: self.profile.name.clone(),
            dilation: self.dilation,
            operations: self.operations.load(Relaxed),
            model_error_share: share(
                self.late_ns.load(Relaxed) as f64,
                self.modelled_ns.load(Relaxed) as f64,
            ),
            busy_share: share(self.busy_ns.load(Relaxed) as f64, elapsed_ns * channels),
            cpu_share: share(cpu_ns, elapsed_ns * processors),
        }
    }
}

/// A directory on an emulated device.
pub struct Emulated {
    inner: Arc<dyn Directory>,
    model: Arc<Model>,
    capabilities: Capabilities,
    next_number: AtomicU32,
}

impl Emulated {
    /// Makes `inner` as slow as `profile`, with device times multiplied by `dilation` (1 = none).
    pub fn wrap(inner: Arc<dyn Directory>, profile: Profile, dilation: f64) -> Arc<Emulated> {
        assert!(dilation.is_finite() && dilation > 0.0, "time dilation is a positive number");
        let on = inner.capabilities().clone();
        let backend = format!("emulated {} on {}", profile.name, on.backend);
        Arc::new(Emulated {
            inner,
            model: Arc::new(Model::new(profile, dilation)),
            capabilities: Capabilities { backend, ..on },
            next_number: AtomicU32::new(0),
        })
    }

    /// How far results can be believed, since the device was made.
    pub fn report(&self) -> EmulationReport {
        self.model.report()
    }
}

impl Directory for Emulated {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        let inner = self.inner.open(name, how)?;
        let number = self.next_number.fetch_add(1, Relaxed);
        Ok(Arc::new(EmulatedFile { inner, model: Arc::clone(&self.model), number }))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn accounting(&self) -> &Arc<Accounting> {
        self.inner.accounting()
    }
    fn location(&self) -> String {
        self.inner.location()
    }
}

struct EmulatedFile {
    inner: Arc<dyn BlockFile>,
    model: Arc<Model>,
    number: u32,
}

impl EmulatedFile {
    /// Runs `inner` while the modelled requests `(offset, bytes)` are served.
    fn serve(
        &self,
        write: bool,
        requests: impl Iterator<Item = (u64, u64)>,
        inner: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let arrival_ns = Model::arrival_ns();
        let place = |(offset, bytes)| self.model.enqueue(arrival_ns, self.number, offset, write, bytes);
        let done_ns = requests.map(place).max().unwrap_or(arrival_ns);
        let result = inner();
        self.model.finish(arrival_ns, done_ns);
        result
    }
}

impl BlockFile for EmulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn len_bytes(&self) -> Result<u64> {
        self.inner.len_bytes()
    }
    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        let request = std::iter::once((offset, buf.len() as u64));
        self.serve(false, request, || self.inner.read_at(offset, buf, why))
    }
    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let request = std::iter::once((offset, buf.len() as u64));
        self.serve(true, request, || self.inner.write_at(offset, buf, why, durability))
    }
    fn flush(&self) -> Result<()> {
        let arrival_ns = Model::arrival_ns();
        let done_ns = self.model.enqueue_flush(arrival_ns);
        let result = self.inner.flush();
        self.model.finish(arrival_ns, done_ns);
        result
    }
    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.inner.punch(offset, len_bytes)
    }
    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.inner.set_len(len_bytes)
    }
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        let requests: Vec<_> = ops.iter().map(|op| (op.offset, op.buf.len() as u64)).collect();
        self.serve(false, requests.into_iter(), || self.inner.read_batch(ops))
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let requests = ops.iter().map(|op| (op.offset, op.buf.len() as u64));
        self.serve(true, requests, || self.inner.write_batch(ops))
    }
}
