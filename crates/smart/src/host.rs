//! The host's side of a scan. It lists the leaves, sends the list to the device, and returns the ranges of
//! keys that the host must read itself.
//!
//! Invariants
//! 1. The steps of a scan together give every row exactly once: rows come from the device, or their keys are
//!    in a range that the host must scan.
//! 2. Rows of the device are given only after it is known that the snapshot did not become too old.
//! 3. If the device fails, the leaves that were not done become ranges for the host. A device that failed is
//!    not asked again in the same scan.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use varve_engine::{HomeLeaves, Reader, ScanSpec, Table};

use crate::client::{Address, Client};
use crate::decode::RowSource;
use crate::error::{Result, SmartError};
use crate::evaluate::Evaluator;
use crate::key::SharedKey;
use crate::program::{ColumnKind, Program};
use crate::protocol::{ListedLeaf, OpenRequest, Part, decode_batch};
use crate::tls::RootCertificates;

/// The largest number of leaves that are sent together.
const LEAVES_MAX: usize = 4096;
/// The memory for groups on the host, in bytes.
const GROUP_BYTES_MAX: usize = 256 << 20;

/// Counters of a device since it was configured, or of one scan.
#[derive(Debug, Default)]
pub struct ScanCounts {
    /// The number of scans that asked the device.
    pub scans: AtomicU64,
    /// The number of leaves that the device has read for the host.
    pub leaves: AtomicU64,
    /// The number of leaves that the host had to read itself.
    pub deferred: AtomicU64,
    /// The number of failures of the device. The host has read the rest of each such scan itself.
    pub failures: AtomicU64,
    /// Bytes of requests to the device and of its answers.
    pub bytes: AtomicU64,
}

/// A configured device.
#[derive(Debug)]
pub struct SmartDevice {
    address: Address,
    key: SharedKey,
    roots: Option<RootCertificates>,
    patience: Duration,
    counts: ScanCounts,
    last_failure: Mutex<Option<String>>,
}

impl SmartDevice {
    /// Returns the device at this address. An answer may take `patience`.
    pub fn new(address: Address, key: SharedKey, patience: Duration) -> SmartDevice {
        let counts = ScanCounts::default();
        SmartDevice { address, key, roots: None, patience, counts, last_failure: Mutex::default() }
    }

    /// Returns the device, whose certificate must be issued by one of these roots.
    ///
    /// # Errors
    /// A device at a local socket, which TLS can't encrypt.
    pub fn with_tls(self, roots: RootCertificates) -> Result<SmartDevice> {
        match &self.address {
            Address::Tcp(_) => Ok(SmartDevice { roots: Some(roots), ..self }),
            Address::Unix(_) => Err(SmartError::NoTcp { address: self.address.to_string() }),
        }
    }

    /// Returns the address of the device.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the reason why the device failed last, or `None` if it never failed.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.lock().clone()
    }

    /// Returns the counters of the device.
    pub const fn counts(&self) -> &ScanCounts {
        &self.counts
    }
}

