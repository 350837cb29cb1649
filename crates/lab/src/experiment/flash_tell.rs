//! Prints the results of measurements with a flash cache: requests to each drive, how busy each drive was,
//! and the throughput that the drives would allow.

use super::claim::Claim;
use super::drives::{FLASH_DRIVE, HOME, LOG};
use super::lab::Lab;
use super::row::Point;
use super::table::TextTable;
use super::tell;
use varve_bench::Result;

/// Prints the tables of an experiment.
pub fn all(lab: &mut Lab<'_>, points: &[Point], claims: &[Claim]) -> Result<()> {
    let (bounds, caches) = (bounds(points), caches(points));
    lab.say(&format!(
        "\nPages of each drive for a transaction, and what its time allows (the bound: transactions a second if what limits were never idle):\n\
         {bounds}\nThe cache when measuring began and ended; its hit rate by quarters of the warm-up, and measured:\n{caches}"
    ))?;
    lab.tell(points, claims)
}

fn head(points: &[Point]) -> Vec<&'static str> {
    points.first().map_or_else(Vec::new, |first| first.factors.keys().copied().collect())
}

fn line(point: &Point, head: &[&'static str]) -> Vec<String> {
    head.iter().map(|name| point.factors.get(name).map_or_else(String::new, tell::plain)).collect()
}

/// Returns the table of pages, of how busy the drives were, and of the bounds of throughput.
fn bounds(points: &[Point]) -> TextTable {
    let factors = head(points);
    let drives =
        [(HOME, ["home rd", "home wr", "home %"]), (FLASH_DRIVE, ["flash rd", "flash wr", "flash %"])];
    let mut head = factors.clone();
    head.push("tps");
    head.extend(drives.iter().flat_map(|(_, names)| names));
    head.extend(["log wr", "log %", "cpu %", "limit", "bound", "of bound"]);
    let mut table = TextTable::headed(&head);
    for point in points {
        let mut line = line(point, &factors);
        line.push(format!("{:.1}", point.tps.median));
        let pages = |name| point.drives.get(name).map(|drive| [drive.pages_read, drive.pages_written]);
        let figure = |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.2}"));
        for (name, _) in drives {
            line.extend([0, 1].map(|at| figure(pages(name).map(|pages| pages[at]))));
            line.push(percent(busy(point, name)));
        }
        line.push(figure(pages(LOG).map(|pages| pages[1])));
        line.push(percent(busy(point, LOG)));
        line.push(percent(point.emulation.as_ref().map(|emulation| emulation.cpu_share)));
        let bound = point.bound();
        line.push(bound.map_or_else(String::new, |(name, _)| name.to_owned()));
        line.push(bound.map_or_else(String::new, |(_, bound)| format!("{bound:.1}")));
        line.push(percent(bound.map(|(_, bound)| point.tps.median / bound)));
        table.push(line);
    }
    table
}

fn busy(point: &Point, drive: &str) -> Option<f64> {
    Some(point.drives.get(drive)?.emulation.as_ref()?.busy_share)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.1}", 100.0 * share))
}

/// Returns the table of the caches: how full they are, and their hits.
fn caches(points: &[Point]) -> TextTable {
    let factors = head(points);
    let mut head = factors.clone();
    head.extend(["hit %", "dirty hits %", "filled %", "dirty %", "dirty after", "invalid %"]);
    head.extend([
        "admitted",
        "throttled",
        "busy",
        "cleaned",
        "group",
        "warm tx",
        "s",
        "warm hit %",
        "steady",
    ]);
    let mut table = TextTable::headed(&head);
    for point in points {
        let mut line = line(point, &factors);
        let part = |part: &str, whole: &str| {
            let whole = point.level(whole);
            (whole > 0.0).then(|| point.level(part) / whole)
        };
        line.push(percent(point.flash_hit_rate()));
        line.push(percent(part("flash.read_hits_dirty", "flash.read_hits")));
        let state = |of: fn(&super::row::CacheStates) -> f64| {
            point.cache.as_ref().map_or_else(String::new, |cache| format!("{:.1}", of(cache)))
        };
        line.push(state(|cache| cache.end.filled_percent));
        line.push(state(|cache| cache.begin.dirty_percent));
        line.push(state(|cache| cache.end.dirty_percent));
        line.push(state(|cache| cache.end.invalid_percent));
        let admitted = point.level("flash.admitted_clean") + point.level("flash.admitted_dirty");
        let each = [admitted, point.level("flash.refused_throttled"), point.level("flash.refused_busy")];
        line.extend(each.map(|figure| format!("{figure:.2}")));
        line.push(format!("{:.2}", point.level("flash.cleaned_pages")));
        line.push(
            part("flash.cleaned_pages", "flash.clean_batches")
                .map_or_else(String::new, |pages| format!("{pages:.1}")),
        );
        match &point.warmth {
            None => line.extend([(); 4].map(|()| String::new())),
            Some(warmth) => {
                let rates: Vec<String> =
                    warmth.hit_rates.iter().map(|rate| format!("{:.0}", 100.0 * rate)).collect();
                line.extend([warmth.transactions.to_string(), format!("{:.0}", warmth.seconds)]);
                line.extend([rates.join(" "), if warmth.is_steady { "yes" } else { "no" }.to_owned()]);
            }
        }
        table.push(line);
    }
    table
}
