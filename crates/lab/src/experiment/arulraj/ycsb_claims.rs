//! The claims about YCSB that Arulraj, Pavlo and Dulloor state (2015, sections 5.2 and 5.3), and our
//! verdicts.
//!
//! Figures 5 to 7 have the throughput at three latencies, figures 9 and 10 have loads and stores. Values that
//! are only in a plot are not compared.

use super::super::claim::Claim;
use super::super::verdict::{Better, Verdict};
use super::claims::{Ratio, Stated, factors_of, judge_models};
use super::rows::{DRAM, Figure, HIGH, HIGH_PARALLEL, LOW, StoreRow};

/// A published ratio of the throughputs of two engines.
struct Gain {
    mixes: &'static [&'static str],
    models: &'static [&'static str],
    over: &'static str,
    under: &'static str,
    stated: Stated,
}

const READS: &[&str] = &["read-only"];
const WRITES: &[&str] = &["balanced", "write-heavy"];

const GAINS: [Gain; 7] = [
    Gain { mixes: READS, models: &[DRAM], over: "nvm_cow", under: "cow", stated: Stated::gain(1.9, 2.1) },
    Gain { mixes: READS, models: &[DRAM], over: "nvm_log", under: "log", stated: Stated::gain(2.8, 2.8) },
    Gain {
        mixes: READS,
        models: &[HIGH, HIGH_PARALLEL],
        over: "nvm_cow",
        under: "cow",
        stated: Stated::gain(1.4, 1.4),
    },
    Gain {
        mixes: READS,
        models: &[HIGH, HIGH_PARALLEL],
        over: "nvm_log",
        under: "log",
        stated: Stated::gain(2.5, 2.5),
    },
    Gain {
        mixes: &["read-heavy"],
        models: &[DRAM, LOW, HIGH, HIGH_PARALLEL],
        over: "nvm_inplace",
        under: "inplace",
        stated: Stated::gain(1.3, 1.3),
    },
    Gain { mixes: WRITES, models: &[DRAM], over: "nvm_cow", under: "cow", stated: Stated::gain(4.3, 5.5) },
    Gain { mixes: WRITES, models: &[DRAM], over: "log", under: "cow", stated: Stated::gain(1.6, 4.1) },
];

/// Each engine for persistent memory, and its traditional relative.
pub const PAIRS: [[&str; 2]; 3] = [["nvm_inplace", "inplace"], ["nvm_cow", "cow"], ["nvm_log", "log"]];

/// Throughput with high skew, divided by that with low skew, of the in-place engines in the read-only mix. No
/// direction is better: a deviation of either sign counts against the claim.
const SKEW_GAIN: Stated = Stated { least: 1.3, most: 1.3, better: Better::Neither };

/// The greatest part of the loads that an engine for persistent memory saves.
const LOADS_SAVED: f64 = 0.53;

