//! The program `varve-device` beside a database in files: it reads them, and it may be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use varve_device::{FileDirectory, FileOptions};
use varve_engine::{Database, Options};
use varve_pager::PagerConfig;
use varve_smart::{Address, HostScan, Output, SmartDevice, SmartScan};

use crate::bed::{Bed, KEY, RR, by_host, key, pairs, program, set};

/// The process of a device. It is killed when this value is dropped.
struct Device(Child);

impl Device {
    fn start(folder: &Path, address: &Address) -> Device {
        std::fs::write(folder.join("key"), KEY).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_varve-device"))
            .args(["--listen", &address.to_string(), "--profile", "smart-ssd", "--key-file"])
            .arg(folder.join("key"))
            .arg("--directory")
            .arg(folder.join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.map_while(Result::ok).any(|line| line.starts_with("listening on"));
        assert!(listening, "the device ended early");
        Device(child)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_device_in_another_process_reads_the_file_and_may_be_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = FileDirectory::open_or_create(&folder.path().join("data"), FileOptions::default()).unwrap();
    let mut pager = PagerConfig::new(data);
    pager.pool_bytes = 8 << 20;
    let database = Database::open(Options::new(pager)).unwrap();
    let address = Address::Unix(folder.path().join("socket"));
    let device = SmartDevice::new(address.clone(), key(), Duration::from_secs(20));
    let bed = Bed { database, server: None, device, _socket: tempfile::tempdir().unwrap() };
    let def = bed.table(varve_engine::LeafLayout::ByColumns);
    bed.load(&def, 0..60_000);
    bed.settle();
    let process = Device::start(folder.path(), &address);
    let mut txn = bed.begin(RR);
    let expected = by_host(&mut txn, &def);
    let mut writer = bed.begin(crate::bed::RC);
    (0..30).for_each(|id| set(&mut writer, &def, id * 2000, -1));
    writer.commit().unwrap();
    bed.settle();
    assert_eq!(bed.scanned(&mut txn, &def), expected);
    let (by_device, deferred) = bed.leaves();
    assert!(by_device > 100 && deferred >= 20, "{by_device} by the device, {deferred} deferred");
    assert_eq!(bed.device.last_failure(), None);
    killed_in_a_scan(&bed, &def, &mut txn, process);
}

#[test]
fn a_device_that_cannot_serve_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (key, short) = (folder.path().join("key"), folder.path().join("short"));
    std::fs::write(&key, KEY).unwrap();
    std::fs::write(&short, "short").unwrap();
    let says = |listen: &str, key: &Path, directory: &str, what: &str| {
        let mut device = Command::new(env!("CARGO_BIN_EXE_varve-device"));
        device.args(["--listen", listen, "--directory", directory, "--key-file"]).arg(key);
        let output = device.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{said}");
    };
    let socket = format!("unix:{}", folder.path().join("socket").display());
    says("nowhere", &key, ".", "write unix:PATH or HOST:PORT");
    says(&socket, &short, ".", "the key has 5 bytes");
    says(&socket, &folder.path().join("none"), ".", "none");
    says(&socket, &key, "/nonexistent", "/nonexistent");
    says(&socket, &key, &folder.path().display().to_string(), "data.varve");
}

/// Kills the device after the first part of a scan.
fn killed_in_a_scan(
    bed: &Bed,
    def: &varve_engine::TableDef,
    txn: &mut varve_engine::Transaction,
    process: Device,
) {
    let table = txn.table(def).unwrap();
    let expected = by_host(txn, def);
    let mut process = Some(process);
    let mut reader = txn.reader();
    let scanned = program(def, None, Output::Columns(vec![0, 1]));
    let mut scan = SmartScan::new(&bed.device, &table, scanned).unwrap();
    let mut batches = Vec::new();
    while let Some(step) = scan.next(&mut reader, &table).unwrap() {
        match step {
            HostScan::Batch(batch) => {
                batches.push(batch);
                drop(process.take());
            }
            HostScan::Keys(lower, upper) => {
                batches.push(crate::sessions::rows_between(&mut reader, &table, lower, upper));
            }
        }
    }
    assert_eq!(pairs(&batches), expected);
    assert_eq!(bed.device.counts().failures.load(Ordering::Relaxed), 1);
    assert!(bed.device.last_failure().is_some());
}
