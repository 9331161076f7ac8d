//! Which hosts a result link may lead to.
//!
//! A link is text from outside, and following it makes a request from within the network that the client stands
//! in. Links to loopback, private, link-local and other special addresses are therefore refused, wherever
//! they come up: in the link, in a redirect, or as what a name resolves to. Two things open a way: the
//! service itself being on an address of that kind (a service on this machine may hand out links to this
//! machine), and `[output] allow_hosts`. A service that is spoken to over https is not believed a link
//! over http either: on that way anybody could swap the result.
//!
//! Addresses are values of `core::net`, which has no sockets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use url::{Host, Url};

/// Longest host in a message, in characters.
const SHOWN_MAX_CHARS: usize = 100;

/// What is special about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// This machine.
    Loopback,
    /// A private network, or one shared behind a provider's address translation.
    Private,
    /// The network segment, on which clouds also serve their machines' credentials.
    LinkLocal,
    /// Multicast, documentation, not assigned.
    Reserved,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressClass::Loopback => "a loopback address",
            AddressClass::Private => "a private address",
            AddressClass::LinkLocal => "a link-local address",
            AddressClass::Reserved => "a reserved address",
        })
    }
}

/// What is special about an address; nothing for one of the public internet. An IPv4 address inside an IPv6
/// one counts as what it is.
pub fn address_class(ip: IpAddr) -> Option<AddressClass> {
    match ip {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => special_v6(ip),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<AddressClass> {
    match ip.octets() {
        [127, ..] => Some(AddressClass::Loopback),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Some(AddressClass::Private),
        [169, 254, ..] => Some(AddressClass::LinkLocal),
        // "This network", IETF, documentation, 6to4 relays, benchmarks, multicast and above.
        [0, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] => Some(AddressClass::Reserved),
        [198, 51, 100, _] | [203, 0, 113, _] | [224..=255, ..] => Some(AddressClass::Reserved),
        _ => None,
    }
}

fn special_v6(ip: Ipv6Addr) -> Option<AddressClass> {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        special_v4(Ipv4Addr::new(a, b, c, d))
    };
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(AddressClass::Loopback),
        // IPv4 mapped, translated (NAT64) and tunnelled (6to4).
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => v4(high, low),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(AddressClass::Private),
        [0xfe80..=0xfebf, ..] => Some(AddressClass::LinkLocal),
        // IETF and Teredo, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some(AddressClass::Reserved),
        [0x2000..=0x3fff, ..] => None,
        _ => Some(AddressClass::Reserved),
    }
}

/// An entry of `[output] allow_hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AllowedHost {
    Name(String),
    /// Every name that ends in this, dot included: `*.example.com`.
    Below(String),
    /// Addresses that begin with the first bits of this one.
    Net(IpAddr, u32),
}

/// The text names no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a host; write media.example, *.media.example, 10.1.2.3 or 10.1.0.0/16, without a port")]
pub struct BadHost(String);

/// The entries of a list.
///
/// # Errors
/// All that are none.
pub fn allowed_hosts(texts: &[String]) -> Result<Vec<AllowedHost>, BadHost> {
    let (mut hosts, mut bad) = (Vec::with_capacity(texts.len()), Vec::new());
    for text in texts {
        match text.parse() {
            Ok(host) => hosts.push(host),
            Err(BadHost(found)) => bad.push(found),
        }
    }
    if bad.is_empty() { Ok(hosts) } else { Err(BadHost(bad.join(" or "))) }
}

impl FromStr for AllowedHost {
    type Err = BadHost;
    fn from_str(text: &str) -> Result<AllowedHost, BadHost> {
        let bad = || BadHost(format!("\"{}\"", shown(text)));
        if let Some((ip, bits)) = text.split_once('/') {
            let (ip, bits): (IpAddr, u32) =
                (ip.parse().map_err(|_| bad())?, bits.parse().map_err(|_| bad())?);
            return if bits <= width(ip) { Ok(AllowedHost::Net(ip, bits)) } else { Err(bad()) };
        }
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(AllowedHost::Net(ip, width(ip)));
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        if name.contains('*') {
            return Err(bad());
        }
        match Host::parse(name) {
            Ok(Host::Domain(name)) if below => Ok(AllowedHost::Below(format!(".{}", bare(&name)))),
            Ok(Host::Domain(name)) => Ok(AllowedHost::Name(bare(&name).to_owned())),
            _ => Err(bad()),
        }
    }
}

impl TryFrom<String> for AllowedHost {
    type Error = BadHost;
    fn try_from(text: String) -> Result<AllowedHost, BadHost> {
        text.parse()
    }
}

/// Bits of an address.
fn width(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// A name without the dot of the root.
fn bare(name: &str) -> &str {
    name.trim_end_matches('.')
}

fn shown(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN_MAX_CHARS).collect();
    if shown.len() < text.len() { shown + "..." } else { shown }
}

impl AllowedHost {
    fn has_name(&self, name: &str) -> bool {
        match self {
            AllowedHost::Name(listed) => listed == bare(name),
            AllowedHost::Below(end) => bare(name).ends_with(end.as_str()),
            AllowedHost::Net(..) => false,
        }
    }

