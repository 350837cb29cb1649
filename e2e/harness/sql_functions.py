"""The parts of expressions, as data: result type, text with {0} for the first argument, types of the
arguments.

Functions whose result depends on the clock, the session or chance are left out. Functions in `RISKY` end with
errors for many arguments.
"""

SAFE = [
    # numbers
    ("integer", "({0} + {1})", ("integer", "integer")), ("integer", "({0} - {1})", ("integer", "integer")), ("integer", "({0} * {1})", ("integer", "smallint")),
    ("integer", "(- {0})", ("integer",)), ("integer", "abs({0})", ("integer",)), ("integer", "({0} % nullif({1}, 0))", ("integer", "integer")),
    ("integer", "({0} / nullif({1}, 0))", ("integer", "integer")), ("integer", "({0} & {1})", ("integer", "integer")), ("integer", "({0} | {1})", ("integer", "integer")),
    ("integer", "({0} # {1})", ("integer", "integer")), ("integer", "(~ {0})", ("integer",)), ("integer", "({0} << 2)", ("integer",)), ("integer", "({0} >> 1)", ("integer",)),
    ("integer", "@ {0}", ("integer",)), ("integer", "({0}::int)", ("boolean",)), ("smallint", "({0} + {1})", ("smallint", "smallint")),
    ("bigint", "({0} + {1})", ("bigint", "integer")), ("bigint", "({0} * {1})", ("bigint", "smallint")), ("bigint", "({0} - {1})", ("integer", "bigint")),
    ("bigint", "{0}::bigint", ("integer",)), ("bigint", "({0} / nullif({1}, 0))", ("bigint", "bigint")), ("bigint", "gcd({0}, {1})", ("bigint", "bigint")),
    ("numeric", "({0} + {1})", ("numeric", "numeric")), ("numeric", "({0} - {1})", ("numeric", "integer")), ("numeric", "({0} * {1})", ("numeric", "numeric")),
    ("numeric", "({0} / nullif({1}, 0))", ("numeric", "numeric")), ("numeric", "({0} % nullif({1}, 0))", ("numeric", "numeric")), ("numeric", "round({0})", ("numeric",)),
    ("numeric", "round({0}, 1)", ("numeric",)), ("numeric", "trunc({0}, {1})", ("numeric", "smallint")), ("numeric", "floor({0})", ("numeric",)), ("numeric", "ceil({0})", ("numeric",)),
    ("numeric", "abs({0})", ("numeric",)), ("numeric", "sign({0})", ("numeric",)), ("numeric", "{0}::numeric", ("bigint",)), ("numeric", "{0}::numeric(10,1)", ("numeric",)),
    ("numeric", "trim_scale({0})", ("numeric",)), ("integer", "scale({0})", ("numeric",)), ("numeric", "div({0}, nullif({1}, 0))", ("numeric", "numeric")),
    ("numeric", "(- {0})", ("numeric",)), ("double precision", "({0} + {1})", ("double precision", "double precision")), ("double precision", "({0} * {1})", ("double precision", "integer")),
    ("double precision", "({0} - {1})", ("double precision", "real")), ("double precision", "({0} / nullif({1}, 0))", ("double precision", "double precision")),
    ("double precision", "floor({0})", ("double precision",)), ("double precision", "round({0})", ("double precision",)), ("double precision", "abs({0})", ("double precision",)),
    ("double precision", "trunc({0})", ("double precision",)), ("double precision", "sqrt(abs({0}))", ("double precision",)), ("double precision", "sign({0})", ("double precision",)),
    ("double precision", "{0}::float8", ("numeric",)), ("double precision", "cbrt({0})", ("double precision",)), ("double precision", "degrees({0})", ("double precision",)),
    ("real", "({0} + {1})", ("real", "real")), ("real", "({0} * {1})", ("real", "real")), ("integer", "width_bucket({0}, 0, 10, 4)", ("numeric",)),
    # strings
    ("text", "({0} || {1})", ("text", "text")), ("text", "({0} || {1})", ("text", "integer")), ("text", "lower({0})", ("text",)), ("text", "upper({0})", ("text",)),
    ("text", "initcap({0})", ("text",)), ("text", "substr({0}, {1})", ("text", "smallint")), ("text", "substring({0} from {1} for 2)", ("text", "smallint")),
    ("text", "left({0}, {1})", ("text", "smallint")), ("text", "right({0}, {1})", ("text", "smallint")), ("text", "lpad({0}, {1}, 'xy')", ("text", "smallint")),
    ("text", "rpad({0}, 4)", ("text",)), ("text", "trim({0})", ("text",)), ("text", "trim(both 'a' from {0})", ("text",)), ("text", "ltrim({0}, 'ab')", ("text",)),
    ("text", "replace({0}, {1}, {2})", ("text", "text", "text")), ("text", "translate({0}, 'ab', 'xy')", ("text",)), ("text", "reverse({0})", ("text",)), ("text", "repeat({0}, 2)", ("text",)),
    ("text", "split_part({0}, 'b', 1)", ("text",)), ("text", "concat({0}, {1}, {2})", ("text", "integer", "boolean")), ("text", "concat_ws(',', {0}, {1})", ("text", "numeric")),
    ("text", "md5({0})", ("text",)), ("text", "overlay({0} placing 'Z' from 2)", ("text",)), ("text", "format('%s-%L-%I', {0}, {1}, {2})", ("text", "text", "text")),
    ("text", "quote_literal({0})", ("text",)), ("text", "quote_nullable({0})", ("text",)), ("text", "quote_ident({0})", ("text",)), ("text", "{0}::text", ("integer",)), ("text", "{0}::text", ("numeric",)),
    ("text", "{0}::text", ("boolean",)), ("text", "{0}::text", ("date",)), ("text", "{0}::text", ("timestamptz",)), ("text", "{0}::text", ("interval",)), ("text", "{0}::text", ("double precision",)),
    ("text", "{0}::text", ("real",)), ("text", "{0}::text", ("integer[]",)), ("text", "{0}::varchar(2)", ("text",)), ("text", "{0}::char(2)", ("text",)), ("text", "regexp_replace({0}, '[ab]+', '<\\&>', 'g')", ("text",)),
    ("text", "regexp_replace({0}, '(.)(.)', '\\2\\1')", ("text",)), ("text", "substring({0} from 'a.')", ("text",)), ("text", "(regexp_match({0}, '(a)(b)?'))[1]", ("text",)),
    ("text", "regexp_substr({0}, '[a-c]', 1, 2)", ("text",)), ("integer", "regexp_count({0}, 'a')", ("text",)), ("integer", "length({0})", ("text",)), ("integer", "length({0})", ("character(3)",)),
    ("integer", "octet_length({0})", ("text",)), ("integer", "char_length({0})", ("character varying(5)",)), ("integer", "position({0} in {1})", ("text", "text")), ("integer", "strpos({0}, 'b')", ("text",)), ("integer", "ascii({0})", ("text",)),
    ("text", "to_hex({0})", ("integer",)), ("text[]", "string_to_array({0}, 'b')", ("text",)), ("text[]", "regexp_split_to_array({0}, '[b ]')", ("text",)), ("text", "chr(96 + abs({0} % 20))", ("smallint",)),
    ("text", "to_char({0}, '999D99')", ("numeric",)), ("text", "to_char({0}, 'FM0000')", ("integer",)), ("text", "to_char({0}, 'SG99,999.9')", ("double precision",)), ("text", "to_char({0}, 'RN')", ("integer",)),
    # bytes
    ("bytea", "({0} || {1})", ("bytea", "bytea")), ("text", "encode({0}, 'hex')", ("bytea",)), ("text", "encode({0}, 'base64')", ("bytea",)), ("text", "encode({0}, 'escape')", ("bytea",)), ("integer", "length({0})", ("bytea",)),
    ("bytea", "substring({0} from 2)", ("bytea",)), ("bytea", "sha256({0})", ("bytea",)), ("bytea", "convert_to({0}, 'UTF8')", ("text",)), ("text", "{0}::text", ("bytea",)), ("bytea", "trim({0} from {1})", ("bytea", "bytea")),
    # dates and times
    ("date", "({0} + {1})", ("date", "integer")), ("date", "({0} - {1})", ("date", "smallint")), ("timestamp", "({0} + {1})", ("timestamp", "interval")), ("timestamp", "({0} + {1})", ("date", "time")),
    ("timestamp", "({0} - {1})", ("date", "interval")), ("timestamptz", "({0} + {1})", ("timestamptz", "interval")), ("interval", "({0} - {1})", ("timestamp", "timestamp")), ("interval", "({0} - {1})", ("timestamptz", "timestamptz")),
    ("integer", "({0} - {1})", ("date", "date")), ("interval", "({0} + {1})", ("interval", "interval")), ("interval", "({0} * {1})", ("interval", "smallint")), ("interval", "({0} / 3)", ("interval",)), ("interval", "(- {0})", ("interval",)),
    ("interval", "age({0}, {1})", ("timestamp", "timestamp")), ("interval", "({0} - {1})", ("time", "time")), ("time", "({0} + {1})", ("time", "interval")), ("timestamp", "date_trunc('{f}', {0})", ("timestamp",)), ("timestamptz", "date_trunc('{f}', {0})", ("timestamptz",)),
    ("interval", "date_trunc('{g}', {0})", ("interval",)), ("numeric", "extract({e} from {0})", ("timestamp",)), ("numeric", "extract({e} from {0})", ("timestamptz",)), ("numeric", "extract({d} from {0})", ("date",)), ("numeric", "extract({i} from {0})", ("interval",)),
    ("numeric", "extract({t} from {0})", ("time",)), ("double precision", "date_part('{e}', {0})", ("timestamp",)), ("date", "{0}::date", ("timestamp",)), ("date", "{0}::date", ("timestamptz",)), ("time", "{0}::time", ("timestamp",)), ("time", "{0}::time", ("interval",)),
    ("timestamp", "{0}::timestamp", ("date",)), ("timestamptz", "{0}::timestamptz", ("timestamp",)), ("timestamp", "({0} at time zone 'Asia/Tokyo')", ("timestamptz",)), ("timestamptz", "({0} at time zone 'America/New_York')", ("timestamp",)), ("timestamp", "{0}::timestamp(0)", ("timestamp",)),
    ("interval", "{0}::interval(0)", ("interval",)), ("interval", "interval(1) '1.66 s' + {0}", ("interval",)), ("time", "{0}::time(1)", ("time",)), ("interval", "{0}::interval", ("time",)), ("interval", "justify_days({0})", ("interval",)), ("interval", "justify_hours({0})", ("interval",)), ("interval", "justify_interval({0})", ("interval",)),
    ("text", "to_char({0}, 'YYYY-MM-DD HH24:MI:SS.US')", ("timestamp",)), ("text", "to_char({0}, 'Dy, FMDDth Month IYYY-IW-ID Q J')", ("timestamp",)), ("text", "to_char({0}, 'HH12:MI AM TZ OF')", ("timestamptz",)), ("text", "to_char({0}, 'DDD CC WW W D B.C.')", ("date",)), ("text", "to_char({0}, 'YYYY MM DD HH24')", ("interval",)),
    ("boolean", "isfinite({0})", ("date",)), ("boolean", "isfinite({0})", ("timestamp",)), ("timestamp", "date_bin('15 minutes', {0}, timestamp '2001-01-01')", ("timestamp",)), ("boolean", "({0}, {1}) overlaps ({2}, {3})", ("date", "date", "date", "date")), ("interval", "make_interval(days => {0})", ("smallint",)), ("interval", "make_interval(1, {0})", ("smallint",)),
    ("date", "make_date(2020 + abs({0} % 5), 2, 28)", ("smallint",)), ("timestamptz", "to_timestamp({0})", ("integer",)), ("interval", "interval '1' {s} + {0}", ("interval",)), ("interval", "interval '1:2:3' hour to minute * {0}", ("smallint",)),
    # arrays
    ("integer[]", "array[{0}, {1}]", ("integer", "integer")), ("integer", "({0})[1]", ("integer[]",)), ("integer", "({0})[{1}]", ("integer[]", "smallint")), ("integer[]", "({0})[1:2]", ("integer[]",)), ("integer[]", "({0} || {1})", ("integer[]", "integer[]")),
    ("integer[]", "array_append({0}, {1})", ("integer[]", "integer")), ("integer[]", "array_remove({0}, {1})", ("integer[]", "integer")), ("integer[]", "array_prepend({0}, {1})", ("integer", "integer[]")), ("integer[]", "array_replace({0}, 1, {1})", ("integer[]", "integer")), ("integer", "array_length({0}, 1)", ("integer[]",)),
    ("integer", "cardinality({0})", ("integer[]",)), ("integer", "array_position({0}, {1})", ("integer[]", "integer")), ("integer", "array_upper({0}, 1)", ("integer[]",)), ("text", "array_to_string({0}, ',', '*')", ("text[]",)), ("text", "array_to_string({0}, '-')", ("integer[]",)), ("boolean", "({0} @> {1})", ("integer[]", "integer[]")),
    ("boolean", "({0} && {1})", ("integer[]", "integer[]")), ("boolean", "({0} <@ {1})", ("text[]", "text[]")), ("boolean", "({0} = {1})", ("integer[]", "integer[]")), ("boolean", "({0} < {1})", ("text[]", "text[]")), ("boolean", "{0} = any({1})", ("integer", "integer[]")), ("boolean", "{0} <> all({1})", ("text", "text[]")),
    ("boolean", "{0} < any({1})", ("integer", "integer[]")), ("text[]", "array[{0}, {1}, {2}]", ("text", "text", "text")), ("text[]", "({0} || {1})", ("text[]", "text")), ("bigint[]", "{0}::bigint[]", ("integer[]",)), ("text[]", "{0}::text[]", ("integer[]",)), ("integer[]", "array_cat({0}, {1})", ("integer[]", "integer[]")), ("integer[]", "array_positions({0}, 2)", ("integer[]",)),
    # json
    ("json", "({0} -> 'a')", ("json",)), ("text", "({0} ->> 'a')", ("json",)), ("json", "({0} -> {1})", ("json", "integer")), ("text", "({0} ->> 0)", ("json",)), ("json", "({0} #> '{b,2}')", ("json",)), ("text", "({0} #>> '{b,0}')", ("json",)), ("text", "json_typeof({0})", ("json",)), ("json", "to_json({0})", ("text",)), ("json", "to_json({0})", ("integer[]",)), ("json", "to_json({0})", ("timestamp",)),
    ("json", "json_build_object('k', {0}, 'l', {1})", ("integer", "text")), ("json", "json_build_array({0}, {1})", ("numeric", "boolean")), ("json", "json_strip_nulls({0})", ("json",)), ("text", "{0}::text", ("json",)), ("json", "json_extract_path({0}, 'b', '1')", ("json",)),
    # booleans
    ("boolean", "starts_with({0}, {1})", ("text", "text")), ("boolean", "({0} ^@ {1})", ("text", "text")), ("boolean", "{0}::boolean", ("integer",)), ("integer", "num_nulls({0}, {1})", ("integer", "text")), ("integer", "num_nonnulls({0}, {1})", ("date", "text")),
    ("uuid", "{0}::text::uuid", ("uuid",)), ("text", "{0}::text", ("uuid",)), ("text", "pg_typeof({0})::text", ("numeric",)), ("text", "{0}::text", ("time",)),
]  # fmt: skip