/// A step of a scan.
#[derive(Debug)]
pub enum HostScan {
    /// Rows, or states of groups, from the device.
    Batch(RecordBatch),
    /// The host must scan these keys itself.
    Keys(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

/// A list of leaves that the device works on.
struct Sent {
    leaves: HomeLeaves,
    /// The numbers in `leaves` of the leaves that were sent.
    numbers: Vec<usize>,
    /// For each sent leaf, whether it was already given to the host.
    is_given: Vec<bool>,
    /// The number of sent leaves that are done.
    done: usize,
    session: u32,
}

/// A scan of a table with a device.
pub struct SmartScan<D> {
    device: D,
    /// Counters of this scan.
    counts: Arc<ScanCounts>,
    /// The memory for groups on the host, in bytes.
    group_bytes: usize,
    program: Program,
    schema: arrow_schema::SchemaRef,
    has_groups: bool,
    client: Option<Client>,
    has_failed: bool,
    /// The key at which the next list of leaves begins, or `None` after the last list.
    from: Option<Vec<u8>>,
    sent: Option<Sent>,
    /// Ranges that the host must scan, in reverse order.
    ranges: Vec<HostScan>,
}

/// Returns the kinds of the columns of a table.
pub(crate) fn kinds(table: &Table) -> Vec<ColumnKind> {
    table.def().columns.iter().map(|column| ColumnKind::of(column.column_type)).collect()
}

impl<D: Borrow<SmartDevice>> SmartScan<D> {
    /// Begins a scan of a table. The columns of the program are those of the table.
    pub fn new(device: D, table: &Table, program: Program) -> Result<SmartScan<D>> {
        if program.columns != kinds(table) {
            return Err(SmartError::Program(format!("it is for another table than {}", table.def().name)));
        }
        let schema = Evaluator::new(&program, GROUP_BYTES_MAX)?.schema().clone();
        device.borrow().counts.scans.fetch_add(1, Ordering::Relaxed);
        Ok(SmartScan {
            device,
            counts: Arc::default(),
            group_bytes: GROUP_BYTES_MAX,
            has_groups: matches!(program.output, crate::program::Output::Groups { .. }),
            program,
            schema,
            client: None,
            has_failed: false,
            from: Some(Vec::new()),
            sent: None,
            ranges: Vec::new(),
        })
    }

    /// Counts the scan also in `counts`.
    #[must_use]
    pub fn counting(self, counts: Arc<ScanCounts>) -> SmartScan<D> {
        counts.scans.fetch_add(1, Ordering::Relaxed);
        SmartScan { counts, ..self }
    }

    /// Sets the memory for groups on the host. `run` fails if the groups need more.
    #[must_use]
    pub fn with_group_bytes(self, group_bytes: usize) -> SmartScan<D> {
        SmartScan { group_bytes, ..self }
    }

    /// Adds to a counter of the device, and to that of this scan.
    fn count(&self, which: fn(&ScanCounts) -> &AtomicU64, more: usize) {
        for counts in [&self.device.borrow().counts, &*self.counts] {
            which(counts).fetch_add(more as u64, Ordering::Relaxed);
        }
    }

    /// Returns the next step, or `None` at the end. The reader and the table are the same in each call.
    pub fn next(&mut self, reader: &mut Reader, table: &Table) -> Result<Option<HostScan>> {
        loop {
            if let Some(range) = self.ranges.pop() {
                return Ok(Some(range));
            }
            if self.sent.is_some() {
                if let Some(batch) = self.receive(reader)? {
                    return Ok(Some(HostScan::Batch(batch)));
                }
                continue;
            }
            let Some(from) = self.from.take() else { return Ok(None) };
            match reader.home_leaves(table, &from, LEAVES_MAX)? {
                Some(leaves) => self.send(leaves, reader)?,
                None => return Ok(Some(HostScan::Keys(Bound::Included(from), Bound::Unbounded))),
            }
        }
    }

    /// Sends a list of leaves to the device, except those that the data file lacks.
    fn send(&mut self, leaves: HomeLeaves, reader: &Reader) -> Result<()> {
        self.from = leaves.next().map(<[u8]>::to_vec);
        let all = 0..leaves.pages().len();
        let (newer, numbers): (Vec<usize>, Vec<usize>) = all.partition(|number| leaves.is_newer(*number));
        let opened = match self.has_failed || numbers.is_empty() {
            true => None,
            false => match self.open(&leaves, &numbers, reader) {
                Ok(session) => {
                    self.count_bytes();
                    Some(session)
                }
                Err(error) => {
                    self.fail(&error);
                    None
                }
            },
        };
        match opened {
            Some(session) => {
                self.defer(&leaves, &newer);
                let is_given = vec![false; numbers.len()];
                self.sent = Some(Sent { leaves, numbers, is_given, done: 0, session });
            }
            None => self.defer(&leaves, &(0..leaves.pages().len()).collect::<Vec<_>>()),
        }
        Ok(())
    }

    fn open(&mut self, leaves: &HomeLeaves, numbers: &[usize], reader: &Reader) -> Result<u32> {
        let file = reader.data_file()?;
        let listed =
            |number: &usize| ListedLeaf { page: leaves.pages()[*number], fences: leaves.fences(*number) };
        let request = OpenRequest {
            owner: leaves.owner,
            bound: leaves.bound.get(),
            floor: leaves.floor,
            page_bytes: reader.page_bytes() as u32,
            identity: file.identity.unwrap_or(0),
            file: file.name,
            program: self.program.clone(),
            leaves: numbers.iter().map(listed).collect(),
        };
        let SmartDevice { address, key, roots, patience, .. } = self.device.borrow();
        let client = match &mut self.client {
            Some(client) => client,
            None => self.client.insert(Client::connect(address, key, roots.as_ref(), *patience)?),
        };
        client.open(request)
    }

    /// Receives the next part from the device. If the device fails, its leaves become ranges for the host.
    fn receive(&mut self, reader: &mut Reader) -> Result<Option<RecordBatch>> {
        let Some(mut sent) = self.sent.take() else { return Ok(None) };
        match self.get(&mut sent) {
            Ok((part, batch)) => {
                self.count_bytes();
                reader.check_snapshot()?;
                let deferred: Vec<usize> =
                    part.deferred.iter().map(|at| sent.numbers[*at as usize]).collect();
                part.deferred.iter().for_each(|at| sent.is_given[*at as usize] = true);
                self.defer(&sent.leaves, &deferred);
                let done = part.done as usize - sent.done;
                self.count(|counts| &counts.leaves, done - deferred.len());
                sent.done = part.done as usize;
                if !part.is_end {
                    self.sent = Some(sent);
                }
                Ok(batch)
            }
            Err(error) => {
                self.fail(&error);
                // States of groups come at the end. Without them, nothing of the leaves was received.
                let first = if self.has_groups { 0 } else { sent.done };
                let left = (first..sent.numbers.len()).filter(|at| !sent.is_given[*at]);
                let left: Vec<usize> = left.map(|at| sent.numbers[at]).collect();
                self.defer(&sent.leaves, &left);
                Ok(None)
            }
        }
    }

    /// Asks for the next part, and checks it.
    fn get(&mut self, sent: &mut Sent) -> Result<(Part, Option<RecordBatch>)> {
        let lost = || SmartError::Malformed("the connection was closed".into());
        let client = self.client.as_mut().ok_or_else(lost)?;
        let part = client.get(sent.session)?;
        let done = part.done as usize;
        let is_sound = (sent.done..=sent.numbers.len()).contains(&done)
            && part.is_end == (done == sent.numbers.len())
            && (part.is_end || done > sent.done)
            && part.deferred.iter().all(|at| (sent.done..done).contains(&(*at as usize)))
            && part.deferred.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_sound {
            return Err(SmartError::Malformed("a part with other leaves than those that were sent".into()));
        }
        let batch = match part.batch.is_empty() {
            true => None,
            false => Some(decode_batch(&part.batch, &self.schema)?),
        };
        let is_complete = !self.has_groups || batch.is_some() == part.is_end;
        if !is_complete {
            return Err(SmartError::Malformed("states of groups are missing, or early".into()));
        }
        if let Some(states) = batch.as_ref().filter(|_| self.has_groups) {
            // States that can't be merged must not make the scan fail later.
            Evaluator::new(&self.program, self.group_bytes)?.merge(states)?;
        }
        if part.is_end {
            client.close(sent.session)?;
        }
        Ok((part, batch))
    }

    fn count_bytes(&mut self) {
        let bytes = self.client.as_mut().map_or(0, Client::take_bytes);
        self.count(|counts| &counts.bytes, bytes);
    }

    fn fail(&mut self, why: &SmartError) {
        self.count_bytes();
        *self.device.borrow().last_failure.lock() = Some(why.to_string());
        self.client = None;
        self.has_failed = true;
        self.count(|counts| &counts.failures, 1);
    }

    /// Adds the keys of these leaves, which are in order, to the ranges. Neighbours are one range.
    fn defer(&mut self, leaves: &HomeLeaves, numbers: &[usize]) {
        self.count(|counts| &counts.deferred, numbers.len());
        let runs: Vec<&[usize]> = numbers.chunk_by(|a, b| a + 1 == *b).collect();
        for run in runs.into_iter().rev() {
            let (lower, _) = leaves.keys(run[0]);
            let (_, upper) = leaves.keys(run[run.len() - 1]);
            let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
            self.ranges.push(HostScan::Keys(owned(lower), owned(upper)));
        }
    }

    /// Does the whole scan, including the host's part. It passes batches of rows to `on_batch`. For a program
    /// with groups, it passes one batch with their states.
    pub fn run(
        mut self,
        reader: &mut Reader,
        table: &Table,
        on_batch: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut own = Evaluator::new(&self.program, self.group_bytes)?;
        while let Some(step) = self.next(reader, table)? {
            match step {
                HostScan::Batch(states) if self.has_groups => own.merge(&states)?,
                HostScan::Batch(rows) => on_batch(rows)?,
                HostScan::Keys(lower, upper) => {
                    let (lower, upper) = (lower.as_ref(), upper.as_ref());
                    let lower = lower.map(Vec::as_slice);
                    let spec = ScanSpec { lower, upper: upper.map(Vec::as_slice), ..ScanSpec::ALL };
                    scan_keys(reader, table, &spec, &mut own, on_batch)?;
                }
            }
        }
        if let Some(rows) = own.evaluate()? {
            on_batch(rows)?;
        }
        own.finish()?.map_or(Ok(()), on_batch)
    }
}

/// Evaluates the program for the rows of these keys on the host.
fn scan_keys(
    reader: &mut Reader,
    table: &Table,
    spec: &ScanSpec<'_>,
    own: &mut Evaluator,
    on_batch: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut failed = None;
    reader.scan(table, spec, &mut |_, row| {
        let step = match own.push(&[RowSource::Whole(row)]) {
            false => Err(SmartError::Program("a value can't be compared".into())),
            true if own.is_full() => own.evaluate().and_then(|rows| rows.map_or(Ok(()), &mut *on_batch)),
            true => Ok(()),
        };
        match step {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(error) => {
                failed = Some(error);
                Ok(ControlFlow::Break(()))
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}
