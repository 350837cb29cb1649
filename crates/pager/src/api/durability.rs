//! Reports where each durable part of a database is stored, on which medium, and which failures it survives.
//!
//! This module does not know how the report is shown.

use varve_device::{Capabilities, Directory, Medium};

use crate::api::pager::Pager;
use crate::api::tablespaces::Tablespace;
use crate::home::kind::HomeLayout;
use crate::home::protection::kind::ProtectionKind;
use crate::nvm::{NvmBuffer, NvmRegion, NvmStats};

/// A durable part of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilityRow {
    /// The name of the part:
    /// - `log`, `pages`, `old versions`, `control`;
    /// - `copies`: doublewrite copies of pages;
    /// - `home`: the data files, if the newest pages are in persistent memory;
    /// - `protection`: its place is where the data is that repairs torn pages, and its medium is the kind of
    ///   protection;
    /// - `tablespace NAME` and `protection of tablespace NAME`: the same two for each tablespace.
    pub part: String,
    /// The file or directory in which the part is stored.
    pub place: String,
    /// The kind of device of this place.
    pub medium: String,
    /// The worst failure that the part survives.
    pub survives: &'static str,
}

/// The worst failure that a part survives, in the order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Survives {
    Nothing,
    ProcessDeath,
    PowerLoss,
}

impl Survives {
    fn text(self) -> &'static str {
        match self {
            Survives::Nothing => "nothing",
            Survives::ProcessDeath => "the death of the process",
            Survives::PowerLoss => "the loss of power",
        }
    }
}

/// Where a part of a database is stored.
struct PartLocation {
    location: String,
    medium: String,
    survives: Survives,
}

impl Pager {
    /// Returns the region of persistent memory, if the database has one.
    pub fn nvm(&self) -> Option<NvmStats> {
        let stats = self.shared.region.as_ref().map(NvmRegion::stats)?;
        Some(NvmStats { slots: self.shared.buffer.as_deref().map(NvmBuffer::slot_counts), ..stats })
    }

    /// Returns where each part of the database is stored. A commit survives what the row of the log says. If
    /// the log of a change was cut, the change is only in the pages. Then it survives what the row of the
    /// pages says.
    pub fn durability(&self) -> Vec<DurabilityRow> {
        let config = &self.shared.config;
        let (nvm, attached) = (self.nvm(), self.shared.control.get().attached);
        let region_if = |holds: bool| nvm.as_ref().filter(|_| holds).map(of_region);
        let pages = |directory| {
            let newest = region_if(attached.is_some_and(|attached| attached.pages));
            newest.into_iter().chain([at_home(directory, config.layout)]).min_by_key(|place| place.survives)
        };
        let copies = match config.protection {
            ProtectionKind::Doublewrite { .. } => Some(of_files(&*config.data)),
            _ => region_if(attached.is_some_and(|attached| attached.copies)),
        };
        // If no pages are in the region, the row `pages` has the place of the data files already.
        let home = attached.is_some_and(|attached| attached.pages);
        let home = home.then(|| at_home(&*config.data, config.layout));
        let log = region_if(attached.is_some_and(|attached| attached.log));
        let parts = [
            ("log", Some(log.unwrap_or_else(|| of_files(&*config.log)))),
            ("pages", pages(&*config.data)),
            ("protection", Some(self.protection_now(copies.as_ref(), region_if(true)))),
            ("copies", copies),
            ("old versions", pages(&*config.rollback)),
            ("home", home),
            ("control", Some(of_files(&*config.control))),
        ];
        let mut rows: Vec<DurabilityRow> =
            parts.into_iter().filter_map(|(part, place)| Some(row(part, place?))).collect();
        let region = || region_if(attached.is_some_and(|attached| attached.pages));
        rows.extend(self.tablespaces().into_iter().flat_map(|one| self.of_tablespace(&one, region())));
        rows
    }

