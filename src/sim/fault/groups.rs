//! The faults themselves, grouped by the place where they act.
//!
//! `at` counts events with tokens: a fault `at=3` acts once three of them have left, or at the end of a shorter answer.

use std::time::Duration;

use crate::sim::fault::declare::faults;
use crate::sim::value::{Size, words};

faults! {
    /// The answer is right, but takes longer.
    LoadFault {
        /// every time of the answer is multiplied: a drift with `after=`, one slow percentile with `share=0.01`
        Factor = "factor" {
            /// the multiplier
            by: f64 = "1.2",
        }
    }
}

faults! {
    /// The connection misbehaves between requests.
    ConnectionFault {
        /// a new connection is accepted, but not read from for a while
        SlowAccept = "slow_accept" {
            /// for how long
            delay: Duration = "200ms",
        }
        /// a kept connection is closed after it was idle for a while
        IdleClose = "idle_close" {
            /// for how long
            idle: Duration = "50ms",
        }
        /// a kept connection is closed just as the next request arrives on it: the stale connection race
        StaleClose = "stale_close" {
            /// in order or by reset
            how: StaleHow = "fin",
        }
    }
}

words! {
    /// How a connection ends under the next request.
    StaleHow {
        /// In order.
        Fin = "fin",
        /// By RST.
        Rst = "rst",
    }
}

faults! {
    /// Something else comes in place of the answer.
    ReplyFault {
        /// a status other than 200, with the body that servers give with it (502 and 504: nginx's page, 429: Retry-After)
        Status = "status" {
            /// the status
            code: u16 = "500",
            /// what the body is; auto is what servers give
            body: StatusBody = "auto",
            /// seconds in Retry-After, sent with 429, and with any status when it is given
            retry_after: Option<u32> = "none",
            /// whether Retry-After is that number or the date of that instant
            retry_form: RetryForm = "seconds",
        }
        /// the refusal of a request field that the server does not know
        UnknownField = "unknown_field" {
            /// the field that is named
            field: String = "ignore_eos",
            /// in whose words: 422 by transformers, 422 by FastAPI, 400 by OpenAI
            form: FieldForm = "transformers",
        }
        /// a redirect
        Redirect = "redirect" {
            /// the status
            code: u16 = "307",
            /// the Location header
            location: String = "http://127.0.0.1:9/v1/chat/completions",
        }
        /// 200 with a JSON error instead of a stream
        JsonError = "json_error" {
            /// `{"error":{…}}` or `{"object":"error",…}`
            form: JsonErrorForm = "openai",
        }
        /// 200 with an HTML page, as a login or captive portal gives
        HtmlPage = "html_page" {}
        /// 200 with a whole JSON answer, although a stream was asked for
        JsonAnswer = "json_answer" {}
        /// 200 with a JSON answer that is far too big
        BigJson = "big_json" {
            /// bytes of the body
            size: Size = "10MB",
        }
        /// 200 with an empty body
        EmptyBody = "empty_body" {}
        /// 204
        NoContent = "no_content" {}
    }
}

words! {
    /// How Retry-After is written.
    RetryForm {
        /// A number of seconds.
        Seconds = "seconds",
        /// An HTTP date, which has whole seconds: the wait is up to a second shorter.
        Date = "date",
    }
}

words! {
    /// The body of an error status.
    StatusBody {
        /// What servers give with this status.
        Auto = "auto",
        /// `{"error":{…}}`.
        Json = "json",
        /// nginx's page.
        Html = "html",
        /// One line of text.
        Text = "text",
        /// None.
        Empty = "empty",
    }
}

words! {
    /// Who refuses the unknown field.
    FieldForm {
        /// `transformers serve`: 422 `{"detail":"Unexpected fields …"}`.
        Transformers = "transformers",
        /// FastAPI with `extra="forbid"`: 422 `{"detail":[{"type":"extra_forbidden",…}]}`.
        Fastapi = "fastapi",
        /// OpenAI: 400 `Unrecognized request argument supplied`.
        Openai = "openai",
    }
}

words! {
    /// The form of a JSON error that is no stream.
    JsonErrorForm {
        /// `{"error":{…}}`.
        Openai = "openai",
        /// `{"object":"error",…}`, vLLM until 0.8 and SGLang.
        Object = "object",
        /// `{"error":"text"}`.
        Text = "text",
    }
}