    fn has_address(&self, ip: IpAddr) -> bool {
        let AllowedHost::Net(net, bits) = self else { return false };
        match (net, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or_default();
                net.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or_default();
                net.to_bits() & mask == ip.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// Why a link is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Neither http nor https.
    #[error("the link is not an http(s) address, but {0}:")]
    Scheme(String),
    /// It leads somewhere that is not of the public internet.
    #[error("the link leads to {host}, {what}, and is not followed; output.allow_hosts can list \"{entry}\"")]
    AddressClass {
        /// The host, as the link or a redirect names it.
        host: String,
        /// What is special about its address.
        what: AddressClass,
        /// What would have to be listed.
        entry: String,
    },
    /// From an https service to plain http.
    #[error(
        "the link leads to {0} over http, where the service itself uses https, and is not followed; \
         output.allow_hosts can list \"{0}\""
    )]
    Plain(String),
}

/// Where links may lead, for one service.
#[derive(Debug, Clone)]
pub struct UrlPolicy {
    home_name: Option<String>,
    home: Option<AddressClass>,
    home_is_https: bool,
    allowed: Vec<AllowedHost>,
}

impl UrlPolicy {
    /// For the service at `base_url`.
    pub fn new(base_url: &Url, allowed: Vec<AllowedHost>) -> UrlPolicy {
        let home_name = match base_url.host() {
            Some(Host::Domain(name)) => Some(bare(name).to_owned()),
            _ => None,
        };
        let home = base_url.host().and_then(|host| of_literal(&host));
        UrlPolicy { home_name, home, home_is_https: base_url.scheme() == "https", allowed }
    }

    /// Checks a link, or the next hop of a redirect, by its text. A host that is a name must be checked by
    /// [`UrlPolicy::resolved`], too.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn link(&self, link: &Url) -> Result<(), Refusal> {
        let Some(host) = link.host().filter(|_| matches!(link.scheme(), "http" | "https")) else {
            return Err(Refusal::Scheme(shown(link.scheme())));
        };
        let is_listed = match &host {
            Host::Domain(name) => self.lists_name(name),
            Host::Ipv4(ip) => self.lists_address((*ip).into()),
            Host::Ipv6(ip) => self.lists_address((*ip).into()),
        };
        if is_listed {
            return Ok(());
        }
        let named = shown(&host.to_string());
        if self.home_is_https && link.scheme() == "http" {
            return Err(Refusal::Plain(named));
        }
        match of_literal(&host) {
            Some(what) if self.home != Some(what) => {
                let entry = named.trim_matches(['[', ']']).to_owned();
                Err(Refusal::AddressClass { host: named, what, entry })
            }
            _ => Ok(()),
        }
    }

    /// Checks an address that the host `name` of a link resolved to.
    ///
    /// # Errors
    /// [`Refusal::AddressClass`].
    pub fn resolved(&self, name: &str, ip: IpAddr) -> Result<(), Refusal> {
        let is_home = self.home_name.as_deref() == Some(bare(name));
        let Some(what) = address_class(ip) else { return Ok(()) };
        if is_home || self.home == Some(what) || self.lists_name(name) || self.lists_address(ip) {
            return Ok(());
        }
        let name = shown(name);
        Err(Refusal::AddressClass { host: format!("{name} ({})", ip.to_canonical()), what, entry: name })
    }

    fn lists_name(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed.has_name(name))
    }

    fn lists_address(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|allowed| allowed.has_address(ip))
    }
}

/// Whether an address names this very machine.
pub fn is_loopback(url: &Url) -> bool {
    url.host().and_then(|host| of_literal(&host)) == Some(AddressClass::Loopback)
}

