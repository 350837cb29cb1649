//! Finds out how much memory is available for the buffer pool.

const QUERY_BYTES_MIN: u64 = 256 * MIB;
const QUERY_SHARE: u64 = 8;
const SHARE: u64 = 4;
const MIB: u64 = 1 << 20;
const POOL_BYTES_MAX: u64 = 1 << 30;
const POOL_BYTES_MIN: u64 = 32 * MIB;
/// The size of the pool if the size of the memory is unknown.
const POOL_BYTES_UNKNOWN: u64 = 256 * MIB;

/// Returns the size of the buffer pool if the configuration names none: a quarter of the memory of this
/// machine or control group, at least 32 MiB, at most 1 GiB.
pub fn default_pool_bytes() -> u64 {
    let memory = [machine_bytes(), group_bytes()].into_iter().flatten().min();
    let pool =
        memory.map_or(POOL_BYTES_UNKNOWN, |bytes| (bytes / SHARE).clamp(POOL_BYTES_MIN, POOL_BYTES_MAX));
    pool / MIB * MIB
}

/// Returns the bytes of memory for general queries if the configuration names none.
pub fn default_query_bytes() -> u64 {
    memory_bytes().map_or(QUERY_BYTES_MIN, |bytes| (bytes / QUERY_SHARE).max(QUERY_BYTES_MIN)) / MIB * MIB
}

/// Returns the most memory that this process can use, if it is known.
pub fn memory_bytes() -> Option<u64> {
    [machine_bytes(), group_bytes()].into_iter().flatten().min()
}

fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Returns the limit of the process's control groups (version 2). A group with `max` has no limit.
fn group_bytes() -> Option<u64> {
    std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_modest() {
        let bytes = default_pool_bytes();
        assert!((POOL_BYTES_MIN..=POOL_BYTES_MAX).contains(&bytes), "{bytes}");
        assert_eq!(bytes % MIB, 0);
    }
}
