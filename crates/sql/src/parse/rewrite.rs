//! Tokens that the parser does not take as PostgreSQL does, rewritten before it sees them.
//!
//! Invariants
//! 1. A rewritten statement means what PostgreSQL takes the original for; positions stay those of the original.
//!
//! Does not know: the syntax tree, except the marks that SYMMETRIC and names without a type leave in it.

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::{is_blank, options};

/// All rewrites of a statement.
pub(super) fn statement(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = with_typed_names(options::plain(without_storage_clause(tokens)));
    let tokens = expression(without_overriding(tokens));
    let tokens = with_written_out_table(with_ordered_options(tokens));
    with_printable_literals(with_plain_locks(tokens))
}

/// The rewrites of an expression by itself.
pub(super) fn expression(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    with_symmetric_calls(with_trimmed_blank(tokens))
}

/// `a>-5`: the tokenizer takes `>-` for one operator. PostgreSQL's rule (manual, 4.1.3): an operator of several characters
/// ends in `+` or `-` only if it has one of ``~ ! @ # % ^ & | ` ?`` in it.
pub(super) fn with_signs_apart(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out = Vec::with_capacity(tokens.len());
    for t in tokens {
        match &t.token {
            Token::CustomBinaryOperator(op)
                if !op.contains(['~', '!', '@', '#', '%', '^', '&', '|', '`', '?']) =>
            {
                let bare = op.trim_end_matches(['+', '-']);
                match plain_operator(bare) {
                    Some(token) => {
                        out.push(TokenWithSpan { token, span: t.span });
                        let sign = |c| if c == '-' { Token::Minus } else { Token::Plus };
                        out.extend(
                            op[bare.len()..].chars().map(|c| TokenWithSpan { token: sign(c), span: t.span }),
                        );
                    }
                    None => out.push(t),
                }
            }
            _ => out.push(t),
        }
    }
    out
}

fn plain_operator(text: &str) -> Option<Token> {
    Some(match text {
        "=" => Token::Eq,
        "<" => Token::Lt,
        ">" => Token::Gt,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "*" => Token::Mul,
        "/" => Token::Div,
        _ => return None,
    })
}

/// `USING paged` of CREATE TABLE, which the parser does not know: recognised and taken out (it is the only engine).
fn without_storage_clause(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let word = lower_word;
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let creates_table = words.len() > 3
        && word(&tokens[words[0]]) == "create"
        && words.iter().take(4).any(|i| word(&tokens[*i]) == "table");
    if !creates_table {
        return tokens;
    }
    let found = words
        .windows(2)
        .find(|w| word(&tokens[w[0]]) == "using" && matches!(word(&tokens[w[1]]).as_str(), "paged" | "heap"));
    if let Some(&[using, engine]) = found.map(|w| [w[0], w[1]]).as_ref() {
        tokens.drain(using..=engine);
    }
    tokens
}

/// The type of columns that have none: those of CREATE TABLE t (a, b) AS. No type has this name.
pub const NO_TYPE: &str = "\u{1}";

/// `CREATE TABLE t (a, b) AS` for the parser, which wants a type behind each name.
fn with_typed_names(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let word = |n: usize| words.get(n).map(|i| lower_word(&tokens[*i])).unwrap_or_default();
    let is = |n: usize, token: &Token| words.get(n).is_some_and(|i| tokens[*i].token == *token);
    let Some(table) = (1..4).find(|n| word(*n) == "table").filter(|_| word(0) == "create") else {
        return tokens;
    };
    let name = if word(table + 1) == "if" { table + 4 } else { table + 1 };
    let start = if is(name + 1, &Token::Period) { name + 3 } else { name + 1 };
    if !is(start, &Token::LParen) {
        return tokens;
    }
    let Some(end) = (start..words.len()).find(|n| is(*n, &Token::RParen)) else { return tokens };
    let is_name = |n: usize| matches!(tokens[words[n]].token, Token::Word(_));
    let names: Vec<usize> = (start + 1..end).step_by(2).collect();
    let is_list = (end - start) % 2 == 0
        && names.iter().all(|n| is_name(*n) && (n + 1 == end || is(n + 1, &Token::Comma)));
    if !is_list || word(end + 1) != "as" {
        return tokens;
    }
    for name in names.into_iter().rev() {
        let (at, span) = (words[name] + 1, tokens[words[name]].span);
        let typed = [Token::Whitespace(Whitespace::Space), Token::make_word(NO_TYPE, Some('"'))];
        tokens.splice(at..at, typed.map(|token| TokenWithSpan { token, span }));
    }
    tokens
}

