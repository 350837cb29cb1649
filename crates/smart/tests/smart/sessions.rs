//! Bad hosts do no harm to the device, and bad devices do no harm to the host.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use varve_engine::{LeafLayout, TableDef};
use varve_pager::{PageId, PageNo, SpaceId};
use varve_smart::{
    Address, Client, ColumnKind, Condition, HostScan, Limits, ListedLeaf, OpenRequest, Output, Program,
    Request, Server, ServerOptions, SharedKey, SmartDevice, SmartError, SmartScan,
};

use crate::bed::{Bed, RC, by_host, key, pairs, program};

const PATIENCE: Duration = Duration::from_secs(20);

fn connect(bed: &Bed) -> Client {
    Client::connect(bed.device.address(), &key(), None, PATIENCE).unwrap()
}

fn request(leaves: usize) -> OpenRequest {
    let leaf = |n| ListedLeaf { page: PageId::new(SpaceId::DATA, PageNo(n as u32)), fences: 0 };
    OpenRequest {
        owner: 1,
        bound: u64::MAX,
        floor: u64::MAX,
        page_bytes: 8192,
        identity: 0,
        file: "data.varve".into(),
        program: Program {
            columns: vec![ColumnKind::Int4],
            condition: None,
            output: Output::Columns(vec![0]),
        },
        leaves: (0..leaves).map(leaf).collect(),
    }
}

fn filled() -> (Bed, Arc<TableDef>) {
    let bed = Bed::new();
    let def = bed.table(LeafLayout::ByRows);
    bed.load(&def, 0..5000);
    bed.settle();
    (bed, def)
}

/// The device still answers.
fn is_well(bed: &Bed, def: &TableDef) {
    let failures = bed.failures();
    let mut txn = bed.begin(RC);
    assert_eq!(bed.scanned(&mut txn, def), by_host(&mut txn, def));
    assert_eq!(bed.failures(), failures);
}

fn refused(outcome: Result<u32, SmartError>, what: &str) {
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(what), "{error:?} does not say {what:?}");
}

#[test]
fn programs_that_cannot_run_are_refused() {
    let (bed, def) = filled();
    let mut client = connect(&bed);
    let mut with = |change: &dyn Fn(&mut OpenRequest)| {
        let mut open = request(1);
        change(&mut open);
        client.open(open)
    };
    refused(with(&|open| open.program.output = Output::Columns(vec![1])), "column 1 of 1");
    refused(with(&|open| open.program.output = Output::Columns(vec![0, 0])), "column 0 twice");
    refused(with(&|open| open.program.columns = vec![ColumnKind::Decimal(200)]), "200 digits");
    refused(with(&|open| open.program.condition = Some(Condition::Prefix(0, "a".into()))), "no prefix");
    let many = Condition::And(vec![Condition::IsNull(0); 5000]);
    refused(with(&|open| open.program.condition = Some(many.clone())), "4096");
    let long = Condition::Prefix(0, "x".repeat(2 << 20));
    refused(with(&|open| open.program.condition = Some(long.clone())), "the program has");
    refused(with(&|open| open.file = "../../etc/passwd".into()), "no file");
    refused(with(&|open| open.page_bytes = 5000), "pages of 5000 bytes");
    refused(with(&|open| open.page_bytes = 0), "pages of 0 bytes");
    let mut deep = Condition::IsNull(0);
    for _ in 0..2000 {
        deep = Condition::Not(Box::new(deep));
    }
    refused(with(&|open| open.program.condition = Some(deep.clone())), "recursion limit");
    is_well(&bed, &def);
}

