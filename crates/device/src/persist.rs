//! Cache-line write-backs and fences, which make stores to persistent memory durable. Also reads the
//! time-stamp counter.
//!
//! Invariants
//! 1. The write-back instruction is chosen once in a process: clwb if the processor has it, else clflushopt,
//!    else clflush. A processor without any of these is refused, because it cannot make stores durable. Two
//!    cases need only a fence. In the first case, the kernel reports that the caches survive a power failure
//!    (eADR). In the second case, the mapping only emulates persistent memory, so it does not survive a power
//!    failure anyway.
//! 2. Non-temporal stores (`stream`) bypass the caches. A thread does not read such bytes before its next
//!    fence.
//! 3. The assembler blocks are declared to read and write all memory, so the compiler moves no store across
//!    them.
//!
//! The code relies on these rules of the processor (Intel SDM, volume 2). The instructions clwb and
//! clflushopt are ordered after older stores to their line, but not among themselves. An sfence waits for the
//! write-backs of its own thread, and comes before later stores. A write-back also works for a line that is
//! dirty in another core's cache.
//!
//! The code uses assembler because the standard library has only clflush.

use std::path::Path;
use std::sync::OnceLock;

use crate::error::ErrorKind;
use crate::region::{LINE_BYTES, Medium, WriteBack};

/// The environment variable that forces an instruction, for tests and experiments.
const FORCE: &str = "VARVE_NVM_WRITE_BACK";
/// The folder in which the kernel lists persistent memory.
const REGIONS: &str = "/sys/bus/nd/devices";

const NO_INSTRUCTION: &str = "this is persistent memory, the processor has none of clwb, clflushopt and clflush, and the kernel does not say \
    that its caches survive a power failure: what is stored there could be lost. Put the region on another file system, where it is emulated";

/// The write-back instruction that this process uses.
struct WriteBackChoice {
    instruction: Result<WriteBack, ErrorKind>,
    /// Whether the environment variable has chosen the instruction.
    is_forced: bool,
    /// Whether the caches survive a power failure.
    caches_persist: bool,
}

fn found() -> &'static WriteBackChoice {
    static FOUND: OnceLock<WriteBackChoice> = OnceLock::new();
    FOUND.get_or_init(|| {
        let forced = std::env::var(FORCE).ok().map(|name| named(&name));
        WriteBackChoice {
            is_forced: forced.is_some(),
            instruction: forced.unwrap_or_else(|| Ok(best())),
            caches_persist: caches_persist(Path::new(REGIONS)),
        }
    })
}

/// Returns how lines of a medium are written back. Errors: the environment variable names an instruction that
/// this processor does not have, or the medium needs an instruction and the processor has none.
pub(crate) fn write_back_of(medium: Medium) -> Result<WriteBack, ErrorKind> {
    found().write_back_of(medium)
}

impl WriteBackChoice {
    fn write_back_of(&self, medium: Medium) -> Result<WriteBack, ErrorKind> {
        if medium != Medium::Persistent {
            return self.instruction.clone();
        }
        if self.caches_persist && !self.is_forced {
            return Ok(WriteBack::FenceOnly);
        }
        match self.instruction.clone()? {
            WriteBack::FenceOnly => Err(ErrorKind::Setting(NO_INSTRUCTION.into())),
            instruction => Ok(instruction),
        }
    }
}

/// Returns whether a store of whole lines that are written back at once bypasses the caches. It does not if
/// an instruction is forced.
pub(crate) fn streams() -> bool {
    CAN_STREAM && !found().is_forced
}

const INSTRUCTIONS: [WriteBack; 3] = [WriteBack::Clwb, WriteBack::ClflushOpt, WriteBack::Clflush];

fn best() -> WriteBack {
    INSTRUCTIONS.into_iter().find(|how| has(*how)).unwrap_or(WriteBack::FenceOnly)
}

fn named(name: &str) -> Result<WriteBack, ErrorKind> {
    let wrong = |what: &str| ErrorKind::Setting(format!("{FORCE} is {name:?}{what}").into());
    let how = INSTRUCTIONS.into_iter().find(|how| how.name() == name);
    let how = how.ok_or_else(|| wrong(": choose clwb, clflushopt or clflush"))?;
    if has(how) {
        Ok(how)
    } else {
        Err(wrong(", and this processor has no such instruction: choose another one"))
    }
}

