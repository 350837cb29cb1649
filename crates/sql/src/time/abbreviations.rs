//! Abbreviations of time zones, as in PostgreSQL's default set (`timezonesets/Default`).
//!
//! Invariants
//! 1. Both tables are sorted. If the offset of an abbreviation has changed over the years, the abbreviation
//!    refers to a time zone, not to an offset.

/// Returns the offset of an abbreviation (in lower case), in seconds east of UTC.
pub(super) fn offset_of(abbreviation: &str) -> Option<i32> {
    let at = ABBREVIATIONS.binary_search_by_key(&abbreviation, |(name, _)| name).ok()?;
    Some(ABBREVIATIONS[at].1)
}

/// Returns the abbreviation, and the time zone with its offsets over time, if the offset of the abbreviation
/// has changed.
pub(super) fn zone_of(abbreviation: &str) -> Option<(&'static str, &'static str)> {
    let at = CHANGED.binary_search_by_key(&abbreviation, |(name, _)| name).ok()?;
    Some(CHANGED[at])
}

/// Returns all abbreviations, in lower case.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    ABBREVIATIONS.iter().map(|(name, _)| *name).chain(CHANGED.iter().map(|(name, _)| *name))
}

#[rustfmt::skip]
const CHANGED: [(&str, &str); 50] = [
    ("amst", "Asia/Yerevan"), ("anast", "Asia/Anadyr"), ("anat", "Asia/Anadyr"),
    ("arst", "America/Argentina/Buenos_Aires"), ("art", "America/Argentina/Buenos_Aires"),
    ("azst", "Asia/Baku"), ("azt", "Asia/Baku"), ("ckt", "Pacific/Rarotonga"), ("clt", "America/Santiago"),
    ("davt", "Antarctica/Davis"), ("easst", "Pacific/Easter"), ("east", "Pacific/Easter"),
    ("fkst", "Atlantic/Stanley"), ("fkt", "Atlantic/Stanley"), ("gest", "Asia/Tbilisi"),
    ("get", "Asia/Tbilisi"), ("gyt", "America/Guyana"), ("iot", "Indian/Chagos"), ("irkst", "Asia/Irkutsk"),
    ("irkt", "Asia/Irkutsk"), ("kgt", "Asia/Bishkek"), ("kost", "Pacific/Kosrae"),
    ("krast", "Asia/Krasnoyarsk"), ("krat", "Asia/Krasnoyarsk"), ("lhdt", "Australia/Lord_Howe"),
    ("lint", "Pacific/Kiritimati"), ("lkt", "Asia/Colombo"), ("magst", "Asia/Magadan"),
    ("magt", "Asia/Magadan"), ("mawt", "Antarctica/Mawson"), ("msk", "Europe/Moscow"),
    ("novst", "Asia/Novosibirsk"), ("novt", "Asia/Novosibirsk"), ("nut", "Pacific/Niue"),
    ("omsst", "Asia/Omsk"), ("omst", "Asia/Omsk"), ("petst", "Asia/Kamchatka"), ("pett", "Asia/Kamchatka"),
    ("pyt", "America/Asuncion"), ("sgt", "Asia/Singapore"), ("tkt", "Pacific/Fakaofo"),
    ("tmt", "Asia/Ashgabat"), ("ulat", "Asia/Ulaanbaatar"), ("vet", "America/Caracas"),
    ("vlast", "Asia/Vladivostok"), ("vlat", "Asia/Vladivostok"), ("volt", "Europe/Volgograd"),
    ("yakst", "Asia/Yakutsk"), ("yakt", "Asia/Yakutsk"), ("yekt", "Asia/Yekaterinburg"),
];

