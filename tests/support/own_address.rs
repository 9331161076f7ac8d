//! Addresses for what must know its address before it listens.
//!
//! A port of 127.0.0.1 that was free a moment ago may be another test's by then, and that test's service answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port that is given; below those that the system chooses for connections.
const FIRST_PORT: u16 = 18_000;

/// An address of the loopback network that belongs to this process and to this call alone.
pub fn own_address() -> SocketAddr {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let port = FIRST_PORT + GIVEN.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from((Ipv4Addr::new(127, 128 | high, middle, low), port))
}
