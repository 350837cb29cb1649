//! A database moves out of its region of persistent memory, into a region, or to another one. After a crash
//! at any step it opens in its present state, with everything that was durable, and can continue.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{NoOps, get, open, set, stored, with_stored};
use crate::nvm_support::{
    COPIES, DOUBLEWRITE, IN_FILES, IN_REGION, LARGER, LOG_BYTES, NVM_ALL, NVM_COPIES, NVM_COPIES_LOG,
    NVM_LOG, NVM_PAGES, PAGES, Parts, REGION, as_found, assert_numbers, fill, has_region, leave, noted, over,
    some_pages, with,
};
use varve_device::{
    Change, Directory, ErrorKind, Fate, Fault, Faulty, MemoryDirectory, RecordLog, Recorder, Recording, Rule,
    Timeline, When,
};
use varve_pager::control::{Control, InForce, State};
use varve_pager::{HomeLayout, PackedConfig, PageId, Pager, PagerConfig, ProtectionKind};

/// Changes the database, crashes it, and checks that it has the change.
fn goes_on(directory: &Arc<MemoryDirectory>, config: &PagerConfig, id: PageId, what: &str) {
    let pager = open(config);
    set(&pager, id, 77).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    pager.tick_write(1).unwrap();
    set(&pager, id, 78).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&as_found(directory));
    assert_eq!(get(&pager, id).unwrap(), 78, "{what}");
    set(&pager, id, 1).unwrap();
    pager.checkpoint().unwrap();
    pager.shutdown().unwrap();
}

#[test]
fn a_database_leaves_its_region_for_every_other_kind() {
    let kinds = [
        IN_FILES,
        (None, ProtectionKind::None),
        (None, ProtectionKind::FullPageLog),
        (None, ProtectionKind::AtomicWrite),
        NVM_PAGES,
        LARGER,
        NVM_COPIES,
        NVM_LOG,
    ];
    for from in IN_REGION {
        for to in kinds {
            let what = format!("{from:?} to {to:?}");
            let (directory, pager, ids) = some_pages(from);
            leave(pager);
            let left = noted(&*directory);
            assert_eq!((left.attached, left.state), (None, State::Clean), "{what}");
            assert_eq!(left.log_begins_empty, from.0.is_some_and(|(_, log)| log > 0), "{what}");
            assert!(!has_region(&directory), "{what}");
            let config = with(&directory, to);
            assert_numbers(&open(&config), &ids, &what);
            assert_eq!(has_region(&directory), to.0.is_some(), "{what}");
            goes_on(&directory, &with(&directory, to), ids[0], &what);
            assert_numbers(&open(&with(&directory, to)), &ids, &what);
        }
    }
}

/// A database moves into a region and back several times. Positions in the log keep growing, and no part of
/// an earlier log is taken for the newest log.
#[test]
fn a_database_goes_in_and_out() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let mut at = noted(&*directory).durable;
    for (round, parts) in
        [NVM_ALL, IN_FILES, NVM_LOG, LARGER, IN_FILES, NVM_COPIES_LOG, NVM_PAGES].iter().enumerate()
    {
        let pager = open(&with(&directory, *parts));
        assert!(pager.log().end() > at, "round {round}");
        assert_numbers(&pager, &ids, &format!("round {round}"));
        for number in 100..200 {
            set(&pager, ids[number % PAGES], number as u64).unwrap();
        }
        pager.tick_write(20).unwrap();
        for (id, number) in ids.iter().zip(1..) {
            set(&pager, *id, number).unwrap();
        }
        leave(pager);
        at = noted(&*directory).durable;
        let logs = directory.list().unwrap().into_iter().filter(|name| name.starts_with("log.")).count();
        assert_eq!(
            logs > 0,
            parts.0.is_none_or(|(_, log)| log == 0),
            "round {round}: files of a log in the region"
        );
    }
}

