//! Descriptions of settings for the view pg_settings, and warnings about chosen values.
//!
//! Invariants
//! 1. A warning depends on the open database: its page layout, its page size, and its page protection.

use varve_pager::{HomeLayout, Pager, PagerConfig, ProtectionKind};

use super::declared::SettingKind;
use super::{PackedSettings, Settings, show_bytes};

/// The setting whose value in force can differ from the configured one.
pub const PROTECTION: &str = "protection_kind";

/// The settings for which existing files keep their own value.
pub const KEPT: [&str; 2] = [EXTENT, SEGMENT];
const EXTENT: &str = "packed_extent";
/// The setting for the size of a log file.
pub const SEGMENT: &str = "log_segment";

/// Returns the type in pg_settings. The type of sizes is text, because they have a unit.
pub fn kind(kind: SettingKind) -> &'static str {
    match kind {
        SettingKind::Bytes | SettingKind::CountOrAuto => "string",
        SettingKind::Count | SettingKind::MillisOrNone | SettingKind::KilobytesOrNone => "integer",
        SettingKind::Flag => "bool",
        SettingKind::Word => "enum",
    }
}

/// Returns the value in force and the value after the next start, for a setting that depends on the open
/// database.
pub fn decided(name: &str, next: &Settings, now: &PagerConfig) -> Option<(String, String)> {
    match name {
        PROTECTION => Some(protection(now, next.protection)),
        SEGMENT => Some((show_bytes(now.log_segment_bytes), show_bytes(now.log_segment_bytes))),
        _ => None,
    }
}

fn protection(now: &PagerConfig, wished: ProtectionKind) -> (String, String) {
    let next = if changes_nothing(now.layout, wished) { ProtectionKind::None } else { wished };
    (now.protection.name().to_owned(), next.name().to_owned())
}

/// Returns whether the wished protection changes nothing, because the layout needs no protection.
fn changes_nothing(layout: HomeLayout, wished: ProtectionKind) -> bool {
    let is_in_nvm = matches!(wished, ProtectionKind::NvmDoublewrite { .. } | ProtectionKind::Nvm);
    matches!(layout, HomeLayout::Packed(_)) && !is_in_nvm
}

/// Returns a warning about the value of a setting in `next`, if there is one.
pub fn warning(name: &str, next: &Settings, pager: &Pager) -> Option<String> {
    let (layout, wished) = (pager.config().layout, next.protection);
    match name {
        PROTECTION if wished == ProtectionKind::None && layout == HomeLayout::InPlace => Some(
            "without protection, pages that a crash tears are lost: use this only for measurements"
                .to_owned(),
        ),
        PROTECTION if wished != ProtectionKind::None && changes_nothing(layout, wished) => Some(format!(
            "the layout packed writes no page over another one: protection {} changes nothing",
            wished.name()
        )),
        EXTENT => {
            let (has, wished) =
                layout.packed().map(|packed| packed.extent_bytes).zip(next.packed.extent_bytes)?;
            (has != wished).then(|| {
                format!(
                    "packed.extent is {}, and extents of this database stay as they were made: {}",
                    show_bytes(wished),
                    show_bytes(has)
                )
            })
        }
        SEGMENT => {
            let (has, wished) = (pager.config().log_segment_bytes, next.log.segment_bytes);
            let is_said = wished != Settings::default().log.segment_bytes;
            (is_said && has != wished).then(|| {
                format!(
                    "log.segment is {}, and files of this database's log stay as long as they are: {}",
                    show_bytes(wished),
                    show_bytes(has)
                )
            })
        }
        "packed_fill" if layout == HomeLayout::InPlace && next.packed != PackedSettings::default() => {
            Some("the in-place layout has no fill, so packed_fill has no effect".to_owned())
        }
        "home_compression" if !next.compression.is_none() => pager.saves_nothing(),
        _ if name.starts_with("flash_") && next.flash.is_some() && !pager.has_flash() => {
            Some("there is no flash cache now: the setting takes effect at the next start with a cache; the warnings of this start say why there is none".to_owned())
        }
        _ => None,
    }
}
