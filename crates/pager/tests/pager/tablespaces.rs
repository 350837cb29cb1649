//! Tablespaces: spaces in further directories, which are made and dropped while the database is open. A crash
//! at any moment recovers all spaces together.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{KIND, Random, config, get, open};
use varve_device::{
    Directory, ErrorKind, Fate, Fault, Faulty, MemoryDirectory, MemoryImage, Operation, RecordLog, Recorder,
    Rule, Space, Timeline, When,
};
use varve_pager::{
    Algorithm, BadLocation, Compression, FlashConfig, FlashDesign, FlashRestart, FlashSettings, HomeLayout,
    LocationFlaw, Locations, NewTablespace, NvmConfig, PackedConfig, PageId, Pager, PagerConfig, PagerError,
    ProtectionKind, SpaceId,
};

/// The files of a directory in memory, by name.
type Files = Vec<(String, MemoryImage)>;

/// The directories of tablespaces, by their locations.
struct Places(Vec<(&'static str, Arc<dyn Directory>)>);

impl Locations for Places {
    fn open(&self, location: &str) -> Result<Arc<dyn Directory>, BadLocation> {
        let found = self.0.iter().find(|(name, _)| *name == location);
        let missing = || BadLocation::new(LocationFlaw::Missing, "it is not mounted");
        found.map(|(_, directory)| directory.clone()).ok_or_else(missing)
    }
}

/// The directories of a database: the main one, and those of the tablespaces `a` and `b`.
type Devices = [Arc<dyn Directory>; 3];

fn in_memory() -> [Arc<MemoryDirectory>; 3] {
    [0; 3].map(|_| MemoryDirectory::new())
}

fn plain([main, a, b]: Devices) -> PagerConfig {
    let mut small = config(&MemoryDirectory::new(), 48);
    small.data = main.clone();
    small.log = main.clone();
    small.rollback = main.clone();
    small.temporary = main.clone();
    small.control = main;
    small.log_segment_bytes = 64 << 10;
    small.log_capacity_bytes = 512 << 10;
    small.locations = Arc::new(Places(vec![("a", a), ("b", b)]));
    small
}

fn of(devices: &[Arc<MemoryDirectory>; 3]) -> PagerConfig {
    plain(devices.clone().map(|one| one as Arc<dyn Directory>))
}

fn new(name: &str) -> NewTablespace {
    NewTablespace {
        name: name.into(),
        location: name.into(),
        protection: ProtectionKind::DOUBLEWRITE,
        compression: None,
        note: vec![7],
    }
}

/// Returns a new page of `owner` in a space, with a number in it.
fn add(pager: &Pager, space: SpaceId, owner: u32, number: u64) -> PageId {
    pager.reserve(space, 1).unwrap();
    let mut mtr = pager.begin().unwrap();
    let id = mtr.allocate(space, owner, None).unwrap();
    let page = mtr.create(id, KIND, owner).unwrap();
    mtr.write(page, 100, &number.to_le_bytes());
    mtr.commit();
    id
}

#[test]
fn pages_of_a_tablespace_are_in_its_directory_and_survive_shutdown_and_crash() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let space = pager.create_tablespace(&new("a")).unwrap();
    assert!(space.is_tablespace());
    let owner = pager.create_segment(space).unwrap();
    let pages: Vec<PageId> = (0..300).map(|number| add(&pager, space, owner, number)).collect();
    pager.shutdown().unwrap();
    let bytes =
        devices[1].images().iter().find(|(name, _)| name == "tablespace-16.varve").unwrap().1.len_bytes();
    assert!(bytes > 300 * 4096, "{bytes}");
    let pager = open(&of(&devices));
    let listed = pager.tablespaces();
    assert_eq!((listed.len(), listed[0].id, &*listed[0].name, &listed[0].note), (1, space, "a", &vec![7]));
    let more = add(&pager, space, owner, 1000);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&of(&devices));
    assert_eq!(get(&pager, more).unwrap(), 1000);
    for (number, id) in (0..).zip(&pages) {
        assert_eq!(get(&pager, *id).unwrap(), number);
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
    assert_eq!(pager.pages_of_owner(space, owner).unwrap().len(), 301);
}

#[test]
fn only_an_empty_tablespace_is_dropped_and_its_number_is_not_used_again() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let space = pager.create_tablespace(&new("a")).unwrap();
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    add(&pager, space, owner, 1);
    add(&pager, SpaceId::DATA, owner, 2);
    assert!(!pager.drop_tablespace(space).unwrap());
    add(&pager, space, owner, 3);
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    assert_eq!(pager.owners(SpaceId::DATA).unwrap().get(&owner), None, "its pages in both spaces are free");
    assert!(pager.drop_tablespace(space).unwrap());
    assert_eq!((devices[1].list().unwrap(), pager.tablespaces().len()), (vec![], 0));
    assert!(pager.reserve(space, 1).is_err() && pager.drop_tablespace(space).is_err());
    pager.checkpoint_all().unwrap();
    let next = pager.create_tablespace(&new("a")).unwrap();
    assert_ne!(next, space);
    add(&pager, next, owner, 4);
    pager.flush_log(pager.log().end()).unwrap();
    drop(pager);
    let pager = open(&of(&devices));
    assert_eq!(pager.tablespaces()[0].id, next);
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn what_cannot_be_a_tablespace_is_refused() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let refused = |new: &NewTablespace, why: &str| {
        let error = pager.create_tablespace(new).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&new("c"), "it is not mounted");
    for protection in [ProtectionKind::Nvm, ProtectionKind::FullPageLog] {
        refused(&NewTablespace { protection, ..new("a") }, "cannot have protection");
    }
    pager.create_tablespace(&new("a")).unwrap();
    refused(&NewTablespace { name: "b".into(), ..new("a") }, "is at a already");
    // This directory belongs to another database.
    let other = MemoryDirectory::new();
    drop(open(&of(&[other.clone(), MemoryDirectory::new(), MemoryDirectory::new()])));
    let config = of(&[devices[0].clone(), devices[1].clone(), other]);
    drop(pager);
    let pager = open(&config);
    let error = pager.create_tablespace(&new("b")).unwrap_err().to_string();
    assert!(error.contains("belongs to a database"), "{error}");
    assert_eq!(pager.tablespaces().len(), 1);
}