#[rustfmt::skip]
const ABBREVIATIONS: [(&str, i32); 145] = [
    ("acdt", 37_800), ("acsst", 37_800), ("acst", 34_200), ("act", -18_000), ("acwst", 31_500),
    ("adt", -10_800), ("aedt", 39_600), ("aesst", 39_600), ("aest", 36_000), ("aft", 16_200),
    ("akdt", -28_800), ("akst", -32_400), ("almst", 25_200), ("almt", 21_600), ("amt", -14_400),
    ("ast", -14_400), ("awsst", 32_400), ("awst", 28_800), ("azost", 0), ("azot", -3_600), ("bdst", 7_200),
    ("bdt", 21_600), ("bnt", 28_800), ("bort", 28_800), ("bot", -14_400), ("bra", -10_800),
    ("brst", -7_200), ("brt", -10_800), ("bst", 3_600), ("btt", 21_600), ("cadt", 37_800), ("cast", 34_200),
    ("cct", 28_800), ("cdt", -18_000), ("cest", 7_200), ("cet", 3_600), ("cetdst", 7_200),
    ("chadt", 49_500), ("chast", 45_900), ("chut", 36_000), ("clst", -10_800), ("cot", -18_000),
    ("cst", -21_600), ("cxt", 25_200), ("ddut", 36_000), ("eat", 10_800), ("edt", -14_400),
    ("eest", 10_800), ("eet", 7_200), ("eetdst", 10_800), ("egst", 0), ("egt", -3_600), ("est", -18_000),
    ("fet", 10_800), ("fjst", 46_800), ("fjt", 43_200), ("fnst", -3_600), ("fnt", -7_200),
    ("galt", -21_600), ("gamt", -32_400), ("gft", -10_800), ("gilt", 43_200), ("gmt", 0), ("hkt", 28_800),
    ("hst", -36_000), ("ict", 25_200), ("idt", 10_800), ("irt", 12_600), ("ist", 7_200), ("jayt", 32_400),
    ("jst", 32_400), ("kdt", 36_000), ("kgst", 21_600), ("kst", 32_400), ("lhst", 37_800), ("ligt", 36_000),
    ("mart", -34_200), ("mdt", -21_600), ("mest", 7_200), ("mesz", 7_200), ("met", 3_600),
    ("metdst", 7_200), ("mez", 3_600), ("mht", 43_200), ("mmt", 23_400), ("mpt", 36_000), ("msd", 14_400),
    ("mst", -25_200), ("must", 18_000), ("mut", 14_400), ("mvt", 18_000), ("myt", 28_800), ("ndt", -9_000),
    ("nft", -12_600), ("npt", 20_700), ("nst", -12_600), ("nzdt", 46_800), ("nzst", 43_200),
    ("nzt", 43_200), ("pdt", -25_200), ("pet", -18_000), ("pgt", 36_000), ("pht", 28_800), ("pkst", 21_600),
    ("pkt", 18_000), ("pmdt", -7_200), ("pmst", -10_800), ("pont", 39_600), ("pst", -28_800),
    ("pwt", 32_400), ("pyst", -10_800), ("ret", 14_400), ("sadt", 37_800), ("sast", 7_200), ("sct", 14_400),
    ("taht", -36_000), ("tft", 18_000), ("tjt", 18_000), ("tot", 46_800), ("trut", 36_000), ("tvt", 43_200),
    ("uct", 0), ("ulast", 32_400), ("ut", 0), ("utc", 0), ("uyst", -7_200), ("uyt", -10_800),
    ("uzst", 21_600), ("uzt", 18_000), ("vut", 39_600), ("wadt", 28_800), ("wakt", 43_200),
    ("wast", 25_200), ("wat", 3_600), ("wdt", 32_400), ("wet", 0), ("wetdst", 3_600), ("wft", 43_200),
    ("wgst", -7_200), ("wgt", -10_800), ("xjt", 21_600), ("yapt", 36_000), ("yekst", 21_600), ("z", 0),
    ("zulu", 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(ABBREVIATIONS.is_sorted_by_key(|(name, _)| name));
        assert!(CHANGED.is_sorted_by_key(|(name, _)| name));
        assert_eq!(offset_of("cest"), Some(7200));
        assert_eq!(offset_of("nowhere"), None);
    }
}