/// Returns all claims about the rows that were measured with one number of partitions.
pub fn all(rows: &[StoreRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for group in groups(rows) {
        claims.extend(gains(&group));
        claims.extend(orders(&group));
        claims.extend(latencies(&group));
        claims.extend(stores(&group));
    }
    claims.extend(skews(rows));
    claims.extend(loads(rows));
    claims.extend(cached(rows));
    claims
}

/// Returns claims about engines with other settings than the paper's: that a cache makes the engine faster,
/// and that the published ratios hold with it, too.
fn cached(rows: &[StoreRow]) -> Vec<Claim> {
    let groups = groups(rows);
    let mut claims = Vec::new();
    for row in rows.iter().filter(|row| row.spot.is_variant()) {
        let is_own = |group: &&Group<'_>| (group.load, group.skew) == (row.spot.load, row.spot.skew);
        let Some(group) = groups.iter().find(is_own) else { continue };
        claims.extend(group.of(row.spot.engine).map(|own| faster(row, own)));
        for gain in GAINS.iter().filter(|gain| gain.mixes.contains(&row.spot.load)) {
            let pair = match row.spot.engine {
                engine if engine == gain.over => group.of(gain.under).map(|under| (row, under)),
                engine if engine == gain.under => group.of(gain.over).map(|over| (over, row)),
                _ => None,
            };
            let Some((over, under)) = pair else { continue };
            let of = |model: &&'static str| Ratio { figure: Figure::Throughput(model), over, under };
            claims.extend(gain.models.iter().map(|model| of(model).judge("throughput", gain.stated)));
        }
    }
    claims
}

/// Returns the claim that a setting makes an engine faster. `own` is the engine with the paper's settings.
pub fn faster(row: &StoreRow, own: &StoreRow) -> Claim {
    let ratio = Ratio { figure: Figure::Throughput(DRAM), over: row, under: own };
    let says = format!("throughput: {} / {}", row.spot.label(), own.spot.label());
    let claim =
        Claim::found(&factors_of(own, ratio.figure), says, ratio.value()).of_rounds(row.rounds.max(1));
    let verdict = match ratio.figure.not_judged(row) {
        Some(reason) => Verdict::NotJudged(reason),
        None => Verdict::at_least(1.0, ratio.value()),
    };
    claim.judged(1.0, verdict)
}

/// The rows with one mix and one skew.
pub struct Group<'r> {
    /// The name of the load.
    pub load: &'static str,
    /// The name of the skew.
    pub skew: &'static str,
    /// The rows of the group, one for each engine.
    pub rows: Vec<&'r StoreRow>,
}

impl<'r> Group<'r> {
    /// Returns the row of this engine, if it was measured.
    pub fn of(&self, engine: &str) -> Option<&'r StoreRow> {
        self.rows.iter().find(|row| row.spot.engine == engine).copied()
    }

    /// Returns the ratio of a figure of two engines, if both were measured.
    pub fn ratio(&self, figure: Figure, over: &str, under: &str) -> Option<Ratio<'r>> {
        Some(Ratio { figure, over: self.of(over)?, under: self.of(under)? })
    }

    /// Returns the engine with the highest value of a figure, except for the engine `left_out`.
    fn most_beside(&self, figure: Figure, left_out: &str) -> Option<&'r StoreRow> {
        let others = self.rows.iter().filter(|row| row.spot.engine != left_out);
        let by_median =
            |one: &&&StoreRow, other: &&&StoreRow| figure.of(one).median.total_cmp(&figure.of(other).median);
        others.max_by(by_median).copied()
    }

    /// Returns the claim that an engine has the highest value of a figure.
    pub fn most(&self, what: &str, figure: Figure, engine: &str) -> Option<Claim> {
        let (over, under) = (self.of(engine)?, self.most_beside(figure, engine)?);
        Ratio { figure, over, under }.judge_order(what, false)
    }
}

/// Groups the rows by load and skew. Rows of engines with other settings than the paper's are left out.
pub fn groups(rows: &[StoreRow]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows.iter().filter(|row| !row.spot.is_variant()) {
        let (load, skew) = (row.spot.load, row.spot.skew);
        match groups.iter_mut().find(|group| group.load == load && group.skew == skew) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { load, skew, rows: vec![row] }),
        }
    }
    groups
}

fn gains(group: &Group<'_>) -> Vec<Claim> {
    let here = GAINS.iter().filter(|gain| gain.mixes.contains(&group.load));
    let each = here.flat_map(|gain| gain.models.iter().map(move |model| (gain, *model)));
    each.filter_map(|(gain, model)| {
        let ratio = group.ratio(Figure::Throughput(model), gain.over, gain.under)?;
        Some(ratio.judge("throughput", gain.stated))
    })
    .collect()
}