/// Whose values an identity column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overriding {
    /// OVERRIDING SYSTEM VALUE: those of the statement.
    System,
    /// OVERRIDING USER VALUE: those of the sequence.
    User,
}

/// OVERRIDING ... VALUE of an INSERT, and where its three words stand.
pub(super) fn overriding(tokens: &[TokenWithSpan]) -> Option<(Overriding, [usize; 3])> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let word = |at: usize| lower_word(&tokens[at]);
    if word(*words.first()?) != "insert" {
        return None;
    }
    let places = words.windows(3).find(|w| word(w[0]) == "overriding" && word(w[2]) == "value")?;
    let kind = match word(places[1]).as_str() {
        "system" => Overriding::System,
        "user" => Overriding::User,
        _ => return None,
    };
    Some((kind, [places[0], places[1], places[2]]))
}

/// The parser does not know OVERRIDING; the binder asks `overriding` again.
fn without_overriding(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if let Some((_, [first, _, last])) = overriding(&tokens) {
        tokens.drain(first..=last);
    }
    tokens
}

pub(super) fn lower_word(t: &TokenWithSpan) -> String {
    match &t.token {
        Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
        _ => String::new(),
    }
}

/// `TRIM(LEADING FROM x)` for the parser: `TRIM(LEADING ' ' FROM x)`.
fn with_trimmed_blank(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let short = |w: &&[usize]| {
        matches!(lower_word(&tokens[w[0]]).as_str(), "leading" | "trailing" | "both")
            && lower_word(&tokens[w[1]]) == "from"
    };
    let places: Vec<usize> = words.windows(2).filter(short).map(|w| w[1]).collect();
    for place in places.into_iter().rev() {
        let span = tokens[place].span;
        tokens.insert(place, TokenWithSpan { token: Token::SingleQuotedString(" ".into()), span });
    }
    tokens
}

/// `TABLE t` is `SELECT * FROM t`.
fn with_written_out_table(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let first = tokens.iter().position(|t| !is_blank(&t.token));
    if let Some(first) = first.filter(|i| lower_word(&tokens[*i]) == "table") {
        let span = tokens[first].span;
        let word = |w: &str| Token::make_word(w, None);
        let blank = Token::Whitespace(Whitespace::Space);
        let written = [word("SELECT"), blank.clone(), Token::Mul, blank, word("FROM")];
        tokens.splice(first..=first, written.map(|token| TokenWithSpan { token, span }));
    }
    tokens
}

/// What stands before the name of `OF` in a locking clause that the parser does not know: its first words. No name has them.
pub const LOCK_MARK: &str = "\u{1}";

/// A locking clause as it is written.
struct Lock {
    verb: &'static str,
    mark: Option<&'static str>,
    /// The names of OF.
    tables: Vec<Vec<Token>>,
    /// The word behind it.
    end: usize,
}

/// FOR NO KEY UPDATE and FOR KEY SHARE, which the parser does not know: without their words, which become a mark before the table
/// of OF. `OF a, b` becomes two clauses, since the parser takes one table.
fn with_plain_locks(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let mut out = Vec::with_capacity(tokens.len());
    let (mut n, mut copied) = (0, 0);
    while n < words.len() {
        match lock_at(&tokens, &words, n) {
            None => n += 1,
            Some(lock) => {
                out.extend_from_slice(&tokens[copied..words[n]]);
                write_lock(&lock, &tokens[words[n]], &mut out);
                (copied, n) = (words[lock.end - 1] + 1, lock.end);
            }
        }
    }
    out.extend_from_slice(&tokens[copied..]);
    out
}