/// A start that is refused changes nothing. Afterwards the database opens with the right directories.
#[test]
fn a_missing_or_older_tablespace_is_refused_and_nothing_is_lost() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let space = pager.create_tablespace(&new("a")).unwrap();
    let owner = pager.create_segment(space).unwrap();
    let page = add(&pager, space, owner, 1);
    pager.shutdown().unwrap();
    drop(pager);
    let older = MemoryDirectory::from_images(devices[1].images());
    let pager = open(&of(&devices));
    let mut mtr = pager.begin().unwrap();
    let held = mtr.x(page).unwrap();
    mtr.write(held, 100, &2_u64.to_le_bytes());
    pager.flush_log(mtr.commit()).unwrap();
    drop(pager);
    let before = devices[0].images().len();
    let no_ops = || Arc::new(crate::common::NoOps);
    let mut unmounted = of(&devices);
    unmounted.locations = Arc::new(Places(Vec::new()));
    let others = [
        (unmounted, "\"a\" is at a, which cannot be used: it is not mounted"),
        (
            of(&[devices[0].clone(), MemoryDirectory::new(), devices[2].clone()]),
            "tablespace-16.varve is missing",
        ),
        (of(&[devices[0].clone(), older, devices[2].clone()]), "is an older copy"),
    ];
    for (config, why) in others {
        let error = Pager::open(config, no_ops()).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(why), "{error}");
        assert_eq!(devices[0].images().len(), before);
    }
    let pager = open(&of(&devices));
    assert_eq!(get(&pager, page).unwrap(), 2);
}