/// Returns claims about the orders that the text states at the latency of main memory, and that NVM-InP is
/// best at all latencies (section 5.7).
fn orders(group: &Group<'_>) -> Vec<Claim> {
    let at_dram = Figure::Throughput(DRAM);
    let mut claims = Vec::new();
    let mut add = |figure, over: &str, under: &str, is_tied| {
        let ratio = group.ratio(figure, over, under);
        claims.extend(ratio.and_then(|ratio| ratio.judge_order("throughput", is_tied)));
    };
    match group.load {
        "read-only" => {
            add(at_dram, "nvm_inplace", "inplace", true);
            add(at_dram, "inplace", "cow", false);
            add(at_dram, "cow", "log", false);
        }
        "balanced" | "write-heavy" => {
            add(at_dram, "inplace", "log", false);
            add(at_dram, "log", "cow", false);
        }
        _ => {}
    }
    for model in [DRAM, LOW, HIGH, HIGH_PARALLEL] {
        claims.extend(group.most("best throughput", Figure::Throughput(model), "nvm_inplace"));
    }
    claims
}

/// Returns claims about the throughput that is lost at eight times the latency.
fn latencies(group: &Group<'_>) -> Vec<Claim> {
    let stated = match group.load {
        "read-only" => Stated::cost(2.0, 3.4),
        "balanced" | "write-heavy" => Stated::cost(1.8, 2.9),
        _ => return Vec::new(),
    };
    let each = group.rows.iter().flat_map(|row| [HIGH, HIGH_PARALLEL].map(|model| (*row, model)));
    each.map(|(row, model)| judge_models(row, DRAM, model, stated)).collect()
}

/// Returns claims about the stores that engines for persistent memory save, and that CoW has the most loads
/// and stores.
fn stores(group: &Group<'_>) -> Vec<Claim> {
    if group.load != "write-heavy" {
        return Vec::new();
    }
    let stated = if group.skew == "low" { Stated::gain(0.17, 0.48) } else { Stated::gain(0.09, 0.41) };
    let saved = |[nvm, traditional]: [&str; 2]| group.ratio(Figure::Stores, nvm, traditional);
    let saved = PAIRS.into_iter().filter_map(saved).map(|ratio| ratio.judge_saved("stores", stated));
    let mut claims: Vec<Claim> = saved.collect();
    claims.extend(group.most("most stores", Figure::Stores, "cow"));
    claims.extend(group.most("most loads", Figure::Loads, "cow"));
    claims
}

/// Returns claims that compare high skew with low skew in the read-only mix.
fn skews(rows: &[StoreRow]) -> Vec<Claim> {
    let reads = |skew| groups(rows).into_iter().find(|group| group.load == "read-only" && group.skew == skew);
    let (Some(low), Some(high)) = (reads("low"), reads("high")) else { return Vec::new() };
    let mut claims = Vec::new();
    for row in &high.rows {
        let Some(under) = low.of(row.spot.engine) else { continue };
        let throughput = Ratio { figure: Figure::Throughput(DRAM), over: row, under };
        let says = format!("high skew over low skew: {}, throughput", row.spot.engine);
        let mut claim = throughput.judge("high skew over low skew, throughput", SKEW_GAIN);
        claim.says = says;
        if !row.spot.engine.contains("inplace") {
            (claim.published, claim.verdict) = (None, Verdict::NotInText);
        }
        claims.push(claim);
        let loads = Ratio { figure: Figure::Loads, over: under, under: row };
        let factors = factors_of(row, Figure::Loads);
        let says = format!("low skew over high skew: {}, loads", row.spot.engine);
        let fewer =
            Claim::found(&factors, says, loads.value()).judged(1.0, Verdict::at_least(1.0, loads.value()));
        claims.push(fewer);
    }
    claims
}

/// Returns claims about the loads of the read-only mix: that Log has the most, and that the best engine for
/// persistent memory saves 53 %.
fn loads(rows: &[StoreRow]) -> Vec<Claim> {
    let groups = groups(rows);
    let reads = || groups.iter().filter(|group| group.load == "read-only");
    let mut claims: Vec<Claim> =
        reads().filter_map(|group| group.most("most loads", Figure::Loads, "log")).collect();
    let pairs = reads()
        .flat_map(|group| PAIRS.map(|[nvm, traditional]| group.ratio(Figure::Loads, nvm, traditional)));
    let best = pairs.flatten().min_by(|one, other| one.value().total_cmp(&other.value()));
    claims.extend(best.map(|best| best.judge_saved("loads", Stated::gain(LOADS_SAVED, LOADS_SAVED))));
    claims
}
