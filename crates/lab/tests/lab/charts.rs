//! Tests that charts of experiments are well-formed and show what was measured.

use clap::Parser;
use varve_lab::experiment::{Device, ExperimentArgs, Lab, Scale, perform, run};

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

/// Returns whether the text is well-formed: tags are closed in their order, names and attributes are where
/// they belong, and special letters are escaped.
fn is_well_formed(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(begin) = rest.find('<') {
        let (before, tag) = rest.split_at(begin);
        let Some(end) = tag.find('>') else { return false };
        let (inner, is_text_sound) = (&tag[1..end], !before.contains('>') && is_escaped(before));
        let is_sound = match inner.strip_prefix('/') {
            Some(name) => open.pop() == Some(name.trim()),
            None => {
                let name = inner.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
                if !inner.ends_with('/') {
                    open.push(name);
                }
                !name.is_empty() && inner.matches('"').count() % 2 == 0 && is_escaped(inner)
            }
        };
        if !is_text_sound || !is_sound {
            return false;
        }
        rest = &tag[end + 1..];
    }
    open.is_empty() && rest.trim().is_empty()
}

fn is_escaped(text: &str) -> bool {
    text.split('&').skip(1).all(|entity| entity.split_once(';').is_some_and(|(name, _)| name.len() < 6))
}

/// Each experiment draws the charts for which its rows have figures. Earlier rows can be drawn again without
/// a measurement.
#[test]
fn charts_of_experiments() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (charts, rows) = (folder.path().join("charts"), folder.path().join("rows.jsonl"));
    let mut out = Vec::new();
    let place = || Some(folder.path().join("lab"));
    let device = Device::named("none", None).expect("the device that is there");
    let scale = Scale { rounds: 1, ..Scale::TINY };
    let mut lab = Lab::new(scale, device, (place(), place()), &mut out).expect("a lab");
    lab.choose_clients(&[2]).expect("two sessions");
    let only = ["lambda=10", "lambda=90", "design=lazy-cleaning"].map(str::to_owned);
    lab.choose_points(&only).expect("factors and values");
    lab.write_rows_to(&rows).expect("a file");
    lab.draw_charts_in(&charts).expect("a directory");
    for name in ["flash-dirty-limit", "flash-ramp-up", "doublewrite-cost"] {
        perform(&mut lab, name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    lab.end().expect("everything is written");
    let svg = |name: &str| {
        let text =
            std::fs::read_to_string(charts.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(is_well_formed(&text), "{name}: {text}");
        text
    };
    let all = [
        ("flash-dirty-limit-throughput-by-lambda.svg", ["redo 6 caches", "redo 1 pool"]),
        ("flash-dirty-limit-throughput.svg", ["lambda 10", "redo 1 pool"]),
        ("flash-dirty-limit-claims.svg", ["published 3.50", "Pale"]),
        ("flash-ramp-up-throughput-over-time.svg", ["aggressive", "plain"]),
        ("flash-ramp-up-hits-over-time.svg", ["aggressive", "plain"]),
        ("flash-ramp-up-filled-over-time.svg", ["aggressive", "plain"]),
        ("flash-ramp-up-traffic-aggressive.svg", ["home read", "flash written"]),
        ("doublewrite-cost-throughput.svg", ["Kang 2016", "original"]),
        ("doublewrite-cost-claims.svg", ["not in text", "not emulated"]),
    ];
    for (name, words) in all {
        let text = svg(name);
        assert!(
            words.iter().all(|word| text.contains(word)) && text.contains("not emulated"),
            "{name}: {text}"
        );
    }
    let again = folder.path().join("again");
    let [from, to] = [&rows, &again].map(|path| path.to_str().expect("UTF-8"));
    let text = command(&["flash-ramp-up", "--from", from, "--charts", to]).expect("charts");
    assert!(text.contains("flash-ramp-up-throughput-over-time.svg"), "{text}");
    let drawn = std::fs::read_dir(&again).expect("a directory").count();
    assert_eq!(drawn, text.lines().count());
}
