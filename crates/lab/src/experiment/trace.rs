//! Time and address of the requests of a space, as a row has them for a chart.

use std::collections::BTreeMap;

use serde::Serialize;
use varve_device::{Space, Timed, TraceEntry};

/// The most requests of a trace that are drawn.
pub const DRAWN_MAX: usize = 20_000;
/// Bytes of a MiB.
pub const MIB: f64 = (1 << 20) as f64;

/// Leaves out requests: every n-th one stays, so that at most [`DRAWN_MAX`] are left. `count` is at least the
/// number of requests.
pub fn thinned<T>(requests: impl Iterator<Item = T>, count: usize) -> impl Iterator<Item = T> {
    requests.step_by(count.div_ceil(DRAWN_MAX).max(1))
}

/// Requests to a space, as points: seconds since the start, and MiB from the beginning of the space.
#[derive(Debug, Default, Serialize)]
pub struct DrawnTrace {
    read: Vec<[f64; 2]>,
    write: Vec<[f64; 2]>,
}

impl DrawnTrace {
    /// Returns the trace of the requests to a space. If there are too many, only every n-th one is drawn.
    pub fn of(entries: &[TraceEntry], space: Space) -> Self {
        let mut drawn = Self::default();
        for entry in thinned(entries.iter().filter(|entry| entry.space == space), entries.len()) {
            let at = [entry.start_ns as f64 / 1e9, entry.offset as f64 / MIB];
            let way = if entry.what == Timed::Read { &mut drawn.read } else { &mut drawn.write };
            way.push(at);
        }
        drawn
    }
}

/// Gives the files of a trace one address space: a file begins where the file that was used before it ends.
pub fn end_to_end(entries: &mut [TraceEntry]) {
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    let mut order = Vec::new();
    for entry in &*entries {
        let end = ends.entry(entry.file).or_insert_with(|| {
            order.push(entry.file);
            0
        });
        *end = (*end).max(entry.offset + entry.len_bytes);
    }
    let mut next = 0;
    let mut begins = BTreeMap::new();
    for file in order {
        begins.insert(file, next);
        next += ends.get(&file).copied().unwrap_or(0);
    }
    for entry in entries {
        entry.offset += begins.get(&entry.file).copied().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use varve_device::Purpose;

    use super::*;

    fn entry(file: u32, offset: u64) -> TraceEntry {
        let (space, what, why) = (Space::Temporary, Timed::Write, Purpose::Temporary);
        TraceEntry { start_ns: 0, took_ns: 0, space, file, offset, len_bytes: 10, what, why }
    }

    #[test]
    fn files_follow_each_other_in_the_order_of_their_use() {
        let mut entries = [entry(7, 0), entry(3, 0), entry(7, 10), entry(3, 10), entry(9, 0)];
        end_to_end(&mut entries);
        assert_eq!(entries.map(|entry| entry.offset), [0, 20, 10, 30, 40]);
    }
}
