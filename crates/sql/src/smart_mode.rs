//! The setting `smart_scan`: whether general queries use a smart device for scans.

/// Whether scans run in a smart device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SmartMode {
    /// If the planner predicts that this is faster.
    #[default]
    Auto,
    /// Wherever it is possible.
    On,
    /// Never.
    Off,
}

impl SmartMode {
    /// The names that the setting takes.
    pub const NAMES: &[&str] = &["auto", "on", "off"];

    /// The mode with this name; `Auto` for any other name.
    pub fn named(name: &str) -> SmartMode {
        match name {
            "on" => SmartMode::On,
            "off" => SmartMode::Off,
            _ => SmartMode::Auto,
        }
    }
}
