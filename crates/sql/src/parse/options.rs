//! The options of a table, for the parser: it wants `name = value`, where PostgreSQL has `RESET (name)`, `toast.name`, names without
//! a value, and words as values; and it wants them before PARTITION BY, where PostgreSQL has them behind it.
//!
//! Invariants
//! 1. A list that is not one of options is left as it is: the parser says what is wrong with it.
//!
//! Does not know: which options there are.

use sqlparser::ast::Value;
use sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

use super::is_blank;
use super::rewrite::lower_word;

/// The value of an option that is reset: the word is text where somebody writes it.
pub const RESET: Value = Value::Null;
/// The same with a value behind it, which is wrong.
pub const RESET_WITH_VALUE: Value = Value::Boolean(true);

/// Makes the lists behind WITH of CREATE TABLE, and behind SET and RESET of ALTER TABLE, plain.
pub(super) fn plain(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words: Vec<usize> = (0..tokens.len()).filter(|i| !is_blank(&tokens[*i].token)).collect();
    let word = |n: usize| words.get(n).map(|i| lower_word(&tokens[*i])).unwrap_or_default();
    let verbs: &[&str] = match (word(0).as_str(), word(1).as_str()) {
        ("alter", "table") => &["set", "reset"],
        ("create", _) if (1..4).any(|n| word(n) == "table") => &["with"],
        _ => return tokens,
    };
    let opens = |n: usize| words.get(n).is_some_and(|i| tokens[*i].token == Token::LParen);
    // Those of a column are not the table's, nor is the bound of a partition.
    let is_others = |n: usize| {
        matches!(word(n - 2).as_str(), "alter" | "column") && word(n) != "with" || word(n - 1) == "values"
    };
    let is_list = |n: &usize| verbs.contains(&word(*n).as_str()) && opens(n + 1) && !is_others(*n);
    let lists: Vec<usize> = (2..words.len()).filter(is_list).collect();
    let partition = (2..words.len()).find(|n| word(*n) == "partition" && word(n + 1) == "by");
    for list in lists.into_iter().rev() {
        let (verb, open) = (words[list], words[list + 1]);
        let Some(close) = closing(&tokens, open) else { continue };
        let resets = lower_word(&tokens[verb]) == "reset";
        let Some(made) = list_of(&tokens[open + 1..close], resets) else { continue };
        let end = open + 2 + made.len();
        tokens.splice(open + 1..close, made);
        if resets {
            tokens[verb].token = Token::make_word("SET", None);
        }
        if let Some(before) = partition.filter(|n| *n < list).map(|n| words[n]) {
            tokens[before..end].rotate_left(verb - before);
        }
    }
    tokens
}

fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, t) in tokens.iter().enumerate().skip(open) {
        match t.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 1 => return Some(at),
            Token::RParen => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The options between the parentheses; `None` if they are none.
fn list_of(tokens: &[TokenWithSpan], resets: bool) -> Option<Vec<TokenWithSpan>> {
    let mut out = Vec::new();
    for (n, option) in tokens.split(|t| t.token == Token::Comma).enumerate() {
        let option: Vec<&TokenWithSpan> = option.iter().filter(|t| !is_blank(&t.token)).collect();
        let span = option.first()?.span;
        let mut put = |token: Token| out.push(TokenWithSpan { token, span });
        if n > 0 {
            put(Token::Comma);
        }
        let equals = option.iter().position(|t| t.token == Token::Eq);
        let (name, value) = option.split_at(equals.unwrap_or(option.len()));
        [name_of(name)?, Token::Whitespace(Whitespace::Space), Token::Eq].into_iter().for_each(&mut put);
        put(Token::Whitespace(Whitespace::Space));
        match (resets, value) {
            (true, []) => put(Token::make_word("NULL", None)),
            (true, _) => put(Token::make_word("TRUE", None)),
            (false, []) => put(Token::SingleQuotedString("true".into())),
            (false, [_, value]) => put(value_of(&value.token)),
            (false, [_, values @ ..]) => values.iter().for_each(|t| put(t.token.clone())),
        }
    }
    Some(out)
}

/// The name as one word in quotes.
fn name_of(tokens: &[&TokenWithSpan]) -> Option<Token> {
    let bare = |t: &TokenWithSpan| match &t.token {
        Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_lowercase()),
        Token::Word(w) => Some(w.value.clone()),
        _ => None,
    };
    let name = match tokens {
        [name] => bare(name)?,
        [space, dot, name] if dot.token == Token::Period => format!("{}.{}", bare(space)?, bare(name)?),
        _ => return None,
    };
    Some(Token::make_word(&name, Some('"')))
}

/// Words mean what they say.
fn value_of(token: &Token) -> Token {
    match token {
        Token::Word(w) if w.quote_style.is_none() => Token::SingleQuotedString(w.value.to_lowercase()),
        Token::Word(w) => Token::SingleQuotedString(w.value.clone()),
        other => other.clone(),
    }
}