    /// The places of the pages and of the protection of a tablespace. The newest versions of pages may be in
    /// `region`.
    fn of_tablespace(&self, one: &Tablespace, region: Option<PartLocation>) -> Vec<DurabilityRow> {
        let Some(directory) = self.shared.spaces.layouts().directory(one.id) else { return Vec::new() };
        let home = at_home(&*directory, HomeLayout::InPlace);
        let protection = match one.protection == ProtectionKind::None.name() {
            true => unprotected(of_files(&*directory)),
            false => PartLocation { medium: one.protection.to_owned(), ..of_files(&*directory) },
        };
        let pages = region.into_iter().chain([home]).min_by_key(|place| place.survives);
        let pages = pages.map(|place| row(&format!("tablespace {}", one.name), place));
        let protection = row(&format!("protection of tablespace {}", one.name), protection);
        pages.into_iter().chain([protection]).collect()
    }

    /// Returns the place of the data that repairs torn pages now, with the kind of protection. This may be
    /// another protection than the configured one.
    fn protection_now(&self, copies: Option<&PartLocation>, region: Option<PartLocation>) -> PartLocation {
        let config = &self.shared.config;
        let (home, kind) = (of_files(&*config.data), config.protection.name().to_owned());
        match (config.layout, config.protection) {
            (HomeLayout::Packed(_), ProtectionKind::None) => PartLocation {
                medium: "none: the layout packed writes no page over another one".to_owned(),
                ..home
            },
            (HomeLayout::InPlace, ProtectionKind::None) => unprotected(home),
            (_, ProtectionKind::FullPageLog) => PartLocation { medium: kind, ..of_files(&*config.log) },
            (_, ProtectionKind::Nvm) => PartLocation { medium: kind, ..region.unwrap_or(home) },
            (_, _) => {
                let (location, survives) =
                    copies.map_or((home.location, home.survives), |it| (it.location.clone(), it.survives));
                PartLocation { location, medium: kind, survives }
            }
        }
    }
}

fn row(part: &str, PartLocation { location, medium, survives }: PartLocation) -> DurabilityRow {
    DurabilityRow { part: part.to_owned(), place: location, medium, survives: survives.text() }
}

/// Pages that are in place without a protection.
fn unprotected(home: PartLocation) -> PartLocation {
    PartLocation {
        medium: "none: a crash may tear pages".to_owned(),
        survives: home.survives.min(Survives::ProcessDeath),
        ..home
    }
}

fn of_files(directory: &dyn Directory) -> PartLocation {
    let Capabilities { backend, .. } = directory.capabilities();
    let survives = if backend.ends_with("memory") { Survives::Nothing } else { Survives::PowerLoss };
    PartLocation { location: directory.location(), medium: backend.clone(), survives }
}

/// Returns the location of a data file. If the layout is not in place, the medium names the layout.
fn at_home(directory: &dyn Directory, layout: HomeLayout) -> PartLocation {
    let place = of_files(directory);
    match layout {
        HomeLayout::InPlace => place,
        layout => PartLocation { medium: format!("{}, {}", place.medium, layout.name()), ..place },
    }
}

fn of_region(nvm: &NvmStats) -> PartLocation {
    let survives = match nvm.facts.medium {
        Medium::Persistent => Survives::PowerLoss,
        Medium::EmulatedByFile => Survives::ProcessDeath,
        Medium::Memory => Survives::Nothing,
    };
    let medium = format!("NVM, {}", nvm.facts.medium.name());
    PartLocation { location: nvm.place.clone(), medium, survives }
}

#[cfg(test)]
mod tests {
    use varve_device::{MemoryDirectory, RegionFacts, RegionTally};

    use super::*;

    #[test]
    fn memory_survives_nothing() {
        assert_eq!(of_files(&*MemoryDirectory::new()).survives.text(), "nothing");
    }

    #[test]
    fn what_emulates_persistent_memory_dies_with_the_machine() {
        let place = |medium| {
            let write_back = varve_device::WriteBack::Clwb;
            let facts = RegionFacts { medium, write_back, emulates: None, cell: None, boot: None };
            let (size_bytes, log_bytes, tally) = (1 << 20, 1 << 20, RegionTally::default());
            of_region(&NvmStats { place: "x".into(), facts, size_bytes, log_bytes, slots: None, tally })
        };
        assert_eq!(place(Medium::EmulatedByFile).survives.text(), "the death of the process");
        assert_eq!(place(Medium::EmulatedByFile).medium, "NVM, emulated by a file");
        assert_eq!(place(Medium::Persistent).survives.text(), "the loss of power");
    }
}
