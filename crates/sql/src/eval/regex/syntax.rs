//! Parses a pattern into a tree. Its nodes are the parts whose positions in a match must be known.
//!
//! A part of the pattern is a leaf of the tree if it has no groups and its quantifiers are all greedy or all
//! non-greedy. A leaf matches the longest or the shortest possible text. PostgreSQL's parser makes the same
//! parts, so groups match the same text.
//!
//! Source: PostgreSQL's documentation, 9.7.3.5 (regular expression matching rules).
//!
//! This module does not know how a text is matched.

use super::Options;
use super::atoms::{Edge, Escaped, Reader};
use super::invalid_for;
use crate::error::Result;

/// The deepest nesting of groups. `PARTS_MAX` is the largest number of parts.
const DEPTH_MAX: usize = 100;
const PARTS_MAX: usize = 500;
/// The longest pattern text, in bytes, that a reference to a group copies.
const REFERRED_BYTES_MAX: usize = 500;
/// The greatest number in a quantifier.
const REPEATS_MAX: u32 = 255;

/// Properties of a part. `LONG` and `SHORT` are its preference. `MIXED` means that parts in it have both
/// preferences.
pub type Flags = u8;
/// The part prefers the longest match.
pub const LONG: Flags = 1;
/// The part prefers the shortest match.
pub const SHORT: Flags = 2;
/// The part contains parts with both preferences.
const MIXED: Flags = 4;
/// The part contains groups.
const GROUPS: Flags = 8;
/// The part contains back references, look-around or edges of words. So its automaton accepts more texts than
/// the part matches.
pub const CHECKED: Flags = 16;
/// The part contains back references.
pub const REFERS: Flags = 32;
/// The part contains look-around.
const LOOKS: Flags = 64;

/// Combines flags without their preference.
fn united(flags: Flags) -> Flags {
    let both = if flags & LONG != 0 && flags & SHORT != 0 { MIXED } else { 0 };
    flags & !(LONG | SHORT) | both
}

/// Returns the flags of two parts in a sequence. The preference of the first part that has one counts.
fn combined(first: Flags, then: Flags) -> Flags {
    let preference = if first & (LONG | SHORT) != 0 { first } else { then } & (LONG | SHORT);
    united(first | then) | preference
}

/// Returns whether a part with these flags cannot be a leaf.
fn is_complex(flags: Flags) -> bool {
    flags & (MIXED | GROUPS | CHECKED) != 0
}

/// A text for the `regex` crate.
#[derive(Debug, Default, Clone)]
pub struct Text {
    /// The pattern's text without look-around and back references.
    pub search: String,
    /// The same text without edges of words, because automata do not support them.
    pub automaton: String,
}

impl Text {
    fn of(text: &str) -> Text {
        Text { search: text.to_owned(), automaton: text.to_owned() }
    }

    fn push(&mut self, text: &str) {
        self.search.push_str(text);
        self.automaton.push_str(text);
    }

    fn append(&mut self, other: &Text) {
        self.search.push_str(&other.search);
        self.automaton.push_str(&other.automaton);
    }

    fn grouped(&self) -> Text {
        let grouped = |text: &str| format!("(?:{text})");
        Text { search: grouped(&self.search), automaton: grouped(&self.automaton) }
    }

    fn repeated(&self, times: Times) -> Text {
        let bounds = match times {
            Times { least, most: None } => format!("{{{least},}}"),
            Times { least, most: Some(most) } => format!("{{{least},{most}}}"),
        };
        let mut text = self.grouped();
        text.push(&bounds);
        text
    }
}

/// The numbers of repetitions that a quantifier allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub least: u32,
    /// `None` for any number.
    pub most: Option<u32>,
}

const ONCE: Times = Times { least: 1, most: Some(1) };

/// A part of a pattern.
#[derive(Debug, Clone)]
pub struct Part {
    pub kind: Kind,
    pub text: Text,
    pub flags: Flags,
    /// The part's groups: the number of the first one, and the number after the last one.
    pub groups: (usize, usize),
}

#[derive(Debug, Clone)]
pub enum Kind {
    /// A part that its automaton matches completely.
    Leaf,
    /// Parts that follow each other.
    Sequence(Vec<Part>),
    Alternatives(Vec<Part>),
    Repeated(Box<Part>, Times),
    /// A group with this number.
    Group(usize, Box<Part>),
    /// A back reference: the text that a group has matched, repeated.
    Reference(usize, Times),
    /// Look-ahead, or with the first flag look-behind. With the second flag, the inner part must not match.
    Look(bool, bool, Box<Part>),
    Word(Edge),
}

/// The construct that the parser is inside of. It decides how the branches end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Group,
    Look,
}

