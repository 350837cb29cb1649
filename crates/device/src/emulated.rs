//! An emulated device: a directory whose requests take as long as a device profile says.
//!
//! A request is served by one channel of the emulated device. The caller sleeps until the computed end of the
//! request. If the thread wakes up late, its next request counts as arrived earlier by the delay (the delay
//! is a credit). So the emulated request rate is right without busy waiting.
//!
//! Invariants
//! 1. The real operation is done first. The emulated time includes its duration.
//! 2. The credit is at most [`CREDIT_NS_MAX`]. A longer delay is reported as an error of the emulation.
//! 3. The profile says what a durable write costs. If a durable write needs a flush, the flush begins after
//!    the write, as in a kernel. The device may serve requests of other threads between the two.
//! 4. A device of limited size refuses a request for which it has no space, before anything is done. A batch
//!    is refused as a whole.
//! 5. The blocks of a removed file become free when its last handle is closed, as in a file system.
//!
//! The model of channels and times is in `service.rs`, and the blocks of files are in `flash.rs`.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Directory, Durability, Location, OpenHow, ReadOp, WriteOp};
use crate::capabilities::Capabilities;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::flash::{Flash, FlashReport};
use crate::merges::MergeCounts;
use crate::profile::{DurableWrite, Profile};
use crate::purpose::Purpose;
use crate::region::Region;
use crate::service::{Extent, Kind, Service};
use crate::sys;

/// The largest credit of a thread for a late wake-up.
const CREDIT_NS_MAX: u64 = 2_000_000;

thread_local! {
    static CREDIT_NS: Cell<u64> = const { Cell::new(0) };
    static SLACK_TIGHTENED: Cell<bool> = const { Cell::new(false) };
}

/// The service-time model on the machine's clock, with its counters.
struct Model {
    profile: Profile,
    dilation: f64,
    /// Whether requests take the modelled times. If not, they take the times of the device below.
    is_on: AtomicBool,
    service: Mutex<Service>,
    /// The blocks of a device of limited size; `None` for other devices.
    flash: Option<Mutex<Flash>>,
    begun: Mutex<Books>,
    modelled_ns: AtomicU64,
    late_ns: AtomicU64,
    operations: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Books {
    at_ns: u64,
    cpu_ns: u64,
    busy_ns: u64,
    modelled_ns: u64,
    late_ns: u64,
    operations: u64,
    flash: Option<FlashReport>,
}

/// How far a run on an emulated device can be trusted. A run is valid only if the model error is at most 3 %
/// and the processors are less than 85 % busy. If the device is claimed to be the bottleneck, it must be at
/// least 90 % busy. A run that is not valid is repeated with a larger dilation.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulationReport {
    /// The profile's name.
    pub profile: String,
    /// The factor by which device times are multiplied.
    pub dilation: f64,
    /// The number of requests served.
    pub operations: u64,
    /// Delays beyond the largest credit, as a share of the modelled time.
    pub model_error_share: f64,
    /// The modelled time of all requests together.
    pub modelled_ns: u64,
    /// The busy share of the channels.
    pub busy_share: f64,
    /// The busy share of all processors by this process.
    pub cpu_share: f64,
    /// How much was written to flash (modelled), if the device has a limited size and its profile has a
    /// translation layer.
    pub flash: Option<FlashReport>,
}

impl Model {
    fn new(profile: Profile, dilation: f64, flash: Option<Flash>) -> Model {
        let begun = Books { at_ns: sys::now_ns(), cpu_ns: sys::process_cpu_ns(), ..Books::default() };
        Model {
            service: Mutex::new(Service::new(profile.clone(), dilation)),
            flash: flash.map(Mutex::new),
            profile,
            dilation,
            is_on: AtomicBool::new(true),
            begun: Mutex::new(begun),
            modelled_ns: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        }
    }

    /// Returns the time at which the request would have arrived if the thread had not woken up late.
    fn arrival_ns() -> u64 {
        sys::now_ns().saturating_sub(CREDIT_NS.take())
    }

    /// Runs `inner` while the modelled device serves the requests that `place` adds to it.
    fn serve(
        &self,
        place: impl FnOnce(&mut Service, u64) -> u64,
        inner: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.is_on.load(Relaxed) {
            return inner();
        }
        let arrival_ns = Model::arrival_ns();
        let answered_ns = place(&mut self.service.lock(), arrival_ns);
        let result = inner();
        self.finish(arrival_ns, answered_ns);
        result
    }

