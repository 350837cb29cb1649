//! The profile of a smart device, and the clocks that make it as slow as its profile says.
//!
//! Invariants
//! 1. Reading inside the device, the processor, and the interface to the host work at the same time. So a
//!    scan takes as long as the slowest of the three, as in a real device.
//! 2. A device without a profile never waits.
//!
//! Source: Do 2012, chapter 5. The times for each row are those of the published scans: 600 million rows in
//! 134 s by rows, in 85 s by columns, and 255 s if every row is returned.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::error::{SmartError, read};

/// The speed and the limits of an emulated device.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// The name.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// Bytes per second that the device reads from its medium.
    pub internal_bytes_per_s: f64,
    /// Bytes per second between the device and the host.
    pub host_bytes_per_s: f64,
    /// The processor's time for a row of a leaf by rows, in nanoseconds.
    pub row_ns: f64,
    /// The processor's time for a row of a leaf by columns, in nanoseconds.
    pub column_row_ns: f64,
    /// The processor's time to return a row, in nanoseconds.
    pub returned_row_ns: f64,
    /// The memory of all sessions.
    pub memory_bytes: usize,
    /// The power in watts while busy; 0 = not known.
    pub watts_active: f64,
    /// The power in watts while idle; 0 = not known.
    pub watts_idle: f64,
}

const SMART_SSD: &str = include_str!("../profiles/smart-ssd.toml");

impl DeviceProfile {
    /// Returns the profile with this name, or `None` if there is none.
    pub fn named(name: &str) -> Option<Result<DeviceProfile, String>> {
        (name == "smart-ssd").then(|| DeviceProfile::parse(SMART_SSD))
    }

    /// Returns the profile with this name, or in the file with this name.
    pub fn find(name: &str) -> Result<DeviceProfile, SmartError> {
        let parsed = match DeviceProfile::named(name) {
            Some(parsed) => parsed,
            None => DeviceProfile::parse(&String::from_utf8_lossy(&read(Path::new(name))?)),
        };
        parsed.map_err(SmartError::Profile)
    }

    /// Reads a profile from TOML.
    pub fn parse(text: &str) -> Result<DeviceProfile, String> {
        let profile: DeviceProfile = toml::from_str(text).map_err(|error| error.to_string())?;
        let rates = [profile.internal_bytes_per_s, profile.host_bytes_per_s];
        if !rates.iter().all(|rate| rate.is_finite() && *rate > 0.0) {
            return Err("internal_bytes_per_s and host_bytes_per_s must be above 0".into());
        }
        let times = [profile.row_ns, profile.column_row_ns, profile.returned_row_ns];
        if !times.iter().all(|time| time.is_finite() && (0.0..1e9).contains(time)) {
            return Err("the times for a row must be between 0 and a second".into());
        }
        Ok(profile)
    }
}

/// The work that was done for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) read_bytes: u64,
    pub(crate) rows: u64,
    pub(crate) column_rows: u64,
    pub(crate) returned_rows: u64,
    pub(crate) sent_bytes: u64,
}

/// The time at which each part of the device is free again.
#[derive(Clone, Copy)]
struct Clocks {
    medium: Instant,
    processor: Instant,
    interface: Instant,
}

/// The times of an emulated device since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulatedTimes {
    /// The time of all requests according to the profile.
    pub modelled: Duration,
    /// The time by which answers were later, because this machine was too slow.
    pub late: Duration,
}

/// Makes a device as slow as its profile.
pub(crate) struct Throttle {
    profile: DeviceProfile,
    clocks: Mutex<Clocks>,
    modelled_ns: AtomicU64,
    late_ns: AtomicU64,
}

impl Throttle {
    pub(crate) fn new(profile: DeviceProfile) -> Throttle {
        let now = Instant::now();
        let clocks = Mutex::new(Clocks { medium: now, processor: now, interface: now });
        Throttle { profile, clocks, modelled_ns: AtomicU64::new(0), late_ns: AtomicU64::new(0) }
    }

    pub(crate) fn times(&self) -> EmulatedTimes {
        let read = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        EmulatedTimes { modelled: read(&self.modelled_ns), late: read(&self.late_ns) }
    }

    pub(crate) const fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    /// Waits until the emulated device would have done this work.
    pub(crate) fn wait(&self, work: Work, began: Instant) {
        let until = self.book(work, began);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        let add = |counter: &AtomicU64, time: Duration| {
            counter.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        };
        add(&self.modelled_ns, until.saturating_duration_since(began));
        add(&self.late_ns, until.elapsed());
    }

    fn book(&self, work: Work, began: Instant) -> Instant {
        let profile = &self.profile;
        let processor_ns = work.rows as f64 * profile.row_ns
            + work.column_rows as f64 * profile.column_row_ns
            + work.returned_rows as f64 * profile.returned_row_ns;
        let after = |free: Instant, seconds: f64| free.max(began) + Duration::from_secs_f64(seconds);
        let mut clocks = self.clocks.lock();
        clocks.medium = after(clocks.medium, work.read_bytes as f64 / profile.internal_bytes_per_s);
        clocks.processor = after(clocks.processor, processor_ns / 1e9);
        clocks.interface = after(clocks.interface, work.sent_bytes as f64 / profile.host_bytes_per_s);
        clocks.medium.max(clocks.processor).max(clocks.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle() -> Throttle {
        Throttle::new(DeviceProfile::named("smart-ssd").unwrap().unwrap())
    }

    #[test]
    fn the_slowest_part_decides() {
        let throttle = throttle();
        let began = Instant::now() + Duration::from_secs(1);
        let work = Work { read_bytes: 1_560_000_000, sent_bytes: 55_000_000, ..Work::default() };
        let took = throttle.book(work, began) - began;
        assert!((0.99..1.01).contains(&took.as_secs_f64()), "{took:?}");
        // The interface has been free since then, so its next work begins before that of the medium.
        let work = Work { sent_bytes: 1_100_000_000, ..Work::default() };
        let took = throttle.book(work, began) - began;
        assert!((2.09..2.11).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[test]
    fn the_published_scans_take_their_times() {
        for (work, seconds) in [
            (Work { rows: 600_000_000, ..Work::default() }, 134.0),
            (Work { column_rows: 600_000_000, ..Work::default() }, 85.0),
            (Work { column_rows: 600_000_000, returned_rows: 600_000_000, ..Work::default() }, 255.0),
        ] {
            let began = Instant::now() + Duration::from_secs(1);
            let took = (throttle().book(work, began) - began).as_secs_f64();
            assert!((took - seconds).abs() < 1.0, "{took} s, published {seconds} s");
        }
    }

    /// A machine that takes longer than the profile is noticed.
    #[test]
    fn late_answers_are_counted() {
        let throttle = throttle();
        let work = Work { sent_bytes: 1_100_000, ..Work::default() };
        throttle.wait(work, Instant::now());
        let in_time = throttle.times();
        assert_eq!(in_time.modelled, Duration::from_millis(2));
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
        throttle.wait(work, began);
        let late = throttle.times().late - in_time.late;
        assert!(late >= Duration::from_millis(47), "{late:?}");
    }

    #[test]
    fn a_profile_that_could_not_work_is_refused() {
        assert!(DeviceProfile::parse(&SMART_SSD.replace("1560e6", "0.0")).is_err());
        assert!(DeviceProfile::parse(&SMART_SSD.replace("row_ns", "row_nanoseconds")).is_err());
        assert!(DeviceProfile::named("floppy").is_none());
    }
}