#[test]
fn a_missing_or_damaged_list_is_refused() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    pager.create_tablespace(&new("a")).unwrap();
    pager.shutdown().unwrap();
    drop(pager);
    let no_ops = || Arc::new(crate::common::NoOps);
    let with = |change: &dyn Fn(&mut Files)| {
        let mut images = devices[0].images();
        change(&mut images);
        let main = MemoryDirectory::from_images(images);
        let opened = Pager::open(of(&[main, devices[1].clone(), devices[2].clone()]), no_ops());
        opened.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(with(&|_| {}), "");
    let name =
        devices[0].list().unwrap().into_iter().filter(|name| name.starts_with("tablespaces.")).max().unwrap();
    let missing = with(&|images| images.retain(|(one, _)| *one != name));
    assert!(missing.contains("is missing, the list of tablespaces"), "{missing}");
    let damaged = with(&|images| {
        let (_, list) = images.iter_mut().find(|(one, _)| *one == name).unwrap();
        list.write(44, &[9]);
    });
    assert!(damaged.contains("is damaged"), "{damaged}");
}

#[test]
fn a_tablespace_has_its_own_compression() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let lz4 = Some(Compression::of(Algorithm::Lz4));
    let space = pager.create_tablespace(&NewTablespace { compression: lz4, ..new("a") }).unwrap();
    let owner = pager.create_segment(space).unwrap();
    let pages: Vec<PageId> = (0..20).map(|number| add(&pager, space, owner, number)).collect();
    let plain = add(&pager, SpaceId::DATA, owner, 100);
    let shut = |pager: Pager| pager.shutdown().unwrap();
    shut(pager);
    let tail_is_zero = |device: usize, name: &str, id: PageId| {
        let images = devices[device].images();
        let file = &images.iter().find(|(one, _)| one == name).unwrap().1;
        let mut head = [0; 4];
        file.read(u64::from(id.no().0) * 4096, &mut head);
        let mut bytes = vec![0; 4096];
        file.read(u64::from(id.no().0) * 4096, &mut bytes);
        varve_pager::page::verify(&bytes, id).is_err()
    };
    assert!(tail_is_zero(1, "tablespace-16.varve", pages[3]), "it is stored compressed");
    assert!(!tail_is_zero(0, "data.varve", plain), "it is stored as it is");
    let pager = open(&of(&devices));
    assert_eq!(pager.tablespaces()[0].compression, lz4);
    for (number, id) in (0..).zip(&pages) {
        assert_eq!(get(&pager, *id).unwrap(), number);
    }
}

/// The steps of a run.
#[derive(Default)]
struct History {
    owner: u32,
    /// The pages that each step wrote.
    steps: Vec<Vec<PageId>>,
}

impl History {
    /// Returns the pages after the first steps, each with the step that wrote it last.
    fn pages_after(&self, count: u64) -> BTreeMap<PageId, u64> {
        let steps = (1..=count).zip(&self.steps);
        steps.flat_map(|(number, pages)| pages.iter().map(move |id| (*id, number))).collect()
    }
}

/// Runs one mini-transaction over the data space and the tablespace. It always writes the first page.
fn step(pager: &Pager, spaces: &[SpaceId], history: &History, random: &mut Random) -> Vec<PageId> {
    let number = history.steps.len() as u64 + 1;
    let space = spaces[random.below(spaces.len() as u64) as usize];
    pager.reserve(space, 1).unwrap();
    let known: Vec<PageId> = history.pages_after(number - 1).into_keys().collect();
    let mut pages: Vec<PageId> = history.steps.first().map(|first| first[0]).into_iter().collect();
    for _ in 0..random.below(4) {
        pages.extend((!known.is_empty()).then(|| known[random.below(known.len() as u64) as usize]));
    }
    pages.sort_unstable();
    pages.dedup();
    let mut mtr = pager.begin().unwrap();
    let mut held: Vec<_> = pages.iter().map(|id| mtr.x(*id).unwrap()).collect();
    if known.is_empty() || random.below(2) == 0 {
        let id = mtr.allocate(space, history.owner, None).unwrap();
        held.push(mtr.create(id, KIND, history.owner).unwrap());
        pages.push(id);
    }
    held.into_iter().for_each(|page| mtr.write(page, 100, &number.to_le_bytes()));
    mtr.commit();
    pages
}

