//! Tests that the model gives the rates that each profile states, and that flushes behave like flushes of a
//! kernel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const MS: u64 = 1_000_000;

impl Service {
    /// Returns how long a flush takes after one write.
    fn flush_of_one_write(&mut self) -> f64 {
        let written_ns = self.place(0, Kind::Write, Extent { file: 1, offset: 0, bytes: 4096 });
        (self.place_flush(written_ns) - written_ns) as f64
    }
}

fn device(name: &str) -> Service {
    Service::new(Profile::shipped(name).unwrap(), 1.0)
}

/// Returns the requests per second, if each of `depth` callers sends its next request as soon as its last one
/// is answered. The first tenth of the requests only warms the device up and is not counted.
fn per_second(
    service: &mut Service,
    depth: usize,
    requests: u64,
    of: impl Fn(u64) -> (Kind, u64, u64),
) -> f64 {
    let mut answers: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let (warm, mut warm_ns, mut last_ns) = (requests / 10, 0, 0);
    for no in 0..requests {
        let (kind, offset, bytes) = of(no);
        let Reverse(arrival_ns) = answers.pop().unwrap();
        let answered_ns = service.place(arrival_ns, kind, Extent { file: 1, offset, bytes });
        answers.push(Reverse(answered_ns));
        last_ns = last_ns.max(answered_ns);
        warm_ns = if no + 1 == warm { last_ns } else { warm_ns };
    }
    (requests - warm) as f64 * 1e9 / (last_ns - warm_ns) as f64
}

/// Returns an address that never continues another one, on channels taken in turn where there are stripes.
fn scattered(profile: &Profile, no: u64) -> u64 {
    let far = |no: u64| no * 7919 % 1_000_003 * 2;
    match (profile.stripe_bytes, u64::from(profile.channels)) {
        (0, _) => far(no) * profile.anchor_bytes,
        (stripe, turn) => (far(no / turn) * turn + no % turn) * stripe,
    }
}

#[track_caller]
fn assert_near(what: &str, got: f64, wanted: f64, within: f64) {
    let off = (got / wanted - 1.0).abs();
    assert!(off <= within, "{what}: {got:.1} where the source says {wanted:.1}");
}

/// Checks the four rates of every profile at the anchor size, with enough callers to keep all channels busy.
#[test]
fn every_profile_meets_its_anchors() {
    for name in Profile::names() {
        let profile = Profile::shipped(name).unwrap();
        let bytes = profile.anchor_bytes;
        let rates = profile.operations_per_s;
        let far = |kind| move |profile: &Profile, no| (kind, scattered(profile, no), bytes);
        let near = |kind| move |_: &Profile, no: u64| (kind, no * bytes, bytes);
        let check = |what: &str, wanted: f64, of: &dyn Fn(&Profile, u64) -> (Kind, u64, u64)| {
            let stripe = (profile.stripe_bytes / bytes).max(1) as usize;
            let round = stripe * profile.channels as usize;
            let rounds = if round > 200 { 10 } else { 100 };
            let requests = rounds * round as u64;
            // The rate of writes is that of writes which cause no merge.
            let mut service = Service::new(Profile { merges: None, ..profile.clone() }, 1.0);
            let got = per_second(&mut service, 4 * round, requests, |no| of(&profile, no));
            assert_near(&format!("{name}, {what}"), got, wanted, 0.01);
        };
        check("random reads", rates.random_read, &far(Kind::Read));
        check("sequential reads", rates.sequential_read, &near(Kind::Read));
        check("random writes", rates.random_write, &far(Kind::WriteThrough));
        check("sequential writes", rates.sequential_write, &near(Kind::WriteThrough));
    }
}