fn lock_at(tokens: &[TokenWithSpan], words: &[usize], n: usize) -> Option<Lock> {
    let at = |n: usize| words.get(n).map(|i| lower_word(&tokens[*i])).unwrap_or_default();
    let is = |n: usize, token: &Token| words.get(n).is_some_and(|i| tokens[*i].token == *token);
    if !is_keyword(&tokens[words[n]].token, Keyword::FOR) {
        return None;
    }
    let (verb, mark, mut end) = match [at(n + 1), at(n + 2), at(n + 3)].each_ref().map(String::as_str) {
        ["no", "key", "update"] => ("update", Some("no key"), n + 4),
        ["key", "share", _] => ("share", Some("key"), n + 3),
        ["update", "of", _] => ("update", None, n + 2),
        ["share", "of", _] => ("share", None, n + 2),
        _ => return None,
    };
    let mut tables = Vec::new();
    if at(end) == "of" {
        loop {
            let start = end + 1;
            end = start + 1;
            while is(end, &Token::Period) {
                end += 2;
            }
            let parts = words.get(start..end)?.iter().map(|i| tokens[*i].token.clone());
            tables.push(parts.collect());
            if !is(end, &Token::Comma) {
                break;
            }
        }
    }
    Some(Lock { verb, mark, tables, end })
}

fn write_lock(lock: &Lock, at: &TokenWithSpan, out: &mut Vec<TokenWithSpan>) {
    let mut put = |token: Token| {
        out.push(TokenWithSpan { token, span: at.span });
        out.push(TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span: at.span });
    };
    let mark = lock.mark.map(|mark| Token::make_word(&format!("{LOCK_MARK}{mark}"), Some('"')));
    let none = [Vec::new()];
    let tables = if lock.tables.is_empty() { &none } else { lock.tables.as_slice() };
    for table in tables {
        [Token::make_word("for", None), Token::make_word(lock.verb, None), Token::make_word("of", None)]
            .into_iter()
            .for_each(&mut put);
        mark.iter().cloned().for_each(&mut put);
        if mark.is_some() && !table.is_empty() {
            put(Token::Period);
        }
        table.iter().cloned().for_each(&mut put);
    }
}

/// The parser wants the options of CREATE SEQUENCE and of identity columns in one order; PostgreSQL takes any.
fn with_ordered_options(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let word = |n: usize| words.get(n).map(|i| lower_word(&tokens[*i])).unwrap_or_default();
    match (word(0).as_str(), word(1).as_str()) {
        ("create", "sequence") => return with_options_in_order(tokens, &words, 3..words.len()),
        ("create" | "alter", _) => {}
        _ => return tokens,
    }
    let is_list = |n: &usize| word(*n) == "identity" && tokens[words[*n + 1]].token == Token::LParen;
    let lists: Vec<usize> = (0..words.len().saturating_sub(1)).filter(is_list).collect();
    for list in lists.into_iter().rev() {
        let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
        let ends = (list + 2..words.len()).find(|n| tokens[words[*n]].token == Token::RParen);
        let Some(end) = ends else { return tokens };
        tokens = with_options_in_order(tokens, &words, list + 2..end);
    }
    tokens
}

/// Puts the options that stand among these words into the parser's order.
fn with_options_in_order(
    tokens: Vec<TokenWithSpan>,
    words: &[usize],
    range: std::ops::Range<usize>,
) -> Vec<TokenWithSpan> {
    const ORDER: [&str; 7] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle", "owned"];
    let is = |n: usize, word: &str| words.get(n).is_some_and(|i| lower_word(&tokens[*i]) == word);
    let rank = |n: usize| {
        ORDER
            .iter()
            .position(|o| is(n, o))
            .or_else(|| is(n, "no").then(|| ORDER.iter().position(|o| is(n + 1, o)))?)
    };
    let mut starts: Vec<(usize, usize)> = Vec::new();
    let mut n = range.start;
    while n < range.end {
        if let Some(rank) = rank(n) {
            starts.push((rank, n));
            n += usize::from(is(n, "no"));
        }
        n += 1;
    }
    let Some((_, first)) = starts.first().copied() else { return tokens };
    let end = words.get(range.end).copied().unwrap_or(tokens.len());
    let end_of = |k: usize| starts.get(k + 1).map_or(end, |(_, n)| words[*n]);
    let mut parts: Vec<(usize, &[TokenWithSpan])> =
        starts.iter().enumerate().map(|(k, (rank, n))| (*rank, &tokens[words[*n]..end_of(k)])).collect();
    parts.sort_by_key(|(rank, _)| *rank);
    let mut out = tokens[..words[first]].to_vec();
    for (_, part) in parts {
        out.extend_from_slice(part);
        out.push(TokenWithSpan::wrap(Token::Whitespace(Whitespace::Space)));
    }
    out.extend_from_slice(&tokens[end..]);
    out
}