#[test]
fn limits_hold() {
    let limits = Limits { sessions: 2, leaves: 100, memory_bytes: 80 << 20, ..Limits::default() };
    let bed = Bed::with(limits);
    let mut client = connect(&bed);
    refused(client.open(request(101)), "the scan has 101 leaves");
    let sessions = [client.open(request(100)).unwrap(), client.open(request(1)).unwrap()];
    refused(client.open(request(1)), "2 sessions");
    client.close(sessions[0]).unwrap();
    client.open(request(1)).unwrap();
    let mut other = connect(&bed);
    other.open(request(1)).unwrap();
    refused(other.open(request(1)), "needs");
    drop((client, other));
    let server = bed.server.as_ref().unwrap();
    let until = Instant::now() + PATIENCE;
    while server.load() != (0, 0) {
        assert!(Instant::now() < until, "{:?} are left", server.load());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn unknown_sessions_are_errors() {
    let (bed, def) = filled();
    let mut client = connect(&bed);
    assert!(client.get(1).unwrap_err().to_string().contains("session 1 does not exist"));
    let session = client.open(request(1)).unwrap();
    client.close(session).unwrap();
    assert!(client.close(session).is_err());
    // The sessions of another connection are not those of this one.
    let session = client.open(request(1)).unwrap();
    assert!(connect(&bed).get(session).is_err());
    is_well(&bed, &def);
}

/// The host lists every page of the file as a leaf of another tree. The device defers all of them.
#[test]
fn pages_that_are_no_leaves_are_deferred() {
    let (bed, _) = filled();
    let mut client = connect(&bed);
    let session = client.open(request(300)).unwrap();
    let mut deferred = 0;
    loop {
        let part = client.get(session).unwrap();
        deferred += part.deferred.len();
        assert!(part.batch.is_empty());
        if part.is_end {
            break;
        }
    }
    assert_eq!(deferred, 300);
    assert!(client.get(session).is_err());
}

#[test]
fn garbage_is_answered_with_an_error() {
    let (bed, def) = filled();
    let mut client = connect(&bed);
    for bytes in [&b""[..], b"\0", b"\x09abc", b"\x02\x01", b"\x02\x01\0\0\0 more", b"\x01\xff\xff"] {
        assert!(matches!(client.ask_bytes(bytes), Err(SmartError::Device(_))), "{bytes:?}");
    }
    // Each prefix of a request is tried, and the request with each byte changed.
    let sound = Request::Open(Box::new(request(2))).encode().unwrap();
    for cut in 0..sound.len() {
        assert!(client.ask_bytes(&sound[..cut]).is_err(), "{cut} bytes");
    }
    let mut changed = sound.clone();
    for at in 0..sound.len() {
        changed[at] ^= 0x15;
        if client.ask_bytes(&changed).is_ok() {
            // The connection has room for sixteen sessions.
            client = connect(&bed);
        }
        changed[at] ^= 0x15;
    }
    is_well(&bed, &def);
}

#[test]
fn a_length_that_is_too_large_ends_the_connection() {
    let (bed, def) = filled();
    let Address::Unix(path) = bed.device.address() else { panic!("no local socket") };
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("a message has"));
    is_well(&bed, &def);
}

#[test]
fn hosts_without_the_key_are_refused() {
    let (bed, def) = filled();
    let other = SharedKey::of(b"another key, which is long enough").unwrap();
    let refused = Client::connect(bed.device.address(), &other, None, PATIENCE).err().unwrap();
    assert!(refused.to_string().contains("shared key"), "{refused}");
    // The scan is done by the host.
    let device = SmartDevice::new(bed.device.address().clone(), other, PATIENCE);
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    let mut batches = Vec::new();
    let scan = SmartScan::new(&device, &table, program(&def, None, Output::Columns(vec![0, 1]))).unwrap();
    let keep = &mut |batch| {
        batches.push(batch);
        Ok(())
    };
    scan.run(&mut txn.reader(), &table, keep).unwrap();
    assert_eq!(pairs(&batches), by_host(&mut txn, &def));
    is_well(&bed, &def);
}

#[test]
fn an_abandoned_session_is_closed() {
    let limits = Limits { idle: Duration::from_millis(200), ..Limits::default() };
    let bed = Bed::with(limits);
    let mut client = connect(&bed);
    let session = client.open(request(1)).unwrap();
    let server = bed.server.as_ref().unwrap();
    assert!(server.load().1 > 0);
    let until = Instant::now() + PATIENCE;
    while server.load() != (0, 0) {
        assert!(Instant::now() < until, "{:?} are left", server.load());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(client.get(session).is_err());
}

#[test]
fn without_a_device_the_host_scans() {
    let (mut bed, def) = filled();
    bed.server = None;
    let mut txn = bed.begin(RC);
    assert_eq!(bed.scanned(&mut txn, &def), by_host(&mut txn, &def));
    assert_eq!((bed.leaves().0, bed.failures()), (0, 1));
}

/// The device ends after its first part.
#[test]
fn when_the_device_dies_the_host_scans_the_rest() {
    let mut bed = Bed::new();
    let def = bed.table(LeafLayout::ByColumns);
    bed.load(&def, 0..100_000);
    bed.settle();
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    let expected = by_host(&mut txn, &def);
    let mut reader = txn.reader();
    let device = std::mem::replace(
        &mut bed.device,
        SmartDevice::new(Address::Unix("/nonexistent".into()), key(), PATIENCE),
    );
    let mut scan = SmartScan::new(&device, &table, program(&def, None, Output::Columns(vec![0, 1]))).unwrap();
    let mut batches = Vec::new();
    let mut ranges = 0;
    while let Some(step) = scan.next(&mut reader, &table).unwrap() {
        match step {
            HostScan::Batch(batch) => batches.push(batch),
            HostScan::Keys(lower, upper) => {
                ranges += 1;
                let found = rows_between(&mut reader, &table, lower, upper);
                batches.push(found);
            }
        }
        bed.server = None;
    }
    assert_eq!(pairs(&batches), expected);
    assert!(ranges >= 1, "the host had to scan");
    assert!(device.counts().leaves.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert!(device.counts().bytes.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert_eq!(device.counts().failures.load(std::sync::atomic::Ordering::Relaxed), 1);
}

pub fn rows_between(
    reader: &mut varve_engine::Reader,
    table: &varve_engine::Table,
    lower: std::ops::Bound<Vec<u8>>,
    upper: std::ops::Bound<Vec<u8>>,
) -> arrow_array::RecordBatch {
    let spec = varve_engine::ScanSpec {
        lower: lower.as_ref().map(Vec::as_slice),
        upper: upper.as_ref().map(Vec::as_slice),
        ..varve_engine::ScanSpec::ALL
    };
    let (mut ids, mut values) = (Vec::new(), Vec::new());
    let take = &mut |_: &[u8], row: varve_engine::RowRef<'_>| {
        let (varve_engine::Datum::Int4(id), varve_engine::Datum::Int4(v)) = (row.get(0), row.get(1)) else {
            panic!("no int4")
        };
        ids.push(id);
        values.push(v);
        Ok(std::ops::ControlFlow::Continue(()))
    };
    reader.scan(table, &spec, take).unwrap();
    let column =
        |values: Vec<i32>| -> arrow_array::ArrayRef { Arc::new(arrow_array::Int32Array::from(values)) };
    arrow_array::RecordBatch::try_from_iter([("0", column(ids)), ("1", column(values))]).unwrap()
}

/// A false device answers with bytes of its own, also in place of the proof.
#[test]
fn a_false_device_does_no_harm() {
    let (mut bed, def) = filled();
    let folder = tempfile::tempdir().unwrap();
    for answer in
        [&b""[..], b"\x05\0\0\0hello", b"\xff\xff\xff\xff", b"\x28\0\0\0VARVESM1 and less than that"]
    {
        let path = folder.path().join("false");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(answer).unwrap();
        });
        bed.device = SmartDevice::new(Address::Unix(path), key(), PATIENCE);
        let mut txn = bed.begin(RC);
        assert_eq!(bed.scanned(&mut txn, &def), by_host(&mut txn, &def));
        assert_eq!((bed.leaves().0, bed.failures()), (0, 1));
        thread.join().unwrap();
    }
}

#[test]
fn a_device_is_reached_over_tcp() {
    let directory = varve_device::MemoryDirectory::new();
    let how = varve_device::OpenHow::or_create(varve_device::Space::Data);
    varve_device::Directory::open(&*directory, "data.varve", how).unwrap().set_len(1 << 20).unwrap();
    let server = crate::bed::serve(&*directory, &"127.0.0.1:0".parse().unwrap(), Limits::default());
    let mut client = Client::connect(server.address(), &key(), None, PATIENCE).unwrap();
    let session = client.open(request(3)).unwrap();
    let part = client.get(session).unwrap();
    assert_eq!((part.is_end, part.deferred), (true, vec![0, 1, 2]));
}

/// Only a socket on which no process listens is replaced.
#[test]
fn a_device_replaces_no_file_and_no_socket_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let directory = varve_device::MemoryDirectory::new();
    let how = varve_device::OpenHow::or_create(varve_device::Space::Data);
    varve_device::Directory::open(&*directory, "data.varve", how).unwrap().set_len(1 << 20).unwrap();
    let start = |path: &std::path::Path| {
        let options =
            ServerOptions { key: key(), certificate: None, limits: Limits::default(), profile: None };
        Server::start(&Address::Unix(path.into()), options, &*directory, &["data.varve".into()])
    };
    let fails = |path: &std::path::Path, why: &str| {
        let error = start(path).err().unwrap().to_string();
        assert!(error.contains(why) && error.contains(&path.display().to_string()), "{error}");
    };
    let file = folder.path().join("notes");
    std::fs::write(&file, "mine").unwrap();
    fails(&file, "no socket");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    fails(&link, "no socket");
    fails(&folder.path().join("none/socket"), "No such file");

    let path = folder.path().join("socket");
    let left = UnixListener::bind(&path).unwrap();
    fails(&path, "another process");
    drop(left);
    let server = start(&path).unwrap();
    Client::connect(server.address(), &key(), None, PATIENCE).unwrap();
    // Another file with this name stays when the server stops.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine, too").unwrap();
    drop(server);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine, too");
    std::fs::remove_file(&path).unwrap();
    drop(start(&path).unwrap());
    assert!(!path.exists(), "the server left its own socket");
}

