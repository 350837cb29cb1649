//! Persistent memory that ordinary memory emulates. It survives the process. It survives a reboot of the
//! machine only after a clean shutdown. The messages about it are tested, too.

use std::sync::Arc;

use crate::common::{NoOps, add, config, get, open, set};
use varve_device::{Directory, Fault, Faulty, MemoryDirectory, Rule, VolatileMachine, When};
use varve_pager::control::{Control, State};
use varve_pager::{
    DurabilityRow, FlashConfig, FlashDesign, FlashRestart, FlashSettings, NvmConfig, PageId, Pager,
    PagerConfig, ProtectionKind, SpaceId,
};

const LOG_BYTES: u64 = 512 << 10;
const DOUBLEWRITE: ProtectionKind = ProtectionKind::Doublewrite { batch_slots: 8, single_slots: 2 };
const COPIES: ProtectionKind = ProtectionKind::NvmDoublewrite { batch_slots: 8, single_slots: 2 };

/// Returns a configuration with all parts of a database on this machine.
fn on(machine: &Arc<VolatileMachine>, protection: ProtectionKind, log_bytes: u64) -> PagerConfig {
    over(machine.clone(), protection, log_bytes)
}

fn over(directory: Arc<dyn Directory>, protection: ProtectionKind, log_bytes: u64) -> PagerConfig {
    let nvm = NvmConfig { directory: directory.clone(), size_bytes: 1 << 20, log_bytes };
    PagerConfig {
        data: directory.clone(),
        log: directory.clone(),
        rollback: directory.clone(),
        temporary: directory.clone(),
        control: directory,
        nvm: Some(nvm),
        protection,
        ..config(&MemoryDirectory::new(), 64)
    }
}

fn all_of_it(machine: &Arc<VolatileMachine>) -> PagerConfig {
    on(machine, ProtectionKind::Nvm, LOG_BYTES)
}

/// Returns a database whose page has the number 1. The page is only in the region.
fn changed(machine: &Arc<VolatileMachine>) -> (Pager, PageId) {
    let pager = open(&all_of_it(machine));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.tick_write(100).unwrap();
    pager.checkpoint().unwrap();
    (pager, id)
}

fn assert_lost(machine: &Arc<VolatileMachine>) {
    let error = Pager::open(all_of_it(machine), Arc::new(NoOps)).err().expect("it is lost").to_string();
    assert!(error.contains("did not survive the restart of the machine"), "{error}");
}

#[test]
fn a_killed_process_loses_nothing_and_a_power_failure_is_told() {
    let machine = VolatileMachine::new();
    let (pager, id) = changed(&machine);
    set(&pager, id, 2).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    assert_eq!(get(&open(&all_of_it(&machine.after_process_death())), id).unwrap(), 2);
    assert_lost(&machine.after_power_loss());
}

/// The region is written to its file before the control file records the clean shutdown.
#[test]
fn a_clean_shutdown_survives_the_machine() {
    let machine = VolatileMachine::new();
    let (pager, id) = changed(&machine);
    set(&pager, id, 2).unwrap();
    pager.shutdown().unwrap();
    let later = machine.after_power_loss();
    let pager = open(&all_of_it(&later));
    assert_eq!(get(&pager, id).unwrap(), 2);
    set(&pager, id, 3).unwrap();
    pager.flush_log(pager.log().end()).unwrap();
    // That start noted itself in the region. After a crash, the region is compared with that start.
    let killed = later.after_process_death();
    assert_eq!(get(&open(&all_of_it(&killed)), id).unwrap(), 3);
    assert_lost(&later.after_power_loss());
}

/// A lazy flash cache may keep changed pages at a shutdown, which is not clean then. If the log or the copies
/// were in such a region, the database would be lost when the machine is turned off.
#[test]
fn a_shutdown_with_a_lazy_flash_cache_survives_the_machine() {
    let designs = [FlashDesign::LazyCleaning, FlashDesign::Rotating, FlashDesign::Exclusive];
    let schemes = [FlashRestart::LazyVerification, FlashRestart::MemoryMapped];
    for ((protection, log_bytes), design, restart) in
        [(DOUBLEWRITE, LOG_BYTES), (COPIES, 0), (COPIES, LOG_BYTES)]
            .into_iter()
            .flat_map(|place| designs.map(|design| (place, design)))
            .flat_map(|(place, design)| schemes.map(|restart| (place, design, restart)))
    {
        let machine = VolatileMachine::new();
        let flash = MemoryDirectory::new();
        let how = |machine: &Arc<VolatileMachine>| {
            let flash = FlashConfig::with(
                flash.clone(),
                FlashSettings { design, dirty_percent: 90, restart, ..FlashSettings::of_size(4096 * 200) },
            );
            PagerConfig { flash: Some(flash), ..on(machine, protection, log_bytes) }
        };
        let pager = open(&how(&machine));
        let owner = pager.create_segment(SpaceId::DATA).unwrap();
        let ids: Vec<PageId> = (0..120).map(|number| add(&pager, owner, number).unwrap()).collect();
        ids.iter().for_each(|id| set(&pager, *id, 3).unwrap());
        let is_dirty = |report: &varve_pager::LevelReport| {
            report.counters.iter().any(|(name, count)| *name == "dirty" && *count > 0)
        };
        assert!(pager.stats().levels.iter().any(is_dirty), "flash has what home lacks");
        pager.shutdown().unwrap();
        drop(pager);
        assert_eq!(Control::open(&*machine).unwrap().unwrap().get().state, State::Clean);
        let pager = open(&how(&machine.after_power_loss()));
        ids.iter().for_each(|id| assert_eq!(get(&pager, *id).unwrap(), 3, "{protection:?} {design:?}"));
    }
}

