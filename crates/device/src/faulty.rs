//! A fault injector for tests. It passes every operation to the device below, except the operations that a
//! rule makes fail.
//!
//! Invariants
//! 1. Each rule counts the operations that match it, from 1, in the order of their arrival.
//! 2. After an injected failure of a flush, the file behaves like a real one: all later writes and flushes
//!    fail.
//! 3. A device that a rule has removed stays away until [`Faulty::disarm`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::accounting::Accounting;
use crate::block::{BlockFile, Directory, Durability, Location, OpenHow};
use crate::buf::AlignedBuf;
use crate::capabilities::Capabilities;
use crate::error::{DeviceError, ErrorKind, Operation, Result};
use crate::purpose::{Purpose, Space};
use crate::region::Region;

/// The fault of a spoiled operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this error and does nothing.
    Fails(ErrorKind),
    /// A read or write moves the first half of its bytes, and then fails.
    Short,
    /// A write has room only for its first half. It writes this half, and fails.
    HalfFull,
    /// A write or flush reports success and does nothing.
    Lost,
    /// A write changes the bytes at a distance after its offset, and reports success.
    Misdirected {
        /// The distance, a multiple of the sector.
        by_bytes: u64,
    },
    /// One bit of the bytes that are read or written is wrong.
    BitFlip {
        /// The bit number, modulo the length.
        bit: u64,
    },
    /// The operation takes this much longer.
    Slow(Duration),
    /// The device is gone from now on.
    Gone,
    /// The operation panics, as if the device's code had a bug.
    Panics,
}

/// Which of the matching operations a rule spoils.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The n-th only, counted from 1.
    Nth(u64),
    /// The n-th and all later ones.
    From(u64),
    /// Every n-th.
    Every(u64),
    /// From the first number on, every n-th. The second number is n.
    EveryFrom(u64, u64),
    /// From the first number up to the second, which is not included.
    Between(u64, u64),
}

impl When {
    fn hits(self, count: u64) -> bool {
        match self {
            When::Nth(n) => count == n,
            When::From(n) => count >= n,
            When::Between(from, to) => (from..to).contains(&count),
            When::Every(n) => n > 0 && count.is_multiple_of(n),
            When::EveryFrom(from, n) => count >= from && n > 0 && (count - from).is_multiple_of(n),
        }
    }
}

/// A rule for spoiling operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The operation to which the rule applies; `None` = any.
    pub operation: Option<Operation>,
    /// The space of files to which the rule applies; `None` = any.
    pub space: Option<Space>,
    /// Which of the matching operations are spoiled.
    pub when: When,
    /// What happens to the spoiled operations.
    pub fault: Fault,
}

struct Armed {
    rule: Rule,
    seen_count: u64,
}

#[derive(Default)]
struct State {
    armed: AtomicBool,
    rules: Mutex<Vec<Armed>>,
    fired_count: AtomicU64,
    operation_count: AtomicU64,
    gone: AtomicBool,
    any_poisoned: AtomicBool,
    poisoned: Mutex<HashSet<String>>,
}

impl State {
    /// Returns the fault that the rules have for this operation.
    fn fault(&self, operation: Operation, space: Option<Space>) -> Option<Fault> {
        self.operation_count.fetch_add(1, Relaxed);
        if !self.armed.load(Relaxed) {
            return None;
        }
        let mut hit = None;
        for armed in self.rules.lock().iter_mut() {
            let rule = &armed.rule;
            let other_space = rule.space.is_some() && rule.space != space;
            if rule.operation.is_some_and(|only| only != operation) || other_space {
                continue;
            }
            armed.seen_count += 1;
            if hit.is_none() && rule.when.hits(armed.seen_count) {
                hit = Some(rule.fault.clone());
            }
        }
        if hit.is_some() {
            self.fired_count.fetch_add(1, Relaxed);
        }
        hit
    }

    /// Applies a fault that any operation can have. Returns a fault that only the particular operation can
    /// apply.
    fn check(&self, name: &str, operation: Operation, space: Option<Space>) -> Result<Option<Fault>> {
        let gone = || Err(DeviceError::new(name, operation, ErrorKind::Gone));
        if self.gone.load(Relaxed) {
            return gone();
        }
        match self.fault(operation, space) {
            Some(Fault::Gone) => {
                self.gone.store(true, Relaxed);
                gone()
            }
            Some(Fault::Panics) => panic!("a panic that a test has asked for: {operation} {name}"),
            Some(Fault::Fails(kind)) => Err(DeviceError::new(name, operation, kind)),
            Some(Fault::Slow(delay)) => {
                std::thread::sleep(delay);
                Ok(None)
            }
            other => Ok(other),
        }
    }
}