    /// Sleeps until the request is done, and records how late the thread woke up.
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

    fn books(&self) -> Books {
        Books {
            at_ns: sys::now_ns(),
            cpu_ns: sys::process_cpu_ns(),
            busy_ns: self.service.lock().busy_ns(),
            modelled_ns: self.modelled_ns.load(Relaxed),
            late_ns: self.late_ns.load(Relaxed),
            operations: self.operations.load(Relaxed),
            flash: self.flash.as_ref().and_then(|flash| flash.lock().report()),
        }
    }

    fn report(&self) -> EmulationReport {
        let (begun, now) = (*self.begun.lock(), self.books());
        let elapsed_ns = (now.at_ns - begun.at_ns).max(1) as f64;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get()) as f64;
        let share = |part: u64, whole: f64| if whole > 0.0 { part as f64 / whole } else { 0.0 };
        let channels = f64::from(self.profile.channels);
        EmulationReport {
            profile: self.profile.name.clone(),
            dilation: self.dilation,
            operations: now.operations - begun.operations,
            model_error_share: share(
                now.late_ns - begun.late_ns,
                (now.modelled_ns - begun.modelled_ns) as f64,
            ),
            modelled_ns: now.modelled_ns - begun.modelled_ns,
            busy_share: share(now.busy_ns - begun.busy_ns, elapsed_ns * channels),
            cpu_share: share(now.cpu_ns - begun.cpu_ns, elapsed_ns * processors),
            flash: now.flash.map(|flash| flash.since(&begun.flash.unwrap_or_default())),
        }
    }

    /// If the device has a limited size, calls `what` with its blocks.
    fn note(&self, what: impl FnOnce(&mut Flash)) {
        if let Some(flash) = &self.flash {
            what(&mut flash.lock());
        }
    }
}

/// A file in the model. It exists as long as the file has a name or is open (invariant 5).
struct Known {
    model: Arc<Model>,
    number: u32,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.model.note(|flash| flash.removed(self.number));
    }
}

/// A directory on an emulated device.
pub struct Emulated {
    inner: Arc<dyn Directory>,
    model: Arc<Model>,
    capabilities: Capabilities,
    files: Mutex<HashMap<String, Arc<Known>>>,
    next_number: AtomicU32,
}

impl Emulated {
    /// Makes `inner` as slow as `profile`, with device times multiplied by `dilation` (1 = none).
    pub fn wrap(inner: Arc<dyn Directory>, profile: Profile, dilation: f64) -> Arc<Emulated> {
        Emulated::of(inner, profile, dilation, None)
    }

    /// Does the same as [`Emulated::wrap`], for a device of limited size, in bytes. If the profile has a
    /// translation layer, writes to flash are modelled. Files that already exist count as completely written
    /// when they are opened for the first time.
    pub fn sized(
        inner: Arc<dyn Directory>,
        profile: Profile,
        dilation: f64,
        capacity_bytes: u64,
    ) -> Arc<Emulated> {
        Emulated::of(inner, profile, dilation, Some(capacity_bytes))
    }

    fn of(
        inner: Arc<dyn Directory>,
        profile: Profile,
        dilation: f64,
        capacity: Option<u64>,
    ) -> Arc<Emulated> {
        assert!(dilation.is_finite() && dilation > 0.0, "time dilation is a positive number");
        let mut capabilities = emulated_capabilities(inner.capabilities(), &profile);
        let flash = capacity.map(|bytes| Flash::new(bytes, profile.translation.as_ref()));
        if let Some(flash) = flash.as_ref().filter(|_| capabilities.hole_bytes > 0) {
            capabilities.hole_bytes = capabilities.hole_bytes.max(flash.block_bytes());
        }
        Arc::new(Emulated {
            inner,
            model: Arc::new(Model::new(profile, dilation, flash)),
            capabilities,
            files: Mutex::default(),
            next_number: AtomicU32::new(0),
        })
    }

    /// Begins a new report. It does not include earlier operations such as loading and warming up.
    pub fn begin_report(&self) {
        *self.model.begun.lock() = self.model.books();
    }

    /// Switches the times of the profile on or off; at first they are on. While they are off, requests take
    /// the time of the device below and are not modelled. This is used to bring a database into the state
    /// that will be measured. Requests that have begun are not affected.
    pub fn take_times(&self, is_on: bool) {
        self.model.is_on.store(is_on, Relaxed);
    }

