//! Writes events as server-sent events, in the usual form or in one of [`FormatFault`]'s.

use bytes::{BufMut, Bytes, BytesMut};

use crate::sim::event::{Content, Event, Kind};
use crate::sim::fault::FormatFault;

/// The form in which one stream is written.
#[derive(Debug)]
pub(crate) struct Format {
    line_end: &'static str,
    colon: &'static str,
    spreads_data: bool,
    begins_with_bom: bool,
    blank_lines: u16,
    leaves_end_open: bool,
}

impl Format {
    pub(crate) fn new(fault: Option<&FormatFault>) -> Self {
        let mut format = Self {
            line_end: "\n",
            colon: ": ",
            spreads_data: false,
            begins_with_bom: false,
            blank_lines: 0,
            leaves_end_open: false,
        };
        match fault {
            None => {}
            Some(FormatFault::Crlf {}) => format.line_end = "\r\n",
            Some(FormatFault::CrOnly {}) => format.line_end = "\r",
            Some(FormatFault::NoSpace {}) => format.colon = ":",
            Some(FormatFault::MultiLine {}) => format.spreads_data = true,
            Some(FormatFault::Bom {}) => format.begins_with_bom = true,
            Some(FormatFault::BlankLines { count }) => format.blank_lines = *count,
            Some(FormatFault::DoneUnterminated {}) => format.leaves_end_open = true,
        }
        format
    }

    /// The bytes of `event`.
    pub(crate) fn write(&mut self, event: &Event) -> Bytes {
        let mut out = BytesMut::new();
        if std::mem::take(&mut self.begins_with_bom) {
            out.put_slice(b"\xef\xbb\xbf");
        }
        match &event.content {
            Content::Raw(bytes) => {
                out.put_slice(bytes);
                return out.freeze();
            }
            Content::Data(data) => self.data(&mut out, data.as_bytes()),
            Content::Binary(data) => self.data(&mut out, data),
            Content::Named(name, data) => {
                self.field(&mut out, "event", name.as_bytes());
                self.data(&mut out, data.as_bytes());
            }
            Content::Line(line) => {
                out.put_slice(line.as_bytes());
                out.put_slice(self.line_end.as_bytes());
            }
            Content::Comment(text) => {
                out.put_slice(b":");
                out.put_slice(text.as_bytes());
                out.put_slice(self.line_end.as_bytes());
            }
        }
        if !(self.leaves_end_open && event.kind == Kind::Done) {
            for _ in 0..=self.blank_lines {
                out.put_slice(self.line_end.as_bytes());
            }
        }
        out.freeze()
    }

    fn field(&self, out: &mut BytesMut, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), self.colon.as_bytes(), value, self.line_end.as_bytes()] {
            out.put_slice(part);
        }
    }

    /// One data line, or two cut after the JSON's first comma, where the line break between them is white space.
    fn data(&self, out: &mut BytesMut, data: &[u8]) {
        let comma = data.iter().position(|byte| *byte == b',').filter(|_| self.spreads_data);
        match comma.and_then(|at| data.split_at_checked(at + 1)) {
            Some((first, second)) => {
                self.field(out, "data", first);
                self.field(out, "data", second);
            }
            None => self.field(out, "data", data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fault: FormatFault, events: &[Event]) -> String {
        let mut format = Format::new(Some(&fault));
        events.iter().map(|event| String::from_utf8(format.write(event).to_vec()).unwrap()).collect()
    }

    #[test]
    fn each_form_writes_the_same_events_in_its_own_way() {
        let events = [Event::foreign(None, Content::Data(r#"{"a":1,"b":[2,3]}"#.to_owned())), Event::done(None)];
        for (fault, expected) in [
            (FormatFault::Crlf {}, "data: {\"a\":1,\"b\":[2,3]}\r\n\r\ndata: [DONE]\r\n\r\n"),
            (FormatFault::CrOnly {}, "data: {\"a\":1,\"b\":[2,3]}\r\rdata: [DONE]\r\r"),
            (FormatFault::NoSpace {}, "data:{\"a\":1,\"b\":[2,3]}\n\ndata:[DONE]\n\n"),
            (FormatFault::MultiLine {}, "data: {\"a\":1,\ndata: \"b\":[2,3]}\n\ndata: [DONE]\n\n"),
            (FormatFault::Bom {}, "\u{feff}data: {\"a\":1,\"b\":[2,3]}\n\ndata: [DONE]\n\n"),
            (FormatFault::BlankLines { count: 2 }, "data: {\"a\":1,\"b\":[2,3]}\n\n\n\ndata: [DONE]\n\n\n\n"),
            (FormatFault::DoneUnterminated {}, "data: {\"a\":1,\"b\":[2,3]}\n\ndata: [DONE]\n"),
        ] {
            assert_eq!(written(fault.clone(), &events), expected, "{fault}");
        }
    }
}
