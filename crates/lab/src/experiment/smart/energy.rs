//! Energy of a scan, modelled from the text of section 5.4.
//!
//! The thesis states the energy of the disk's run, and how many times less the other runs took above the
//! power of the idle server. These figures and the published times give the watts of each run:
//!
//! | run | seconds | watts above idle |
//! |---|---|---|
//! | disk | 1,188 | (295 kJ - 235 W * 1,188 s) / 1,188 s |
//! | smart device | 85 | 1 / 19.4 of the disk's joules / 85 s |
//! | flash | 2.1 * 85 | 10.6 times the device's joules / 178.5 s |
//!
//! So our ratios of energy follow from our ratios of time.

use super::bed::ScanDrive;

/// Section 5.4.1: the power of the idle server.
const IDLE_WATTS: f64 = 235.0;
/// Section 5.4.2: the disk's seconds and joules.
pub const DISK_S: f64 = 1188.0;
const DISK_JOULES: f64 = 295e3;
/// Section 5.4.2: seconds of the smart device with PAX and with NSM, at 0.1 %.
pub const SMART_PAX_S: f64 = 85.0;
pub const SMART_ROW_S: f64 = 134.0;
/// Section 5.4.2: the device with PAX is as many times as fast as flash.
pub const FLASH_OVER_SMART: f64 = 2.1;
/// Flash needs this many seconds.
pub const FLASH_S: f64 = FLASH_OVER_SMART * SMART_PAX_S;
/// Section 5.4.3: energy over idle, disk / device and flash / device.
const DISK_OVER_SMART_ABOVE_IDLE: f64 = 19.4;
const FLASH_OVER_SMART_ABOVE_IDLE: f64 = 10.6;

/// The watts of the server and a drive while a scan runs.
pub fn watts(drive: ScanDrive, is_in_device: bool) -> f64 {
    let of_disk = DISK_JOULES - IDLE_WATTS * DISK_S;
    let of_device = of_disk / DISK_OVER_SMART_ABOVE_IDLE;
    IDLE_WATTS
        + match drive {
            ScanDrive::Disk => of_disk / DISK_S,
            ScanDrive::Smart | ScanDrive::Planner if is_in_device => of_device / SMART_PAX_S,
            ScanDrive::Flash | ScanDrive::Smart | ScanDrive::Planner => {
                FLASH_OVER_SMART_ABOVE_IDLE * of_device / FLASH_S
            }
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model gives the ratios of whole energy that the text states: 14.5 and 2.4.
    #[test]
    fn published_times_give_the_published_energy() {
        let joules = |drive, seconds| watts(drive, true) * seconds;
        let of_device = joules(ScanDrive::Smart, SMART_PAX_S);
        assert!((joules(ScanDrive::Disk, DISK_S) / 295e3 - 1.0).abs() < 1e-9);
        let ratios = [(ScanDrive::Disk, DISK_S, 14.5), (ScanDrive::Flash, FLASH_S, 2.4)];
        for (drive, seconds, published) in ratios {
            let ours = joules(drive, seconds) / of_device;
            assert!((ours / published - 1.0).abs() < 0.03, "{ours}, published {published}");
        }
    }
}