/// The figures of devices.md are written here a second time. Otherwise a wrong figure in a profile would pass
/// the test above.
#[test]
fn the_profiles_say_what_their_sources_say() {
    let anchors = [
        ("hdd-8", [1015.0, 26370.0, 895.0, 946.0]),
        ("hdd-18", [2718.0, 188_244.0, 2610.0, 2970.0]),
        ("fusion-io-160", [12182.0, 15980.0, 12374.0, 14965.0]),
    ];
    for (name, published) in anchors {
        let rates = Profile::shipped(name).unwrap().operations_per_s;
        let rates = [rates.random_read, rates.sequential_read, rates.random_write, rates.sequential_write];
        assert_eq!(rates, published, "{name}");
    }
    let once = |name, kind, bytes| {
        let far = Extent { file: 1, offset: 1 << 30, bytes };
        device(name).place(0, kind, far) as f64 / 1e6
    };
    let then = |name, kind, bytes| {
        let mut service = device(name);
        let begun_ns = service.place(0, kind, Extent { file: 1, offset: 0, bytes });
        (service.place(begun_ns, kind, Extent { file: 1, offset: bytes, bytes }) - begun_ns) as f64 / 1e6
    };
    let (read, write) = (Kind::Read, Kind::WriteThrough);
    let page = 8192;
    let ms = |fixed_ms: f64, mb_per_s: f64| fixed_ms + page as f64 / mb_per_s / 1e3;
    for (name, kind, latency_ms, mb_per_s) in [
        ("hdd-5400", read, 12.0 + 5.56, 34.0),
        ("hdd-5400", write, 12.0 + 5.56, 34.0),
        ("ssd-ocz", read, 0.35, 120.0),
        ("ssd-ocz", write, 0.35, 80.0),
        ("hdd-7200", read, 8.33, 110.0),
        ("ssd-2008", read, 0.2, 56.0),
        ("ssd-2008", write, 0.4, 32.0),
    ] {
        assert_near(name, once(name, kind, page), ms(latency_ms, mb_per_s), 0.002);
        assert_near(name, then(name, kind, page), ms(0.0, mb_per_s), 0.002);
        let long = (1 << 20) as f64 / mb_per_s / 1e3;
        assert_near(name, once(name, kind, 1 << 20), latency_ms + long, 0.002);
    }
    for (name, latency_ms, mb_per_s) in
        [("hdd-5400", 17.56, 34.0), ("ssd-ocz", 0.35, 120.0), ("ssd-2008", 0.2, 56.0)]
    {
        assert_near(name, once(name, read, 2048), latency_ms + 2048.0 / mb_per_s / 1e3, 0.002);
    }
    for (name, mb_per_s) in [("sas-hdd", 80.0), ("sas-ssd", 550.0), ("smart-ssd-internal", 1560.0)] {
        assert_near(name, then(name, read, 1 << 18), f64::from(1 << 18) / mb_per_s / 1e3, 0.001);
    }
    assert_near("log force", device("hdd-7200").flush_of_one_write() / 1e6, 4.17, 0.001);
}

/// Lee 2008, table 3, measured flushes of 32 and of 30 sectors, at any place of the log. A shorter flush
/// takes the same time.
#[test]
fn forces_of_the_log_take_the_time_that_was_measured() {
    for (name, sectors, took_ms) in [("lee-log-disk", 32, 8.1), ("lee-log-flash", 30, 1.3)] {
        let mut service = device(name);
        let mut at_ns = 0;
        for (no, bytes) in [sectors * 512, sectors * 512, 512, 4096].into_iter().enumerate() {
            let extent = Extent { file: 1, offset: no as u64 * sectors * 512, bytes };
            let done_ns = service.place(at_ns, Kind::WriteThrough, extent);
            assert_near(name, (done_ns - at_ns) as f64 / 1e6, took_ms, 0.001);
            at_ns = done_ns;
        }
        assert_eq!(service.place_flush(at_ns), at_ns, "a durable write needs no flush");
    }
}

#[test]
fn the_drive_of_2014_meets_its_makers_figures() {
    let profile = Profile::shipped("sata-ssd-2014").unwrap();
    let check = |what, depth, requests, wanted, of: &dyn Fn(u64) -> (Kind, u64, u64)| {
        let got = per_second(&mut device("sata-ssd-2014"), depth, requests, of);
        assert_near(what, got, wanted, 0.01);
    };
    let far = |kind| {
        let profile = profile.clone();
        move |no| (kind, scattered(&profile, no), 4096)
    };
    check("reads, one at a time", 1, 20_000, 10_000.0, &far(Kind::Read));
    check("reads, 32 at a time", 32, 30_000, 100_000.0, &far(Kind::Read));
    check("writes, one at a time", 1, 20_000, 36_000.0, &far(Kind::Write));
    check("writes, 32 at a time", 32, 30_000, 90_000.0, &far(Kind::Write));
    let long = |kind| move |no| (kind, no << 20, 1 << 20);
    check("sequential MiB read", 4, 2_000, 550e6 / f64::from(1 << 20), &long(Kind::Read));
    check("sequential MiB written", 4, 2_000, 520e6 / f64::from(1 << 20), &long(Kind::Write));
}

