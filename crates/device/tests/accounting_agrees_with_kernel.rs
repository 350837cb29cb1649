//! The bytes that the accounting counts equal the bytes that the kernel counts for this process.

use varve_device::{
    AlignedBuf, Directory, Durability, FileDirectory, FileOptions, OpenHow, Purpose, ReadOp, Space, WriteOp,
};

const PAGE_BYTES: usize = 8192;
const PAGES: u64 = 600;
const WHY: Purpose = Purpose::DataPage;

/// Returns the number of bytes that this process has read from and written to devices so far.
fn kernel() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((field("read_bytes:")?, field("write_bytes:")?))
}

fn work(directory: &FileDirectory) {
    let file = directory.open("a", OpenHow::new_file(Space::Data)).expect("a new file");
    let page = AlignedBuf::new(PAGE_BYTES);
    let at = |no: u64| no * PAGE_BYTES as u64;
    for no in 0..PAGES {
        let durability = if no % 8 == 0 { Durability::Now } else { Durability::Later };
        file.write_at(at(no), &page, WHY, durability).expect("a write");
    }
    let op = |no| WriteOp { offset: at(no), buf: &page, why: WHY, durability: Durability::Later };
    file.write_batch(&(0..PAGES).map(op).collect::<Vec<_>>()).expect("a batch of writes");
    let mut bufs: Vec<_> = (0..PAGES).map(|_| AlignedBuf::new(PAGE_BYTES)).collect();
    let read = |(no, buf)| ReadOp { offset: at(no as u64), buf, why: WHY };
    let mut reads: Vec<_> = bufs.iter_mut().enumerate().map(|(no, buf)| read((no, &mut buf[..]))).collect();
    file.read_batch(&mut reads).expect("a batch of reads");
}

#[test]
fn within_two_percent() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = FileDirectory::open(scratch.path(), FileOptions::default()).unwrap();
    let (true, Some(before)) = (directory.capabilities().direct_io, kernel()) else {
        eprintln!("no direct I/O or no /proc/self/io here: nothing to compare");
        return;
    };
    work(&directory);
    let after = kernel().unwrap();
    let account = directory.accounting();
    let (read, written) = (account.read(Space::Data, WHY).bytes, account.written(Space::Data, WHY).bytes);
    assert_eq!((read, written), (PAGES * PAGE_BYTES as u64, 2 * PAGES * PAGE_BYTES as u64));
    for (counted, kernel) in [(read, after.0 - before.0), (written, after.1 - before.1)] {
        let off = kernel.abs_diff(counted) as f64 / counted as f64;
        assert!(off < 0.02, "counted {counted}, the kernel {kernel}");
    }
}
