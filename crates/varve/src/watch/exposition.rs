//! The figures in the text format of Prometheus (OpenMetrics 1.0): each metric has HELP, TYPE and UNIT.
//!
//! Invariants
//! 1. The name of a metric ends with its unit; that of a counter then has `_total`.
//! 2. Labels have few values: levels, devices, kinds of files, purposes. No statement and no table is a label.
//!
//! This module does not know where figures come from.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::figures::{Figures, LatencyFigures};

/// The media type of the text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the text for these figures.
pub fn exposition(figures: Figures) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("varve");
    registry.register_collector(Box::new(Scrape(figures)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// The figures of one request.
#[derive(Debug)]
struct Scrape(Figures);

/// The value of a metric.
#[derive(Clone, Copy)]
enum Value {
    Counter(f64),
    Gauge(f64),
}

impl Value {
    fn counter(value: u64) -> Value {
        Value::Counter(value as f64)
    }

    fn gauge(value: u64) -> Value {
        Value::Gauge(value as f64)
    }
}

type Labels = Vec<(&'static str, String)>;

/// Returns a label. Characters that need an escape do not occur in names of levels and devices, and become
/// `_`.
fn label(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.replace(['"', '\\', '\n'], "_"))
}

/// Writes metrics.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    /// Writes a metric with its values. A metric without values is left out.
    fn all(
        &mut self,
        name: &str,
        unit: &Unit,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Value)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        let kind = match values.peek() {
            Some((_, Value::Counter(_))) => MetricType::Counter,
            Some((_, Value::Gauge(_))) => MetricType::Gauge,
            None => return Ok(()),
        };
        let mut metric = self.0.encode_descriptor(name, help, Some(unit), kind)?;
        for (labels, value) in values {
            match labels.is_empty() {
                true => encode(&mut metric, value)?,
                false => encode(&mut metric.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }

    /// Writes a metric with one value.
    fn one(&mut self, name: &str, unit: &Unit, help: &str, value: Value) -> fmt::Result {
        self.all(name, unit, help, [(Vec::new(), value)])
    }
}

fn encode(metric: &mut MetricEncoder<'_>, value: Value) -> fmt::Result {
    match value {
        Value::Counter(value) => metric.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        Value::Gauge(value) => metric.encode_gauge(&value),
    }
}

fn unit(name: &str) -> Unit {
    Unit::Other(name.to_owned())
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut out, Scrape(figures)) = (Writer(encoder), self);
        out.one("uptime", &Unit::Seconds, "Time since the start", Value::Gauge(figures.uptime_seconds))?;
        levels(&mut out, figures)?;
        devices(&mut out, figures)?;
        latencies(&mut out, figures)?;
        spaces(&mut out, figures)?;
        log(&mut out, figures)?;
        archive(&mut out, figures)?;
        transactions(&mut out, figures)?;
        sessions(&mut out, figures)
    }
}

fn levels(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let pages = unit("pages");
    let of = |pick: fn(&super::levels::LevelFigures) -> Option<Value>| {
        let values = figures.levels.iter().map(move |level| (vec![label("level", level.level)], pick(level)));
        values.filter_map(|(labels, value)| Some((labels, value?))).collect::<Vec<_>>()
    };
    out.all(
        "level_capacity",
        &pages,
        "Pages for which a level has room",
        of(|l| l.capacity_pages.map(Value::gauge)),
    )?;
    out.all("level_used", &pages, "Pages that a level has", of(|l| Some(Value::gauge(l.used_pages))))?;
    let help = "Pages of a level that differ from the level below";
    out.all("level_dirty", &pages, help, of(|l| l.dirty_pages.map(Value::gauge)))?;
    out.all(
        "level_hit",
        &pages,
        "Reads of pages that a level answered",
        of(|l| Some(Value::counter(l.hits))),
    )?;
    let help = "Reads of pages that a level passed to the level below";
    out.all("level_missed", &pages, help, of(|l| l.misses.map(Value::counter)))?;
    let help = "Pages that were written to a level";
    out.all("level_written", &pages, help, of(|l| Some(Value::counter(l.written_pages))))?;
    out.one("page_size", &Unit::Bytes, "Size of a page", Value::gauge(figures.page_bytes))
}

fn devices(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let operations = figures.devices.iter().flat_map(|device| {
        [("read", device.reads[0]), ("write", device.writes[0]), ("flush", device.flushes)].map(
            |(what, count)| {
                (vec![label("device", &device.device), label("operation", what)], Value::counter(count))
            },
        )
    });
    out.all("device", &unit("operations"), "Operations of a device", operations)?;
    let bytes = figures.devices.iter().flat_map(|device| {
        [("read", device.reads[1]), ("write", device.writes[1])].map(|(what, bytes)| {
            (vec![label("device", &device.device), label("operation", what)], Value::counter(bytes))
        })
    });
    out.all("device_transferred", &Unit::Bytes, "Bytes that a device has read or written", bytes)?;
    let purposes = figures.devices.iter().flat_map(|device| {
        device.written_by_purpose.iter().map(|(purpose, bytes)| {
            (vec![label("device", &device.device), label("purpose", purpose)], Value::counter(*bytes))
        })
    });
    out.all("device_written", &Unit::Bytes, "Bytes that a device has written, by purpose", purposes)?;
    let of = |pick: fn(&super::figures::DeviceFigures) -> Option<Value>| {
        let values =
            figures.devices.iter().map(move |device| (vec![label("device", &device.device)], pick(device)));
        values.filter_map(|(labels, value)| Some((labels, value?))).collect::<Vec<_>>()
    };
    let help = "Average number of operations that a device worked on at the same time";
    out.all("device_queue", &unit("operations"), help, of(|d| Some(Value::Gauge(d.queue))))?;
    out.all("device_free", &Unit::Bytes, "Free space of a device", of(|d| d.free_bytes.map(Value::gauge)))?;
    let help = "Bytes that a drive may write in its life";
    out.all("device_rated_write", &Unit::Bytes, help, of(|d| d.rated_bytes.map(Value::gauge)))?;
    let help = "Life of a drive at the average rate of writes since the start";
    let life = of(|d| d.rated_years.map(|years| Value::Gauge(years * 365.25 * 86_400.0)));
    out.all("device_expected_life", &Unit::Seconds, help, life)
}

fn latencies(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let each = || {
        let of_device = |device: &super::figures::DeviceFigures| device.device.clone();
        figures.devices.iter().flat_map(move |device| {
            let name = of_device(device);
            device.latencies.iter().map(move |latency| (name.clone(), latency))
        })
    };
    let labels = |device: &str, latency: &LatencyFigures| {
        vec![label("device", device), label("operation", latency.operation)]
    };
    let quantiles = each().flat_map(|(device, latency)| {
        [("0.5", latency.p50), ("0.99", latency.p99), ("1", latency.max)].map(|(quantile, seconds)| {
            let mut labels = labels(&device, latency);
            labels.push(label("quantile", quantile));
            (labels, Value::Gauge(seconds))
        })
    });
    let help = "Quantiles of the latency of a device since the start";
    out.all("device_latency", &Unit::Seconds, help, quantiles)?;
    let busy = each().map(|(device, latency)| (labels(&device, latency), Value::Counter(latency.sum)));
    out.all("device_busy", &Unit::Seconds, "Sum of the latencies of a device", busy)?;
    let timed =
        each().map(|(device, latency)| (labels(&device, latency), Value::counter(latency.total_count)));
    out.all("device_timed", &unit("operations"), "Operations of a device that were timed", timed)
}

fn spaces(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let each = |pick: fn(&super::figures::SpaceFigures) -> [(&'static str, u64); 2]| {
        let values = figures.spaces.iter().flat_map(move |space| {
            pick(space).map(|(what, count)| {
                let labels = vec![
                    label("space", &space.space),
                    label("purpose", space.purpose),
                    label("operation", what),
                ];
                (labels, Value::counter(count))
            })
        });
        values.collect::<Vec<_>>()
    };
    let help = "Operations on a kind of file, by purpose";
    out.all("space", &unit("operations"), help, each(|s| [("read", s.reads[0]), ("write", s.writes[0])]))?;
    let help = "Bytes of a kind of file that were read or written, by purpose";
    out.all("space_transferred", &Unit::Bytes, help, each(|s| [("read", s.reads[1]), ("write", s.writes[1])]))
}

fn log(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let log = &figures.log;
    out.one("log_appended", &Unit::Bytes, "Changes in the redo log", Value::counter(log.appended_bytes))?;
    out.one(
        "log",
        &unit("mini_transactions"),
        "Groups of changes in the redo log",
        Value::counter(log.groups),
    )?;
    out.one("log", &unit("flushes"), "Durable writes of the redo log", Value::counter(log.flushes))?;
    out.one(
        "log_flushed",
        &Unit::Bytes,
        "Bytes of durable writes of the redo log",
        Value::counter(log.flushed_bytes),
    )?;
    let help = "Threads that waited for the flush of another thread";
    out.one("log_following", &unit("threads"), help, Value::counter(log.followers))?;
    out.one(
        "log_used",
        &Unit::Bytes,
        "The part of the redo log that a start would read",
        Value::gauge(log.used_bytes),
    )?;
    let causes = [("time", log.checkpoints_timed), ("request", log.checkpoints_requested)];
    let causes = causes.map(|(cause, count)| (vec![label("cause", cause)], Value::counter(count)));
    out.all("taken", &unit("checkpoints"), "Checkpoints, by cause", causes)?;
    out.one("checkpoint", &Unit::Seconds, "Time of all checkpoints", Value::Counter(log.checkpoint_seconds))?;
    let help = "The time that a start would take after a crash now, by estimate";
    let restart = log.restart_seconds.map(|seconds| (Vec::new(), Value::Gauge(seconds)));
    out.all("restart_estimated", &Unit::Seconds, help, restart)
}

fn archive(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let Some(archive) = &figures.archive else { return Ok(()) };
    let help = "The part of the redo log that is not archived";
    out.one("archive_lag", &Unit::Bytes, help, Value::gauge(archive.lag_bytes))?;
    let help = "Time for which commits have not been archived";
    out.one("archive_lag", &Unit::Seconds, help, Value::gauge(archive.lag_seconds))?;
    let help = "1 if the last attempt to archive the log failed";
    out.one("archive", &unit("failing"), help, Value::gauge(u64::from(archive.is_failing)))?;
    out.one(
        "archive",
        &unit("pieces"),
        "Pieces of the log that were archived",
        Value::counter(archive.pieces),
    )?;
    out.one(
        "archive",
        &unit("failures"),
        "Failed attempts to archive the log",
        Value::counter(archive.failures),
    )?;
    let help = "Parts of the log that were cut before they were archived";
    out.one("archive", &unit("gaps"), help, Value::counter(archive.gaps))
}

fn transactions(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let all = &figures.transactions;
    let outcomes = [("commit", all.commits), ("rollback", all.rollbacks)];
    let outcomes = outcomes.map(|(outcome, count)| (vec![label("outcome", outcome)], Value::counter(count)));
    out.all("ended", &unit("transactions"), "Transactions with changes, by outcome", outcomes)?;
    out.one("lock", &unit("waits"), "Waits for locks", Value::counter(all.lock_waits))?;
    out.one("found", &unit("deadlocks"), "Deadlocks", Value::counter(all.deadlocks))?;
    let locks = [("held", all.locks_held), ("awaited", all.locks_awaited)];
    let locks = locks.map(|(state, count)| (vec![label("state", state)], Value::gauge(count)));
    out.all("present", &unit("locks"), "Locks that are held or awaited now", locks)?;
    out.one("purged", &unit("records"), "Undo records that were purged", Value::counter(all.purged_records))?;
    let help = "Committed transactions whose undo records wait for purge";
    out.one("purge_backlog", &unit("transactions"), help, Value::gauge(all.purge_backlog))
}

fn sessions(out: &mut Writer<'_>, figures: &Figures) -> fmt::Result {
    let states = ["active", "idle", "idle in transaction", "idle in transaction (aborted)"].map(|state| {
        let count = figures.sessions.iter().filter(|session| session.state == state).count();
        (vec![label("state", state)], Value::gauge(count as u64))
    });
    out.all("open", &unit("sessions"), "Sessions, by state", states)?;
    let longest = |seconds: fn(&super::figures::SessionFigures) -> Option<f64>| {
        Value::Gauge(figures.sessions.iter().filter_map(seconds).fold(0.0, f64::max))
    };
    let help = "Time of the longest statement that runs";
    out.one("longest_statement", &Unit::Seconds, help, longest(|session| session.query_seconds))?;
    let help = "Time of the longest open transaction";
    out.one("longest_transaction", &Unit::Seconds, help, longest(|session| session.transaction_seconds))?;
    if let Some(sums) = &figures.statement_totals {
        let help = "Statements that have run without an error since the start";
        out.one("run", &unit("statements"), help, Value::counter(sums.calls))?;
        out.one("statement", &Unit::Seconds, "Time of these statements", Value::Counter(sums.seconds))?;
        out.one("statement", &unit("rows"), "Rows of these statements", Value::counter(sums.rows))?;
    }
    let help = "Messages of the server that could not be written";
    out.one("lost", &unit("messages"), help, Value::counter(figures.lost_messages))
}