/// Returns whether the kernel reports, for every region of persistent memory, that the processor's caches
/// survive a power failure.
fn caches_persist(devices: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(devices) else { return false };
    let regions =
        entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"region"));
    let mut domains =
        regions.map(|region| std::fs::read_to_string(region.path().join("persistence_domain"))).peekable();
    domains.peek().is_some() && domains.all(|domain| domain.is_ok_and(|name| name.trim() == "cpu_cache"))
}

/// Begins to write back `lines` cache lines from `first` on.
///
/// # Safety
/// The lines must lie within mapped memory.
pub(crate) unsafe fn write_back_lines(how: WriteBack, first: *const u8, lines: u64) {
    for no in 0..lines {
        let line = first.wrapping_add((no * LINE_BYTES) as usize);
        // SAFETY: the caller says that the line is mapped; the contents do not change.
        unsafe { write_back_line(how, line) };
    }
}

/// Prefetches `lines` cache lines from `first` on. Addresses without mapped memory are ignored.
pub(crate) fn prefetch_lines(first: *const u8, lines: u64) {
    for no in 0..lines {
        prefetch_line(first.wrapping_add((no * LINE_BYTES) as usize));
    }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid, __cpuid_count, __m128i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_stream_si128, _rdtsc,
    };

    use super::{LINE_BYTES, WriteBack};

    /// Returns whether the processor has the instruction, and its lines have the size [`LINE_BYTES`].
    pub(super) fn has(how: WriteBack) -> bool {
        let basic = __cpuid(1);
        let line_bytes = u64::from(basic.ebx >> 8 & 0xFF) * 8;
        let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        let bit = match how {
            WriteBack::Clwb => extended >> 24,
            WriteBack::ClflushOpt => extended >> 23,
            WriteBack::Clflush => basic.edx >> 19,
            WriteBack::FenceOnly => 1,
        };
        bit & 1 == 1 && (how == WriteBack::FenceOnly || line_bytes == LINE_BYTES)
    }

    /// # Safety
    /// The line must be mapped.
    #[inline]
    pub(super) unsafe fn write_back_line(how: WriteBack, line: *const u8) {
        // SAFETY: the caller says that the line is mapped; the instructions exist, since `has` was asked for
        // them.
        unsafe {
            match how {
                WriteBack::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                WriteBack::ClflushOpt => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
                }
                WriteBack::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                WriteBack::FenceOnly => {}
            }
        }
    }

    /// Whether stores can bypass the caches.
    pub(super) const CAN_STREAM: bool = true;

    /// Copies whole lines with stores that bypass the caches. The next fence of this thread waits for these
    /// stores.
    ///
    /// # Safety
    /// The ranges must be mapped and apart, `to` at a whole line and `len` a multiple of a line.
    pub(crate) unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
        for at in (0..len).step_by(size_of::<__m128i>()) {
            // SAFETY: the caller says that both are mapped. Nobody touches `to` before this thread's fence
            // (contract of `Region::store_back`), which is what the compiler is promised about such stores.
            unsafe {
                let bytes = _mm_loadu_si128(from.add(at).cast());
                _mm_stream_si128(to.add(at).cast(), bytes);
            }
        }
    }

    /// Prefetches a line. This is only a hint.
    #[inline]
    pub(super) fn prefetch_line(line: *const u8) {
        // SAFETY: every processor of the architecture has the instruction, and it faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }

    /// Waits until all lines that this thread has written back are durable.
    #[inline]
    pub(crate) fn fence() {
        // SAFETY: the instruction is part of the architecture and touches no register.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// Returns whether the time-stamp counter always runs at the same speed.
    pub(super) fn counter_is_steady() -> bool {
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx >> 8 & 1 == 1
    }

    #[inline]
    pub(super) fn counter() -> u64 {
        // SAFETY: reads a counter that every processor of the architecture has.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use super::WriteBack;

    pub(super) fn has(how: WriteBack) -> bool {
        how == WriteBack::FenceOnly
    }

    pub(super) unsafe fn write_back_line(_how: WriteBack, _line: *const u8) {}

    pub(super) fn prefetch_line(_line: *const u8) {}

    pub(super) const CAN_STREAM: bool = false;

    pub(crate) unsafe fn stream(_from: *const u8, _to: *mut u8, _len: usize) {}

    /// Orders stores. That is enough, because on this architecture no memory is mapped as persistent.
    pub(crate) fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    pub(super) fn counter_is_steady() -> bool {
        false
    }

    pub(super) fn counter() -> u64 {
        0
    }
}

use processor::{CAN_STREAM, counter, counter_is_steady, has, prefetch_line, write_back_line};
pub(crate) use processor::{fence, stream};

/// Returns the nanoseconds of the clock and the time-stamp counter at the same moment. A thread may be
/// interrupted between the two reads, so the best of several tries is used.
fn both_clocks() -> (u64, u64) {
    let look = |_| {
        let before = counter();
        let now_ns = crate::sys::now_ns();
        let took = counter() - before;
        (took, now_ns, before + took / 2)
    };
    let best = (0..32).map(look).min();
    best.map_or((0, 0), |(_, now_ns, ticks)| (now_ns, ticks))
}

/// Time in ticks. A tick is a step of the time-stamp counter if the counter is steady, else a nanosecond.
pub(crate) struct Ticks {
    /// Ticks in a nanosecond.
    pub(crate) per_ns: f64,
    is_counter: bool,
}

impl Ticks {
    /// Returns the ticks of this process. The first call measures their length for 10 ms.
    pub(crate) fn of_process() -> &'static Ticks {
        const CALIBRATION_NS: u64 = 10_000_000;
        static TICKS: OnceLock<Ticks> = OnceLock::new();
        TICKS.get_or_init(|| {
            if !counter_is_steady() {
                return Ticks { per_ns: 1.0, is_counter: false };
            }
            let (start_ns, start) = both_clocks();
            crate::sys::sleep_until_ns(start_ns + CALIBRATION_NS);
            let (end_ns, end) = both_clocks();
            Ticks { per_ns: (end - start) as f64 / (end_ns - start_ns) as f64, is_counter: true }
        })
    }

    /// Returns the present time in ticks.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.is_counter { counter() } else { crate::sys::now_ns() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(of_regions: &[&str]) -> bool {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("bus0")).unwrap();
        for (no, domain) in of_regions.iter().enumerate() {
            let region = scratch.path().join(format!("region{no}"));
            std::fs::create_dir(&region).unwrap();
            std::fs::write(region.join("persistence_domain"), domain).unwrap();
        }
        caches_persist(scratch.path())
    }

    #[test]
    fn caches_persist_if_every_region_says_so() {
        assert!(domains(&["cpu_cache\n", "cpu_cache"]));
        assert!(!domains(&["cpu_cache\n", "memory_controller\n"]));
        assert!(!domains(&[""]));
        assert!(!domains(&[]), "no region, no promise");
        assert!(!caches_persist(Path::new("/nowhere")));
    }

    #[test]
    fn persistent_memory_without_an_instruction_is_refused_unless_caches_persist() {
        let found = |instruction, caches_persist, is_forced| WriteBackChoice {
            instruction: Ok(instruction),
            is_forced,
            caches_persist,
        };
        let (persistent, file) = (Medium::Persistent, Medium::EmulatedByFile);
        let fence = WriteBack::FenceOnly;
        let refused = found(fence, false, false).write_back_of(persistent).unwrap_err();
        assert!(
            matches!(&refused, ErrorKind::Setting(what) if what.contains("could be lost")),
            "{refused:?}"
        );
        assert_eq!(found(fence, true, false).write_back_of(persistent), Ok(fence));
        assert_eq!(found(fence, false, false).write_back_of(file), Ok(fence));
        assert_eq!(found(WriteBack::Clwb, true, false).write_back_of(persistent), Ok(fence));
        assert_eq!(found(WriteBack::Clwb, true, true).write_back_of(persistent), Ok(WriteBack::Clwb));
        assert_eq!(found(WriteBack::Clflush, false, false).write_back_of(persistent), Ok(WriteBack::Clflush));
    }

    #[test]
    fn ticks_are_about_what_the_clock_says() {
        let ticks = Ticks::of_process();
        let (start_ns, start) = (crate::sys::now_ns(), ticks.now());
        crate::sys::sleep_until_ns(start_ns + 5_000_000);
        let (end, end_ns) = (ticks.now(), crate::sys::now_ns());
        let (measured, real) = ((end - start) as f64 / ticks.per_ns, (end_ns - start_ns) as f64);
        assert!((measured / real - 1.0).abs() < 0.1, "{measured} ns against {real}");
    }
}
