//! Where metrics and API are served, and to whom.

use std::net::{IpAddr, SocketAddr};

use super::reader::{Checker, Entry, Section};
use super::{secret, vocabulary};
use crate::config::origin::Literal;
use crate::config::redact;
use crate::config::sections::{Buckets, Server};

/// The words for how fine buckets are.
const BUCKETS: [(&str, Buckets); 2] = [("fine", Buckets::Fine), ("coarse", Buckets::Coarse)];

/// The `[server]`.
pub(super) fn server(checker: &mut Checker<'_>, root: &Section<'_>) -> Option<Server> {
    let default = Server::default();
    let example = Literal::table("listen", Literal::text(default.listen.to_string()));
    let section = checker.inner(root, "server", &example)?;
    let listen = match checker.entry(&section, "listen") {
        Some(entry) => listen(checker, &entry, default.listen),
        None => {
            checker.keep_default(&section, "listen", format!("\"{}\"", default.listen));
            Some(default.listen)
        }
    };
    let admin_token = secret::secret(checker, &section, &secret::ADMIN_TOKEN);
    let buckets = checker.choice_or(&section, "buckets", &BUCKETS, default.buckets);
    checker.close(&section, &vocabulary::SERVER);
    Some(Server { listen: listen?, admin_token: admin_token?, buckets: buckets? })
}

/// A socket address. A name is refused, because it may stand for several addresses, of which one would be taken; and a
/// port alone, because it would not say who can reach it.
fn listen(checker: &mut Checker<'_>, entry: &Entry<'_>, default: SocketAddr) -> Option<SocketAddr> {
    let wants = "an IP address and a port";
    let Some(text) = entry.as_text() else {
        // Most often it is the port.
        let port = entry.value.kind.to_string().parse().unwrap_or(default.port());
        let meant = SocketAddr::new(default.ip(), port);
        return checker.wrong_type(entry, wants, &Literal::text(meant.to_string()));
    };
    if redact::is_key(text) {
        return checker.key_written(entry);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        checker.keep(entry, format!("\"{address}\""));
        return Some(address);
    }
    let meant = meant(text, default);
    let written = |address: SocketAddr| entry.written(&Literal::text(address.to_string()));
    let help = match meant {
        Meant::Address(address) => format!("write `{}`", written(address)),
        Meant::Port(port) => {
            let (here, everywhere) = (SocketAddr::new(default.ip(), port), SocketAddr::from(([0, 0, 0, 0], port)));
            format!("write `{}` for this machine only, `{}` for every interface", written(here), written(everywhere))
        }
        Meant::Unknown => format!("write `{}`, or another address of this machine", written(default)),
    };
    checker.wrong(entry, format!("is {}, wants {wants}", redact::quoted(text)), help)
}

/// What a text that is no socket address was meant to be.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// This one.
    Address(SocketAddr),
    /// This port, of nobody knows which interface.
    Port(u16),
    /// Who knows.
    Unknown,
}

fn meant(text: &str, default: SocketAddr) -> Meant {
    let text = text.trim();
    let text = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or(text);
    let text = text.trim_end_matches('/');
    if let Ok(address) = text.parse() {
        return Meant::Address(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Meant::Address(SocketAddr::new(ip, default.port()));
    }
    let (host, port) =
        text.rsplit_once(':').unwrap_or(if text.parse::<u16>().is_ok() { ("", text) } else { (text, "") });
    let port = if port.is_empty() { Some(default.port()) } else { port.parse().ok() };
    match (host, port) {
        ("localhost", port) => Meant::Address(SocketAddr::new(default.ip(), port.unwrap_or(default.port()))),
        ("" | "*", Some(port)) => Meant::Port(port),
        ("" | "*", None) => Meant::Unknown,
        (host, port) => host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .map_or(Meant::Unknown, |ip| Meant::Address(SocketAddr::new(ip, port.unwrap_or(default.port())))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_for_an_address_is_understood() {
        let default = Server::default().listen;
        for (text, expected) in [
            ("localhost:80", "127.0.0.1:80"),
            ("localhost", "127.0.0.1:9877"),
            ("localhost:99999", "127.0.0.1:9877"),
            ("http://0.0.0.0:80/", "0.0.0.0:80"),
            (" 10.0.0.1:80", "10.0.0.1:80"),
            ("10.0.0.1", "10.0.0.1:9877"),
            ("10.0.0.1:", "10.0.0.1:9877"),
            ("10.0.0.1:99999", "10.0.0.1:9877"),
            ("::1", "[::1]:9877"),
            ("[::]", "[::]:9877"),
        ] {
            assert_eq!(meant(text, default), Meant::Address(expected.parse().unwrap()), "{text}");
        }
        for (text, port) in [("80", 80), (":80", 80), ("*:80", 80), ("", 9877), (":", 9877)] {
            assert_eq!(meant(text, default), Meant::Port(port), "{text}");
        }
        for text in ["gateway.example:80", "gateway.example", "99999", ":99999", "1.2.3:4"] {
            assert_eq!(meant(text, default), Meant::Unknown, "{text}");
        }
    }
}
