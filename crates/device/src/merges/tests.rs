//! Tests the merges against figures that are computed by hand, and against the published time of a write to
//! rollback segments.

use super::*;
use crate::profile::Profile;
use crate::service::{Extent, Kind, Service};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 8192;
/// Time to erase a whole super-block of `ssd-2008`.
const ERASE_MS: f64 = 12.0;

fn drive(open_blocks: usize) -> OpenBlocks {
    let merges = Profile::shipped("ssd-2008").unwrap().merges.unwrap();
    OpenBlocks::new(Merges { open_blocks, ..merges })
}

/// Returns the time in milliseconds of a merge that copies all bytes of a super-block except this many.
fn merge_ms(host_bytes: u64) -> f64 {
    ERASE_MS + (MIB - host_bytes) as f64 / 32e3
}

#[track_caller]
fn assert_near(what: &str, got: f64, wanted: f64, within: f64) {
    assert!((got / wanted - 1.0).abs() <= within, "{what}: {got:.3}, wanted {wanted:.3}");
}

/// Returns pseudo-random numbers from a xorshift generator.
fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 32) * below) >> 32
    }
}

#[test]
fn a_sequential_stream_is_not_merged() {
    let mut open = drive(1);
    let took_ns: u64 = (0..10 * MIB / PAGE).map(|no| open.write(1, no * PAGE, PAGE)).sum();
    let long_ns = open.write(2, 0, 5 * MIB);
    assert_eq!((took_ns, long_ns, open.counts()), (0, 0, MergeCounts::default()));
}

/// A flush of the log may write the last page again, even in parts of a page.
#[test]
fn the_last_page_may_be_written_again() {
    let mut open = drive(1);
    assert_eq!((0..8 * 256).map(|no| open.write(1, no * 512, 512)).sum::<u64>(), 0, "sectors of one block");
    assert_eq!((0..255).map(|no| open.write(1, MIB + no * 4096, 8192)).sum::<u64>(), 0, "each page twice");
    assert_eq!(open.counts(), MergeCounts::default());
}

#[test]
fn a_page_written_again_is_a_merge() {
    let mut open = drive(4);
    assert_eq!(open.write(1, 64 * PAGE, PAGE), 0, "it opens the block");
    for _ in 0..3 {
        let took_ms = open.write(1, 64 * PAGE, PAGE) as f64 / 1e6;
        assert_near("in place", took_ms, merge_ms(PAGE), 1e-6);
    }
    assert_eq!(open.counts().merges, 3);
    assert_eq!(open.counts().copied_bytes, 3 * (MIB - PAGE));
}

/// Pages that were left out are copied when the block is closed.
#[test]
fn a_block_may_be_written_with_gaps() {
    let mut open = drive(1);
    assert_eq!((0..10).map(|no| open.write(1, no * 4 * PAGE, PAGE)).sum::<u64>(), 0);
    assert_near("ten pages", open.write(1, 7 * MIB, PAGE) as f64 / 1e6, merge_ms(10 * PAGE), 1e-6);
}

/// Each of the streams has a block of its own, one extent apart (Lee 2008, figure 4 b).
#[test]
fn parallel_streams_are_merged_only_if_they_are_too_many() {
    let round_robin = |streams: u64| {
        let mut open = drive(10);
        let write = |no: u64| (no % streams * MIB) + no / streams * PAGE;
        let writes = streams * MIB / PAGE;
        let took_ns: u64 = (0..writes).map(|no| open.write(1, write(no), PAGE)).sum();
        took_ns as f64 / 1e6 / writes as f64
    };
    assert_eq!([1, 2, 10].map(round_robin), [0.0; 3]);
    assert_near("eleven streams in turn", round_robin(11), merge_ms(PAGE), 0.01);
}

/// Returns the mean milliseconds of a write of 8 KiB on the whole model, one write after the other.
fn mean_write_ms(profile: &str, writes: u64, mut offset_of: impl FnMut(u64) -> u64) -> f64 {
    let mut service = Service::new(Profile::shipped(profile).unwrap(), 1.0);
    let mut write = |at_ns, no| {
        let extent = Extent { file: 1, offset: offset_of(no), bytes: PAGE };
        service.place(at_ns, Kind::WriteThrough, extent)
    };
    (0..writes).fold(0, &mut write) as f64 / 1e6 / writes as f64
}

/// Returns the writes of rollback segments (Lee 2008, section 5.1): ten segments, each of which fills extents
/// of 1 MiB, and whose headers are updated in place in a region of their own. Of 12 writes, one is of a
/// header.
fn rollback_segments() -> impl FnMut(u64) -> u64 {
    const SEGMENTS: u64 = 10;
    let mut random = chance(2008);
    let mut written = [0; SEGMENTS as usize];
    move |_| {
        let segment = random(SEGMENTS);
        if random(12) == 0 {
            return segment * PAGE;
        }
        let page = &mut written[segment as usize];
        let (extent, within) = (*page / 128, *page % 128);
        *page += 1;
        (1 + extent * SEGMENTS + segment) * MIB + within * PAGE
    }
}

/// The number of open super-blocks is calibrated so that a write takes the published 6.8 ms (section 5.1).
#[test]
fn writes_of_rollback_segments_take_the_published_time() {
    assert_near("ssd-2008", mean_write_ms("ssd-2008", 40_000, rollback_segments()), 6.8, 0.05);
}

#[test]
fn random_and_sequential_writes_of_the_drive() {
    let mut random = chance(7);
    let (base_ms, under_way_ms) = (1e3 / 1524.0, 1e3 / 3906.0);
    let random_ms = mean_write_ms("ssd-2008", 5_000, |_| random(4 << 20) * PAGE);
    assert_near("random", random_ms, base_ms + merge_ms(PAGE), 0.01);
    let sequential_ms = mean_write_ms("ssd-2008", 5_000, |no| no * PAGE);
    assert_near("sequential", sequential_ms, under_way_ms, 0.01);
    let streams_ms =
        mean_write_ms("ssd-2008", 5_120, |no| no % 8 * MIB + no / 8 % 128 * PAGE + no / 1024 * 8 * MIB);
    assert_near("eight streams", streams_ms, base_ms, 0.01);
    let ocz_ms = mean_write_ms("ssd-ocz", 5_000, |_| random(4 << 20) * PAGE);
    assert_near("random, ssd-ocz", ocz_ms, 1e3 / 2211.0 + 12.0 + (MIB - PAGE) as f64 / 80e3, 0.01);
}

/// A drive whose profile has no section `[merges]` takes the same time for each write.
#[test]
fn other_drives_do_not_merge() {
    for name in Profile::names() {
        let merges = Profile::shipped(name).unwrap().merges;
        assert_eq!(merges.is_some(), ["ssd-2008", "ssd-ocz"].contains(&name), "{name}");
    }
    let text = include_str!("../../profiles/ssd-2008.toml").replace("open_blocks = 10", "open_blocks = 0");
    assert!(Profile::parse(&text).unwrap_err().to_string().contains("open_blocks"));
}