    /// Returns the report since the device was made, or since [`Emulated::begin_report`].
    pub fn report(&self) -> EmulationReport {
        self.model.report()
    }

    /// Returns the merges of blocks since the device was made. They are zero if the profile has no merges.
    pub fn merges(&self) -> MergeCounts {
        self.model.service.lock().merges()
    }
}

/// Returns the capabilities of the device below, changed by a profile.
fn emulated_capabilities(below: &Capabilities, profile: &Profile) -> Capabilities {
    let backend = format!("emulated {} on {}", profile.name, below.backend);
    let mut warnings = below.warnings.clone();
    if profile.atomic_write_bytes > below.atomic_write_bytes {
        warnings.push("emulated atomic writes: a real crash may tear them".into());
    }
    let atomic_write_bytes = below.atomic_write_bytes.max(profile.atomic_write_bytes);
    // The smallest atomic write that the profile promises is one sector.
    let atomic_write_min_bytes = match (below.atomic_write_min_bytes, profile.atomic_write_bytes) {
        (least, 0) => least,
        (0, _) => below.sector_bytes(),
        (least, _) => least.min(below.sector_bytes()),
    };
    Capabilities { backend, atomic_write_min_bytes, atomic_write_bytes, warnings, ..below.clone() }
}

impl Directory for Emulated {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        let mut files = self.files.lock();
        let inner = self.inner.open(name, how)?;
        if let Some(known) = files.get(name).cloned() {
            return Ok(Arc::new(EmulatedFile { inner, known }));
        }
        let (model, number) = (Arc::clone(&self.model), self.next_number.fetch_add(1, Relaxed));
        let known = Arc::new(Known { model, number });
        let file = EmulatedFile { inner, known: Arc::clone(&known) };
        file.take_over()?;
        files.insert(name.to_owned(), known);
        Ok(Arc::new(file))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.files.lock();
        self.inner.rename(from, to)?;
        match files.remove(from) {
            Some(moved) => files.insert(to.to_owned(), moved),
            None => files.remove(to),
        };
        Ok(())
    }
    fn remove(&self, name: &str) -> Result<()> {
        let mut files = self.files.lock();
        self.inner.remove(name)?;
        files.remove(name);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        self.inner.map(name, len_bytes)
    }
    fn identity(&self, name: &str) -> Result<Option<u64>> {
        self.inner.identity(name)
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
    known: Arc<Known>,
}

impl EmulatedFile {
    fn model(&self) -> &Model {
        &self.known.model
    }

    fn number(&self) -> u32 {
        self.known.number
    }

    fn extent(&self, offset: u64, len: usize) -> Extent {
        Extent { file: self.number(), offset, bytes: len as u64 }
    }

    /// Counts the present contents of a file as written, when the file is opened for the first time.
    fn take_over(&self) -> Result<()> {
        if self.model().flash.is_none() {
            return Ok(());
        }
        let len_bytes = self.inner.len_bytes()?;
        self.make_room(Operation::Open, [(0, len_bytes)])?;
        self.note_written(0, len_bytes);
        Ok(())
    }

