//! The drive for data, undo and log of a measurement, emulated or real. The log and the flash cache may have
//! drives of their own.

use std::path::Path;
use std::sync::Arc;

use varve_device::{Directory, Emulated, FileDirectory, FileOptions, Profile};

use varve_bench::{BenchError, Result};

/// A longer flush time is refused, because it must be a mistake.
const FLUSH_US_MAX: f64 = 1_000_000.0;

/// The description of a drive that is not emulated.
pub const THERE: &str = "the device that is there";

/// An open directory, and the emulated drive that it is on, if there is one.
type OpenDirectory = (Arc<dyn Directory>, Option<Arc<Emulated>>);

/// The drive of data, undo and log, emulated or real, and perhaps separate drives for log and flash cache.
#[derive(Debug, Clone)]
pub struct Device {
    profile: Option<Profile>,
    apart: Option<Arc<Apart>>,
}

/// Drives other than the one for data and undo.
#[derive(Debug)]
pub struct Apart {
    /// The drive of the log.
    pub log: Device,
    /// The drive of the flash cache.
    pub flash: Device,
}

impl Device {
    /// The real device, which is not emulated.
    pub const REAL: Device = Device { profile: None, apart: None };

    /// Returns the drive with a shipped profile, and with another flush time if one is given. `none` is the
    /// real device, which takes its own time. An impossible time is refused.
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
        Ok(Self { profile: Some(found), apart: None }.with_flush_us(flush_us))
    }

    /// Sets another flush time, if one is given and the drive is emulated.
    pub fn with_flush_us(mut self, flush_us: Option<f64>) -> Self {
        if let (Some(profile), Some(flush_us)) = (&mut self.profile, flush_us) {
            profile.flush_us = flush_us;
        }
        self
    }

    /// Sets another time for a trim, if the drive is emulated.
    pub fn with_trim_us(mut self, trim_us: f64) -> Self {
        if let Some(profile) = &mut self.profile {
            profile.trim_us = trim_us;
        }
        self
    }

    /// Sets the size of writes that the drive makes atomically. Only the time of such writes is emulated: a
    /// real crash may tear them. Existing files are not changed.
    pub fn with_atomic_writes(mut self, bytes: usize) -> Self {
        if let Some(profile) = &mut self.profile {
            profile.atomic_write_bytes = bytes as u32;
        }
        self
    }

    /// Gives the log and the flash cache drives of their own.
    pub fn with_apart(mut self, log: Device, flash: Device) -> Self {
        self.apart = Some(Arc::new(Apart { log, flash }));
        self
    }

    /// Returns the separate drives of log and flash cache, if there are any.
    pub fn apart(&self) -> Option<&Apart> {
        self.apart.as_deref()
    }

    /// Returns the profile of the drive. It is `None` if the drive is not emulated.
    pub fn profile(&self) -> Option<Profile> {
        self.profile.clone()
    }

    /// Returns whether the drive is emulated.
    pub fn is_emulated(&self) -> bool {
        self.profile.is_some()
    }

    /// Returns the microseconds of a flush. It is 0 if the drive is not emulated.
    pub fn flush_us(&self) -> f64 {
        self.profile.as_ref().map_or(0.0, |profile| profile.flush_us)
    }

    /// Returns a description of the drive and its settings, for the hash of the configuration.
    pub fn describe(&self, dilation: f64) -> String {
        let own = self.describe_own(dilation);
        match self.apart() {
            None => own,
            Some(Apart { log, flash }) => {
                let (log, flash) = (log.describe(dilation), flash.describe(dilation));
                format!("{own}; log on {log}; flash cache on {flash}")
            }
        }
    }

    fn describe_own(&self, dilation: f64) -> String {
        match &self.profile {
            None => THERE.to_owned(),
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

    /// Opens an existing directory on this drive. Also returns the handle of the emulation.
    pub fn open(&self, path: &Path, dilation: f64) -> Result<OpenDirectory> {
        let files =
            FileDirectory::open_or_create(path, FileOptions::default()).map_err(std::io::Error::other)?;
        let Some(profile) = &self.profile else { return Ok((files, None)) };
        let emulated = Emulated::wrap(files, profile.clone(), dilation);
        Ok((emulated.clone(), Some(emulated)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Impossible flush times were accepted once.
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