/// When the log begins again, its segments may have another size.
#[test]
fn a_log_that_begins_anew_has_the_configured_segments() {
    let (directory, pager, ids) = some_pages(NVM_ALL);
    leave(pager);
    let larger = PagerConfig {
        log_segment_bytes: 512 << 10,
        log_capacity_bytes: 2 << 20,
        ..with(&directory, IN_FILES)
    };
    assert_numbers(&open(&larger), &ids, "larger");
    assert_eq!(noted(&*directory).log_segment_bytes, 512 << 10);
    assert_numbers(&open(&with(&directory, IN_FILES)), &ids, "as they are, whatever is configured");
}

/// The warning of a start that leaves the log in files because it may be needed there.
const MOVES_LATER: &str = "moves into persistent memory behind a shutdown that leaves nothing to redo";

/// After a crash, the log is needed where it is. So the database continues without a region, and a warning
/// says so. It gets the region after a clean shutdown.
#[test]
fn a_log_does_not_move_after_a_crash() {
    for parts in [NVM_ALL, NVM_LOG, NVM_COPIES_LOG] {
        let (directory, pager, ids) = some_pages(IN_FILES);
        drop(pager);
        for _ in 0..2 {
            let pager = open(&with(&directory, parts));
            assert_numbers(&pager, &ids, "in files");
            let told = pager.warnings();
            assert!(told.iter().any(|one| one.contains(MOVES_LATER)), "{told:?}");
            assert!(!has_region(&directory) && noted(&*directory).attached.is_none(), "{parts:?}");
            set(&pager, ids[0], 1).unwrap();
            pager.flush_log(pager.log().end()).unwrap();
        }
        open(&with(&directory, parts)).shutdown().unwrap();
        let pager = open(&with(&directory, parts));
        assert!(pager.warnings().iter().all(|one| !one.contains(MOVES_LATER)), "{:?}", pager.warnings());
        assert!(noted(&*directory).attached.unwrap().log);
        assert_numbers(&pager, &ids, "moved");
    }
}

/// In an earlier version, the log moved into segments that were too small for images of pages, and every
/// later start was refused.
#[test]
fn a_log_that_is_too_small_for_images_is_refused_before_it_moves() {
    let (directory, pager, ids) = some_pages(IN_FILES);
    pager.shutdown().unwrap();
    let small = with(&directory, (NVM_LOG.0, ProtectionKind::FullPageLog));
    let why = Pager::open(small, Arc::new(NoOps)).err().unwrap().to_string();
    assert!(why.contains("at least 64 pages"), "{why}");
    assert!(!directory.exists(REGION).unwrap(), "nothing was made");
    assert_numbers(&open(&with(&directory, IN_FILES)), &ids, "afterwards");
}

/// A database whose creation was interrupted has no pages to write to the data files. The error says that it
/// must be started first.
#[test]
fn an_unfinished_database_is_told() {
    let (directory, _, _) = some_pages(NVM_ALL);
    let control = Control::open(&*directory).unwrap().unwrap();
    control.update(|block| block.state = State::Creating).unwrap();
    let why = with(&directory, NVM_ALL).as_found().unwrap_err().to_string();
    assert!(why.contains("was not finished: start it"), "{why}");
}

/// A device refuses an operation while a region is left. Whatever it refuses, nothing is lost, and `shutdown`
/// can be called again.
#[test]
fn what_is_refused_while_leaving_can_be_tried_again() {
    let full = |when| Rule { operation: None, space: None, when, fault: Fault::Fails(ErrorKind::NoSpace) };
    for (parts, layout) in [
        (NVM_ALL, HomeLayout::InPlace),
        (NVM_COPIES_LOG, HomeLayout::InPlace),
        (NVM_LOG, PACKED),
        (NVM_ALL, PACKED),
    ] {
        let (mut at, mut refusals) = (1, 0);
        loop {
            let directory = MemoryDirectory::new();
            let faulty = Faulty::wrap(directory.clone());
            let pager = open(&PagerConfig { layout, ..over(faulty.clone(), parts) });
            let ids = fill(&pager);
            pager.leave_region_at_shutdown();
            faulty.arm(full(When::Nth(at)));
            let first = pager.shutdown();
            let what = format!("{parts:?}, {layout:?}, operation {at}: {first:?}");
            if faulty.fired_count() == 0 {
                break;
            }
            at += 1;
            faulty.disarm();
            if first.is_err() {
                refusals += 1;
                // The refused operation may have stopped the pager. Otherwise the shutdown continues where it
                // was.
                if let Err(again) = pager.shutdown() {
                    assert!(!again.is_no_space(), "{what}, again: {again}");
                }
            }
            drop(pager);
            let pager = open(&as_found(&directory));
            assert_numbers(&pager, &ids, &what);
            leave(pager);
            assert!(!has_region(&directory), "{what}");
            assert_numbers(&open(&with(&directory, IN_FILES)), &ids, &what);
        }
        assert!(refusals > 3, "{parts:?}: {refusals} of {at}");
    }
}

