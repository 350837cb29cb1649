//! Each anchor of each shipped profile is met by the model, and flushes behave as a kernel's do. No clock runs here.

use super::*;

const MS: u64 = 1_000_000;

fn device(name: &str) -> Service {
    Service::new(Profile::shipped(name).unwrap(), 1.0)
}

/// Requests per second when `depth` callers each send the next request as soon as theirs is answered.
fn per_second(
    service: &mut Service,
    depth: usize,
    requests: u64,
    of: impl Fn(u64) -> (Kind, u64, u64),
) -> f64 {
    let mut answered_ns = vec![0; depth];
    for no in 0..requests {
        let (kind, offset, bytes) = of(no);
        let caller = answered_ns.iter_mut().min().unwrap();
        *caller = service.place(*caller, kind, Extent { file: 1, offset, bytes });
    }
    requests as f64 * 1e9 / *answered_ns.iter().max().unwrap() as f64
}

/// An address that never continues another one, on channels taken in turn where there are stripes.
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

/// Every profile: the four rates at the anchor's size, with enough callers to keep all channels busy.
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
            let depth = 4 * stripe * profile.channels as usize;
            let got = per_second(&mut device(name), depth, 20_000, |no| of(&profile, no));
            assert_near(&format!("{name}, {what}"), got, wanted, 0.01);
        };
        check("random reads", rates.random_read, &far(Kind::Read));
        check("sequential reads", rates.sequential_read, &near(Kind::Read));
        check("random writes", rates.random_write, &far(Kind::WriteThrough));
        check("sequential writes", rates.sequential_write, &near(Kind::WriteThrough));
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

/// A long request is spread over the channels, as a drive spreads it over its chips: one doublewrite batch of 120 pages of
/// 4 KiB, all alone, is written at the drive's sequential rate.
#[test]
fn a_long_request_uses_all_channels() {
    let bytes = 120 * 4096;
    let extent = Extent { file: 1, offset: 0, bytes };
    let answered_ns = device("sata-ssd-2014").place(0, Kind::WriteThrough, extent);
    assert_near("480 KiB", bytes as f64 * 1e9 / answered_ns as f64, 520e6, 0.06);
}

/// A stream is sequential although each of its requests is served by another channel, also beside another stream.
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

/// The time of n waiting flushes is that of one, where it was n times as long; one that arrives when the waiting one
/// has begun is not covered by it.
#[test]
fn flushes_that_wait_join() {
    let mut service = device("sata-ssd-2014");
    write(&mut service, 0, 0);
    let first_ns = service.place_flush(30_000);
    // Written while the first one runs: on the medium behind it.
    for no in 1..=8 {
        let answered_ns = write(&mut service, MS, no << 20);
        assert_eq!(answered_ns, first_ns + 27_800);
    }
    let second_ns = service.place_flush(first_ns + 27_800);
    assert_eq!(second_ns, first_ns + 111_111 + 1_643_000);
    // A ninth caller's write comes to lie behind the waiting flush; those who join don't wait for it.
    write(&mut service, first_ns + 27_801, 0);
    for later_ns in 2..9 {
        assert_eq!(service.place_flush(first_ns + 27_800 + later_ns), second_ns, "it joins");
    }
    let third_ns = service.place_flush(second_ns + 27_800);
    assert_eq!(third_ns, second_ns + 111_111 + 1_643_000, "too late for the second");
    // 10 pages were written, each on one channel, while 3 flushes held up all 10.
    assert_eq!(service.busy_ns(), 10 * 111_111 + 3 * 10 * 1_643_000);
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

/// Eight drives in stripes of 64 KiB: a stream of one caller who asks for whole rounds is sequential on each of them. It
/// once counted as random at each stripe's beginning, four times too slow.
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