    /// On a device of limited size, allocates the blocks for all of these ranges. If there are too few
    /// blocks, returns an error and allocates none.
    fn make_room(&self, operation: Operation, ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<()> {
        let Some(flash) = &self.model().flash else { return Ok(()) };
        let found = flash.lock().reserve(self.number(), ranges);
        found.map_err(|full| {
            DeviceError::at(self.inner.location().text(), operation, full.offset, ErrorKind::NoSpace)
        })
    }

    fn note_written(&self, offset: u64, len_bytes: u64) {
        self.model().note(|flash| flash.written(self.number(), offset, len_bytes));
    }

    /// Runs `inner` while the modelled requests are served.
    fn serve(
        &self,
        requests: impl Iterator<Item = (Kind, Extent)>,
        inner: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let place = |service: &mut Service, arrival_ns| service.place_all(arrival_ns, requests);
        self.model().serve(place, inner)
    }

    /// Returns the kind of request that a write is for the cache of the device.
    fn kind(&self, durability: Durability) -> Kind {
        match (durability, self.model().profile.durable_write) {
            (Durability::Now, DurableWrite::Fua) => Kind::WriteThrough,
            _ => Kind::Write,
        }
    }

    /// If a durable write needs a flush on this device, takes the time of this flush. The write is really
    /// durable already.
    fn settle(&self, durability: Durability) -> Result<()> {
        match (durability, self.model().profile.durable_write) {
            (Durability::Now, DurableWrite::Flush) => self.model().serve(Service::place_flush, || Ok(())),
            _ => Ok(()),
        }
    }

    /// Runs `inner`, which writes, and takes the modelled time of one write.
    fn write(
        &self,
        offset: u64,
        len: usize,
        durability: Durability,
        inner: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.make_room(Operation::Write, [(offset, len as u64)])?;
        let request = (self.kind(durability), self.extent(offset, len));
        self.serve(std::iter::once(request), inner)?;
        self.note_written(offset, len as u64);
        self.settle(durability)
    }

    /// Does the same as `write`, for several writes together.
    fn write_all(&self, ops: &[WriteOp<'_>], inner: impl FnOnce() -> Result<()>) -> Result<()> {
        let request = |op: &WriteOp<'_>| (self.kind(op.durability), self.extent(op.offset, op.buf.len()));
        self.make_room(Operation::Write, ops.iter().map(|op| (op.offset, op.buf.len() as u64)))?;
        self.serve(ops.iter().map(request), inner)?;
        ops.iter().for_each(|op| self.note_written(op.offset, op.buf.len() as u64));
        let is_durable = ops.iter().any(|op| op.durability == Durability::Now);
        self.settle(if is_durable { Durability::Now } else { Durability::Later })
    }

    /// Writes atomically if the device below can. If it cannot, but the profile promises atomic writes of
    /// this length, writes without atomicity. Then only the time is emulated, and a real crash can tear the
    /// write.
    fn write_whole(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        match self.inner.write_atomic(offset, buf, why, durability) {
            Err(error)
                if error.kind == ErrorKind::Unsupported
                    && buf.len() <= self.model().profile.atomic_write_bytes as usize =>
            {
                self.inner.write_at(offset, buf, why, durability)
            }
            other => other,
        }
    }
}

impl BlockFile for EmulatedFile {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn location(&self) -> &Location {
        self.inner.location()
    }
    fn len_bytes(&self) -> Result<u64> {
        self.inner.len_bytes()
    }
    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        let request = (Kind::Read, self.extent(offset, buf.len()));
        self.serve(std::iter::once(request), || self.inner.read_at(offset, buf, why))
    }
    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let inner = || self.inner.write_at(offset, buf, why, durability);
        self.write(offset, buf.len(), durability, inner)
    }
    fn write_atomic(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let inner = || self.write_whole(offset, buf, why, durability);
        self.write(offset, buf.len(), durability, inner)
    }
    fn flush(&self) -> Result<()> {
        self.model().serve(Service::place_flush, || self.inner.flush())
    }
    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.model().serve(Service::place_remap, || self.inner.punch(offset, len_bytes))?;
        self.model().note(|flash| flash.punched(self.number(), offset, len_bytes));
        Ok(())
    }
    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let before_bytes = if self.model().flash.is_some() { self.inner.len_bytes()? } else { 0 };
        if before_bytes < len_bytes {
            self.make_room(Operation::SetLen, [(before_bytes, len_bytes - before_bytes)])?;
        }
        let set = self.inner.set_len(len_bytes);
        // If the device below refuses, the length stays the same. Then `cut` frees the blocks that were
        // allocated for a longer file.
        let is_now_bytes = if set.is_ok() { len_bytes } else { before_bytes };
        self.model().note(|flash| flash.cut(self.number(), is_now_bytes));
        set
    }
    fn reserve(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.make_room(Operation::Reserve, [(offset, len_bytes)])?;
        self.model().serve(Service::place_remap, || self.inner.reserve(offset, len_bytes))
    }
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        let requests: Vec<_> =
            ops.iter().map(|op| (Kind::Read, self.extent(op.offset, op.buf.len()))).collect();
        self.serve(requests.into_iter(), || self.inner.read_batch(ops))
    }
    fn write_batch_atomic(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let whole = |op: &WriteOp<'_>| self.write_whole(op.offset, op.buf, op.why, op.durability);
        self.write_all(ops, || ops.iter().try_for_each(whole))
    }
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        self.write_all(ops, || self.inner.write_batch(ops))
    }
}
