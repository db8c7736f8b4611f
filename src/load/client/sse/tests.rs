//! The decoder against the rules of event streams, and against itself at every cut.

use super::*;

/// An item that owns its bytes, so that runs can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owned {
    Event(String, Vec<u8>, bool),
    Stray(Vec<u8>),
}

fn own(item: Item<'_>, into: &mut Vec<Owned>) -> ControlFlow<()> {
    match item {
        Item::Event(event) => into.push(Owned::Event(
            String::from_utf8_lossy(event.kind).into_owned(),
            event.data.to_vec(),
            event.terminated,
        )),
        Item::Stray(line) => into.push(Owned::Stray(line.to_vec())),
        Item::Blank => {}
    }
    ControlFlow::Continue(())
}

fn decode<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Owned>, LimitError> {
    let mut decoder = Decoder::default();
    let mut items = Vec::new();
    for read in reads {
        decoder.feed(read, |item| own(item, &mut items))?;
    }
    decoder.finish(|item| own(item, &mut items))?;
    Ok(items)
}

fn data(text: &str) -> Owned {
    Owned::Event(String::new(), text.as_bytes().to_vec(), true)
}

fn cases() -> Vec<(&'static str, &'static [u8], Vec<Owned>)> {
    let stray = |line: &str| Owned::Stray(line.as_bytes().to_vec());
    vec![
        ("line feeds", b"data: a\n\ndata: b\n\n", vec![data("a"), data("b")]),
        ("carriage returns", b"data: a\r\rdata: b\r\r", vec![data("a"), data("b")]),
        ("both", b"data: a\r\n\r\ndata: b\r\n\r\n", vec![data("a"), data("b")]),
        ("mixed ends", b"data: a\r\n\ndata: b\r\r\ndata: c\n\r\n", vec![data("a"), data("b"), data("c")]),
        ("no space after the colon", b"data:a\n\n", vec![data("a")]),
        ("only one space is taken", b"data:  a\n\n", vec![data(" a")]),
        ("comments", b": ping\n\n:\n\ndata: a\n: in between\n\n", vec![data("a")]),
        ("several data lines", b"data: a\ndata:\ndata: b\n\n", vec![data("a\n\nb")]),
        ("data without a colon", b"data\n\n", vec![data("")]),
        ("empty data", b"data: \n\ndata: a\n\n", vec![data(""), data("a")]),
        ("a block without data", b"id: 7\nretry: 10\n\ndata: a\n\n", vec![data("a")]),
        ("many blank lines", b"\n\n\n\ndata: a\n\n\n\n", vec![data("a")]),
        ("a byte order mark", b"\xef\xbb\xbfdata: a\n\n", vec![data("a")]),
        ("a mark further on is no mark", b"data: a\n\n\xef\xbb\xbfx: b\n\n", vec![data("a"), stray("\u{feff}x: b")]),
        (
            "an event field",
            b"event: error\ndata: a\n\ndata: b\n\n",
            vec![Owned::Event("error".into(), b"a".to_vec(), true), data("b")],
        ),
        ("an event field alone", b"event: error\n\n", vec![Owned::Event("error".into(), vec![], true)]),
        ("a raw JSON line", b"{\"error\":1}\n\ndata: a\n\n", vec![stray("{\"error\":1}"), data("a")]),
        ("an old error line", b"error: {}\n\n", vec![stray("error: {}")]),
        ("no blank line at the end", b"data: a\n", vec![Owned::Event(String::new(), b"a".to_vec(), false)]),
        ("not even a line end", b"data: [DONE]", vec![Owned::Event(String::new(), b"[DONE]".to_vec(), false)]),
        ("a torn field name", b"data: a\n\neve", vec![data("a")]),
        ("a torn first field name", b"dat", vec![]),
        ("a torn line of something else", b"data: a\n\n<htm", vec![data("a"), stray("<htm")]),
        ("a split character", "data: 日本🚀\n\n".as_bytes(), vec![data("日本🚀")]),
        ("NUL bytes", b"data: \0\n\n", vec![data("\0")]),
        ("nothing", b"", vec![]),
    ]
}

#[test]
fn every_form_decodes() {
    for (name, bytes, expected) in cases() {
        assert_eq!(decode([bytes]).unwrap(), expected, "{name}");
    }
}

#[test]
fn any_two_cuts_decode_alike() {
    for (name, bytes, expected) in cases() {
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let reads = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(decode(reads).unwrap(), expected, "{name}, cut at {first} and {second}");
            }
        }
        assert_eq!(decode(bytes.chunks(1)).unwrap(), expected, "{name}, byte by byte");
    }
}

#[test]
fn an_event_is_complete_at_its_blank_line_and_not_later() {
    for (bytes, completes_at) in [(&b"data: a\n\n"[..], 8), (b"data: a\r\n\r\n", 9), (b"data: a\r\r", 8)] {
        let mut decoder = Decoder::default();
        for (position, byte) in bytes.iter().enumerate() {
            let mut items = Vec::new();
            decoder.feed(&[*byte], |item| own(item, &mut items)).unwrap();
            assert_eq!(items.len(), usize::from(position == completes_at), "byte {position} of {bytes:?}");
        }
    }
}

#[test]
fn a_break_stops_the_read() {
    let mut seen = 0;
    Decoder::default()
        .feed(b"data: a\n\ndata: b\n\n", |_| {
            seen += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn a_giant_data_line_is_an_error_and_not_memory() {
    let mut decoder = Decoder::default();
    decoder.feed(b"data: ", |_| ControlFlow::Continue(())).unwrap();
    let block = vec![b'a'; 64 << 10];
    let mut fed = 0;
    let error = loop {
        fed += block.len();
        match decoder.feed(&block, |_| ControlFlow::Continue(())) {
            Ok(()) => assert!(fed <= MAX_LINE, "no limit after {fed} bytes"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, LimitError::Line);
    assert_eq!(decode([&vec![b'a'; MAX_LINE + 1][..]]).unwrap().len(), 1, "one stray line");
    assert_eq!(
        decode([&[b"data:".to_vec(), vec![b'a'; MAX_LINE], b"\n".to_vec()].concat()[..]]),
        Err(LimitError::Line)
    );
}

#[test]
fn a_giant_line_that_is_no_data_is_cut_and_the_stream_goes_on() {
    for head in [&b""[..], b":", b"{\"a\":\"", b"\xef\xbb\xbf"] {
        let mut decoder = Decoder::default();
        let mut items = Vec::new();
        decoder.feed(head, |item| own(item, &mut items)).unwrap();
        for _ in 0..100 {
            decoder.feed(&vec![b'x'; 64 << 10], |item| own(item, &mut items)).unwrap();
            assert!(decoder.line.capacity() <= 4 * MAX_OTHER_LINE, "{} bytes held", decoder.line.capacity());
        }
        decoder.feed(b"\ndata: a\n\n", |item| own(item, &mut items)).unwrap();
        assert_eq!(items.last(), Some(&data("a")));
    }
}

#[test]
fn endless_data_lines_without_a_blank_one_are_an_error() {
    let mut decoder = Decoder::default();
    let line = [b"data: ".to_vec(), vec![b'a'; 1000], b"\n".to_vec()].concat();
    let mut fed = 0;
    while decoder.feed(&line, |_| ControlFlow::Continue(())).is_ok() {
        fed += line.len();
        assert!(fed <= MAX_EVENT + 100_000, "no limit after {fed} bytes");
    }
}
