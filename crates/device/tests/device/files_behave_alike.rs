//! Files in memory, with direct I/O and with buffered I/O give the same results.

use crate::common::{all_kinds, filled};
use varve_device::{
    AlignedBuf, Create, Directory, Durability, ErrorKind, FileDirectory, FileOptions, OpenHow, Purpose,
    ReadOp, Space, WriteOp,
};

const WHY: Purpose = Purpose::DataPage;

fn read(file: &dyn varve_device::BlockFile, offset: u64, len_bytes: usize) -> Vec<u8> {
    let mut buf = AlignedBuf::new(len_bytes);
    file.read_at(offset, &mut buf, WHY).expect("the range is inside the file");
    buf.to_vec()
}

#[test]
fn what_is_written_is_read() {
    for kind in all_kinds() {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        for (durability, byte) in [(Durability::Later, 1), (Durability::Now, 2)] {
            file.write_at(8192, &filled(4096, byte), WHY, durability).unwrap();
            assert_eq!(read(&*file, 8192, 4096), vec![byte; 4096], "{}", kind.what);
        }
        assert_eq!(file.len_bytes().unwrap(), 12288);
        assert_eq!(read(&*file, 0, 8192), vec![0; 8192], "the gap reads as zeros");
        file.flush().unwrap();
    }
}

#[test]
fn reading_past_the_end_is_an_error_that_says_how_far_it_got() {
    for kind in all_kinds() {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        file.set_len(4096).unwrap();
        let error = file.read_at(0, &mut AlignedBuf::new(8192), WHY).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ShortRead { wanted_bytes: 8192, got_bytes: 4096 }, "{}", kind.what);
        assert!(error.to_string().contains("4096 of 8192 bytes"), "{error}");
    }
}

#[test]
fn a_batch_does_what_its_parts_would() {
    for kind in all_kinds() {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        let pages: Vec<_> = (0..300_usize).map(|no| filled(4096, no as u8)).collect();
        let durability = |no: usize| if no.is_multiple_of(2) { Durability::Later } else { Durability::Now };
        let write = |(no, buf): (usize, &'_ AlignedBuf)| (no as u64 * 4096, durability(no), buf.clone());
        let parts: Vec<_> = pages.iter().enumerate().map(write).collect();
        let as_op = |(offset, durability, buf)| WriteOp { offset, buf, why: WHY, durability };
        let ops: Vec<_> = parts.iter().map(|(at, d, buf)| as_op((*at, *d, buf))).collect();
        file.write_batch(&ops).unwrap();
        let mut back: Vec<_> = (0..300).map(|_| AlignedBuf::new(4096)).collect();
        let as_read = |(no, buf)| ReadOp { offset: no as u64 * 4096, buf, why: WHY };
        let mut reads: Vec<_> =
            back.iter_mut().enumerate().map(|(no, buf)| as_read((no, &mut buf[..]))).collect();
        file.read_batch(&mut reads).unwrap();
        assert!(pages.iter().zip(&back).all(|(wrote, got)| wrote[..] == got[..]), "{}", kind.what);
    }
}

#[test]
fn a_batch_that_reaches_past_the_end_fails() {
    for kind in all_kinds() {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        file.set_len(8192).unwrap();
        let (mut inside, mut outside) = (AlignedBuf::new(4096), AlignedBuf::new(4096));
        let mut ops = [
            ReadOp { offset: 4096, buf: &mut inside, why: WHY },
            ReadOp { offset: 8192, buf: &mut outside, why: WHY },
        ];
        let error = file.read_batch(&mut ops).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::ShortRead { got_bytes: 0, .. }), "{}: {error}", kind.what);
        assert_eq!(error.offset, Some(8192));
    }
}

#[test]
fn shrinking_and_growing_again_reads_zeros() {
    for kind in all_kinds() {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        file.write_at(0, &filled(65536, 9), WHY, Durability::Later).unwrap();
        file.set_len(4096).unwrap();
        file.set_len(65536).unwrap();
        assert_eq!(read(&*file, 0, 4096), vec![9; 4096], "{}", kind.what);
        assert_eq!(read(&*file, 4096, 61440), vec![0; 61440], "{}", kind.what);
    }
}

