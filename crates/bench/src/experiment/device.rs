//! The drive of data, undo and log: emulated, or the one that is there.

use std::path::Path;
use std::sync::Arc;

use varve_device::{Directory, Emulated, FileDirectory, FileOptions, Profile};

use crate::{BenchError, Result};

/// A longer flush is taken for a mistake.
const FLUSH_US_MAX: f64 = 1_000_000.0;

/// A directory, and the emulated drive that it is on.
type Opened = (Arc<dyn Directory>, Option<Arc<Emulated>>);

/// The drive.
#[derive(Debug, Clone)]
pub struct Device(Option<Profile>);

impl Device {
    /// The device that is there.
    pub const REAL: Device = Device(None);

    /// A shipped profile, with another flush time if one is given; `none` for the device that is there, which takes its own time. A time that
    /// can't be is refused.
    pub fn named(profile: &str, flush_us: Option<f64>) -> Result<Self> {
        if let Some(flush_us) = flush_us.filter(|time_us| !(0.0..=FLUSH_US_MAX).contains(time_us)) {
            return Err(BenchError::Arguments(format!(
                "a flush of {flush_us} microseconds: give 0 to {FLUSH_US_MAX} (a second)"
            )));
        }
        match (profile == "none", flush_us) {
            (true, None) => return Ok(Self::REAL),
            (true, Some(_)) => {
                return Err(BenchError::Arguments(
                    "without emulation a flush takes what the device takes: leave out the flush time or name a profile".to_owned(),
                ));
            }
            (false, _) => {}
        }
        let found = Profile::shipped(profile).map_err(|error| BenchError::Arguments(error.to_string()))?;
        Ok(Self(Some(found)).with_flush_us(flush_us))
    }

    /// The same with another flush time.
    pub fn with_flush_us(mut self, flush_us: Option<f64>) -> Self {
        if let (Some(profile), Some(flush_us)) = (&mut self.0, flush_us) {
            profile.flush_us = flush_us;
        }
        self
    }

    /// The same with another time of a trim.
    pub fn with_trim_us(mut self, trim_us: f64) -> Self {
        if let Some(profile) = &mut self.0 {
            profile.trim_us = trim_us;
        }
        self
    }

    /// The same, writing so many bytes whole or not at all: in their time alone, a real crash may tear them. What is there is not changed.
    pub fn with_atomic_writes(mut self, bytes: usize) -> Self {
        if let Some(profile) = &mut self.0 {
            profile.atomic_write_bytes = bytes as u32;
        }
        self
    }

    /// The emulated drive's profile.
    pub fn profile(&self) -> Option<Profile> {
        self.0.clone()
    }

    /// Whether it is emulated.
    pub fn is_emulated(&self) -> bool {
        self.0.is_some()
    }

    /// Time of a flush; 0 if it is not emulated.
    pub fn flush_us(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |profile| profile.flush_us)
    }

    /// For the configuration's hash.
    pub fn describe(&self, dilation: f64) -> String {
        match &self.0 {
            None => "the device that is there".to_owned(),
            Some(profile) => {
                let trims = if profile.trim_us > 0.0 {
                    format!(", trims of {} us", profile.trim_us)
                } else {
                    String::new()
                };
                format!(
                    "{} with flushes of {} us{trims}, dilation {dilation}",
                    profile.name, profile.flush_us
                )
            }
        }
    }

    /// An existing directory on it, and the emulation's own handle.
    pub fn open(&self, path: &Path, dilation: f64) -> Result<Opened> {
        let files =
            FileDirectory::open_or_create(path, FileOptions::default()).map_err(std::io::Error::other)?;
        let Some(profile) = &self.0 else { return Ok((files, None)) };
        let emulated = Emulated::wrap(files, profile.clone(), dilation);
        Ok((emulated.clone(), Some(emulated)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number was taken.
    #[test]
    fn a_flush_takes_a_time_that_can_be() {
        for flush_us in [-1.0, f64::NAN, f64::INFINITY, 1e9] {
            let refused = Device::named("sata-ssd-2014", Some(flush_us)).expect_err("refused").to_string();
            assert!(refused.contains("microseconds"), "{refused}");
        }
        let refused = Device::named("none", Some(100.0)).expect_err("refused").to_string();
        assert!(refused.contains("without emulation"), "{refused}");
        for flush_us in [0.0, 2500.0] {
            let device = Device::named("sata-ssd-2014", Some(flush_us)).expect("a time");
            assert_eq!(device.flush_us(), flush_us);
        }
        assert!(!Device::named("none", None).expect("what is there").is_emulated());
    }
}