/// A long request is spread over the channels, as a drive spreads it over its chips: one doublewrite batch of
/// 120 pages of 4 KiB, all alone, is written at the drive's sequential rate.
#[test]
fn a_long_request_uses_all_channels() {
    let bytes = 120 * 4096;
    let extent = Extent { file: 1, offset: 0, bytes };
    let answered_ns = device("sata-ssd-2014").place(0, Kind::WriteThrough, extent);
    assert_near("480 KiB", bytes as f64 * 1e9 / answered_ns as f64, 520e6, 0.06);
}

/// A stream is sequential although each of its requests is served by another channel. This is also true if
/// there is a second stream.
#[test]
fn streams_are_followed_from_channel_to_channel() {
    let mut service = device("sata-ssd-2014");
    let mut at_ns = 0;
    for no in 0..100_u64 {
        for file in [1, 2] {
            let begun_ns = at_ns;
            let extent = Extent { file, offset: no * 4096, bytes: 4096 };
            at_ns = service.place(at_ns, Kind::Read, extent);
            let wanted_us = if no == 0 { 100.0 } else { 74.47 };
            assert_near("service in us", (at_ns - begun_ns) as f64 / 1e3, wanted_us, 0.01);
        }
    }
}

fn write(service: &mut Service, at_ns: u64, offset: u64) -> u64 {
    service.place(at_ns, Kind::Write, Extent { file: 1, offset, bytes: 4096 })
}

#[test]
fn a_flush_waits_for_what_was_placed_and_holds_up_all_channels() {
    let mut service = device("sata-ssd-2014");
    let answered_ns = write(&mut service, 0, 1 << 20);
    assert_eq!(answered_ns, 27_800, "the cache answers");
    let flushed_ns = service.place_flush(answered_ns);
    assert_eq!(flushed_ns, 111_111 + 1_643_000, "the flush begins when the medium has it");
    let read_ns = service.place(MS, Kind::Read, Extent { file: 1, offset: 0, bytes: 4096 });
    assert_eq!(read_ns, flushed_ns + 100_000, "a read waits for the flush");
}

/// n flushes that wait together take the time of one flush. In an earlier version they took n times as long.
/// A flush that arrives when the waiting flush has begun is not part of it.
#[test]
fn flushes_that_wait_join() {
    let mut service = device("sata-ssd-2014");
    write(&mut service, 0, 0);
    let first_ns = service.place_flush(30_000);
    // These writes arrive while the first flush runs, so they reach the medium after it.
    for no in 1..=8 {
        let answered_ns = write(&mut service, MS, no << 20);
        assert_eq!(answered_ns, first_ns + 27_800);
    }
    let second_ns = service.place_flush(first_ns + 27_800);
    assert_eq!(second_ns, first_ns + 111_111 + 1_643_000);
    // The write of a ninth caller is queued after the waiting flush. Callers that join this flush do not wait
    // for the write.
    write(&mut service, first_ns + 27_801, 0);
    for later_ns in 2..9 {
        assert_eq!(service.place_flush(first_ns + 27_800 + later_ns), second_ns, "it joins");
    }
    let third_ns = service.place_flush(second_ns + 27_800);
    assert_eq!(third_ns, second_ns + 111_111 + 1_643_000, "too late for the second");
    // 10 pages were written, each on one channel, while 3 flushes held up all 10.
    assert_eq!(service.busy_ns(), 10 * 111_111 + 3 * 10 * 1_643_000);
}

/// A trim occupies one channel for the time that the profile states. If the profile states no time, it
/// occupies none.
#[test]
fn a_trim_takes_a_channel() {
    let mut free = device("sata-ssd-2014");
    write(&mut free, 0, 0);
    assert_eq!((free.place_remap(7), free.busy_ns()), (7, 111_111));
    let mut profile = Profile::shipped("hdd-7200").unwrap();
    profile.trim_us = 100.0;
    let mut service = Service::new(profile, 2.0);
    assert_eq!(service.place_remap(5), 200_005);
    assert_eq!(service.place_remap(5), 400_005, "behind the first: there is one channel");
}

