//! Profiles of emulated persistent memory. A profile is a TOML file, not code.
//!
//! Invariants
//! 1. A profile names the source of its values. The file marks a value without a source as an assumption.

use serde::Deserialize;

use crate::profile::ProfileError;
use crate::region::NvmCell;

const SHIPPED: &[(&str, &str)] = &[
    ("nvdimm", include_str!("../profiles/nvm/nvdimm.toml")),
    ("nvm-2x", include_str!("../profiles/nvm/nvm-2x.toml")),
    ("nvm-8x", include_str!("../profiles/nvm/nvm-8x.toml")),
    ("pcm", include_str!("../profiles/nvm/pcm.toml")),
    ("rram", include_str!("../profiles/nvm/rram.toml")),
    ("mram", include_str!("../profiles/nvm/mram.toml")),
];

/// How much longer operations take in persistent memory than in the main memory that emulates it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmProfile {
    /// The name, printed with every result.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// The extra time for each line that is read and is not in the modelled cache, in nanoseconds.
    pub read_extra_ns: f64,
    /// The extra time for each fence that has lines to wait for, in nanoseconds.
    pub persist_extra_ns: f64,
    /// The time for each line that is written back, in nanoseconds.
    pub write_line_ns: f64,
    /// The bandwidth for lines that are read and written back, for all threads together; 0 = not limited.
    pub bandwidth_bytes_per_s: f64,
    /// The number of lines in flight at once. The time of consecutive lines is divided by this number, but is
    /// at least the time of one line.
    pub parallel_lines: u64,
    /// The number of bytes of the modelled last-level cache; 0 = no cache, so every line is a miss.
    pub cache_bytes: u64,
    /// Endurance and energy of its cells, if the source states them. They are reported, and have no effect on
    /// times.
    #[serde(default)]
    pub cell: Option<NvmCell>,
}

impl NvmProfile {
    /// Returns a profile that comes with the program.
    pub fn shipped(name: &str) -> Result<NvmProfile, ProfileError> {
        let unknown =
            || ProfileError::Unknown { name: name.to_string(), known: NvmProfile::names().join(", ") };
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        NvmProfile::parse(text)
    }

    /// Returns the names of the profiles that come with the program.
    pub fn names() -> Vec<&'static str> {
        SHIPPED.iter().map(|(name, _)| *name).collect()
    }

    /// Reads a profile from TOML.
    pub fn parse(text: &str) -> Result<NvmProfile, ProfileError> {
        let profile: NvmProfile =
            toml::from_str(text).map_err(|error| ProfileError::Malformed(error.to_string()))?;
        profile.validate().map_err(|what| ProfileError::Malformed(what.to_string()))?;
        Ok(profile)
    }

    fn validate(&self) -> Result<(), &'static str> {
        let figures =
            [self.read_extra_ns, self.persist_extra_ns, self.write_line_ns, self.bandwidth_bytes_per_s];
        if !figures.iter().all(|figure| figure.is_finite() && *figure >= 0.0) {
            return Err(
                "read_extra_ns, persist_extra_ns, write_line_ns and bandwidth_bytes_per_s must be at least 0",
            );
        }
        if self.parallel_lines == 0 {
            return Err("parallel_lines must be at least 1");
        }
        let is_sound = |cell: &NvmCell| {
            cell.endurance_writes > 0 && cell.energy_pj_per_bit.is_finite() && cell.energy_pj_per_bit > 0.0
        };
        if !self.cell.iter().all(is_sound) {
            return Err("cell: endurance_writes and energy_pj_per_bit are above 0");
        }
        Ok(())
    }

    /// Returns the time of consecutive lines, if one line takes `each_ns`.
    pub(crate) fn run_ns(&self, lines: u64, each_ns: f64) -> f64 {
        let in_turn = (lines as f64 / self.parallel_lines as f64).max(1.0);
        if lines == 0 { 0.0 } else { each_ns * in_turn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_is_read_and_says_where_its_figures_come_from() {
        for (name, text) in SHIPPED {
            let profile = NvmProfile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((&*profile.name, profile.source.len() > 20), (*name, true));
        }
    }

    /// The figures of Arulraj's table 1 are written here a second time, to find mistakes in the profiles.
    #[test]
    fn cells_bear_and_take_what_the_source_says() {
        let cell = |name| NvmProfile::shipped(name).unwrap().cell;
        let published = [("pcm", 10, 2.0), ("rram", 8, 100.0), ("mram", 15, 0.02)];
        for (name, power_of_ten, energy_pj_per_bit) in published {
            let endurance_writes = 10_u64.pow(power_of_ten);
            assert_eq!(cell(name), Some(NvmCell { endurance_writes, energy_pj_per_bit }), "{name}");
        }
        assert_eq!([cell("nvdimm"), cell("nvm-2x"), cell("nvm-8x")], [None; 3]);
        // A million lines of 512 bits at 2 pJ.
        let joules = cell("pcm").unwrap().write_joules(1_000_000);
        assert!((joules - 1.024e-3).abs() < 1e-12, "{joules}");
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = NvmProfile::shipped("core memory").unwrap_err().to_string();
        assert!(unknown.contains("core memory") && unknown.contains("nvm-8x"), "{unknown}");
        let worn = SHIPPED[3].1.replace("endurance_writes = 10_", "endurance_writes = 0 # ");
        let told = NvmProfile::parse(&worn).unwrap_err().to_string();
        assert!(told.contains("endurance_writes"), "{told}");
        let text = SHIPPED[2].1;
        for (from, to, named) in [
            ("read_extra_ns = 1120", "read_extra_ns = -1", "read_extra_ns"),
            ("parallel_lines = 10", "parallel_lines = 0", "parallel_lines"),
            ("cache_bytes", "cash_bytes", "cash_bytes"),
        ] {
            let told = NvmProfile::parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(told.contains(named), "{told}");
        }
    }

    #[test]
    fn consecutive_lines_overlap_and_one_takes_its_whole_time() {
        let profile = NvmProfile::shipped("nvm-8x").unwrap();
        let run = |lines| profile.run_ns(lines, 100.0);
        assert_eq!([run(0), run(1), run(10), run(64)], [0.0, 100.0, 100.0, 640.0]);
    }
}