/// Returns the tree of an advanced regular expression, and the number of its groups. Fails with 2201B if it
/// is not valid.
pub fn tree(pattern: &str, options: Options) -> Result<(Part, usize)> {
    let rest = pattern.chars().peekable();
    let reader = Reader { rest, out: String::new(), stops_at_lines: options.stops_at_lines };
    let mut parser = Parser { reader, options, texts: Vec::new(), depth: 0, parts: 0, looks: 0 };
    let part = parser.alternatives(Inside::Nothing)?;
    Ok((part, parser.texts.len()))
}

struct Parser<'p> {
    reader: Reader<'p>,
    options: Options,
    /// The groups that have begun, with their texts if they have ended.
    texts: Vec<Option<Text>>,
    depth: usize,
    parts: usize,
    /// The number of open look-arounds.
    looks: usize,
}

/// The parts of a branch as they are read.
#[derive(Default)]
struct Branch {
    parts: Vec<Part>,
    /// The text of the last leaf, as far as it is read.
    leaf: Text,
    flags: Flags,
}

impl Branch {
    fn end_leaf(&mut self, groups: usize) {
        let (text, flags) = (std::mem::take(&mut self.leaf), std::mem::take(&mut self.flags));
        if !text.search.is_empty() || self.parts.is_empty() {
            self.parts.push(Part { kind: Kind::Leaf, text, flags, groups: (groups, groups) });
        }
    }
}

fn sequence(parts: Vec<Part>, flags: Flags, groups: (usize, usize)) -> Part {
    let mut text = Text::default();
    parts.iter().for_each(|part| text.append(&part.text));
    Part { kind: Kind::Sequence(parts), text, flags, groups }
}