RISKY = [
    ("integer", "({0} / {1})", ("integer", "integer")), ("integer", "({0} % {1})", ("integer", "integer")), ("integer", "({0} * {1})", ("integer", "integer")), ("bigint", "({0} * {1})", ("bigint", "bigint")), ("numeric", "({0} / {1})", ("numeric", "numeric")), ("double precision", "({0} / {1})", ("double precision", "double precision")),
    ("integer", "{0}::integer", ("text",)), ("integer", "{0}::integer", ("bigint",)), ("smallint", "{0}::smallint", ("integer",)), ("integer", "{0}::integer", ("numeric",)), ("integer", "{0}::integer", ("double precision",)), ("numeric", "{0}::numeric", ("text",)), ("numeric", "{0}::numeric(3,1)", ("numeric",)), ("boolean", "{0}::boolean", ("text",)),
    ("date", "{0}::date", ("text",)), ("double precision", "sqrt({0})", ("double precision",)), ("double precision", "ln({0})", ("double precision",)), ("text", "chr({0})", ("integer",)), ("text", "repeat({0}, {1})", ("text", "smallint")), ("text", "substring({0} from 1 for {1})", ("text", "integer")), ("text", "split_part({0}, 'b', {1})", ("text", "integer")), ("smallint", "({0} + {1})", ("smallint", "smallint")),
    ("smallint", "({0} * {1})", ("smallint", "smallint")), ("double precision", "exp({0})", ("double precision",)), ("double precision", "power({0}, {1})", ("double precision", "double precision")), ("real", "{0}::real", ("double precision",)), ("bigint", "{0}::bigint", ("numeric",)), ("date", "make_date({0}, {1}, 1)", ("integer", "integer")), ("json", "{0}::json", ("text",)), ("integer[]", "{0}::integer[]", ("text[]",)),
    ("integer", "json_array_length({0})", ("json",)), ("integer", "({0} - {1})", ("integer", "integer")), ("uuid", "{0}::uuid", ("text",)), ("bytea", "decode({0}, 'hex')", ("text",)), ("date", "to_date({0}, 'YYYY-MM-DD')", ("text",)), ("numeric", "to_number({0}, '99.9')", ("text",)), ("numeric", "power({0}, {1})", ("numeric", "smallint")), ("numeric", "sqrt({0})", ("numeric",)), ("numeric", "factorial({0})", ("smallint",)),
]  # fmt: skip

