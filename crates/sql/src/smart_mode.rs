//! The setting `smart_scan`: whether general queries use a smart device for scans.

/// Whether scans run in a smart device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SmartMode {
    /// Scans run in the device if the planner predicts that this is faster.
    #[default]
    Auto,
    /// Scans run in the device wherever it is possible.
    On,
    /// Scans never run in the device.
    Off,
}

impl SmartMode {
    /// The names that the setting takes.
    pub const NAMES: &[&str] = &["auto", "on", "off"];

    /// Returns the mode with this name, or `Auto` for any other name.
    pub fn named(name: &str) -> SmartMode {
        match name {
            "on" => SmartMode::On,
            "off" => SmartMode::Off,
            _ => SmartMode::Auto,
        }
    }
}
