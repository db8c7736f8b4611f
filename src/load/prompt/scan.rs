//! Where the entries of a large file begin and end, found in one pass that keeps one entry at a time.
//!
//! A list is scanned rather than parsed: brackets outside of texts tell where an entry ends, and whether it is one is asked
//! of a parser later. So a broken entry spoils itself, not the rest of the file.

use std::io::{self, BufRead, Read};

/// Longest entry. A prompt of a million tokens has some 5 MB.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// What was found, in the order of the file.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// An entry.
    Entry(At, &'a [u8]),
    /// One that is longer than is kept.
    TooLong(At),
}

/// Where an entry begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// In bytes from the beginning.
    pub(super) offset: u64,
    /// From 1.
    pub(super) line: u64,
}

/// Why a scan ended early.
#[derive(Debug)]
pub(super) enum Stop<E> {
    /// The file cannot be read.
    Io(io::Error),
    /// It is no list from this line on.
    NotAList(u64, &'static str),
    /// Whoever asked has seen enough.
    Enough(E),
}

/// Calls `each` with every line that is not blank.
pub(super) fn lines<E>(
    mut file: impl BufRead,
    mut each: impl FnMut(Found<'_>) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    let (mut buffer, mut at) = (Vec::new(), At { offset: 0, line: 1 });
    loop {
        buffer.clear();
        let read = file.by_ref().take(MAX_BYTES + 1).read_until(b'\n', &mut buffer).map_err(Stop::Io)?;
        if read == 0 {
            return Ok(());
        }
        let begins = at;
        at.offset += u64::try_from(read).unwrap_or(u64::MAX);
        at.line += 1;
        let text = buffer.strip_suffix(b"\n").unwrap_or(&buffer);
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_BYTES {
            each(Found::TooLong(begins)).map_err(Stop::Enough)?;
            at.offset +=
                file.skip_until(b'\n').map(|more| u64::try_from(more).unwrap_or(u64::MAX)).map_err(Stop::Io)?;
            continue;
        }
        // Editors of another system put a mark in front of the first line.
        let mark: &[u8] = if begins.offset == 0 { b"\xef\xbb\xbf" } else { b"" };
        let marked = if text.starts_with(mark) { mark.len() } else { 0 };
        let text = text.get(marked..).unwrap_or_default();
        if !text.trim_ascii().is_empty() {
            let offset = begins.offset + u64::try_from(marked).unwrap_or_default();
            each(Found::Entry(At { offset, ..begins }, text)).map_err(Stop::Enough)?;
        }
    }
}

/// Where a scan of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before its bracket.
    Before,
    /// Where an entry may begin.
    Between,
    /// In an entry, so many brackets deep, in a text or not, after a backslash or not.
    Within { depth: u64, text: bool, escaped: bool },
    /// After its last bracket.
    After,
}

/// Calls `each` with every entry of one JSON list.
pub(super) fn list<E>(mut file: impl BufRead, mut each: impl FnMut(Found<'_>) -> Result<(), E>) -> Result<(), Stop<E>> {
    let mut scan =
        List { state: State::Before, at: At { offset: 0, line: 1 }, begins: None, entry: Vec::new(), long: false };
    loop {
        let chunk = file.fill_buf().map_err(Stop::Io)?;
        let read = chunk.len();
        if read == 0 {
            return scan.end(&mut each);
        }
        for byte in chunk {
            scan.step(*byte, &mut each)?;
        }
        file.consume(read);
    }
}

/// A scan of a list.
struct List {
    state: State,
    at: At,
    begins: Option<At>,
    entry: Vec<u8>,
    long: bool,
}

impl List {
    fn step<E>(&mut self, byte: u8, each: &mut impl FnMut(Found<'_>) -> Result<(), E>) -> Result<(), Stop<E>> {
        let not_a_list = |what| Err(Stop::NotAList(self.at.line, what));
        let blank = byte.is_ascii_whitespace();
        let mark = self.at.offset < 3 && [0xef, 0xbb, 0xbf].contains(&byte);
        match self.state {
            State::Before if byte == b'[' => self.state = State::Between,
            State::Before if !blank && !mark => return not_a_list("there is no [ at its beginning"),
            State::After if !blank => return not_a_list("there is more after its last ]"),
            State::Before | State::After => {}
            State::Between if byte == b']' => self.state = State::After,
            State::Between if blank || byte == b',' => {}
            State::Between => {
                self.begins = Some(self.at);
                self.state = State::Within { depth: 0, text: false, escaped: false };
                self.within(byte, 0, false, false, each)?;
            }
            State::Within { depth, text, escaped } => self.within(byte, depth, text, escaped, each)?,
        }
        self.at.offset += 1;
        self.at.line += u64::from(byte == b'\n');
        Ok(())
    }

    fn within<E>(
        &mut self,
        byte: u8,
        depth: u64,
        text: bool,
        escaped: bool,
        each: &mut impl FnMut(Found<'_>) -> Result<(), E>,
    ) -> Result<(), Stop<E>> {
        let (depth, text, escaped) = match byte {
            _ if escaped => (depth, text, false),
            b'\\' if text => (depth, text, true),
            b'"' => (depth, !text, false),
            _ if text => (depth, text, false),
            b'[' | b'{' => (depth + 1, text, false),
            b',' | b']' if depth == 0 => {
                self.state = if byte == b',' { State::Between } else { State::After };
                return self.found(each).map_err(Stop::Enough);
            }
            b']' | b'}' => (depth.saturating_sub(1), text, false),
            _ => (depth, text, false),
        };
        self.state = State::Within { depth, text, escaped };
        if u64::try_from(self.entry.len()).unwrap_or(u64::MAX) < MAX_BYTES {
            self.entry.push(byte);
        } else if !self.long {
            self.long = true;
            each(Found::TooLong(self.begins.unwrap_or(self.at))).map_err(Stop::Enough)?;
        }
        Ok(())
    }

    /// An entry is whole.
    fn found<E>(&mut self, each: &mut impl FnMut(Found<'_>) -> Result<(), E>) -> Result<(), E> {
        let begins = self.begins.take().unwrap_or(self.at);
        let known = std::mem::take(&mut self.long) || self.entry.is_empty();
        let told = if known { Ok(()) } else { each(Found::Entry(begins, &self.entry)) };
        self.entry.clear();
        told
    }

    /// There is no more of the file.
    fn end<E>(mut self, each: &mut impl FnMut(Found<'_>) -> Result<(), E>) -> Result<(), Stop<E>> {
        match self.state {
            State::After => Ok(()),
            State::Before => Err(Stop::NotAList(self.at.line, "there is no [ at its beginning")),
            State::Between => Err(Stop::NotAList(self.at.line, "there is no ] at its end")),
            State::Within { .. } => {
                let line = self.begins.unwrap_or(self.at).line;
                self.found(each).map_err(Stop::Enough)?;
                Err(Stop::NotAList(line, "an entry has no end"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn found(
        scan: impl FnOnce(&mut dyn FnMut(Found<'_>) -> Result<(), ()>) -> Result<(), Stop<()>>,
    ) -> Vec<(u64, u64, String)> {
        let mut all = Vec::new();
        let ended = scan(&mut |found| {
            match found {
                Found::Entry(at, bytes) => all.push((at.offset, at.line, String::from_utf8_lossy(bytes).into_owned())),
                Found::TooLong(at) => all.push((at.offset, at.line, "too long".to_owned())),
            }
            Ok(())
        });
        if let Err(Stop::NotAList(line, what)) = ended {
            all.push((0, line, what.to_owned()));
        }
        all
    }

    fn in_list(text: &[u8], chunk: usize) -> Vec<(u64, u64, String)> {
        found(|each| list(BufReader::with_capacity(chunk, text), each))
    }

    #[test]
    fn entries_of_a_list_are_found_wherever_it_is_read_in_two() {
        let text = br#" [ {"a": "x]},\" [\\"},
 [1, [2]] , 7,
"one",{} ]
"#;
        let want =
            [(3, 1, r#"{"a": "x]},\" [\\"}"#), (25, 2, "[1, [2]] "), (36, 2, "7"), (39, 3, "\"one\""), (45, 3, "{} ")];
        let want: Vec<_> = want.map(|(offset, line, text): (u64, u64, &str)| (offset, line, text.to_owned())).into();
        for chunk in 1..text.len() {
            assert_eq!(in_list(text, chunk), want, "{chunk}");
        }
        // What is found is what a parser finds.
        let parsed: Vec<serde_json::Value> = serde_json::from_slice(text).unwrap();
        let again: Vec<serde_json::Value> =
            want.iter().map(|(_, _, entry)| serde_json::from_str(entry).unwrap()).collect();
        assert_eq!(parsed, again);
    }

    #[test]
    fn what_is_no_list_is_told_with_its_line() {
        for (text, line, what) in [
            ("", 1, "there is no [ at its beginning"),
            ("\n{\"a\":1}", 2, "there is no [ at its beginning"),
            ("[{}\n,", 2, "there is no ] at its end"),
            ("[{},\n{\"a\":\n", 2, "an entry has no end"),
            ("[{}]\n\n[{}]", 3, "there is more after its last ]"),
            ("[{\"a\":\"]\n", 1, "an entry has no end"),
        ] {
            assert_eq!(in_list(text.as_bytes(), 64).last(), Some(&(0, line, what.to_owned())), "{text}");
        }
        assert_eq!(in_list(b"\xef\xbb\xbf[]", 64), []);
    }

    #[test]
    fn lines_are_found_with_their_places() {
        let text = b"\xef\xbb\xbf{1}\r\n\n  \n{2}\n{3}";
        let all = found(|each| lines(BufReader::with_capacity(3, &text[..]), each));
        assert_eq!(all, [(3, 1, "{1}\r".into()), (12, 4, "{2}".into()), (16, 5, "{3}".into())]);
    }

    #[test]
    fn an_entry_that_never_ends_takes_no_memory() {
        let long = || io::repeat(b'x').take(MAX_BYTES * 4);
        let all = found(|each| lines(BufReader::new(long().chain(&b"\n{2}\n"[..])), each));
        assert_eq!(all, [(0, 1, "too long".into()), (MAX_BYTES * 4 + 1, 2, "{2}".into())]);
        let text = (&b"[\""[..]).chain(long()).chain(&b"\",\n{}]"[..]);
        let all = found(|each| list(BufReader::new(text), each));
        assert_eq!(all, [(1, 1, "too long".into()), (MAX_BYTES * 4 + 5, 2, "{}".into())]);
    }
}