/// The remains of a region that a killed shutdown has left do not prevent a new region, whatever their length
/// is. The header may be the old one, or may say that the region was left.
#[test]
fn what_is_left_of_a_region_makes_room() {
    for says_left in [false, true] {
        let (directory, pager, ids) = some_pages(NVM_ALL);
        let mut region = directory.images().into_iter().find(|(name, _)| name == REGION).unwrap();
        leave(pager);
        if says_left {
            region.1.write(0, b"NVM LEFT");
        }
        let directory = MemoryDirectory::from_images(directory.images().into_iter().chain([region]));
        let told = with(&directory, NVM_ALL).as_found().unwrap().unwrap().left_over;
        assert_eq!(told.as_deref(), Some("(memory)/nvm.varve"));
        assert_numbers(&open(&with(&directory, LARGER)), &ids, "another length");
        assert_eq!(directory.map(REGION, 4096).unwrap().len_bytes(), 1 << 20);
    }
}

/// A page is torn in the data file, and whole only in its slot.
#[test]
fn leaving_mends_what_only_the_region_has() {
    let (directory, pager, ids) = some_pages(NVM_PAGES);
    set(&pager, ids[0], 1).unwrap();
    pager.tick_write(100).unwrap();
    let bytes = vec![0xAA; stored(&directory, ids[0]).len()];
    drop(pager);
    let directory = with_stored(&directory, ids[0], &bytes);
    leave(open(&with(&directory, NVM_PAGES)));
    assert_numbers(&open(&with(&directory, IN_FILES)), &ids, "torn at home");
}

#[test]
fn what_is_found_is_told() {
    let (directory, pager, _) = some_pages(NVM_COPIES_LOG);
    drop(pager);
    let mut config = with(&directory, NVM_PAGES);
    let found = config.as_found().unwrap().unwrap();
    let region = found.needed().unwrap().unwrap();
    assert_eq!((region.size_bytes(), region.log_bytes(), region.used_slots), (768 << 10, LOG_BYTES, 0));
    assert_eq!((region.protection, config.protection, found.is_clean), (Some(COPIES), COPIES, false));
    assert!(
        with(&directory, NVM_COPIES_LOG).goes_with(&found) && !with(&directory, NVM_PAGES).goes_with(&found)
    );
    assert!(!with(&directory, IN_FILES).goes_with(&found));

    let (directory, pager, _) = some_pages(NVM_PAGES);
    let dirty = pager.nvm().unwrap().slots.unwrap();
    assert_eq!(dirty.free + dirty.dirty + dirty.clean + dirty.doomed, dirty.total);
    let found = with(&directory, NVM_PAGES).as_found().unwrap().unwrap();
    let region = found.needed().unwrap().unwrap();
    assert_eq!(u64::from(region.slots()), dirty.total);
    assert_eq!(u64::from(region.used_slots), dirty.dirty + dirty.clean + dirty.doomed);
    directory.remove(REGION).unwrap();
    let found = with(&directory, NVM_PAGES).as_found().unwrap().unwrap();
    let why = found.needed().unwrap_err().to_string();
    assert!(why.contains("is missing, and has the newest pages"), "{why}");
    drop(pager);

    let (directory, pager, _) = some_pages(IN_FILES);
    leave(pager);
    let found = with(&directory, IN_FILES).as_found().unwrap().unwrap();
    assert!(found.is_clean && found.region.is_none() && with(&directory, IN_FILES).goes_with(&found));
    assert!(with(&MemoryDirectory::new(), IN_FILES).as_found().unwrap().is_none());
}