/// What is special about a host that says it itself.
fn of_literal(host: &Host<&str>) -> Option<AddressClass> {
    match host {
        Host::Domain(name) => {
            let name = bare(name);
            (name == "localhost" || name.ends_with(".localhost")).then_some(AddressClass::Loopback)
        }
        Host::Ipv4(ip) => address_class((*ip).into()),
        Host::Ipv6(ip) => address_class((*ip).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(base: &str, allowed: &[&str]) -> UrlPolicy {
        UrlPolicy::new(&base.parse().unwrap(), allowed.iter().map(|host| host.parse().unwrap()).collect())
    }

    fn said(reach: &UrlPolicy, link: &str) -> String {
        match reach.link(&link.parse().unwrap()) {
            Ok(()) => "followed".to_owned(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn every_special_address_is_known_in_every_spelling() {
        let public = reach("https://media.example", &[]);
        for (host, what) in [
            ("127.0.0.1", "a loopback"),
            ("127.255.0.3", "a loopback"),
            ("2130706433", "a loopback"),
            ("0x7f.1", "a loopback"),
            ("0177.0.0.1", "a loopback"),
            ("[::1]", "a loopback"),
            ("[::ffff:127.0.0.1]", "a loopback"),
            ("[64:ff9b::7f00:1]", "a loopback"),
            ("[2002:7f00:1::]", "a loopback"),
            ("localhost", "a loopback"),
            ("LOCALHOST.", "a loopback"),
            ("db.localhost", "a loopback"),
            ("10.1.2.3", "a private"),
            ("172.16.0.1", "a private"),
            ("172.31.255.255", "a private"),
            ("192.168.0.1", "a private"),
            ("100.64.0.1", "a private"),
            ("[fd00:ec2::254]", "a private"),
            ("169.254.169.254", "a link-local"),
            ("[fe80::1]", "a link-local"),
            ("[::ffff:a9fe:a9fe]", "a link-local"),
            ("0.0.0.0", "a reserved"),
            ("[::]", "a reserved"),
            ("192.0.2.1", "a reserved"),
            ("198.18.0.1", "a reserved"),
            ("224.0.0.1", "a reserved"),
            ("255.255.255.255", "a reserved"),
            ("[ff02::1]", "a reserved"),
            ("[2001:db8::1]", "a reserved"),
            ("[2001::1]", "a reserved"),
            ("[::127.0.0.1]", "a reserved"),
        ] {
            let said = said(&public, &format!("https://{host}/a.png"));
            assert!(said.contains(&format!("{what} address")), "{host}: {said}");
        }
        for host in [
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "[2606:4700::1]",
            "cdn.example",
            "[64:ff9b::101:101]",
        ] {
            assert_eq!(said(&public, &format!("https://{host}:8443/a.png")), "followed", "{host}");
        }
    }

    #[test]
    fn only_this_machine_is_a_loopback() {
        for (url, expected) in [
            ("http://127.0.0.1:8787", true),
            ("http://[::1]/", true),
            ("https://localhost:1", true),
            ("http://127.media.example", false),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn a_refusal_names_the_host_and_the_key() {
        let public = reach("https://media.example", &[]);
        assert_eq!(
            said(&public, "https://[fe80::1]/a"),
            "the link leads to [fe80::1], a link-local address, and is not followed; output.allow_hosts can list \
             \"fe80::1\""
        );
        assert_eq!(
            said(&public, "http://cdn.example/a"),
            "the link leads to cdn.example over http, where the service itself uses https, and is not followed; \
             output.allow_hosts can list \"cdn.example\""
        );
        assert_eq!(said(&public, "ftp://cdn.example/a"), "the link is not an http(s) address, but ftp:");
        assert_eq!(said(&public, "file:///etc/passwd"), "the link is not an http(s) address, but file:");
        let private = "10.0.0.7".parse().unwrap();
        assert_eq!(
            public.resolved("cdn.example", private).unwrap_err().to_string(),
            "the link leads to cdn.example (10.0.0.7), a private address, and is not followed; output.allow_hosts \
             can list \"cdn.example\""
        );
    }

    #[test]
    fn a_service_on_a_special_address_opens_its_own_kind_alone() {
        let here = reach("http://127.0.0.1:8080", &[]);
        assert_eq!(said(&here, "http://127.0.0.1:9/a"), "followed");
        assert_eq!(said(&here, "http://localhost/a"), "followed");
        assert_eq!(said(&here, "https://cdn.example/a"), "followed");
        assert!(said(&here, "http://169.254.169.254/a").contains("link-local"));
        assert!(said(&here, "http://10.0.0.1/a").contains("private"));
        let indoors = reach("http://media.intern", &[]);
        assert!(indoors.resolved("media.intern.", "10.0.0.1".parse().unwrap()).is_ok());
        assert!(indoors.resolved("other.intern", "10.0.0.1".parse().unwrap()).is_err());
    }

    #[test]
    fn what_is_listed_is_followed() {
        let listed = ["cdn.example", "*.files.example", "10.1.0.0/16", "fd00::/8", "127.0.0.1", "::1"];
        let open = reach("https://media.example", &listed);
        for link in [
            "http://cdn.example/a",
            "http://CDN.example./a",
            "http://a.b.files.example/a",
            "http://10.1.255.1/a",
            "https://[::ffff:10.1.0.9]/a",
            "https://[fd12::1]/a",
            "https://127.0.0.1/a",
            "https://[::1]/a",
        ] {
            assert_eq!(said(&open, link), "followed", "{link}");
        }
        for link in
            ["http://files.example/a", "https://10.2.0.1/a", "http://notcdn.example/a", "https://127.0.0.2/a"]
        {
            assert_ne!(said(&open, link), "followed", "{link}");
        }
        assert!(open.resolved("x.files.example", "127.0.0.1".parse().unwrap()).is_ok());
        assert!(open.resolved("y.example", "10.1.3.4".parse().unwrap()).is_ok());
        let all = reach("https://media.example", &["0.0.0.0/0", "::/0"]);
        assert_eq!(said(&all, "http://169.254.169.254/a"), "followed");
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused() {
        for entry in
            ["", "*", "*.", "a*.example", "http://a", "a.example:80", "10.0.0.0/33", "a/8", "a b", "::/129"]
        {
            assert!(entry.parse::<AllowedHost>().is_err(), "{entry}");
        }
    }
}