#[test]
fn a_flush_with_nothing_to_flush_only_waits() {
    let mut service = device("sata-ssd-2014");
    assert_eq!(service.place_flush(5), 5, "nothing was ever written");
    write(&mut service, 10, 0);
    let flushed_ns = service.place_flush(100_000);
    assert_eq!(service.place_flush(MS), flushed_ns, "what it has to flush is under way");
    assert_eq!(
        service.place_flush(flushed_ns + 7),
        flushed_ns + 7,
        "flushed before, by another file's flush"
    );
    service.place(flushed_ns + 7, Kind::WriteThrough, Extent { file: 1, offset: 0, bytes: 4096 });
    let idle_ns = flushed_ns + 7 + 78_769;
    assert!(
        service.place_flush(idle_ns + MS) == idle_ns + MS,
        "what went through leaves nothing in the cache"
    );
}

/// Eight drives with stripes of 64 KiB: the stream of one caller that reads whole rounds of stripes is
/// sequential on each drive. An earlier model counted this stream as random at the beginning of each stripe,
/// which was four times too slow.
#[test]
fn a_stream_over_stripes_is_sequential_on_each_channel() {
    let text = include_str!("../../profiles/fusion-io-160.toml")
        .replace("channels = 1", "channels = 8")
        .replace("stripe_bytes = 0", "stripe_bytes = 65536")
        .replace("random_read = 12182", "random_read = 1015")
        .replace("sequential_read = 15980", "sequential_read = 26370");
    let mut service = Service::new(Profile::parse(&text).unwrap(), 1.0);
    let got = per_second(&mut service, 2, 4_000, |no| (Kind::Read, no * (512 << 10), 512 << 10));
    assert_near("pages of 8 KiB", got * 64.0, 26_370.0, 0.1);
}

/// A disk turns once for a request, not once for each of its pages. Adjacent pages that are submitted
/// together are one request. Eight disks position their heads at the same time.
#[test]
fn a_disk_turns_once_for_adjacent_pages() {
    const PAGE: u64 = 8192;
    let page = |no: u64| (Kind::WriteThrough, Extent { file: 1, offset: no * PAGE, bytes: PAGE });
    let (turn_ns, under_way_ns) = (8.0 * 1e9 / 895.0, 8.0 * 1e9 / 26_370.0);
    let one = device("hdd-8").place(0, Kind::WriteThrough, Extent { file: 1, offset: 0, bytes: 8 * PAGE });
    assert_near("a stripe at once", one as f64, turn_ns + 7.0 * under_way_ns, 0.001);
    let backwards = device("hdd-8").place_all(0, (0..8).rev().map(page));
    assert_eq!(backwards, one, "whatever the order in which they are handed over");
    let mut service = device("hdd-8");
    let answered_ns = service.place_all(0, (0..64).map(page));
    assert_eq!(answered_ns, one, "a stripe on each of eight disks");
    assert_near("busy", service.busy_ns() as f64, 8.0 * one as f64, 0.001);
    let apart = device("hdd-8").place_all(0, [0, 2].into_iter().map(page));
    assert_near("a gap is another request", apart as f64, turn_ns * 2.0, 0.01);
    let long = device("hdd-7200").place(0, Kind::Read, Extent { file: 1, offset: 1 << 30, bytes: 1 << 20 });
    assert_near("a seek, then 110 MB/s", long as f64 / 1e6, 8.33 + f64::from(1 << 20) / 110e3, 0.01);
    let short = device("hdd-8").place(0, Kind::WriteThrough, Extent { file: 1, offset: 0, bytes: 512 });
    assert_near("heads move for a sector, too", short as f64, turn_ns, 0.001);
}

/// In an earlier version, a flush of such a drive held up all channels until the last of them was idle.
#[test]
fn a_drive_without_a_cache_is_not_held_up_by_flushes() {
    let mut service = device("hdd-8");
    let answered_ns = service.place(0, Kind::Write, Extent { file: 1, offset: 0, bytes: 8192 });
    assert_eq!(service.place_flush(5), 5);
    let other = service.place(6, Kind::Read, Extent { file: 1, offset: 64 << 10, bytes: 8192 });
    assert!(other < answered_ns, "another disk was idle");
}