/// A host sends its proof slowly: each byte comes in time, but the whole proof does not.
#[test]
fn the_proof_as_a_whole_has_a_time_limit() {
    let bed = Bed::with(Limits { proof_time: Duration::from_millis(400), ..Limits::default() });
    let Address::Unix(path) = bed.device.address() else { panic!("no local socket") };
    let mut stream = UnixStream::connect(path).unwrap();
    let began = Instant::now();
    let frame = [&64_u32.to_le_bytes()[..], &[0; 64]].concat();
    let sent = frame.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(&[**byte]).is_ok()
    });
    let sent = sent.count();
    assert!(sent < frame.len(), "all {sent} bytes were taken in {:?}", began.elapsed());
    let server = bed.server.as_ref().unwrap();
    let until = Instant::now() + PATIENCE;
    while server.load() != (0, 0) {
        assert!(Instant::now() < until, "{:?} are left", server.load());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn connections_end_with_the_server() {
    let mut bed = Bed::new();
    let mut client = connect(&bed);
    let session = client.open(request(1)).unwrap();
    let Address::Unix(path) = bed.device.address() else { panic!("no local socket") };
    let mut silent = UnixStream::connect(path).unwrap();
    let mut greeting = [0; 4];
    silent.read_exact(&mut greeting).unwrap();
    bed.server = None;
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    assert!(matches!(client.get(session), Err(SmartError::Connection(_))));
}

/// In pages of 64 KiB with long texts, the rows of a part come from few leaves.
#[test]
fn the_bytes_of_a_part_are_bounded() {
    let bed = Bed::with_pages(Limits::default(), 65536);
    let def = bed.table(LeafLayout::ByRows);
    let mut txn = bed.begin(RC);
    let table = txn.table(&def).unwrap();
    let text = "x".repeat(3000);
    for id in 0..4000 {
        let row =
            [varve_engine::Datum::Int4(id), varve_engine::Datum::Int4(1), varve_engine::Datum::Text(&text)];
        txn.insert(&table, &row).unwrap();
    }
    txn.commit().unwrap();
    bed.settle();
    let mut txn = bed.begin(RC);
    let mut sizes = Vec::new();
    let scanned = program(&def, None, Output::Columns(vec![0, 2]));
    for batch in bed.run(&mut txn, &def, scanned) {
        sizes.push(batch.num_rows() * text.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 4000 * text.len());
    // The bytes of a batch, and of one leaf.
    assert!(sizes.iter().all(|bytes| *bytes <= (2 << 20) + 65536), "{sizes:?}");
    assert!(bed.leaves().0 > 100 && bed.leaves().1 == 0, "{:?}", bed.leaves());
}

#[test]
fn a_cancelled_scan_ends() {
    let (bed, def) = filled();
    let mut txn = bed.begin(RC);
    let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
    txn.set_cancel(Some(Arc::clone(&flag)));
    let table = txn.table(&def).unwrap();
    let mut reader = txn.reader();
    reader.check_snapshot().unwrap();
    flag.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(reader.check_snapshot(), Err(varve_engine::Error::Cancelled)));
    let scanned = program(&def, None, Output::Columns(vec![0]));
    let mut scan = SmartScan::new(&bed.device, &table, scanned).unwrap();
    assert!(matches!(
        scan.next(&mut reader, &table),
        Err(SmartError::Engine(varve_engine::Error::Cancelled))
    ));
}