FIELDS = {
    "{e}": "year month day hour minute second quarter week dow isodow doy isoyear century decade millennium epoch microseconds milliseconds julian".split(),
    "{d}": "year month day quarter week dow isodow doy isoyear century decade millennium epoch julian".split(),
    "{t}": "hour minute second epoch microseconds milliseconds".split(),
    "{i}": "year month day hour minute second quarter century decade millennium epoch microseconds milliseconds".split(),
    "{f}": "year month day hour minute second quarter week century decade millennium microseconds milliseconds".split(),
    "{g}": "year month day hour minute second quarter century decade millennium microseconds".split(),
    "{s}": "year month day hour minute second".split(),
}  # fmt: skip

# Aggregates whose result does not depend on the order of their input; {d} may become DISTINCT, and {o} is an
# order by the argument.
AGGREGATES = [
    ("bigint", "count(*)", ()), ("bigint", "count({d}{0})", ("any",)), ("bigint", "sum({d}{0})", ("integer",)), ("bigint", "sum({0})", ("smallint",)), ("numeric", "sum({d}{0})", ("bigint",)), ("numeric", "sum({0})", ("numeric",)), ("double precision", "sum({0})", ("double precision",)), ("real", "sum({0})", ("real",)), ("interval", "sum({0})", ("interval",)),
    ("numeric", "avg({d}{0})", ("integer",)), ("numeric", "avg({0})", ("numeric",)), ("double precision", "avg({0})", ("double precision",)), ("interval", "avg({0})", ("interval",)), ("numeric", "variance({0})", ("integer",)), ("numeric", "stddev_pop({0})", ("numeric",)), ("numeric", "stddev({0})", ("bigint",)), ("integer", "min({0})", ("integer",)), ("integer", "max({d}{0})", ("integer",)), ("bigint", "max({0})", ("bigint",)),
    ("text", "min({0})", ("text",)), ("text", "max({0})", ("text",)), ("date", "min({0})", ("date",)), ("timestamp", "max({0})", ("timestamp",)), ("numeric", "max({0})", ("numeric",)), ("double precision", "min({0})", ("double precision",)), ("interval", "max({0})", ("interval",)), ("time", "min({0})", ("time",)), ("integer[]", "max({0})", ("integer[]",)), ("timestamptz", "min({0})", ("timestamptz",)),
    ("boolean", "bool_and({0})", ("boolean",)), ("boolean", "bool_or({0})", ("boolean",)), ("boolean", "every({0})", ("boolean",)), ("integer", "bit_and({0})", ("integer",)), ("integer", "bit_or({0})", ("integer",)), ("text", "string_agg({0}, ',' order by {0})", ("text",)), ("text", "string_agg(distinct {0}, '' order by {0} desc)", ("text",)), ("integer[]", "array_agg({0} order by {0})", ("integer",)),
    ("integer[]", "array_agg(distinct {0} order by {0} desc nulls last)", ("integer",)), ("text[]", "array_agg({0} order by {0})", ("text",)), ("numeric[]", "array_agg({0} order by {0})", ("numeric",)), ("date[]", "array_agg({0} order by {0})", ("date",)), ("json", "json_agg({0} order by {0})", ("integer",)), ("json", "json_object_agg({0}, {1} order by {0}, {1})", ("smallint", "text")), ("double precision", "percentile_cont(0.5) within group (order by {0})", ("double precision",)),
    ("integer", "percentile_disc(0.3) within group (order by {0})", ("integer",)), ("integer", "mode() within group (order by {0})", ("integer",)), ("text", "percentile_disc(0.5) within group (order by {0} desc)", ("text",)), ("double precision", "corr({0}, {1})", ("double precision", "double precision")), ("bigint", "regr_count({0}, {1})", ("double precision", "double precision")), ("bigint", "count({d}({0}, {1}))", ("integer", "text")),
]  # fmt: skip