/// A directory whose operations can be made to fail.
pub struct Faulty {
    inner: Arc<dyn Directory>,
    state: Arc<State>,
}

impl Faulty {
    /// Wraps a directory. Nothing goes wrong until a rule is added.
    pub fn wrap(inner: Arc<dyn Directory>) -> Arc<Faulty> {
        Arc::new(Faulty { inner, state: Arc::default() })
    }

    /// Adds a rule.
    pub fn arm(&self, rule: Rule) {
        self.state.rules.lock().push(Armed { rule, seen_count: 0 });
        self.state.armed.store(true, Relaxed);
    }

    /// Removes all rules. A device that was gone works again. Poisoned files stay poisoned.
    pub fn disarm(&self) {
        self.state.rules.lock().clear();
        self.state.armed.store(false, Relaxed);
        self.state.gone.store(false, Relaxed);
    }

    /// Does the same as [`Faulty::disarm`]. In addition, files are not poisoned any more, as if a new process
    /// had opened them.
    pub fn restart(&self) {
        self.disarm();
        self.state.poisoned.lock().clear();
        self.state.any_poisoned.store(false, Relaxed);
    }

    /// Returns how many operations were spoiled.
    pub fn fired_count(&self) -> u64 {
        self.state.fired_count.load(Relaxed)
    }

    /// Returns how many operations were called.
    pub fn operation_count(&self) -> u64 {
        self.state.operation_count.load(Relaxed)
    }

    fn check(&self, name: &str, operation: Operation) -> Result<()> {
        self.state.check(name, operation, None).map(|_| ())
    }
}

impl Directory for Faulty {
    fn open(&self, name: &str, how: OpenHow) -> Result<Arc<dyn BlockFile>> {
        self.state.check(name, Operation::Open, Some(how.space))?;
        let inner = self.inner.open(name, how)?;
        Ok(Arc::new(FaultyFile { inner, space: how.space, state: Arc::clone(&self.state) }))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.check(name, Operation::Stat)?;
        self.inner.exists(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.check(&self.inner.location(), Operation::Stat)?;
        self.inner.list()
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check(from, Operation::Rename)?;
        self.inner.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.check(name, Operation::Remove)?;
        self.inner.remove(name)
    }
    fn sync(&self) -> Result<()> {
        let location = self.inner.location();
        match self.state.check(&location, Operation::SyncDirectory, None)? {
            Some(Fault::Lost) => Ok(()),
            _ => self.inner.sync(),
        }
    }
    fn map(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn Region>> {
        self.state.check(name, Operation::Open, Some(Space::Nvm))?;
        self.inner.map(name, len_bytes)
    }
    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }
    fn identity(&self, name: &str) -> Result<Option<u64>> {
        self.inner.identity(name)
    }
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn accounting(&self) -> &Arc<Accounting> {
        self.inner.accounting()
    }
    fn location(&self) -> String {
        self.inner.location()
    }
}

struct FaultyFile {
    inner: Arc<dyn BlockFile>,
    space: Space,
    state: Arc<State>,
}

impl FaultyFile {
    fn check(&self, operation: Operation) -> Result<Option<Fault>> {
        self.state.check(self.inner.location().text(), operation, Some(self.space))
    }

    fn check_poison(&self, operation: Operation) -> Result<()> {
        let name = self.inner.name();
        if self.state.any_poisoned.load(Relaxed) && self.state.poisoned.lock().contains(name) {
            return Err(DeviceError::new(self.inner.location().text(), operation, ErrorKind::Poisoned));
        }
        Ok(())
    }

    fn poison(&self) {
        self.state.poisoned.lock().insert(self.inner.name().to_string());
        self.state.any_poisoned.store(true, Relaxed);
    }

    /// Returns half of `len_bytes`, in whole sectors.
    fn half(&self, len_bytes: usize) -> usize {
        let sector_bytes = self.inner.sector_bytes() as usize;
        len_bytes / sector_bytes / 2 * sector_bytes
    }

    fn read_half(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        let half = self.half(buf.len());
        let (wanted_bytes, got_bytes) = (buf.len() as u64, half as u64);
        self.inner.read_at(offset, &mut buf[..half], why)?;
        let kind = ErrorKind::ShortRead { wanted_bytes, got_bytes };
        Err(DeviceError::at(self.inner.location().text(), Operation::Read, offset, kind))
    }

