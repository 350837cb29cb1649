//! The levels of the memory hierarchy with the same figures for each.
//!
//! This module does not know how a level works. It finds its counters by their names (`LevelReport`).

use serde::Serialize;
use varve_pager::{LevelReport, PagerStats};

/// One level. Figures that a level does not have are missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelFigures {
    /// Its name: `pool`, `nvm`, `flash` or `home`.
    pub level: &'static str,
    /// The pages for which it has room.
    pub capacity_pages: Option<u64>,
    /// The pages that it has.
    pub used_pages: u64,
    /// The pages that differ from the level below.
    pub dirty_pages: Option<u64>,
    /// The reads that it answered.
    pub hits: u64,
    /// The reads that it passed to the level below.
    pub misses: Option<u64>,
    /// The pages that were written to it.
    pub written_pages: u64,
}

/// Returns the levels, topmost first.
pub fn levels(pager: &PagerStats) -> Vec<LevelFigures> {
    let pool = LevelFigures {
        level: "pool",
        capacity_pages: Some(pager.frames),
        used_pages: pager.frames.saturating_sub(pager.free_frames),
        dirty_pages: Some(pager.dirty_frames),
        hits: pager.fixes.saturating_sub(pager.misses),
        misses: Some(pager.misses),
        written_pages: pager.misses + pager.prefetched,
    };
    let below = pager.levels.iter().filter(|report| report.part.is_none());
    [pool].into_iter().chain(below.filter_map(|report| level(report, pager))).collect()
}

fn level(report: &LevelReport, pager: &PagerStats) -> Option<LevelFigures> {
    let counter =
        |name: &str| report.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
    let used = |capacity: u64| capacity.saturating_sub(counter("free"));
    Some(match report.name {
        "nvm" => LevelFigures {
            level: "nvm",
            capacity_pages: Some(counter("slots")),
            used_pages: used(counter("slots")),
            dirty_pages: Some(counter("dirty")),
            hits: counter("read_hits"),
            misses: None,
            written_pages: counter("puts"),
        },
        "flash" => LevelFigures {
            level: "flash",
            capacity_pages: Some(counter("frames")),
            used_pages: used(counter("frames")),
            dirty_pages: Some(counter("dirty")),
            hits: counter("read_hits"),
            misses: Some(counter("read_misses")),
            written_pages: counter("written_pages"),
        },
        "home" => LevelFigures {
            level: "home",
            capacity_pages: None,
            used_pages: pager.data_pages + pager.rollback_pages,
            dirty_pages: None,
            hits: counter("pages_read"),
            misses: None,
            written_pages: counter("pages_written"),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_the_names_of_the_levels() {
        let report = |name, counters| LevelReport { name, part: None, counters };
        let pager = PagerStats {
            frames: 10,
            free_frames: 4,
            dirty_frames: 3,
            fixes: 100,
            misses: 20,
            levels: vec![
                report("flash", vec![("frames", 50), ("free", 10), ("dirty", 5), ("read_hits", 7)]),
                report("home", vec![("pages_read", 13), ("pages_written", 2)]),
                report("other", vec![]),
            ],
            ..PagerStats::default()
        };
        let levels = levels(&pager);
        let names: Vec<&str> = levels.iter().map(|level| level.level).collect();
        assert_eq!(names, ["pool", "flash", "home"]);
        assert_eq!((levels[0].used_pages, levels[0].hits, levels[0].misses), (6, 80, Some(20)));
        assert_eq!((levels[1].used_pages, levels[1].dirty_pages, levels[1].hits), (40, Some(5), 7));
        assert_eq!((levels[2].hits, levels[2].written_pages, levels[2].capacity_pages), (13, 2, None));
    }
}