/// Returns an existing database without a region, with a page that has the number 1.
fn in_files(machine: &Arc<VolatileMachine>) -> PageId {
    let config = PagerConfig { nvm: None, ..on(machine, DOUBLEWRITE, 0) };
    let pager = open(&config);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let id = add(&pager, owner, 1).unwrap();
    pager.shutdown().unwrap();
    id
}

/// The power fails while a database gets a region. As long as it does not need the region, the database
/// opens, and gets a region again.
#[test]
fn the_power_fails_while_a_region_comes() {
    let (mut at, mut needed) = (1, 0);
    loop {
        let machine = VolatileMachine::new();
        let id = in_files(&machine);
        let faulty = Faulty::wrap(machine.clone());
        faulty.arm(Rule { operation: None, space: None, when: When::Nth(at), fault: Fault::Gone });
        let opened = Pager::open(over(faulty.clone(), ProtectionKind::Nvm, LOG_BYTES), Arc::new(NoOps));
        if faulty.fired_count() == 0 {
            break;
        }
        drop(opened);
        let later = machine.after_power_loss();
        if Control::open(&*later).unwrap().unwrap().get().attached.is_some() {
            needed += 1;
            assert_lost(&later);
        } else {
            let pager = open(&all_of_it(&later));
            assert_eq!(get(&pager, id).unwrap(), 1, "operation {at}");
            pager.shutdown().unwrap();
            assert_eq!(get(&open(&all_of_it(&later.after_power_loss())), id).unwrap(), 1, "operation {at}");
        }
        at += 1;
    }
    assert!(needed > 0 && at - needed > 8, "{needed} of {at} times the region was needed already");
}

/// The power fails while a database leaves its region. Either it still needs the region, which is lost, or it
/// needs nothing in the region.
#[test]
fn the_power_fails_behind_leaving_a_region() {
    let machine = VolatileMachine::new();
    let (pager, id) = changed(&machine);
    set(&pager, id, 2).unwrap();
    pager.leave_region_at_shutdown();
    pager.shutdown().unwrap();
    let later = machine.after_power_loss();
    let config = PagerConfig { nvm: None, ..on(&later, DOUBLEWRITE, 0) };
    assert_eq!(get(&open(&config), id).unwrap(), 2);
    // The same is right with another region on the same machine, which has nothing of the region before.
    let pager = open(&all_of_it(&machine));
    assert_eq!(get(&pager, id).unwrap(), 2);
    pager.shutdown().unwrap();
    assert_eq!(get(&open(&all_of_it(&machine.after_power_loss())), id).unwrap(), 2);
}

fn survives(rows: &[DurabilityRow], part: &str) -> Option<&'static str> {
    rows.iter().find(|row| row.part == part).map(|row| row.survives)
}

/// In an earlier version, the report said that pages in the region survive a loss of power as the data files
/// do, although their log is cut. It did not mention copies at all.
#[test]
fn each_part_survives_what_its_place_survives() {
    const POWER: Option<&str> = Some("the loss of power");
    const PROCESS: Option<&str> = Some("the death of the process");
    let cases = [
        (ProtectionKind::Nvm, 0, [POWER, PROCESS, None, PROCESS]),
        (ProtectionKind::Nvm, LOG_BYTES, [PROCESS, PROCESS, None, PROCESS]),
        (COPIES, 0, [POWER, POWER, PROCESS, POWER]),
        (ProtectionKind::None, LOG_BYTES, [PROCESS, POWER, None, POWER]),
        (ProtectionKind::DOUBLEWRITE, LOG_BYTES, [PROCESS, POWER, POWER, POWER]),
    ];
    for (protection, log_bytes, expected) in cases {
        let machine = VolatileMachine::new();
        let rows = open(&on(&machine, protection, log_bytes)).durability();
        let found = ["log", "pages", "copies", "old versions"].map(|part| survives(&rows, part));
        assert_eq!(found, expected, "{protection:?}, {log_bytes} bytes of log: {rows:?}");
        assert_eq!(survives(&rows, "control"), POWER);
        let home = (protection == ProtectionKind::Nvm).then_some("the loss of power");
        assert_eq!(survives(&rows, "home"), home, "where pages go from the region");
    }
}

/// Returns the contents that the region's file would have if the process died now, and if the power failed.
fn region(machine: &VolatileMachine) -> [Vec<u8>; 2] {
    [machine.after_process_death(), machine.after_power_loss()].map(|machine| {
        let region = machine.map("nvm.varve", 1 << 20).unwrap();
        let mut bytes = vec![0; region.len_bytes() as usize];
        region.read(0, &mut bytes);
        bytes
    })
}

/// In an earlier version, slots of a dropped table were freed after the clean shutdown was recorded. A loss
/// of power at that moment would have been harmful.
#[test]
fn nothing_is_stored_behind_a_clean_shutdown() {
    let machine = VolatileMachine::new();
    let (pager, id) = changed(&machine);
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let dropped: Vec<PageId> = (0..60).map(|number| add(&pager, owner, number).unwrap()).collect();
    assert_eq!(dropped.len(), 60);
    pager.tick_write(100).unwrap();
    pager.drop_segment(SpaceId::DATA, owner).unwrap();
    pager.shutdown().unwrap();
    let [killed, failed] = region(&machine);
    assert!(killed == failed, "something was stored behind the settled state");
    let pager = open(&all_of_it(&machine.after_power_loss()));
    assert_eq!((get(&pager, id).unwrap(), pager.check().unwrap().damages), (1, Vec::new()));
}
