//! The ways in which the gateway can go wrong, by name.
//!
//! Each group acts at one place of the answer's way to the wire, and the code at that place matches its group
//! exhaustively: a fault that is declared but not built does not compile. [`ALL`] lists them for people and for the
//! tests, which check the bytes of each.

pub mod rule;

mod declare;
mod groups;

pub use self::declare::{FaultDoc, ParamDoc};
pub use self::groups::{
    CloseWhen, Codec, ConnectionFault, ContentForm, CutPlace, EndReason, EndlessKind, ErrorForm, ErrorThen, EventFault,
    FieldForm, FormatFault, HeadState, JsonErrorForm, LineForm, LoadFault, ReplyFault, ResetWhen, RetryForm, RoleWhen,
    ShapeFault, StaleHow, StatusBody, UsageKind, WireFault,
};

use std::fmt;

use self::declare::Params;

/// One way to go wrong, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The answer is right, but takes longer.
    Load(LoadFault),
    /// The connection misbehaves between requests.
    Connection(ConnectionFault),
    /// Something else comes in place of the answer.
    Reply(ReplyFault),
    /// The events come, but do not say what they should.
    Shape(ShapeFault),
    /// The sequence of events is wrong.
    Event(EventFault),
    /// The events are right, but written in an unusual or broken form of SSE.
    Format(FormatFault),
    /// The bytes are right, but leave the socket in an unusual or broken way.
    Wire(WireFault),
}

/// Why a fault's text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// No fault has this name: choose one of those listed.
    #[error("no fault is called `{name}`; there are {known}")]
    UnknownName {
        /// What was asked for.
        name: String,
        /// Every name there is.
        known: String,
    },
    /// The fault has no such parameter.
    #[error("`{name}` has no parameter `{key}`; it takes {known}")]
    UnknownParam {
        /// The fault.
        name: String,
        /// What was given.
        key: String,
        /// What it takes.
        known: String,
    },
    /// The parameter exists, but takes something else.
    #[error("`{value}` does not fit `{key}` of `{name}`, which takes {shape}")]
    BadValue {
        /// The fault.
        name: String,
        /// The parameter.
        key: String,
        /// What was given.
        value: String,
        /// What it takes.
        shape: &'static str,
    },
    /// A part of the text is not `key=value`.
    #[error("`{part}` is not `key=value`")]
    NotAPair {
        /// The part.
        part: String,
    },
    /// A connection fault came with a request, when its moment had already passed.
    #[error("`{name}` acts before a request is read: give it at start-up or by PUT /admin/faults")]
    TooLate {
        /// The fault.
        name: String,
    },
}

const GROUPS: [&[FaultDoc]; 7] = [
    LoadFault::DOCS,
    ConnectionFault::DOCS,
    ReplyFault::DOCS,
    ShapeFault::DOCS,
    EventFault::DOCS,
    FormatFault::DOCS,
    WireFault::DOCS,
];

const COUNT: usize = {
    let mut count = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

/// Every fault, in the order of the groups.
pub const ALL: [FaultDoc; COUNT] = {
    let mut all = [GROUPS[0][0]; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut index = 0;
        while index < GROUPS[group].len() {
            all[at] = GROUPS[group][index];
            at += 1;
            index += 1;
        }
        group += 1;
    }
    all
};

impl Fault {
    /// The fault of a text: `name`, `name=value` for its first parameter, or `name:key=value,…`.
    ///
    /// # Errors
    /// When the name, a parameter or a value does not exist.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let mut params = Params::split(text)?;
        let fault = Self::build(&mut params)?;
        params.finish()?;
        Ok(fault)
    }

    /// Takes this fault's parameters out of `params` and leaves the rest to the caller.
    pub(crate) fn build(params: &mut Params) -> Result<Self, FaultError> {
        if let Some(fault) = LoadFault::build(params)? {
            return Ok(Self::Load(fault));
        }
        if let Some(fault) = ConnectionFault::build(params)? {
            return Ok(Self::Connection(fault));
        }
        if let Some(fault) = ReplyFault::build(params)? {
            return Ok(Self::Reply(fault));
        }
        if let Some(fault) = ShapeFault::build(params)? {
            return Ok(Self::Shape(fault));
        }
        if let Some(fault) = EventFault::build(params)? {
            return Ok(Self::Event(fault));
        }
        if let Some(fault) = FormatFault::build(params)? {
            return Ok(Self::Format(fault));
        }
        if let Some(fault) = WireFault::build(params)? {
            return Ok(Self::Wire(fault));
        }
        let known: Vec<_> = ALL.iter().map(|doc| doc.name).collect();
        Err(FaultError::UnknownName { name: params.name.clone(), known: known.join(", ") })
    }

    /// The name without parameters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Load(fault) => fault.name(),
            Self::Connection(fault) => fault.name(),
            Self::Reply(fault) => fault.name(),
            Self::Shape(fault) => fault.name(),
            Self::Event(fault) => fault.name(),
            Self::Format(fault) => fault.name(),
            Self::Wire(fault) => fault.name(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(fault) => fault.fmt(f),
            Self::Connection(fault) => fault.fmt(f),
            Self::Reply(fault) => fault.fmt(f),
            Self::Shape(fault) => fault.fmt(f),
            Self::Event(fault) => fault.fmt(f),
            Self::Format(fault) => fault.fmt(f),
            Self::Wire(fault) => fault.fmt(f),
        }
    }
}

/// The list of [`ALL`] as text for people.
#[must_use]
pub fn describe() -> String {
    ALL.iter().map(|doc| format!("{doc}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_listed_fault_parses_by_name_and_by_its_own_text() {
        for doc in ALL {
            let fault = Fault::parse(doc.name).unwrap();
            assert_eq!(fault.name(), doc.name);
            assert_eq!(Fault::parse(&fault.to_string()), Ok(fault));
        }
    }

    #[test]
    fn names_are_unique_and_no_parameter_hides_one_of_a_rule() {
        let names: BTreeSet<_> = ALL.iter().map(|doc| doc.name).collect();
        assert_eq!(names.len(), ALL.len());
        for param in ALL.iter().flat_map(|doc| doc.params) {
            assert!(!["share", "after", "for", "times"].contains(&param.key), "{}", param.key);
        }
    }

    #[test]
    fn the_first_parameter_may_follow_an_equals_sign() {
        assert_eq!(Fault::parse("status=503"), Fault::parse("status:code=503"));
        assert_eq!(Fault::parse("factor=1.2"), Ok(Fault::Load(LoadFault::Factor { by: 1.2 })));
        let redirect = "redirect:code=302,location=http://other:80/v1?a=b";
        assert_eq!(Fault::parse(redirect).unwrap().to_string(), redirect);
    }

    #[test]
    fn wrong_texts_are_refused_with_what_would_be_right() {
        for (text, part) in [
            ("stal", "there are factor, "),
            ("stall:when=3", "it takes at"),
            ("stall:at=soon", "takes a whole number"),
            ("stall:at", "is not `key=value`"),
            ("crlf:x=1", "no parameter `x`; it takes nothing"),
            ("crlf=1", "it takes nothing"),
        ] {
            let error = Fault::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