/// The configuration of the next start is compared with the region that the database has.
#[test]
fn another_division_is_refused_beforehand() {
    let (directory, pager, _) = some_pages(NVM_ALL);
    pager.check_next(&with(&directory, NVM_ALL)).unwrap();
    for (next, expected) in
        [(IN_FILES, "has no section [nvm]"), (LARGER, "has other sizes"), (NVM_PAGES, "has other sizes")]
    {
        let why = pager.check_next(&with(&directory, next)).unwrap_err().to_string();
        assert!(why.contains(expected) && why.contains("varve nvm drain"), "{why}");
    }
    let (directory, pager, _) = some_pages(IN_FILES);
    pager.check_next(&with(&directory, NVM_ALL)).unwrap();
    // Segments keep their size, whatever is configured.
    let large_pages =
        PagerConfig { page_size: 65536, log_segment_bytes: 64 << 20, ..with(&directory, IN_FILES) };
    pager.check_next(&large_pages).unwrap();
}

const PACKED: HomeLayout =
    HomeLayout::Packed(PackedConfig { extent_bytes: 256 << 10, held_pages_max: 64, ..PackedConfig::DEFAULT });

/// Records `work`, such as leaving a region or moving to another one.
fn recorded(before: Arc<MemoryDirectory>, work: impl FnOnce(Arc<dyn Directory>, &RecordLog)) -> Recording {
    let record = RecordLog::new();
    let recorder: Arc<dyn Directory> = Recorder::wrap(before, record.clone());
    work(recorder, &record);
    record.recording()
}

/// Returns the moments around all events of files, and some of the moments between stores to the region.
fn moments(recording: &Recording) -> BTreeSet<u64> {
    let mut moments: BTreeSet<u64> = (0..=recording.end).step_by(1 + recording.end as usize / 20).collect();
    for event in &recording.events {
        if !matches!(
            event.change,
            Change::Store { .. } | Change::WriteBack { .. } | Change::Fence | Change::Mark(_)
        ) {
            moments.extend([event.submitted, event.completed].map(|tick| tick.saturating_add(1)));
        }
    }
    moments
}

/// Calls `verify` with the images of crashes at many moments, with several fates of the pending events, and
/// with the largest number that was durable.
fn at_every_crash(recording: Recording, verify: impl Fn(Arc<MemoryDirectory>, u64, &str)) {
    let moments = moments(&recording);
    let mut timeline = Timeline::new(recording);
    for cut in moments.into_iter().filter(|cut| *cut <= timeline.end()).collect::<Vec<_>>() {
        timeline.advance(cut);
        let pending = timeline.pending().len();
        for seed in 0..if pending == 0 { 1 } else { 4 } {
            let fate = |at: usize| match (seed + at) % 3 {
                _ if seed == 3 => Fate::Absent,
                0 => Fate::Absent,
                1 => Fate::Torn { unit_bytes: 512, seed: cut * 9 + seed as u64 },
                _ => Fate::Present,
            };
            let image = timeline.image(&(0..pending).map(fate).collect::<Vec<_>>()).remove(0);
            let least = timeline.marks().last().copied().unwrap_or(1);
            verify(image, least, &format!("cut {cut} of {}, {seed}", timeline.end()));
        }
    }
}