    fn write_half(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        let half = self.half(buf.len());
        let (wanted_bytes, got_bytes) = (buf.len() as u64, half as u64);
        self.inner.write_at(offset, &buf[..half], why, durability)?;
        let kind = ErrorKind::ShortWrite { wanted_bytes, got_bytes };
        Err(DeviceError::at(self.inner.location().text(), Operation::Write, offset, kind))
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    let len_bits = bytes.len() as u64 * 8;
    if let Some(byte) = bytes.get_mut((bit % len_bits.max(1) / 8) as usize) {
        *byte ^= 1 << (bit % 8);
    }
}

impl BlockFile for FaultyFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn location(&self) -> &Location {
        self.inner.location()
    }

    fn len_bytes(&self) -> Result<u64> {
        self.check(Operation::Stat)?;
        self.inner.len_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], why: Purpose) -> Result<()> {
        match self.check(Operation::Read)? {
            Some(Fault::Short) => self.read_half(offset, buf, why),
            Some(Fault::BitFlip { bit }) => {
                self.inner.read_at(offset, buf, why)?;
                flip(buf, bit);
                Ok(())
            }
            _ => self.inner.read_at(offset, buf, why),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        self.check_poison(Operation::Write)?;
        match self.check(Operation::Write)? {
            Some(Fault::Short) => self.write_half(offset, buf, why, durability),
            Some(Fault::HalfFull) => {
                let half = self.half(buf.len());
                self.inner.write_at(offset, &buf[..half], why, durability)?;
                Err(DeviceError::at(
                    self.inner.location().text(),
                    Operation::Write,
                    offset,
                    ErrorKind::NoSpace,
                ))
            }
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Misdirected { by_bytes }) => {
                self.inner.write_at(offset + by_bytes, buf, why, durability)
            }
            Some(Fault::BitFlip { bit }) => {
                let mut spoiled = AlignedBuf::copy_of(buf);
                flip(&mut spoiled, bit);
                self.inner.write_at(offset, &spoiled, why, durability)
            }
            _ => self.inner.write_at(offset, buf, why, durability),
        }
    }

    fn write_atomic(&self, offset: u64, buf: &[u8], why: Purpose, durability: Durability) -> Result<()> {
        self.check_poison(Operation::Write)?;
        match self.check(Operation::Write)? {
            Some(Fault::HalfFull) => Err(DeviceError::at(
                self.inner.location().text(),
                Operation::Write,
                offset,
                ErrorKind::NoSpace,
            )),
            Some(Fault::Short) => {
                let kind = ErrorKind::ShortWrite { wanted_bytes: buf.len() as u64, got_bytes: 0 };
                Err(DeviceError::at(self.inner.location().text(), Operation::Write, offset, kind))
            }
            Some(Fault::Lost) => Ok(()),
            Some(Fault::Misdirected { by_bytes }) => {
                self.inner.write_atomic(offset + by_bytes, buf, why, durability)
            }
            Some(Fault::BitFlip { bit }) => {
                let mut spoiled = AlignedBuf::copy_of(buf);
                flip(&mut spoiled, bit);
                self.inner.write_atomic(offset, &spoiled, why, durability)
            }
            _ => self.inner.write_atomic(offset, buf, why, durability),
        }
    }

    fn flush(&self) -> Result<()> {
        self.check_poison(Operation::Flush)?;
        match self.check(Operation::Flush) {
            Ok(Some(Fault::Lost)) => Ok(()),
            Ok(_) => self.inner.flush(),
            Err(error) => {
                self.poison();
                Err(error)
            }
        }
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_poison(Operation::Punch)?;
        match self.check(Operation::Punch)? {
            Some(Fault::Lost) => Ok(()),
            _ => self.inner.punch(offset, len_bytes),
        }
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.check_poison(Operation::SetLen)?;
        match self.check(Operation::SetLen)? {
            Some(Fault::Lost) => Ok(()),
            _ => self.inner.set_len(len_bytes),
        }
    }

    /// Rules for changes of the length apply here, too, because both operations reserve room.
    fn reserve(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_poison(Operation::Reserve)?;
        match self.check(Operation::SetLen)? {
            Some(Fault::Lost) => Ok(()),
            _ => self.inner.reserve(offset, len_bytes),
        }
    }
}
