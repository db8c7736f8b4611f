//! Where secrets are: a variable or a file. Both are read here, so that a missing one is found now and not when it is
//! needed.

use config::ValueKind;

use super::reader::{Checker, Entry, Section};
use crate::config::origin::Literal;
use crate::config::read::resolved;
use crate::config::redact;
use crate::config::sections::SecretSource;

/// A secret, and what people are told about it.
pub(super) struct Kind {
    /// The setting that names a variable.
    pub(super) env: &'static str,
    /// The setting that names a file.
    pub(super) file: &'static str,
    /// What the secret is called.
    noun: &'static str,
    /// A variable's name, for corrections.
    pub(super) variable: &'static str,
    /// A file's path, for corrections.
    path: &'static str,
    /// When neither setting is needed.
    needless: &'static str,
}

/// The key of a target, and what its extra headers hold.
pub(super) const API_KEY: Kind = Kind {
    env: "api_key_env",
    file: "api_key_file",
    noun: "key",
    variable: "GATEWAY_API_KEY",
    path: "/run/secrets/gateway-key",
    needless: "if the gateway wants no key",
};

/// What calls have to carry that change something.
pub(super) const ADMIN_TOKEN: Kind = Kind {
    env: "admin_token_env",
    file: "admin_token_file",
    noun: "token",
    variable: "STEADYLOAD_ADMIN_TOKEN",
    path: "/run/secrets/steadyload-admin-token",
    needless: "if nobody is to change anything by a call",
};

/// The secret of a section, from one of its two settings. `Some(None)` when neither is there.
pub(super) fn secret(checker: &mut Checker<'_>, section: &Section<'_>, kind: &Kind) -> Option<Option<SecretSource>> {
    match (checker.entry(section, kind.env), checker.entry(section, kind.file)) {
        (None, None) => Some(None),
        (Some(env), None) => variable(checker, &env, kind).map(Some),
        (None, Some(file)) => secret_file(checker, &file, kind).map(Some),
        (Some(env), Some(file)) => {
            let (first, second) = if env.origin <= file.origin { (env, file) } else { (file, env) };
            let what = format!("stands beside {} ({}), wants one of them", first.path.last(), first.origin);
            checker.wrong(&second, what, "remove one of the two")
        }
    }
}

/// A secret in a variable.
pub(super) fn variable(checker: &mut Checker<'_>, entry: &Entry<'_>, kind: &Kind) -> Option<SecretSource> {
    if entry.as_text().is_some_and(redact::must_hide) || is_number(entry) {
        let what = format!("is a {}, wants the name of the variable that holds it (not shown here)", kind.noun);
        let written = entry.written(&Literal::text(kind.variable));
        return checker.wrong(entry, what, format!("put the {} into a variable and write `{written}`", kind.noun));
    }
    let name = checker.filled_text(entry, kind.variable)?;
    let bare = name.trim_start_matches('$').trim_matches(['{', '}']);
    if bare != name || name.contains(['=', '\0', ' ']) {
        let bare = bare.split(['=', '\0', ' ']).next().unwrap_or_default();
        let written = entry.written(&Literal::text(bare));
        // What stands behind an equals sign may be the key itself.
        return checker.wrong(entry, "wants the bare name of a variable", format!("write `{written}`"));
    }
    readable(checker, entry, SecretSource::Env(name.to_owned()), kind)
}

/// A secret in a file.
pub(super) fn secret_file(checker: &mut Checker<'_>, entry: &Entry<'_>, kind: &Kind) -> Option<SecretSource> {
    if is_number(entry) {
        let what = format!("is a {}, wants the path of the file that holds it (not shown here)", kind.noun);
        let written = entry.written(&Literal::text(kind.path));
        return checker.wrong(entry, what, format!("put the {} into a file and write `{written}`", kind.noun));
    }
    let named = checker.filled_text(entry, kind.path)?;
    readable(checker, entry, SecretSource::File(resolved(named, &entry.origin)), kind)
}

fn readable(checker: &mut Checker<'_>, entry: &Entry<'_>, source: SecretSource, kind: &Kind) -> Option<SecretSource> {
    match source.read(checker.environment) {
        Ok(_) => {
            let named = entry.as_text().unwrap_or_default();
            checker.keep(entry, format!("\"{}\"", named.escape_default()));
            Some(source)
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            let help = match source {
                SecretSource::Env(_) => format!("export it to this process, or remove this setting {}", kind.needless),
                SecretSource::File(_) => {
                    format!("name a file that holds the {} and that this user may read", kind.noun)
                }
            };
            checker.wrong(entry, format!("{error}{cause}"), help)
        }
    }
}

/// A secret of digits only is a number to the parser, and is not to be shown either.
fn is_number(entry: &Entry<'_>) -> bool {
    matches!(
        entry.value.kind,
        ValueKind::I64(_) | ValueKind::I128(_) | ValueKind::U64(_) | ValueKind::U128(_) | ValueKind::Float(_)
    )
}
