//! Recognizes lines of a PostgreSQL configuration in `varve.toml`, so that the error message can name Varve's
//! key for them.

use super::keys::KEYS;

/// Names of PostgreSQL's settings, with section and key in varve.toml.
const POSTGRES: &[(&str, &str, &str)] = &[
    ("shared_buffers", "pool", "size"),
    ("listen_addresses", "server", "listen"),
    ("port", "server", "listen"),
    ("max_connections", "server", "max_connections"),
    ("authentication_timeout", "server", "authentication_timeout"),
    ("ssl", "server", "tls"),
    ("ssl_cert_file", "server", "tls_certificate"),
    ("ssl_key_file", "server", "tls_key"),
    ("max_wal_size", "log", "capacity"),
    ("wal_segment_size", "log", "segment"),
    ("checkpoint_timeout", "checkpoint", "interval"),
    ("full_page_writes", "protection", "kind"),
    ("temp_file_limit", "query", "temporary"),
    ("work_mem", "query", "memory"),
    ("block_size", "pool", "page_size"),
    ("log_checkpoints", "server", "log_checkpoints"),
    ("log_connections", "server", "log_connections"),
    ("log_disconnections", "server", "log_disconnections"),
    ("log_lock_waits", "server", "log_lock_waits"),
    ("log_min_duration_statement", "server", "log_min_duration_statement"),
    ("log_temp_files", "server", "log_temp_files"),
    ("log_destination", "server", "log_format"),
    ("log_filename", "server", "log_file"),
    ("default_table_access_method", "nvm", "default_access_method"),
];
/// Settings whose value has another meaning.
const OF_ANOTHER_KIND: &[&str] = &[
    "listen_addresses",
    "port",
    "ssl",
    "checkpoint_timeout",
    "full_page_writes",
    "log_destination",
    "log_filename",
];

/// Returns the line `name = value` in the form of varve.toml, if the name is a setting of PostgreSQL or of
/// ALTER SYSTEM.
pub fn advice(name: &str, value: &str) -> Option<String> {
    let of_postgres = POSTGRES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (section, key) = match of_postgres {
        Some((_, section, key)) => (*section, *key),
        None => KEYS.iter().find(|key| key.name == name).map(|key| (key.section, key.key))?,
    };
    let value = value.trim().trim_matches(['\'', '"']);
    let is_same = !value.is_empty() && !OF_ANOTHER_KIND.contains(&name.to_ascii_lowercase().as_str());
    let shown = match is_same {
        true => format!("[{section}] {key} = {}", quoted(value)),
        false => format!("{key} in section [{section}]"),
    };
    Some(format!("varve.toml is TOML: write {shown}"))
}

/// Returns the TOML value for one of PostgreSQL's words for flags, such as `on`.
pub fn flag(value: &str) -> Option<bool> {
    let words = [("on", true), ("off", false), ("yes", true), ("no", false)];
    words.iter().find(|(word, _)| value.eq_ignore_ascii_case(word)).map(|(_, flag)| *flag)
}

/// Returns a size with its unit in quotes, or a number or a flag without quotes.
fn quoted(value: &str) -> String {
    if let Some(flag) = flag(value) {
        return flag.to_string();
    }
    if value.chars().all(|c| c.is_ascii_digit()) {
        return value.to_owned();
    }
    let units = [("kB", "KiB"), ("MB", "MiB"), ("GB", "GiB"), ("TB", "TiB")];
    let meant = units.iter().find_map(|(unit, meant)| Some(format!("{}{meant}", value.strip_suffix(unit)?)));
    format!("\"{}\"", meant.unwrap_or_else(|| value.to_owned()))
}

/// Returns name and value of a line, without a comment.
pub fn name_and_value(line: &str) -> Option<(&str, &str)> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let (name, value) = line.split_once('=')?;
    Some((name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_postgresql_are_turned_into_ours() {
        let check = |line: &str, expect: Option<&str>| {
            let found = name_and_value(line).and_then(|(name, value)| advice(name, value));
            let expect = expect.map(|what| format!("varve.toml is TOML: write {what}"));
            assert_eq!(found, expect, "{line}");
        };
        check("shared_buffers = 128MB  # min 128kB", Some("[pool] size = \"128MiB\""));
        check("shared_buffers = '128MB'", Some("[pool] size = \"128MiB\""));
        check("Max_Connections=100", Some("[server] max_connections = 100"));
        check("listen_addresses = '*'", Some("listen in section [server]"));
        check("flash_size = 2GiB", Some("[flash] size = \"2GiB\""));
        check("server_log_connections = on", Some("[server] log_connections = true"));
        check("colour = 'red'", None);
        check("shared_buffers", None);
    }
}