#[test]
fn a_punched_range_reads_zeros_and_keeps_the_length() {
    for kind in all_kinds().into_iter().filter(|kind| kind.directory.capabilities().punch_hole) {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        file.write_at(0, &filled(131_072, 5), WHY, Durability::Later).unwrap();
        file.punch(8192, 65536).unwrap();
        assert_eq!(file.len_bytes().unwrap(), 131_072);
        assert_eq!(read(&*file, 0, 8192), vec![5; 8192]);
        assert_eq!(read(&*file, 8192, 65536), vec![0; 65536], "{}", kind.what);
        assert_eq!(read(&*file, 73728, 4096), vec![5; 4096]);
        assert_eq!(kind.directory.accounting().punched(Space::Data).bytes, 65536);
        // The room for the hole is reserved again. The contents of the file do not change.
        file.reserve(4096, 65536).unwrap();
        assert_eq!(read(&*file, 0, 8192), vec![5; 8192], "{}", kind.what);
        assert_eq!(read(&*file, 8192, 65536), vec![0; 65536], "{}", kind.what);
        assert_eq!(file.len_bytes().unwrap(), 131_072);
    }
}

#[test]
fn names_are_made_renamed_and_removed() {
    for kind in all_kinds() {
        let dir = &*kind.directory;
        let missing = dir.open("a", OpenHow::existing(Space::Data)).map(|_| ()).unwrap_err();
        assert_eq!(missing.kind, ErrorKind::NotFound);
        let file = dir.open("a", OpenHow::new_file(Space::Data)).unwrap();
        let again = dir.open("a", OpenHow::new_file(Space::Data)).map(|_| ()).unwrap_err();
        assert_eq!(again.kind, ErrorKind::AlreadyExists);
        file.write_at(0, &filled(4096, 3), WHY, Durability::Later).unwrap();
        dir.rename("a", "b").unwrap();
        dir.sync().unwrap();
        assert_eq!((dir.exists("a").unwrap(), dir.list().unwrap()), (false, vec!["b".to_string()]));
        let renamed = dir.open("b", OpenHow::or_create(Space::Data)).unwrap();
        assert_eq!(read(&*renamed, 0, 4096), vec![3; 4096], "{}", kind.what);
        dir.remove("b").unwrap();
        assert!(dir.list().unwrap().is_empty());
        assert_eq!(read(&*renamed, 0, 4096), vec![3; 4096], "open handles outlive the name");
        assert_eq!(dir.remove("b").unwrap_err().kind, ErrorKind::NotFound);
    }
}

#[test]
fn a_read_only_handle_takes_no_changes() {
    for kind in all_kinds() {
        kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap().set_len(4096).unwrap();
        let how = OpenHow { create: Create::Never, space: Space::Data, read_only: true };
        let file = kind.directory.open("a", how).unwrap();
        assert_eq!(read(&*file, 0, 4096), vec![0; 4096]);
        let write = file.write_at(0, &filled(4096, 1), WHY, Durability::Now).unwrap_err();
        assert_eq!(write.kind, ErrorKind::ReadOnly, "{}", kind.what);
        assert_eq!(file.set_len(8192).unwrap_err().kind, ErrorKind::ReadOnly);
        assert_eq!(file.punch(0, 4096).unwrap_err().kind, ErrorKind::ReadOnly);
    }
}

/// An atomic write happens as a whole or not at all if the device promises this. Otherwise the device refuses
/// it.
#[test]
fn an_atomic_write_is_done_or_refused() {
    for kind in all_kinds() {
        let file = kind.directory.open("a", OpenHow::new_file(Space::Data)).unwrap();
        file.write_at(0, &filled(8192, 1), WHY, Durability::Now).unwrap();
        let can = kind.directory.capabilities().writes_whole(4096);
        for durability in [Durability::Later, Durability::Now] {
            let wrote =
                file.write_atomic(4096, &filled(4096, 2), WHY, durability).map_err(|error| error.kind);
            assert_eq!(wrote, if can { Ok(()) } else { Err(ErrorKind::Unsupported) }, "{}", kind.what);
        }
        assert_eq!(read(&*file, 4096, 4096), vec![if can { 2 } else { 1 }; 4096], "{}", kind.what);
        assert_eq!(read(&*file, 0, 4096), vec![1; 4096], "{}", kind.what);
    }
}

/// With the page cache, the error of a durable write may concern earlier writes. So a flush must report this
/// error.
#[test]
fn only_direct_files_write_durably_without_a_flush() {
    let scratch = tempfile::tempdir().unwrap();
    let buffered = FileOptions { direct_io: false, ..FileOptions::default() };
    assert!(!FileDirectory::open(scratch.path(), buffered).unwrap().capabilities().fua);
}
