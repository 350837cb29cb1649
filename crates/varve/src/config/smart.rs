//! The section `[smart]`: a smart device that scans tables for general queries.
//!
//! Invariants
//! 1. A device has an address and a key. Without an address, the other settings have no effect.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use varve_pager::{Form, Setting, Unit};
use varve_query::SmartOptions;
use varve_smart::{Address, DeviceProfile, RootCertificates, SharedKey, SmartDevice, SmartError};

/// The most seconds that an answer may take.
const TIMEOUT_MAX: usize = 3600;
/// The largest processor factor.
const FACTOR_MAX: usize = 100;
/// The profile of a device without the key `profile`.
const DEFAULT_PROFILE: &str = "smart-ssd";

/// A smart device, and the planner's assumptions about its speed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmartSettings {
    /// Where the device listens; `None` means that there is none.
    pub address: Option<Address>,
    /// The file with the key that the device knows, too.
    pub key_file: Option<PathBuf>,
    /// The file with the root certificate of the device; `None` means that the connection is not encrypted.
    pub tls_root_certificate: Option<PathBuf>,
    /// The name of a profile, or of a file with a profile.
    pub profile: Option<String>,
    /// The seconds that an answer may take.
    pub timeout_seconds: usize,
    /// How many times faster the host's processor is.
    pub processor_factor: usize,
}

impl SmartSettings {
    /// No device.
    pub const DEFAULT: Self = Self {
        address: None,
        key_file: None,
        tls_root_certificate: None,
        profile: None,
        timeout_seconds: 10,
        processor_factor: 4,
    };

    /// The settings of the section that SQL can show and change.
    pub(super) const TABLE: &'static [Setting<SmartSettings>] = &[
        Setting {
            key: "timeout",
            form: Form::Count {
                unit: Unit::Seconds,
                bounds: 1..=TIMEOUT_MAX,
                get: |smart| smart.timeout_seconds,
                set: |smart, seconds| smart.timeout_seconds = seconds,
            },
            is_online: false,
            help: "The longest time that an answer of the smart device may take, in seconds.",
        },
        Setting {
            key: "processor_factor",
            form: Form::Count {
                unit: Unit::None,
                bounds: 1..=FACTOR_MAX,
                get: |smart| smart.processor_factor,
                set: |smart, factor| smart.processor_factor = factor,
            },
            is_online: false,
            help: "How many times faster the planner assumes the host's processor to be than that of the smart device.",
        },
    ];

    /// Returns the device for general queries. To do this, it reads the files with the device's key, root
    /// certificate and profile.
    pub fn options(&self) -> Result<Option<Arc<SmartOptions>>, SmartError> {
        let (Some(address), Some(key_file)) = (&self.address, &self.key_file) else { return Ok(None) };
        let patience = Duration::from_secs(self.timeout_seconds as u64);
        let mut device = SmartDevice::new(address.clone(), SharedKey::of_file(key_file)?, patience);
        if let Some(file) = &self.tls_root_certificate {
            device = device.with_tls(RootCertificates::of_file(file)?)?;
        }
        Ok(Some(Arc::new(SmartOptions {
            device: Arc::new(device),
            profile: DeviceProfile::find(self.profile.as_deref().unwrap_or(DEFAULT_PROFILE))?,
            processor_factor: self.processor_factor as f64,
        })))
    }
}