# Window functions that need an ORDER BY which determines the order of all rows, with {0} as their argument.
RANKED = [
    ("bigint", "row_number()", ()), ("bigint", "rank()", ()), ("bigint", "dense_rank()", ()), ("double precision", "percent_rank()", ()), ("double precision", "cume_dist()", ()), ("integer", "ntile(3)", ()), ("integer", "lag({0})", ("integer",)), ("text", "lead({0}, 2, {1})", ("text", "text")), ("integer", "first_value({0})", ("integer",)), ("text", "last_value({0})", ("text",)), ("date", "nth_value({0}, 2)", ("date",)),
    ("integer", "lag({0}, {1})", ("integer", "smallint")), ("integer", "lead({0}, 1, 0)", ("integer",)), ("numeric", "first_value({0})", ("numeric",)), ("integer", "ntile({0})", ("integer",)), ("text", "nth_value({0}, {1})", ("text", "integer")), ("integer[]", "array_agg({0})", ("integer",)), ("text", "string_agg({0}, '-')", ("text",)), ("timestamp", "lag({0})", ("timestamp",)), ("boolean", "last_value({0})", ("boolean",)),
]  # fmt: skip

PATTERNS = ["a%", "%b", "_", "%", "", "a\\%", "%_b%", "A_", "ab", "%ä%", "x\\_y"]
REGEXES = ["^a", "b$", "a.b", "[ab]+", "^$", "A", "(a|b)c?", "\\d", "^.{2}$", "\\y", "[[:alpha:]]", "x?y*", "(?i)AB", "^(a)\\1", "a{1,2}"]
