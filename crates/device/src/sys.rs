//! Wrappers for the kernel calls that the standard library does not have.
//!
//! Invariants
//! 1. A function borrows descriptors and buffers only for the call, and owns nothing.
//! 2. A function repeats interrupted calls, so callers never see `EINTR`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// Repeats an interrupted call and turns -1 into the errno.
fn retry(mut call: impl FnMut() -> i64) -> io::Result<i64> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Makes one durable write (`pwritev2` with `RWF_DSYNC`), and returns the number of bytes written.
pub(crate) fn write_durable(fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> io::Result<usize> {
    write_with(fd, buf, offset, libc::RWF_DSYNC)
}

/// Makes one atomic write (`RWF_ATOMIC`), which is durable if `durable` is true. Returns the number of bytes
/// written.
pub(crate) fn write_atomic(fd: BorrowedFd<'_>, buf: &[u8], offset: u64, durable: bool) -> io::Result<usize> {
    write_with(fd, buf, offset, libc::RWF_ATOMIC | if durable { libc::RWF_DSYNC } else { 0 })
}

fn write_with(fd: BorrowedFd<'_>, buf: &[u8], offset: u64, flags: i32) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
    // SAFETY: `part` describes `buf`, which is borrowed for the call; the kernel only reads it.
    let call = || unsafe { libc::pwritev2(fd.as_raw_fd(), &part, 1, offset as i64, flags) as i64 };
    retry(call).map(|written| written as usize)
}

/// Reserves space and extends the file to `offset + len_bytes`.
pub(crate) fn allocate(fd: BorrowedFd<'_>, offset: u64, len_bytes: u64) -> io::Result<()> {
    fallocate(fd, 0, offset, len_bytes)
}

/// Gives a range back to the file system. The length of the file stays the same.
pub(crate) fn punch(fd: BorrowedFd<'_>, offset: u64, len_bytes: u64) -> io::Result<()> {
    fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len_bytes)
}

fn fallocate(fd: BorrowedFd<'_>, mode: i32, offset: u64, len_bytes: u64) -> io::Result<()> {
    // SAFETY: passes numbers and a borrowed descriptor only.
    let call =
        || unsafe { i64::from(libc::fallocate(fd.as_raw_fd(), mode, offset as i64, len_bytes as i64)) };
    retry(call).map(|_| ())
}

/// The facts from `statx` about I/O of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StatxFacts {
    /// The alignment of offsets and lengths for direct I/O; 0 if the file system does not report it.
    pub direct_offset_align_bytes: u32,
    /// The number of bytes of the smallest and the largest atomic write; 0 if there are none.
    pub atomic_write_bytes_min: u32,
    pub atomic_write_bytes_max: u32,
    /// Whether the file is mapped without a page cache.
    pub dax: bool,
    pub device_major: u32,
    pub device_minor: u32,
}

/// Asks `statx` about an open file.
pub(crate) fn statx(fd: BorrowedFd<'_>) -> io::Result<StatxFacts> {
    let mask = libc::STATX_BASIC_STATS | libc::STATX_DIOALIGN | libc::STATX_WRITE_ATOMIC;
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut facts: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the empty path with AT_EMPTY_PATH names the descriptor; `facts` outlives the call.
    let call = || unsafe {
        let raw = fd.as_raw_fd();
        i64::from(libc::statx(raw, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &mut facts))
    };
    retry(call)?;
    let is_atomic = facts.stx_attributes & libc::STATX_ATTR_WRITE_ATOMIC as u64 != 0;
    let if_atomic = |bytes| if is_atomic { bytes } else { 0 };
    Ok(StatxFacts {
        direct_offset_align_bytes: facts.stx_dio_offset_align,
        atomic_write_bytes_min: if_atomic(facts.stx_atomic_write_unit_min),
        atomic_write_bytes_max: if_atomic(facts.stx_atomic_write_unit_max),
        dax: facts.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0,
        device_major: facts.stx_dev_major,
        device_minor: facts.stx_dev_minor,
    })
}

/// Returns the number that identifies the type of an open file's file system.
pub(crate) fn file_system(fd: BorrowedFd<'_>) -> io::Result<i64> {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: passes a borrowed descriptor; `facts` outlives the call.
    retry(|| unsafe { i64::from(libc::fstatfs(fd.as_raw_fd(), &mut facts)) })?;
    Ok(facts.f_type)
}

/// Returns the free bytes for processes without privileges in the file system of a directory.
pub(crate) fn free_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut facts: libc::statfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: passes a borrowed descriptor; `facts` outlives the call.
    retry(|| unsafe { i64::from(libc::fstatfs64(fd.as_raw_fd(), &mut facts)) })?;
    Ok(facts.f_bavail.saturating_mul(facts.f_bsize.unsigned_abs()))
}

/// Returns the number of bytes of a physical sector of a block device, if the kernel reports them.
pub(crate) fn physical_sector_bytes(major: u32, minor: u32) -> Option<u32> {
    let device = format!("/sys/dev/block/{major}:{minor}");
    let name = "queue/physical_block_size";
    let whole = Path::new(&device).join(name);
    let of_partition = Path::new(&device).join("..").join(name);
    let text = std::fs::read_to_string(whole).or_else(|_| std::fs::read_to_string(of_partition)).ok()?;
    text.trim().parse().ok()
}

/// Returns the monotonic time in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call; the monotonic clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until the monotonic time `until_ns`.
pub(crate) fn sleep_until_ns(until_ns: u64) {
    let until = libc::timespec {
        tv_sec: (until_ns / 1_000_000_000) as i64,
        tv_nsec: (until_ns % 1_000_000_000) as i64,
    };
    loop {
        // SAFETY: `until` outlives the call; an absolute sleep has no remainder to report.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut())
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Makes the timers of this thread fire on time. By default they may be 50 µs late.
pub(crate) fn tighten_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one number and affects the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
}

/// Returns the processor time this process has used, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the processor time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn cpu_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call; the clocks of the process and of the thread always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