/// Makes or drops the tablespace `b`, which has pages that are not needed.
fn change_b(pager: &Pager) {
    match pager.tablespaces().iter().find(|one| one.name == "b") {
        None => {
            let space = pager.create_tablespace(&new("b")).unwrap();
            let owner = pager.create_segment(space).unwrap();
            for number in 0..10 {
                add(pager, space, owner, number);
            }
        }
        Some(b) => {
            for owner in pager.owners(b.id).unwrap().into_keys() {
                pager.drop_segment(SpaceId::DATA, owner).unwrap();
            }
            assert!(pager.drop_tablespace(b.id).unwrap());
        }
    }
}

fn run(pager: &Pager, record: &RecordLog, seed: u64, steps: u64) -> History {
    let mut random = Random(seed);
    let mut history = History { owner: pager.create_segment(SpaceId::DATA).unwrap(), ..History::default() };
    let mut spaces = vec![SpaceId::DATA];
    for number in 1..=steps {
        if number == 5 {
            spaces.push(pager.create_tablespace(&new("a")).unwrap());
        }
        let pages = step(pager, &spaces, &history, &mut random);
        history.steps.push(pages);
        match random.below(12) {
            0 => drop(pager.tick_write(4).unwrap()),
            1 => pager.checkpoint().unwrap(),
            2 => drop(pager.tick_nvm(6).unwrap()),
            3 => change_b(pager),
            _ => {}
        }
        if random.below(3) == 0 {
            pager.flush_log(pager.log().end()).unwrap();
            record.mark(number);
        }
    }
    history
}

/// Opens an image. Checks that it has a prefix of the steps, and the same prefix in all spaces.
fn verify(config: &PagerConfig, history: &History, acknowledged: u64, what: &str) -> u64 {
    let pager = open(config);
    let first = history.steps[0][0];
    let owned = |space| pager.pages_of_owner(space, history.owner).unwrap();
    let count = if owned(SpaceId::DATA).is_empty() { 0 } else { get(&pager, first).unwrap() };
    assert!(count >= acknowledged, "{what}: {count} steps are there, {acknowledged} were acknowledged");
    let expected = history.pages_after(count);
    let there: Vec<PageId> = pager.spaces_of_tables().into_iter().flat_map(owned).collect();
    assert_eq!(there, expected.keys().copied().collect::<Vec<_>>(), "{what}: pages after {count} steps");
    for (id, number) in expected {
        assert_eq!(get(&pager, id).unwrap(), number, "{what}: page {id} after {count} steps");
    }
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}");
    change_b(&pager);
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{what}, after a change of b");
    count
}

fn fates(count: usize, choice: u64, random: &mut Random) -> Vec<Fate> {
    let mut any = || match random.below(5) {
        0 | 1 => Fate::Absent,
        2 => Fate::Present,
        3 => Fate::Torn { unit_bytes: 512, seed: random.below(1 << 30) },
        _ => Fate::Garbage { seed: random.below(1 << 30) },
    };
    match choice {
        0 => vec![Fate::Absent; count],
        1 => vec![Fate::Present; count],
        _ => (0..count).map(|_| any()).collect(),
    }
}

type Settings = fn(Devices) -> PagerConfig;

fn recorded(images: [Arc<MemoryDirectory>; 3], log: &Arc<RecordLog>) -> Devices {
    images.map(|image| Recorder::wrap(image, log.clone()) as Arc<dyn Directory>)
}

