//! Values as people write them on a command line: `20ms`, `10MB`, `lognormal:20ms,0.3`, `true`.
//!
//! Settings and fault parameters share it, so that `ttft=200ms` and `stall_comments:every=200ms` mean the same thing and
//! are refused with the same words.

use std::time::Duration;

use crate::domain::secret::Secret;

/// A value that is read from text and shown as the same text.
pub(crate) trait Value: Sized {
    /// What may be written, for the message that refuses something else.
    const SHAPE: &'static str;

    /// The value of `text`; `None` when it is not of [`Self::SHAPE`].
    fn read(text: &str) -> Option<Self>;

    /// The text that reads back as this value.
    fn show(&self) -> String;
}

/// Times beyond a year are typing errors, and adding them to an instant could overflow it.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

macro_rules! plain_values {
    ($($type:ty = $shape:literal),* $(,)?) => {$(
        impl Value for $type {
            const SHAPE: &'static str = $shape;

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

plain_values! {
    bool = "true|false",
    u16 = "a whole number up to 65535",
    u32 = "a whole number",
    u64 = "a whole number",
    String = "text",
}

impl Value for f64 {
    const SHAPE: &'static str = "a number, 0 or more";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number: &Self| number.is_finite() && *number >= 0.0)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Duration {
    const SHAPE: &'static str = "a time such as 250us, 20ms, 1.5s or 2m";

    fn read(text: &str) -> Option<Self> {
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let secs_per_unit = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" if number == "0" => 1.0,
            _ => return None,
        };
        Self::try_from_secs_f64(f64::read(number)? * secs_per_unit).ok().filter(|time| *time <= LONGEST)
    }

    fn show(&self) -> String {
        format!("{self:?}").replace('µ', "u")
    }
}

impl Value for Size {
    const SHAPE: &'static str = "a size such as 100kB, 10MB or 1GB";

    fn read(text: &str) -> Option<Self> {
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit: u64 = match unit {
            "" | "B" => 1,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit).map(Self)
    }

    fn show(&self) -> String {
        match self.0 {
            n if n > 0 && n % 1_000_000_000 == 0 => format!("{}GB", n / 1_000_000_000),
            n if n > 0 && n % 1_000_000 == 0 => format!("{}MB", n / 1_000_000),
            n if n > 0 && n % 1_000 == 0 => format!("{}kB", n / 1_000),
            n => n.to_string(),
        }
    }
}

impl<T: Value> Value for Option<T> {
    const SHAPE: &'static str = T::SHAPE;

    fn read(text: &str) -> Option<Self> {
        if text == "none" { Some(None) } else { T::read(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), T::show)
    }
}

impl Value for Secret {
    const SHAPE: &'static str = "text";

    fn read(text: &str) -> Option<Self> {
        Some(Self::new(text))
    }

    fn show(&self) -> String {
        "[set]".to_owned()
    }
}

/// An enum whose values are words.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $name:ident { $(#[$first_meta:meta])* $first:ident = $first_word:literal $(, $(#[$rest_meta:meta])* $rest:ident = $rest_word:literal)* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[$first_meta])* $first
            $(, $(#[$rest_meta])* $rest)*
        }

        impl $crate::sim::value::Value for $name {
            const SHAPE: &'static str = concat!($first_word $(, "|", $rest_word)*);

            fn read(text: &str) -> Option<Self> {
                match text {
                    $first_word => Some(Self::$first),
                    $($rest_word => Some(Self::$rest),)*
                    _ => None,
                }
            }

            fn show(&self) -> String {
                match self {
                    Self::$first => $first_word.to_owned(),
                    $(Self::$rest => $rest_word.to_owned(),)*
                }
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit_and_refused_without() {
        assert_eq!(Duration::read("20ms"), Some(Duration::from_millis(20)));
        assert_eq!(Duration::read("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(Duration::read("250us"), Some(Duration::from_micros(250)));
        assert_eq!(Duration::read("0"), Some(Duration::ZERO));
        for text in ["20", "ms", "-1s", "1 s", "1d", "nans", "infs", "1e300h", "9000h", ""] {
            assert_eq!(Duration::read(text), None, "{text}");
        }
    }

    #[test]
    fn every_value_shows_as_text_that_reads_back() {
        for text in ["20ms", "1.5s", "250us"] {
            let value = Duration::read(text).unwrap();
            assert_eq!((value.show().as_str(), Duration::read(&value.show())), (text, Some(value)));
        }
        for text in ["100kB", "10MB", "1GB", "7", "0"] {
            assert_eq!(Size::read(text).unwrap().show(), text);
        }
        assert_eq!(Size::read("1kiB"), None);
        assert_eq!(Size::read("99999999999GB"), None);
    }
}