/// Opens a crash image, continues to work, crashes again, and leaves the region. Checks that nothing is lost.
fn survives(image: Arc<MemoryDirectory>, config: &PagerConfig, ids: &[PageId], least: u64, what: &str) {
    let pager =
        Pager::open(config.clone(), Arc::new(NoOps)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let number = get(&pager, ids[0]).unwrap();
    assert!(number >= least, "{what}: {number} where {least} was durable");
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
    set(&pager, ids[0], 1).unwrap();
    pager.checkpoint().unwrap();
    pager.tick_write(100).unwrap();
    drop(pager);
    let pager = Pager::open(as_found(&image), Arc::new(NoOps))
        .unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_numbers(&pager, ids, what);
    leave(pager);
    assert_numbers(&open(&with(&image, IN_FILES)), ids, what);
}

/// Leaves the region and continues with other parts, with a crash at every moment.
fn crash_while_leaving(from: Parts, to: Parts, layout: HomeLayout) {
    let directory = MemoryDirectory::new();
    let first = PagerConfig { layout, ..with(&directory, from) };
    let pager = open(&first);
    let ids = fill(&pager);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let recording = recorded(directory, |directory, record| {
        let pager = open(&over(directory.clone(), from));
        set(&pager, ids[0], 2).unwrap();
        pager.flush_log(pager.log().end()).unwrap();
        record.mark(2);
        leave(pager);
        let pager = open(&over(directory, to));
        set(&pager, ids[0], 3).unwrap();
        pager.flush_log(pager.log().end()).unwrap();
        record.mark(3);
        pager.tick_write(3).unwrap();
    });
    let what = |what: &str| format!("{from:?} to {to:?}, {what}");
    at_every_crash(recording, |image, least, cut| {
        // The database opens with the new configuration if its control file already said that it needs
        // nothing of the region.
        let copy = MemoryDirectory::from_images(image.images());
        let elsewhere = with(&copy, to);
        if noted(&*copy).attached.is_none() {
            survives(copy, &elsewhere, &ids, least, &what(cut));
        }
        let config = as_found(&image);
        survives(image, &config, &ids, least, &what(cut));
    });
}

#[test]
fn a_crash_while_a_region_is_left_loses_nothing() {
    for (from, to) in [
        (NVM_PAGES, IN_FILES),
        (NVM_ALL, IN_FILES),
        (NVM_ALL, LARGER),
        (NVM_COPIES_LOG, IN_FILES),
        (NVM_COPIES, NVM_PAGES),
        (NVM_COPIES, LARGER),
        (NVM_LOG, (None, ProtectionKind::AtomicWrite)),
    ] {
        crash_while_leaving(from, to, HomeLayout::InPlace);
    }
}

#[test]
fn a_crash_while_packed_pages_leave_a_region_loses_nothing() {
    crash_while_leaving(NVM_ALL, IN_FILES, PACKED);
}

#[test]
fn a_crash_while_the_log_moves_into_a_region_loses_nothing() {
    for to in [NVM_ALL, NVM_LOG] {
        let (directory, pager, ids) = some_pages(IN_FILES);
        pager.shutdown().unwrap();
        drop(pager);
        let recording = recorded(directory, |directory, record| {
            let pager = open(&over(directory, to));
            set(&pager, ids[0], 2).unwrap();
            pager.flush_log(pager.log().end()).unwrap();
            record.mark(2);
            pager.tick_write(3).unwrap();
            pager.checkpoint().unwrap();
        });
        at_every_crash(recording, |image, least, what| {
            // The database opens with the old configuration and with the new one.
            let copy = MemoryDirectory::from_images(image.images());
            let config = with(&copy, to);
            drop(open(&config));
            assert!(
                !copy.list().unwrap().iter().any(|name| name.starts_with("log.")),
                "{what}: a log is left"
            );
            survives(copy, &config, &ids, least, &format!("to {to:?}, {what}"));
            // It also opens with a region of another length, if the region that was being made is not needed
            // yet.
            let copy = MemoryDirectory::from_images(image.images());
            if noted(&*copy).attached.is_none() {
                let config = with(&copy, LARGER);
                survives(copy, &config, &ids, least, &format!("larger than {to:?}, {what}"));
            }
            let config = as_found(&image);
            survives(image, &config, &ids, least, &format!("as found on the way to {to:?}, {what}"));
        });
    }
}

/// After a region was left, no page is torn, so the next protection begins with files of its own.
#[test]
fn protection_in_force_is_none_of_the_region_afterwards() {
    for from in IN_REGION {
        let (directory, pager, _) = some_pages(from);
        leave(pager);
        let expected = if from.1 == DOUBLEWRITE { InForce::Doublewrite } else { InForce::Nothing };
        assert_eq!(noted(&*directory).protection, expected, "{from:?}");
    }
}