fn devices_of(images: Vec<Arc<MemoryDirectory>>) -> [Arc<MemoryDirectory>; 3] {
    images.try_into().ok().unwrap()
}

fn crash_everywhere(
    mut timeline: Timeline,
    settings: Settings,
    history: &History,
    cuts: u64,
    depth: u32,
    before: u64,
) {
    let mut random = Random(7 + u64::from(depth));
    let end = timeline.end();
    for at in 1..=cuts {
        timeline.advance(end * at / cuts);
        let acknowledged = timeline.marks().last().copied().unwrap_or(before);
        let fates = fates(timeline.pending().len(), at % 4, &mut random);
        let images = devices_of(timeline.image(&fates));
        let what = format!("depth {depth}, cut {} of {end}, choice {}", end * at / cuts, at % 4);
        if depth > 0 && at % 7 == 0 {
            let log = RecordLog::new();
            let count = verify(&settings(recorded(images, &log)), history, acknowledged, &what);
            let again = Timeline::new(log.recording());
            crash_everywhere(again, settings, history, 8, depth - 1, count.min(acknowledged));
        } else {
            verify(&settings(images.map(|one| one as Arc<dyn Directory>)), history, acknowledged, &what);
        }
    }
}

fn crash(settings: Settings, seeds: std::ops::RangeInclusive<u64>, steps: u64) {
    for seed in seeds {
        let log = RecordLog::new();
        let pager = open(&settings(recorded(in_memory(), &log)));
        let history = run(&pager, &log, seed, steps);
        drop(pager);
        crash_everywhere(Timeline::new(log.recording()), settings, &history, 150, 2, 0);
    }
}

#[test]
fn any_crash_leaves_a_prefix_in_all_spaces() {
    crash(plain, 1..=4, 250);
}

#[test]
fn any_crash_early_on_leaves_a_prefix_in_all_spaces() {
    crash(plain, 5..=7, 12);
}

fn with_images(devices: Devices) -> PagerConfig {
    let mut config = plain(devices);
    config.protection = ProtectionKind::FullPageLog;
    config.log_segment_bytes = 256 << 10;
    config.log_capacity_bytes = 1 << 20;
    config
}

fn packed(devices: Devices) -> PagerConfig {
    let packed = PackedConfig { extent_bytes: 256 << 10, held_pages_max: 64, ..PackedConfig::DEFAULT };
    PagerConfig { layout: HomeLayout::Packed(packed), ..plain(devices) }
}

fn with_pages_in_nvm(devices: Devices) -> PagerConfig {
    let nvm = NvmConfig { directory: devices[0].clone(), size_bytes: 112 << 10, log_bytes: 0 };
    PagerConfig { nvm: Some(nvm), protection: ProtectionKind::Nvm, ..plain(devices) }
}

fn compressed(devices: Devices) -> PagerConfig {
    PagerConfig { compression: Compression::of(Algorithm::Lz4), ..plain(devices) }
}

/// Returns a configuration in which changed pages stay on flash, and a start finds them there.
fn with_flash(devices: Devices) -> PagerConfig {
    let settings = FlashSettings {
        design: FlashDesign::LazyCleaning,
        dirty_percent: 50,
        restart: FlashRestart::LazyVerification,
        ..FlashSettings::of_size(4096 * 123)
    };
    let flash = FlashConfig::with(devices[0].clone(), settings);
    PagerConfig { flash: Some(flash), ..plain(devices) }
}

#[test]
fn any_crash_leaves_a_prefix_beside_a_data_space_with_another_protection_or_layout() {
    for settings in [with_images as Settings, packed, with_pages_in_nvm, compressed, with_flash] {
        crash(settings, 8..=9, 200);
    }
}