impl Parser<'_> {
    fn groups(&self) -> usize {
        self.texts.len() + 1
    }

    /// Reads branches up to the end of the pattern, group or look-around.
    fn alternatives(&mut self, inside: Inside) -> Result<Part> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(invalid_for("regular expression is too complex"));
        }
        let first = self.groups();
        let mut branches = vec![self.branch(inside)?];
        while self.reader.rest.next_if_eq(&'|').is_some() {
            branches.push(self.branch(inside)?);
        }
        self.depth -= 1;
        if let [_] = &branches[..] {
            return Ok(branches.swap_remove(0));
        }
        let flags = branches.iter().fold(LONG, |flags, branch| flags | combined(flags, branch.flags));
        let mut text = Text::default();
        for (n, branch) in branches.iter().enumerate() {
            text.push(if n > 0 { "|" } else { "" });
            text.append(&branch.text);
        }
        let kind = if is_complex(flags) { Kind::Alternatives(branches) } else { Kind::Leaf };
        Ok(Part { kind, text: text.grouped(), flags, groups: (first, self.groups()) })
    }

    fn branch(&mut self, inside: Inside) -> Result<Part> {
        let first = self.groups();
        let mut branch = Branch::default();
        loop {
            self.skip();
            match self.reader.rest.peek() {
                None if inside == Inside::Nothing => break,
                None => return Err(invalid_for("parentheses () not balanced")),
                Some('|') => break,
                Some(')') if inside == Inside::Nothing => {
                    return Err(invalid_for("parentheses () not balanced"));
                }
                Some(')') => break,
                Some(_) => self.atom(&mut branch)?,
            }
        }
        branch.end_leaf(self.groups());
        let mut parts = branch.parts;
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        let flags = parts.iter().rev().fold(0, |flags, part| combined(part.flags, flags));
        Ok(sequence(parts, flags, (first, self.groups())))
    }

    /// Skips white space and comments, if the options say that they are ignored.
    fn skip(&mut self) {
        let rest = &mut self.reader.rest;
        loop {
            if self.options.expanded && rest.next_if(|c| c.is_whitespace()).is_some() {
                continue;
            }
            if self.options.expanded && rest.next_if_eq(&'#').is_some() {
                while rest.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            let mut ahead = rest.clone();
            if "(?#".chars().all(|c| ahead.next() == Some(c)) {
                while ahead.next_if(|c| *c != ')').is_some() {}
                ahead.next();
                *rest = ahead;
                continue;
            }
            return;
        }
    }

    fn atom(&mut self, branch: &mut Branch) -> Result<()> {
        let Some(c) = self.reader.rest.next() else { return Ok(()) };
        let lines = self.options.anchors_at_lines;
        match c {
            '^' => branch.leaf.push(if lines { "(?m:^)" } else { "\\A" }),
            '$' => branch.leaf.push(if lines { "(?m:$)" } else { "\\z" }),
            '*' | '+' | '?' => return Err(invalid_for("quantifier operand invalid")),
            '{' if self.reader.rest.peek().is_some_and(char::is_ascii_digit) => {
                return Err(invalid_for("quantifier operand invalid"));
            }
            '(' => return self.parenthesis(branch),
            '[' => match self.reader.bracket()? {
                Some(edge) => self.edge(edge, branch)?,
                None => return self.characters(branch),
            },
            '.' => {
                self.reader.out.push_str(if self.options.stops_at_lines { "[^\\n]" } else { "(?s:.)" });
                return self.characters(branch);
            }
            '\\' => match self.reader.escape(self.texts.len())? {
                Escaped::Characters => return self.characters(branch),
                Escaped::Edge(edge) => self.edge(edge, branch)?,
                Escaped::End => branch.leaf.push(&std::mem::take(&mut self.reader.out)),
                Escaped::Group(number) => return self.reference(number, branch),
            },
            c => {
                self.reader.literal(c);
                return self.characters(branch);
            }
        }
        Ok(())
    }

    /// Adds the characters that have been read, with their quantifier.
    fn characters(&mut self, branch: &mut Branch) -> Result<()> {
        let text = Text::of(&std::mem::take(&mut self.reader.out));
        let groups = (self.groups(), self.groups());
        self.quantified(Part { kind: Kind::Leaf, text, flags: 0, groups }, branch)
    }

    /// Adds a part that has no quantifier and is not a leaf.
    fn alone(&mut self, part: Part, branch: &mut Branch) -> Result<()> {
        branch.end_leaf(self.groups());
        branch.parts.push(part);
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(invalid_for("regular expression is too complex"));
        }
        Ok(())
    }

    fn edge(&mut self, edge: Edge, branch: &mut Branch) -> Result<()> {
        let search = match edge {
            Edge::Start => "\\b{start}",
            Edge::End => "\\b{end}",
            Edge::Either => "\\b",
            Edge::Neither => "\\B",
        };
        let text = Text { search: search.to_owned(), automaton: String::new() };
        let groups = (self.groups(), self.groups());
        self.alone(Part { kind: Kind::Word(edge), text, flags: CHECKED, groups }, branch)
    }

    fn reference(&mut self, number: usize, branch: &mut Branch) -> Result<()> {
        let text = match self.texts.get(number - 1) {
            Some(Some(text)) if self.looks == 0 => text.clone(),
            _ => return Err(invalid_for("invalid backreference number")),
        };
        let kind = Kind::Reference(number, ONCE);
        let groups = (self.groups(), self.groups());
        self.quantified(Part { kind, text, flags: CHECKED | REFERS, groups }, branch)
    }

    fn parenthesis(&mut self, branch: &mut Branch) -> Result<()> {
        let rest = &mut self.reader.rest;
        if rest.next_if_eq(&'?').is_none() {
            return if self.looks > 0 { self.group(None, branch) } else { self.numbered(branch) };
        }
        let kind = (rest.next(), rest.peek().copied());
        match kind {
            (Some(':'), _) => self.group(None, branch),
            (Some('='), _) => self.look(false, false, branch),
            (Some('!'), _) => self.look(false, true, branch),
            (Some('<'), Some(c @ ('=' | '!'))) => {
                rest.next();
                self.look(true, c == '!', branch)
            }
            _ => Err(invalid_for("quantifier operand invalid")),
        }
    }

    fn numbered(&mut self, branch: &mut Branch) -> Result<()> {
        self.texts.push(None);
        self.group(Some(self.texts.len()), branch)
    }

    /// Reads a group up to its closing parenthesis, with its quantifier.
    fn group(&mut self, number: Option<usize>, branch: &mut Branch) -> Result<()> {
        let first = number.unwrap_or(self.groups());
        let mut part = self.alternatives(Inside::Group)?;
        self.close()?;
        if let Some(number) = number {
            let (text, flags) = (part.text.clone(), part.flags | GROUPS);
            // The text of a group that refers to another group can be twice as long. So a chain of references
            // could make very long texts.
            let is_long = text.search.len() > REFERRED_BYTES_MAX;
            self.texts[number - 1] = Some(if is_long { Text::of("(?s:.*)") } else { text.clone() });
            part = Part {
                kind: Kind::Group(number, Box::new(part)),
                text,
                flags,
                groups: (first, self.groups()),
            };
        }
        self.quantified(part, branch)
    }

    fn close(&mut self) -> Result<()> {
        match self.reader.rest.next() {
            Some(')') => Ok(()),
            _ => Err(invalid_for("parentheses () not balanced")),
        }
    }

    /// Reads a look-around, which has no quantifier.
    fn look(&mut self, behind: bool, negated: bool, branch: &mut Branch) -> Result<()> {
        self.looks += 1;
        let inner = self.alternatives(Inside::Look)?;
        self.looks -= 1;
        self.close()?;
        let kind = Kind::Look(behind, negated, Box::new(inner));
        let groups = (self.groups(), self.groups());
        self.alone(Part { kind, text: Text::default(), flags: CHECKED | LOOKS, groups }, branch)
    }

    /// Adds an atom, with the quantifier that follows it if there is one.
    fn quantified(&mut self, atom: Part, branch: &mut Branch) -> Result<()> {
        self.skip();
        let (times, preference) = self.quantifier()?;
        let flags = branch.flags | preference | atom.flags;
        let is_own = matches!(atom.kind, Kind::Group(..) | Kind::Reference(..));
        if times == (Times { least: 0, most: Some(0) }) {
            // With {0}, the part and its groups match nothing.
            return Ok(());
        }
        if !is_own && !is_complex(united(flags)) {
            match times {
                ONCE => branch.leaf.append(&atom.text),
                times => branch.leaf.append(&atom.text.repeated(times)),
            }
            branch.flags = flags;
            return Ok(());
        }
        let part = repeated(atom, times, preference);
        self.alone(part, branch)
    }

    /// Reads a quantifier: the numbers of repetitions, and the preference.
    fn quantifier(&mut self) -> Result<(Times, Flags)> {
        let any = |least, most| Times { least, most };
        let rest = &mut self.reader.rest;
        let times = match rest.peek() {
            Some('*') => any(0, None),
            Some('+') => any(1, None),
            Some('?') => any(0, Some(1)),
            Some('{') => return self.bounds(),
            _ => return Ok((ONCE, 0)),
        };
        rest.next();
        Ok((times, self.preference()))
    }

    fn preference(&mut self) -> Flags {
        if self.reader.rest.next_if_eq(&'?').is_some() { SHORT } else { LONG }
    }

    fn bounds(&mut self) -> Result<(Times, Flags)> {
        let mut ahead = self.reader.rest.clone();
        ahead.next();
        if !ahead.peek().is_some_and(char::is_ascii_digit) {
            return Ok((ONCE, 0));
        }
        self.reader.rest = ahead;
        let least = self.bound()?;
        let ranges = self.reader.rest.next_if_eq(&',').is_some();
        let most = match self.reader.rest.peek() {
            Some('}') if ranges => None,
            _ if ranges => Some(self.bound()?),
            _ => Some(least),
        };
        match self.reader.rest.next() {
            Some('}') => {}
            Some(_) => return Err(invalid_for("invalid repetition count(s)")),
            None => return Err(invalid_for("braces {} not balanced")),
        }
        if most.is_some_and(|most| most < least) {
            return Err(invalid_for("invalid repetition count(s)"));
        }
        let preference = self.preference();
        Ok((Times { least, most }, if ranges { preference } else { 0 }))
    }

    fn bound(&mut self) -> Result<u32> {
        let mut number = 0_u32;
        let mut digits = 0;
        while let Some(digit) = self.reader.rest.peek().and_then(|c| c.to_digit(10)) {
            number = number.saturating_mul(10).saturating_add(digit);
            digits += 1;
            self.reader.rest.next();
        }
        match digits {
            _ if number > REPEATS_MAX => Err(invalid_for("invalid repetition count(s)")),
            0 if self.reader.rest.peek().is_none() => Err(invalid_for("braces {} not balanced")),
            0 => Err(invalid_for("invalid repetition count(s)")),
            _ => Ok(number),
        }
    }
}

