//! Chat templates: the text that a server makes of a conversation before it counts it.
//!
//! Set up as the `transformers` library sets Jinja up, since templates are written for that: block tags swallow their lines,
//! `tojson` writes what Python's `json.dumps` writes (and escapes no HTML), Python's methods of texts exist, and so do
//! `raise_exception` and `strftime_now`.
//!
//! `strftime_now` knows one day only, 26 July 2024, which is what Llama's templates fall back to: a count that changed at
//! midnight would not be reproducible. A server writes today's date there, of the same form and nearly always as many tokens.
//!
//! A template is ended by its fuel if it loops, and by [`MAX_RENDERED`] if it writes without end. What it builds in variables is
//! bounded by the fuel alone, so a template made to eat memory can; it is the operator's own file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use crate::domain::prompt::{Message, Role};

/// Instructions a template may take for one conversation. Those in use take some hundred for a message.
const FUEL: u64 = 2_000_000;

/// Longest text that a template may write, in bytes.
const MAX_RENDERED: usize = 64 << 20;

/// The name that the template has in its own errors.
const NAME: &str = "chat_template";

/// Why a conversation cannot be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The folder has no chat template: the caller has to count another way, or the operator to add one.
    #[error("the tokenizer's folder has no chat template: put the model's `chat_template.jinja` into it")]
    Missing,
    /// The template does not compile, raises an exception, or loops for ever. The cause says where.
    #[error(
        "the chat template cannot be rendered: use the model's own `chat_template.jinja`, or another order of roles"
    )]
    Render(#[source] Error),
    /// The text was made, and the tokenizer cannot encode it.
    #[error("the tokenizer cannot encode what the chat template wrote: use the model's own `tokenizer.json`")]
    Encode,
}

/// A compiled chat template with the special tokens that it may write.
pub(super) struct Template {
    environment: Environment<'static>,
    special: BTreeMap<String, String>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("special", &self.special).finish_non_exhaustive()
    }
}

impl Template {
    /// Compiles `source`.
    pub(super) fn compile(source: String, special: BTreeMap<String, String>) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise);
        environment.add_function("strftime_now", strftime);
        environment.add_template_owned(NAME, source)?;
        Ok(Self { environment, special })
    }

    /// The text that a server would encode, up to where the model is to begin.
    pub(super) fn render(&self, messages: &[Message]) -> Result<String, TemplateError> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|Message { role, text }| {
                let pairs = [("role", role_name(*role)), ("content", text.as_str())];
                Value::from_pairs(pairs)
            })
            .collect();
        let mut context: BTreeMap<&str, Value> =
            self.special.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str()))).collect();
        context.insert("messages", Value::from(messages));
        context.insert("tools", Value::from(()));
        context.insert("documents", Value::from(()));
        context.insert("add_generation_prompt", Value::from(true));
        let mut text = Capped(Vec::new());
        let template = self.environment.get_template(NAME).map_err(TemplateError::Render)?;
        template.render_captured_to(Value::from_pairs(context), &mut text).map_err(TemplateError::Render)?;
        // A template writes texts only, so this holds; it is checked because a wrong count would be worse than none.
        String::from_utf8(text.0).map_err(|_| TemplateError::Encode)
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// What was written, which refuses to grow beyond [`MAX_RENDERED`].
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_RENDERED {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the chat template writes too much"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn raise(message: &str) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()))
}

/// The one day that there is: Friday, 26 July 2024, at midnight.
fn strftime(form: &str) -> Result<String, Error> {
    let mut text = String::new();
    let mut rest = form.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        text.push_str(match rest.next() {
            Some('Y') => "2024",
            Some('y') => "24",
            Some('m') => "07",
            Some('d' | 'e') => "26",
            Some('B') => "July",
            Some('b' | 'h') => "Jul",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('j') => "208",
            Some('H' | 'M' | 'S') => "00",
            Some('F') => "2024-07-26",
            Some('T') => "00:00:00",
            Some('%') => "%",
            _ => return Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know {form:?}"))),
        });
    }
    Ok(text)
}

/// As `json.dumps(value, ensure_ascii=False, indent=indent)` of Python.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson cannot write ASCII only"));
    }
    options.assert_all_used()?;
    let spaces = " ".repeat(indent.unwrap_or_default().min(16));
    let mut bytes = Vec::new();
    let written = match indent {
        Some(_) => value
            .serialize(&mut Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(spaces.as_bytes()))),
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, OneLine)),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, "tojson cannot write this").with_source(error))?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::BadSerialization, "not UTF-8").with_source(error))
}

/// Python's spacing: a blank after each comma and colon.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