/// Each write of the control file, and of the list beside it, fails in turn while tablespaces are made,
/// renamed and dropped. Afterwards the pager is stopped, or the old list is in force. Either way a start finds
/// a list that belongs to the files.
#[test]
fn failed_writes_of_the_list_lose_nothing() {
    let (mut stopped, mut refused) = (0, 0);
    for nth in 1..16 {
        let devices = in_memory();
        drop(open(&of(&devices)));
        let faulty = Faulty::wrap(devices[0].clone());
        let mut config = of(&devices);
        config.control = faulty.clone();
        let pager = open(&config);
        let kept = pager.create_tablespace(&new("a")).unwrap();
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let page = add(&pager, kept, owner, 5);
        pager.flush_log(pager.log().end()).unwrap();
        faulty.arm(Rule {
            operation: Some(Operation::Write),
            space: Some(Space::Control),
            when: When::Nth(nth),
            fault: Fault::Fails(ErrorKind::Io(5)),
        });
        let changed = pager.create_tablespace(&new("b")).and_then(|made| {
            pager.change_tablespace(made, "c", &[1])?;
            pager.drop_tablespace(made)
        });
        faulty.disarm();
        match (changed, pager.change_tablespace(kept, "kept", &[])) {
            (Err(_), Err(PagerError::Stopped { .. })) => stopped += 1,
            (Err(_), Ok(())) => refused += 1,
            (Err(_), Err(error)) => panic!("{nth}: neither stopped nor as before: {error}"),
            (Ok(_), _) => {}
        }
        drop(pager);
        let pager = open(&of(&devices));
        assert_eq!(get(&pager, page).unwrap(), 5, "{nth}");
        assert!(pager.tablespaces().iter().any(|one| one.id == kept), "{nth}");
        assert_eq!(pager.check().unwrap().damages, Vec::<String>::new(), "{nth}");
        add(&pager, kept, owner, 6);
    }
    assert!(stopped > 2 && refused > 2, "{stopped} stopped, {refused} refused");
}

/// A start removes the files of a tablespace whose drop was not finished. It does not remove files of another
/// database that has come into the directory since then.
#[test]
fn files_of_another_database_are_not_removed() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let space = pager.create_tablespace(&new("a")).unwrap();
    // The files cannot be removed while the tablespace is dropped, so they stay, and so does its place in the
    // list.
    drop(pager);
    let mut config = of(&devices);
    let faulty = Faulty::wrap(devices[1].clone());
    config.locations = Arc::new(Places(vec![("a", faulty.clone())]));
    let pager = open(&config);
    faulty.arm(Rule {
        operation: Some(Operation::Remove),
        space: None,
        when: When::From(1),
        fault: Fault::Fails(ErrorKind::Io(5)),
    });
    assert!(pager.drop_tablespace(space).unwrap());
    drop(pager);
    // Another database makes its tablespace with the same number in the directory, which someone has emptied.
    for name in devices[1].list().unwrap() {
        devices[1].remove(&name).unwrap();
    }
    let other = [MemoryDirectory::new(), devices[1].clone(), MemoryDirectory::new()];
    let pager = open(&of(&other));
    assert_eq!(pager.create_tablespace(&new("a")).unwrap(), space, "both count from the same number");
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let page = add(&pager, space, owner, 9);
    pager.shutdown().unwrap();
    drop(pager);
    let pager = open(&of(&devices));
    assert!(pager.tablespaces().is_empty());
    drop(pager);
    let pager = open(&of(&other));
    assert_eq!(get(&pager, page).unwrap(), 9);
    assert_eq!(pager.check().unwrap().damages, Vec::<String>::new());
}

#[test]
fn a_name_is_given_to_one_tablespace_only() {
    let devices = in_memory();
    let pager = open(&of(&devices));
    let a = pager.create_tablespace(&new("a")).unwrap();
    let b = pager.create_tablespace(&new("b")).unwrap();
    let error = pager.change_tablespace(b, "a", &[]).unwrap_err().to_string();
    assert!(error.contains("choose another name"), "{error}");
    pager.change_tablespace(a, "a", &[1]).unwrap();
    pager.change_tablespace(b, "c", &[]).unwrap();
    pager.change_tablespace(a, "b", &[]).unwrap();
}
