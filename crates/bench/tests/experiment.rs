//! A slice of each experiment runs to its end on small files without emulation: its rows say what they are and nothing is concluded from them.

use clap::Parser;
use serde_json::Value;
use varve_bench::experiment::{Device, ExperimentArgs, Lab, Scale, perform, run};

/// What the experiment prints: rows, and the other lines.
fn slice(name: &str, rounds: usize) -> (Vec<Value>, String) {
    let device = Device::named("none", None).expect("the device that is there");
    let scale = Scale { rounds, ..Scale::TINY };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut out = Vec::new();
    let mut lab = Lab::new(scale, device, Some(folder.path().to_owned()), &mut out).expect("a lab");
    lab.choose_clients(&[2]).expect("two sessions");
    perform(&mut lab, name).unwrap_or_else(|error| panic!("{name}: {error}"));
    lab.end().expect("everything is written");
    let text = String::from_utf8(out).expect("UTF-8");
    let (rows, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    (rows.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect(), rest.join("\n"))
}

fn of_kind<'r>(rows: &'r [Value], kind: &str) -> Vec<&'r Value> {
    rows.iter().filter(|row| row["row"] == kind).collect()
}

#[test]
fn doublewrite_cost() {
    let (rows, text) = slice("doublewrite-cost", 2);
    let points = of_kind(&rows, "point");
    let variants: Vec<&str> =
        points.iter().filter_map(|point| point["factors"]["variant"].as_str()).collect();
    assert_eq!(variants, ["original", "doublewrite", "none"]);
    for point in &points {
        assert_eq!((&point["rounds"], &point["factors"]["clients"]), (&2.into(), &2.into()));
        assert!(
            point["tps"]["median"].as_f64() > Some(0.0) && point["latency_mean_us"].as_f64() > Some(0.0),
            "{point}"
        );
        assert!(point["written_bytes"]["log"].as_f64() > Some(0.0), "{point}");
        assert_eq!(point["emulation"], Value::Null);
        let share = |what: &str| point["time_share"][what].as_f64();
        assert!(share("log_wait") > Some(0.0) && share("log_wait") < Some(1.5), "{point}");
    }
    let hashes: std::collections::BTreeSet<_> =
        points.iter().map(|point| point["configuration"].to_string()).collect();
    assert_eq!(hashes.len(), 3, "each variant is a configuration of its own");
    let claims = of_kind(&rows, "claim");
    assert_eq!(claims.len(), 2);
    // Kang has no figure for two sessions.
    assert!(claims.iter().all(|claim| claim["verdict"] == "not_in_text" && claim["published"].is_null()));
    assert!(text.contains("log_wait"), "{text}");
    assert!(text.contains("not about real devices") && text.contains("times the pool"), "{text}");
}

/// A point is judged only beside a published value and on an emulated device that kept up.
#[test]
fn the_emulation_decides_what_counts() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut out = Vec::new();
    let device = Device::named("sata-ssd-2014", Some(100.0)).expect("a shipped profile");
    let scale = Scale { rounds: 1, ..Scale::TINY };
    let mut lab = Lab::new(scale, device, Some(folder.path().to_owned()), &mut out).expect("a lab");
    lab.choose_clients(&[8]).expect("eight sessions");
    perform(&mut lab, "doublewrite-cost").expect("an experiment");
    lab.end().expect("everything is written");
    let text = String::from_utf8(out).expect("UTF-8");
    let rows: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for point in of_kind(&rows, "point") {
        let emulation = &point["emulation"];
        assert_eq!((&emulation["profile"], &emulation["flush_us"]), (&"sata-ssd-2014".into(), &100.0.into()));
        let dilation = emulation["dilation"].as_f64().expect("a number");
        assert!(emulation["counts"] == true || dilation == 16.0, "{point}");
    }
    for claim in of_kind(&rows, "claim") {
        let is_compared = |point: &Value| {
            let variant = point["factors"]["variant"].as_str().expect("a name");
            let says = claim["says"].as_str().expect("a text");
            point["factors"]["clients"] == claim["factors"]["clients"]
                && says.split(" / ").any(|name| name == variant)
        };
        let points = of_kind(&rows, "point");
        let compared: Vec<_> = points.iter().filter(|point| is_compared(point)).collect();
        assert_eq!(compared.len(), 2, "{claim}");
        let counts = compared.iter().all(|point| point["emulation"]["counts"] == true);
        assert_eq!(claim["published"], 1.14);
        assert_eq!(claim["verdict"] != "not_judged", counts, "{claim}");
    }
}

#[test]
fn flush_sweep() {
    let (rows, _) = slice("nvm-flush-sweep", 1);
    let flushes: Vec<f64> = rows.iter().filter_map(|row| row["factors"]["flush us"].as_f64()).collect();
    assert_eq!(flushes.len(), 15);
    assert!(flushes.contains(&0.0) && flushes.contains(&3500.0));
}

#[test]
fn page_size() {
    let (rows, _) = slice("compression-page-size", 1);
    let sizes: Vec<u64> = rows.iter().filter_map(|row| row["factors"]["page KiB"].as_u64()).collect();
    assert_eq!(sizes, [4, 8, 16, 32, 64]);
    assert!(rows.iter().all(|row| row["database_bytes"].as_u64() > Some(0)));
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: ExperimentArgs,
}

fn command(words: &[&str]) -> varve_bench::Result<String> {
    let args = Program::parse_from([&["varve"], words].concat()).args;
    let mut out = Vec::new();
    run(&args, &mut out)?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn experiments_are_listed_and_others_refused() {
    let list = command(&["list"]).expect("a list");
    assert!(list.contains("doublewrite-cost") && list.contains("Kang 2016"), "{list}");
    let refused = command(&["perpetual-motion"]).expect_err("no such experiment").to_string();
    assert!(refused.contains("perpetual-motion") && refused.contains("doublewrite-cost"), "{refused}");
    let refused = command(&["list", "--profile", "floppy"]);
    assert!(refused.is_ok(), "a list needs no device");
    assert!(command(&["doublewrite-cost", "--profile", "floppy"]).is_err());
    assert!(command(&["doublewrite-cost", "--clients", "0"]).is_err());
}
