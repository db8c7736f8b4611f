//! How faults are declared: one place holds a fault's name, its parameters with their defaults, and its explanation.

use std::fmt;

use crate::sim::fault::FaultError;
use crate::sim::value::Value;

/// A fault as it is listed for people.
#[derive(Debug, Clone, Copy)]
pub struct FaultDoc {
    /// The name in `--fault`, in the header `x-sim-fault` and in `PUT /admin/faults`.
    pub name: &'static str,
    /// What can be said about it.
    pub params: &'static [ParamDoc],
    /// One line on what it does.
    pub doc: &'static str,
}

/// A parameter of a fault.
#[derive(Debug, Clone, Copy)]
pub struct ParamDoc {
    /// The name in `key=value`.
    pub key: &'static str,
    /// Its value when it is not given.
    pub default: &'static str,
    /// What may be written.
    pub shape: &'static str,
    /// What it means.
    pub doc: &'static str,
}

impl fmt::Display for FaultDoc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (index, param) in self.params.iter().enumerate() {
            write!(f, "{}{}={}", if index == 0 { ':' } else { ',' }, param.key, param.default)?;
        }
        write!(f, "\n    {}", self.doc.trim())?;
        for param in self.params {
            write!(f, "\n    {}: {} ({})", param.key, param.doc.trim(), param.shape)?;
        }
        Ok(())
    }
}

/// A fault's text, taken apart; what is taken out by name is gone, so that what is left over was a mistake.
#[derive(Debug)]
pub(crate) struct Params {
    pub(crate) name: String,
    /// The value in `name=value`, which stands for the first parameter.
    first: Option<String>,
    pairs: Vec<(String, String)>,
    /// The keys that were asked for, to be named when there is one too many.
    known: Vec<&'static str>,
}

impl Params {
    pub(crate) fn split(text: &str) -> Result<Self, FaultError> {
        let text = text.trim();
        let end = text.find([':', '=']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let mut params = Self { name: name.to_owned(), first: None, pairs: Vec::new(), known: Vec::new() };
        let rest = if let Some(rest) = rest.strip_prefix('=') {
            let (first, rest) = rest.split_once(',').unwrap_or((rest, ""));
            params.first = Some(first.to_owned());
            rest
        } else {
            rest.strip_prefix(':').unwrap_or(rest)
        };
        for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| FaultError::NotAPair { part: part.to_owned() })?;
            params.pairs.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(params)
    }

    /// The value given for `key`, or the one in `default`.
    pub(crate) fn take<T: Value>(&mut self, key: &'static str, default: &str) -> Result<T, FaultError> {
        let first = if self.known.is_empty() { self.first.take() } else { None };
        self.known.push(key);
        let given = match self.pairs.iter().position(|(name, _)| name == key) {
            Some(index) => Some(self.pairs.remove(index).1),
            None => first,
        };
        let text = given.as_deref().unwrap_or(default);
        T::read(text).ok_or_else(|| FaultError::BadValue {
            name: self.name.clone(),
            key: key.to_owned(),
            value: text.to_owned(),
            shape: T::SHAPE,
        })
    }

    /// Complains about anything that nobody took.
    pub(crate) fn finish(self) -> Result<(), FaultError> {
        let key = match (self.first, self.pairs.into_iter().next()) {
            (Some(value), _) => format!("={value}"),
            (None, Some((key, _))) => key,
            (None, None) => return Ok(()),
        };
        let known = if self.known.is_empty() { "nothing".to_owned() } else { self.known.join(", ") };
        Err(FaultError::UnknownParam { name: self.name, key, known })
    }
}

macro_rules! faults {
    (
        $(#[$meta:meta])*
        $group:ident {$(
            #[doc = $doc:literal]
            $variant:ident = $name:literal {$(
                #[doc = $param_doc:literal]
                $key:ident : $type:ty = $default:literal
            ),* $(,)?}
        )*}
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $group {$(
            #[doc = $doc]
            $variant {$(
                #[doc = $param_doc]
                $key: $type
            ),*}
        ),*}

        impl $group {
            /// The faults of this group.
            pub const DOCS: &'static [$crate::sim::fault::FaultDoc] = &[$($crate::sim::fault::FaultDoc {
                name: $name,
                params: &[$($crate::sim::fault::ParamDoc {
                    key: stringify!($key),
                    default: $default,
                    shape: <$type as $crate::sim::value::Value>::SHAPE,
                    doc: $param_doc,
                }),*],
                doc: $doc,
            }),*];

            /// The name without parameters.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name),*
                }
            }

            /// The fault with the name in `params`, if it is of this group.
            pub(crate) fn build(
                params: &mut $crate::sim::fault::declare::Params,
            ) -> Result<Option<Self>, $crate::sim::fault::FaultError> {
                Ok(match params.name.as_str() {
                    $($name => Some(Self::$variant { $($key: params.take(stringify!($key), $default)?),* }),)*
                    _ => None,
                })
            }
        }

        impl std::fmt::Display for $group {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let (name, params): (&str, Vec<String>) = match self {$(
                    Self::$variant { $($key),* } => (
                        $name,
                        vec![$(format!("{}={}", stringify!($key), $crate::sim::value::Value::show($key))),*],
                    )
                ),*};
                f.write_str(name)?;
                if params.is_empty() { Ok(()) } else { write!(f, ":{}", params.join(",")) }
            }
        }
    };
}

pub(super) use faults;
