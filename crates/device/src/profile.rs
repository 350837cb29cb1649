//! Profiles of emulated devices. A profile is a TOML file, not code.
//!
//! Invariants
//! 1. A profile states how many operations a second the device does at one request size (the anchor size). At
//!    this size, the computed service times give exactly this rate for all channels together.
//! 2. A profile names its source. Watts of 0 mean that no source states them.

use serde::Deserialize;

use crate::ftl::Translation;
use crate::merges::Merges;

/// The names and texts of profiles that come with the program.
macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

const SHIPPED: &[(&str, &str)] = shipped![
    "cloud-block",
    "cloud-local-nvme",
    "fusion-io-160",
    "hdd-18",
    "hdd-5400",
    "hdd-7200",
    "hdd-8",
    "lee-log-disk",
    "lee-log-flash",
    "nvme",
    "object-store",
    "sas-hdd",
    "sas-ssd",
    "sata-ssd-2014",
    "smart-ssd-internal",
    "ssd-2008",
    "ssd-ocz",
];

/// The shape of one request, as far as the service time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub write: bool,
    pub sequential: bool,
    pub bytes: u64,
}

/// Sustained operations per second at the anchor size.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationsPerSecond {
    /// Reads at any address.
    pub random_read: f64,
    /// Reads at the next address.
    pub sequential_read: f64,
    /// Writes at any address.
    pub random_write: f64,
    /// Writes at the next address.
    pub sequential_write: f64,
}

/// How a device makes a single write durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurableWrite {
    /// The device acknowledges the write when it is on the medium (force unit access).
    #[default]
    Fua,
    /// The write is followed by a flush of the device's cache.
    Flush,
    /// The write is like any other write, because the device's cache survives a power failure.
    Cached,
}

/// A service-time model of a device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name, printed with every result.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// Parallel servers.
    pub channels: u32,
    /// Addresses are spread over the channels in stripes of this size. 0 = no stripes: the channel that is
    /// free first serves a request, and each `anchor_bytes` of a long request can go to another channel.
    pub stripe_bytes: u64,
    /// The request size to which `operations_per_s` applies.
    pub anchor_bytes: u64,
    /// Part of a service time that does not depend on the length, in microseconds.
    pub fixed_us: f64,
    /// Operations of the anchor's size per second on all channels together, after the first operation of a
    /// long request. A disk positions its heads once for a request, however long it is. Requests that are
    /// submitted together and have adjacent addresses count as one. 0 means that every operation takes as
    /// long as the first.
    #[serde(default)]
    pub under_way_per_s: f64,
    /// The same rate for writes. 0 means that writes have the rate of reads.
    #[serde(default)]
    pub under_way_write_per_s: f64,
    /// The time of a flush with data to write, in microseconds. If this and `write_ack_us` are 0, the drive
    /// has no cache: an acknowledged write is on the medium.
    pub flush_us: f64,
    /// For a drive with a volatile write cache: a write is acknowledged this many microseconds after its
    /// service began, while the channel still works on it. 0: a write is acknowledged when it is done.
    #[serde(default)]
    pub write_ack_us: f64,
    /// How the device makes a single write durable.
    #[serde(default)]
    pub durable_write: DurableWrite,
    /// The largest atomic write, in bytes; 0 if the device promises no atomic writes.
    #[serde(default)]
    pub atomic_write_bytes: u32,
    /// The time to give a range back (a trim) or to reserve a range, on one channel, in microseconds.
    #[serde(default)]
    pub trim_us: f64,
    /// How the device maps pages to flash. Without this section, writes to flash are not modelled.
    #[serde(default)]
    pub translation: Option<Translation>,
    /// How the device merges blocks. Without this section, the time of a write does not depend on merges.
    #[serde(default)]
    pub merges: Option<Merges>,
    /// The power in watts while busy; 0 = not known.
    pub watts_active: f64,
    /// The power in watts while idle; 0 = not known.
    pub watts_idle: f64,
    /// The rates at the anchor size.
    pub operations_per_s: OperationsPerSecond,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No shipped profile has this name.
    #[error("there is no device profile {name:?}: choose one of {known}, or give a profile as TOML")]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The text is no profile.
    #[error("the device profile cannot be read: {0}")]
    Malformed(String),
}

impl Profile {
    /// Returns a profile that comes with the program.
    pub fn shipped(name: &str) -> Result<Profile, ProfileError> {
        let unknown = || ProfileError::Unknown { name: name.to_string(), known: Profile::names().join(", ") };
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        Profile::parse(text)
    }