faults! {
    /// The events come, but do not say what they should.
    ShapeFault {
        /// finish_reason says error or abort, and the stream ends well
        BadFinish = "bad_finish" {
            /// the reason
            reason: EndReason = "error",
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// the role-only event comes with the head, long before the first token, or late, after it
        RoleChunk = "role_chunk" {
            /// early or late
            when: RoleWhen = "early",
        }
        /// the usage is missing or makes no sense
        Usage = "usage" {
            /// missing, huge, negative, float, absurd (no number of any machine), strings, or two that disagree
            kind: UsageKind = "missing",
        }
        /// finish_reason comes, `[DONE]` does not
        NoDone = "no_done" {}
        /// `[DONE]` comes, finish_reason does not
        NoFinish = "no_finish" {}
        /// finish_reason stands in the event with the last text, as vLLM often has it
        FinishWithText = "finish_with_text" {}
        /// the text of the events is of another type
        ContentType = "content_type" {
            /// a number, an array of parts, an object, or null
            form: ContentForm = "number",
        }
    }
}

faults! {
    /// The sequence of events is wrong.
    EventFault {
        /// an error inside the 200 stream
        Error = "error" {
            /// its form: data, event (`event: error`), raw (a JSON line without `data:`), llama (`error: {…}`), object
            form: ErrorForm = "data",
            /// after how many events with tokens
            at: u32 = "3",
            /// what follows: `[DONE]`, the end of the body, or nothing while the stream is left open
            then: ErrorThen = "done",
        }
        /// the body ends in order, but without finish_reason and `[DONE]`
        Truncate = "truncate" {
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// nothing more comes, and the connection stays
        Stall = "stall" {
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// nothing but keep-alive comments comes from then on
        StallComments = "stall_comments" {
            /// after how many events with tokens
            at: u32 = "3",
            /// time between two comments
            every: Duration = "1s",
        }
        /// a comment follows each event
        Comments = "comments" {}
        /// events for ever, as fast as they go
        Endless = "endless" {
            /// events with tokens, or comments
            of: EndlessKind = "tokens",
            /// after how many events with tokens
            at: u32 = "1",
        }
        /// one line that does not end for a long time
        GiantLine = "giant_line" {
            /// its bytes
            size: Size = "1GB",
            /// an event's data, or a line that is no SSE
            form: LineForm = "data",
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// an event whose JSON is nested deeply
        DeepJson = "deep_json" {
            /// brackets within each other
            depth: u32 = "100000",
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// an event with NUL bytes in its text, unescaped
        NulBytes = "nul_bytes" {
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// an event that is not UTF-8
        BadUtf8 = "bad_utf8" {
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// an event that is not JSON
        BadJson = "bad_json" {
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// events that are JSON, but no objects: `5`, `null` and `[]`
        NonObject = "non_object" {
            /// after how many events with tokens
            at: u32 = "3",
        }
    }
}

words! {
    /// The form of an error inside a stream.
    ErrorForm {
        /// `data: {"error":{…}}`, vLLM and most others.
        Data = "data",
        /// `event: error` and its data.
        Event = "event",
        /// A line of JSON without `data:`.
        Raw = "raw",
        /// `error: {…}`, llama.cpp until 2025.
        Llama = "llama",
        /// `data: {"object":"error",…}`.
        Object = "object",
    }
}

words! {
    /// What follows an error inside a stream.
    ErrorThen {
        /// `[DONE]` and the end.
        Done = "done",
        /// The end.
        Close = "close",
        /// Nothing: the stream is left open.
        Open = "open",
    }
}

words! {
    /// A `finish_reason` that is no good end.
    EndReason {
        /// `error`.
        Error = "error",
        /// `abort`.
        Abort = "abort",
    }
}

words! {
    /// Where the role-only event stands.
    RoleWhen {
        /// With the head.
        Early = "early",
        /// After the first token.
        Late = "late",
    }
}

words! {
    /// What is wrong with the usage.
    UsageKind {
        /// It is not there.
        Missing = "missing",
        /// 2^64 - 1 tokens.
        Huge = "huge",
        /// Fewer than none.
        Negative = "negative",
        /// Half a token more.
        Float = "float",
        /// 1e400 tokens.
        Absurd = "absurd",
        /// Numbers in quotes.
        Strings = "strings",
        /// The event with `finish_reason` says one token more than the usage event after it.
        Disagree = "disagree",
    }
}

words! {
    /// What comes for ever.
    EndlessKind {
        /// Events with tokens.
        Tokens = "tokens",
        /// Comments.
        Comments = "comments",
    }
}

words! {
    /// What the giant line is.
    LineForm {
        /// `data: aaaa…`.
        Data = "data",
        /// `aaaa…`.
        Raw = "raw",
    }
}

words! {
    /// The type that stands where the text should.
    ContentForm {
        /// `5`.
        Number = "number",
        /// `[{"type":"text","text":…}]`.
        Parts = "parts",
        /// `{"text":…}`.
        Object = "object",
        /// `null`.
        Null = "null",
    }
}

faults! {
    /// The events are right, but written in an unusual or broken form of SSE.
    FormatFault {
        /// lines end in CR LF
        Crlf = "crlf" {}
        /// lines end in CR alone
        CrOnly = "cr_only" {}
        /// no space after the colon
        NoSpace = "no_space" {}
        /// each event's JSON is spread over two data lines
        MultiLine = "multi_line" {}
        /// the stream begins with a byte order mark
        Bom = "bom" {}
        /// many blank lines between events
        BlankLines = "blank_lines" {
            /// how many more than one
            count: u16 = "20",
        }
        /// the last event lacks the blank line after it
        DoneUnterminated = "done_unterminated" {}
    }
}

faults! {
    /// The bytes are right, but leave the socket in an unusual or broken way.
    WireFault {
        /// each event leaves in two writes, cut inside a character of several bytes
        SplitUtf8 = "split_utf8" {
            /// between the two
            pause: Duration = "1ms",
        }
        /// every byte is a write of its own
        OneByte = "one_byte" {}
        /// the whole answer leaves in one write at its end: a buffering proxy
        Coalesced = "coalesced" {}
        /// the body is compressed although nobody asked, each event flushed
        Compressed = "compressed" {
            /// gzip or deflate
            with: Codec = "gzip",
        }
        /// the connection ends in order inside the chunked body
        Cut = "cut" {
            /// after how many events with tokens
            at: u32 = "3",
            /// in the middle of an event, or between two
            place: CutPlace = "event",
        }
        /// the connection ends by RST
        Reset = "reset" {
            /// before the head, after the head, or inside the stream
            when: ResetWhen = "stream",
            /// inside the stream: after how many events with tokens
            at: u32 = "3",
        }
        /// the connection ends in order before the body
        Close = "close" {
            /// before the first byte, or inside the head
            when: CloseWhen = "before_head",
        }
        /// nothing comes
        Silence = "silence" {
            /// whether the head still does
            head: HeadState = "sent",
        }
        /// the head arrives in small pieces
        HeadPieces = "head_pieces" {
            /// bytes of a piece
            size: u16 = "7",
            /// between two pieces
            pause: Duration = "1ms",
        }
        /// a header of this many bytes
        HugeHead = "huge_head" {
            /// bytes of the header
            size: Size = "100kB",
        }
        /// a first line that is no HTTP
        BadStatusLine = "bad_status_line" {}
        /// Content-Length promises more than comes before the connection ends
        ShortLength = "short_length" {
            /// after how many events with tokens
            at: u32 = "3",
        }
        /// HTTP/1.0: no length and no chunks, the end of the connection ends the body
        CloseDelimited = "close_delimited" {}
    }
}

words! {
    /// How the body is compressed.
    Codec {
        /// `Content-Encoding: gzip`.
        Gzip = "gzip",
        /// `Content-Encoding: deflate`, which is zlib's format.
        Deflate = "deflate",
    }
}

words! {
    /// Where the body is cut.
    CutPlace {
        /// In the middle of an event.
        Event = "event",
        /// Between two events.
        Between = "between",
    }
}

words! {
    /// When the RST is sent.
    ResetWhen {
        /// In place of the answer.
        BeforeHead = "before_head",
        /// After the head.
        AfterHead = "after_head",
        /// Inside the stream.
        Stream = "stream",
    }
}

words! {
    /// When the connection is closed.
    CloseWhen {
        /// Without a byte.
        BeforeHead = "before_head",
        /// In the middle of the head.
        InHead = "in_head",
    }
}

words! {
    /// What came before nothing more did.
    HeadState {
        /// The head.
        Sent = "sent",
        /// Not even the head.
        Withheld = "withheld",
    }
}
