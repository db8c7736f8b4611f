//! Bodies that are compressed although we asked for `identity`.
//!
//! They are decoded all the same, because the answer is still an answer; the timeline is flagged, because its stamps show
//! when the compressor let go of the tokens. Output is handed on in small pieces: a bomb meets the limit on the body
//! before it meets the memory.

use std::io::{self, Write};
use std::ops::ControlFlow;

use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};

/// Input per step. Deflate expands at most a thousandfold, so a step yields at most about 1 MB.
const STEP: usize = 1 << 10;

/// The decoder for one body.
pub(super) enum Encoding {
    Identity,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
    /// `deflate` was announced and no byte has shown yet which of its two forms it is.
    Undecided,
}

impl Encoding {
    /// The decoder for a `content-encoding`; `None` for one that we cannot decode.
    pub(super) fn of(header: Option<&str>) -> Option<Self> {
        match header.map(|value| value.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Some(Self::Identity),
            Some("gzip" | "x-gzip") => Some(Self::Gzip(Box::new(GzDecoder::new(Vec::new())))),
            Some("deflate") => Some(Self::Undecided),
            Some(_) => None,
        }
    }

    pub(super) fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// Decodes one frame and hands the plain bytes to `sink`, in order, until it breaks.
    pub(super) fn decode(
        &mut self,
        frame: &[u8],
        mut sink: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        if self.is_identity() {
            return Ok(sink(frame));
        }
        if let (Self::Undecided, Some(first)) = (&self, frame.first()) {
            // The zlib form, which HTTP means, begins with method 8; the raw form, which some servers send, does not.
            *self = if first & 0x0f == 8 {
                Self::Zlib(Box::new(ZlibDecoder::new(Vec::new())))
            } else {
                Self::Deflate(Box::new(DeflateDecoder::new(Vec::new())))
            };
        }
        for step in frame.chunks(STEP) {
            let plain = match self {
                Self::Gzip(decoder) => plain(decoder.as_mut(), step, GzDecoder::get_mut)?,
                Self::Zlib(decoder) => plain(decoder.as_mut(), step, ZlibDecoder::get_mut)?,
                Self::Deflate(decoder) => plain(decoder.as_mut(), step, DeflateDecoder::get_mut)?,
                Self::Identity | Self::Undecided => Vec::new(),
            };
            if !plain.is_empty() && sink(&plain).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn plain<D: Write>(decoder: &mut D, step: &[u8], out: fn(&mut D) -> &mut Vec<u8>) -> io::Result<Vec<u8>> {
    decoder.write_all(step)?;
    decoder.flush()?;
    Ok(std::mem::take(out(decoder)))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn decoded(header: &str, frames: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut encoding = Encoding::of(Some(header)).unwrap();
        let mut plain = Vec::new();
        for frame in frames {
            let flow = encoding.decode(frame, |bytes| {
                plain.extend_from_slice(bytes);
                ControlFlow::Continue(())
            })?;
            assert!(flow.is_continue());
        }
        Ok(plain)
    }

    #[test]
    fn each_form_decodes_cut_at_every_byte() {
        let text = b"data: {\"choices\":[]}\n\n".repeat(50);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        for encoder in [&mut gzip as &mut dyn Write, &mut zlib, &mut raw] {
            encoder.write_all(&text).unwrap();
        }
        let bodies = [("gzip", gzip.finish()), ("Deflate", zlib.finish()), ("deflate", raw.finish())];
        for (header, body) in bodies.map(|(header, body)| (header, body.unwrap())) {
            for cut in 0..=body.len() {
                assert_eq!(decoded(header, &[&body[..cut], &body[cut..]]).unwrap(), text, "{header} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_flushed_comes_out_before_the_end() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"data: a\n\n").unwrap();
        gzip.flush().unwrap();
        assert_eq!(decoded("gzip", &[gzip.get_ref()]).unwrap(), b"data: a\n\n");
    }

    #[test]
    fn a_bomb_is_handed_on_in_pieces_that_a_limit_can_stop() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![0; 100 << 20]).unwrap();
        let bomb = gzip.finish().unwrap();
        let (mut largest, mut total) = (0, 0);
        let flow = Encoding::of(Some("gzip")).unwrap().decode(&bomb, |bytes| {
            largest = largest.max(bytes.len());
            total += bytes.len();
            if total > 4 << 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(flow.unwrap().is_break() && largest <= 2 << 20, "{largest} of {total}");
    }

    #[test]
    fn garbage_is_an_error_and_an_unknown_encoding_is_none() {
        assert!(decoded("gzip", &[b"not gzip at all, by any means"]).is_err());
        assert!(Encoding::of(Some("br")).is_none());
        assert!(Encoding::of(Some("identity")).unwrap().is_identity());
    }
}