    /// Returns the names of the profiles that come with the program.
    pub fn names() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a profile from TOML.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let profile: Profile =
            toml::from_str(text).map_err(|error| ProfileError::Malformed(error.to_string()))?;
        profile.validate().map_err(ProfileError::Malformed)?;
        Ok(profile)
    }

    /// Returns the same drive, but requests take no time. It is for runs that only count operations.
    pub fn without_time(mut self) -> Profile {
        let at_once = f64::INFINITY;
        (self.fixed_us, self.flush_us, self.write_ack_us, self.trim_us) = (0.0, 0.0, 0.0, 0.0);
        (self.under_way_per_s, self.under_way_write_per_s) = (0.0, 0.0);
        self.merges = None;
        self.operations_per_s = OperationsPerSecond {
            random_read: at_once,
            sequential_read: at_once,
            random_write: at_once,
            sequential_write: at_once,
        };
        self
    }

    fn validate(&self) -> Result<(), String> {
        let rates = &self.operations_per_s;
        let rates = [rates.random_read, rates.sequential_read, rates.random_write, rates.sequential_write];
        if self.channels == 0 || self.anchor_bytes == 0 {
            return Err("channels and anchor_bytes must be at least 1".into());
        }
        let under_way = [self.under_way_per_s, self.under_way_write_per_s];
        if !under_way.iter().all(|rate| rate.is_finite() && *rate >= 0.0) {
            return Err("under_way_per_s and under_way_write_per_s must be at least 0".into());
        }
        let times_us = [self.fixed_us, self.flush_us, self.write_ack_us, self.trim_us];
        if !times_us.iter().all(|time_us| time_us.is_finite() && *time_us >= 0.0) {
            return Err("fixed_us, flush_us, write_ack_us and trim_us must be at least 0".into());
        }
        if let Some(problem) = self.translation.as_ref().and_then(Translation::problem) {
            return Err(problem.into());
        }
        if let Some(problem) = self.merges.as_ref().and_then(Merges::problem) {
            return Err(problem.into());
        }
        for rate in rates {
            let service_us = f64::from(self.channels) * 1e6 / rate;
            if !(service_us.is_finite() && service_us >= self.fixed_us) {
                return Err(format!("{rate} operations per second do not leave room for fixed_us"));
            }
        }
        Ok(())
    }

    /// Returns the service time of one request on one channel, in nanoseconds.
    pub(crate) fn service_ns(&self, request: Request) -> u64 {
        let rates = &self.operations_per_s;
        let rate = match (request.write, request.sequential) {
            (false, false) => rates.random_read,
            (false, true) => rates.sequential_read,
            (true, false) => rates.random_write,
            (true, true) => rates.sequential_write,
        };
        let fixed_ns = self.fixed_us * 1e3;
        let anchor_ns = f64::from(self.channels) * 1e9 / rate;
        let anchors = request.bytes as f64 / self.anchor_bytes as f64;
        if self.merges() {
            let of_writes = request.write && self.under_way_write_per_s > 0.0;
            let rate = if of_writes { self.under_way_write_per_s } else { self.under_way_per_s };
            let under_way_ns = f64::from(self.channels) * 1e9 / rate;
            return (anchor_ns + under_way_ns * (anchors - 1.0).max(0.0)) as u64;
        }
        (fixed_ns + (anchor_ns - fixed_ns) * anchors) as u64
    }

    /// Returns whether the drive handles requests as one if they are submitted together and have adjacent
    /// addresses.
    pub(crate) fn merges(&self) -> bool {
        self.under_way_per_s > 0.0
    }

    /// Returns whether the drive has a write cache, which a flush would empty.
    pub(crate) fn has_cache(&self) -> bool {
        self.flush_us > 0.0 || self.write_ack_us > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_is_read_and_says_where_its_figures_come_from() {
        for (name, text) in SHIPPED {
            let profile = Profile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, *name);
            assert!(profile.source.len() > 20, "{name}");
        }
    }

    /// The papers state the sizes of blocks: 64 pages (Do 2.2), and super-blocks of 1 MB (Lee 2.2).
    #[test]
    fn flash_of_the_papers_has_the_blocks_that_they_say() {
        for (name, block_bytes) in
            [("fusion-io-160", 256 << 10), ("ssd-ocz", 256 << 10), ("ssd-2008", 1 << 20)]
        {
            let translation = Profile::shipped(name).unwrap().translation.unwrap();
            assert_eq!(translation.page_bytes, 4096, "{name}");
            assert_eq!(translation.page_bytes * translation.block_pages, block_bytes, "{name}");
        }
    }

    #[test]
    fn without_its_times_a_drive_answers_at_once() {
        let profile = Profile::shipped("sata-ssd-2014").unwrap().without_time();
        for (write, sequential) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(profile.service_ns(Request { write, sequential, bytes: 1 << 20 }), 0);
        }
        assert_eq!((profile.flush_us, profile.write_ack_us), (0.0, 0.0));
        assert!(profile.translation.is_some(), "what is counted stays");
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = Profile::shipped("floppy").unwrap_err().to_string();
        assert!(unknown.contains("floppy") && unknown.contains("fusion-io-160"), "{unknown}");
        let text = include_str!("../profiles/fusion-io-160.toml");
        let slow = text.replace("fixed_us = 30.0", "fixed_us = 3000.0");
        assert!(Profile::parse(&slow).unwrap_err().to_string().contains("fixed_us"));
        let early = text.replace("flush_us = 0.0", "flush_us = -1.0");
        assert!(Profile::parse(&early).unwrap_err().to_string().contains("flush_us"));
        let durable = format!("durable_write = \"perhaps\"\n{text}");
        assert!(Profile::parse(&durable).unwrap_err().to_string().contains("perhaps"));
        let none = text.replace("block_pages = 64", "block_pages = 1");
        assert!(Profile::parse(&none).unwrap_err().to_string().contains("block_pages"));
        assert!(Profile::parse("name = 1").is_err());
    }
}
