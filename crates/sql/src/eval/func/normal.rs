//! Unicode normalization forms: `normalize` and `IS NORMALIZED`. The crate `unicode-normalization` computes
//! the forms.

use unicode_normalization::UnicodeNormalization;
use varve_engine::Datum;

use super::{Builtin, check_size, strict, text};
use crate::error::{Result, SqlError, SqlState};
use crate::ty::Ty::{Bool, Text};

pub(super) const TABLE: &[Builtin] = &[
    strict("normalize", &[Text], Text, |a, cx| Ok(cx.text(&normalized(text(a, 0), "NFC")?))),
    strict("normalize", &[Text, Text], Text, |a, cx| Ok(cx.text(&normalized(text(a, 0), text(a, 1))?))),
    strict("is_normalized", &[Text], Bool, |a, _| is_normalized(text(a, 0), "NFC")),
    strict("is_normalized", &[Text, Text], Bool, |a, _| is_normalized(text(a, 0), text(a, 1))),
];

fn normalized(written: &str, form: &str) -> Result<String> {
    let is = |name| form.eq_ignore_ascii_case(name);
    let made: String = match () {
        () if is("NFC") => written.nfc().collect(),
        () if is("NFD") => written.nfd().collect(),
        () if is("NFKC") => written.nfkc().collect(),
        () if is("NFKD") => written.nfkd().collect(),
        () => {
            let message = format!("invalid normalization form: {form}");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    };
    check_size(made.len())?;
    Ok(made)
}

fn is_normalized<'a>(written: &str, form: &str) -> Result<Datum<'a>> {
    Ok(Datum::Bool(normalized(written, form)? == written))
}