/// Applies a quantifier to a part that is not a leaf.
fn repeated(atom: Part, times: Times, preference: Flags) -> Part {
    let flags = combined(preference, atom.flags);
    let own = atom.flags & (LONG | SHORT | MIXED);
    let groups = atom.groups;
    if let Kind::Reference(number, _) = atom.kind {
        let text = atom.text.repeated(times);
        return Part { kind: Kind::Reference(number, times), text, flags, groups };
    }
    if times == ONCE && (preference == 0 || own == 0 || own == preference) {
        return atom;
    }
    let text = atom.text.repeated(times);
    if atom.flags & (GROUPS | CHECKED) == 0 {
        return Part { kind: Kind::Leaf, text, flags, groups };
    }
    if times.least > 0 && atom.flags & CHECKED == 0 {
        // Only the groups of the last repetition count. So the other repetitions can be one leaf.
        let others = Times { least: times.least - 1, most: times.most.map(|most| most - 1) };
        let before = Part {
            kind: Kind::Leaf,
            text: atom.text.repeated(others),
            flags: flags & (LONG | SHORT),
            groups: (groups.0, groups.0),
        };
        return Part { text, ..sequence(vec![before, atom], flags, groups) };
    }
    Part { kind: Kind::Repeated(Box::new(atom), times), text, flags, groups }
}

impl Part {
    /// Returns whether the search text matches exactly the same texts as the part. Then the crate `regex`
    /// needs no check by the matcher.
    pub fn is_searched_exactly(&self) -> bool {
        self.flags & (REFERS | LOOKS) == 0
    }
}