/// `BETWEEN SYMMETRIC low AND` for the parser: `BETWEEN SYMMETRIC(low) AND`, which `symmetric_bound` knows again; and
/// `ASYMMETRIC`, which says nothing, goes.
fn with_symmetric_calls(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let is = |n: usize, keyword| is_keyword(&tokens[words[n]].token, keyword);
    let mut edits: Vec<(usize, Option<Token>)> = Vec::new();
    for n in 1..words.len() {
        if !is(n - 1, Keyword::BETWEEN) {
            continue;
        }
        if is(n, Keyword::ASYMMETRIC) {
            edits.push((words[n], None));
        } else if is(n, Keyword::SYMMETRIC)
            && let Some(end) = end_of_bound(&tokens, &words, n + 1)
            && !is_group(&tokens, &words[n + 1..end])
        {
            edits.push((words[n] + 1, Some(Token::LParen)));
            edits.push((words[end], Some(Token::RParen)));
        }
    }
    edits.sort_by_key(|(at, _)| *at);
    for (at, token) in edits.into_iter().rev() {
        match token {
            None => drop(tokens.remove(at)),
            Some(token) => tokens.insert(at, TokenWithSpan { token, span: tokens[at].span }),
        }
    }
    tokens
}

/// The AND that ends the bound that begins at `from`: the first one outside parentheses and CASE.
fn end_of_bound(tokens: &[TokenWithSpan], words: &[usize], from: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (n, at) in words.iter().enumerate().skip(from) {
        let token = &tokens[*at].token;
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            t if is_keyword(t, Keyword::CASE) => depth += 1,
            t if is_keyword(t, Keyword::END) => depth -= 1,
            t if depth == 0 && is_keyword(t, Keyword::AND) => return Some(n),
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Whether the words are one pair of parentheses and one value between: a call's arguments already.
fn is_group(tokens: &[TokenWithSpan], words: &[usize]) -> bool {
    let mut depth = 0usize;
    let mut is_row = false;
    let closes_at = words.iter().position(|at| {
        match tokens[*at].token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Comma => is_row |= depth == 1,
            _ => {}
        }
        depth == 0
    });
    !is_row && closes_at.is_some_and(|at| at > 0 && at + 1 == words.len())
}

/// Literals of a definition such that the syntax tree prints them as they were meant: a column's DEFAULT is kept as text.
fn with_printable_literals(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let first = tokens.iter().find(|t| !is_blank(&t.token));
    let defines =
        first.is_some_and(|t| is_keyword(&t.token, Keyword::CREATE) || is_keyword(&t.token, Keyword::ALTER));
    if defines {
        for t in &mut tokens {
            if let Token::SingleQuotedString(text) | Token::NationalStringLiteral(text) = &t.token
                && text.contains('\'')
            {
                t.token = Token::EscapedStringLiteral(text.clone());
            }
        }
    }
    tokens
}

fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(w) if w.keyword == keyword && w.quote_style.is_none())
}

/// The name of a column if nothing but its name was written.
pub fn bare_name(column: &ast::ColumnDef) -> Option<&ast::Ident> {
    let ast::DataType::Custom(name, _) = &column.data_type else { return None };
    let [part] = name.0.as_slice() else { return None };
    (part.as_ident()?.value == NO_TYPE && column.options.is_empty()).then_some(&column.name)
}

/// What a bound of BETWEEN is, if it is marked as SYMMETRIC.
pub fn symmetric_bound(bound: &ast::Expr) -> Option<&ast::Expr> {
    let ast::Expr::Function(f) = bound else { return None };
    let ast::FunctionArguments::List(list) = &f.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e))] = list.args.as_slice() else {
        return None;
    };
    let [part] = f.name.0.as_slice() else { return None };
    let name = part.as_ident()?;
    let marked = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("symmetric");
    marked.then_some(e)
}
